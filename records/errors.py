"""The rule by which sentences are drawn whose errors somebody classifies by hand, and what can be counted of them.

Kept as it made errors.json and errors_of_recipes.json; no test runs it. With PYTHONPATH=.:experiments and the data:

python records/errors.py RECORD FILE             RECORD is the directory that experiments/record.py wrote, FILE has
the verdicts by the sentences' numbers, in the order in which they were drawn
python records/errors.py RECORD FILE RUNS NAME…  writes a sheet for a judge, the new FILE: some sentences of the
validation set as the trainings of these names translate them, which experiments/trainings.py keeps below RUNS, in an
order that hides which is which
"""

import json
import random
import sys
from pathlib import Path

from aligner import words
from analysis import TEST, how_often
from bleu import sentence_counts
from record import corpus, digest, environment, load, log_of, pretty_json
from trainings import TRAININGS, run_of, translations

from transformer_lib.files import atomic_write

ON_SHEET = 60  # sentences


def drawn(seed: int, size: int = 1000) -> list[int]:
    """The numbers of all sentences, from 0, in the order in which they are judged."""
    return random.Random(seed).sample(range(size), size)


def counted(folder: Path, verdicts: dict[str, dict]) -> dict[str, dict]:
    """The verdicts, each with the translation that it is of, and with what BLEU adds up.

    "words" is the length of the English sentence, "rarest" how often the rarest of its words stands in the training
    data, and "counts" both lengths and the n-grams that are shared with the reference, n = 1 … 4.

    Raises:
        ValueError: if a verdict is of another translation than the record's.
    """
    record = load(folder)
    train, test = (corpus(record, split) for split in ("train", TEST))
    ours = (folder / f"{TEST}.{record['target']}").read_text(encoding="utf-8").splitlines()
    seen = how_often(text.lower() for text in train.source)
    rows = {}
    for number, verdict in verdicts.items():
        line = int(number)
        row = {"ours": ours[line]} | verdict
        if row["ours"] != ours[line]:
            raise ValueError(f"the verdict {number} is of {row['ours']!r}, but the record has {ours[line]!r}")
        source = words(test.source[line].lower())
        counts = sentence_counts([ours[line]], [test.target[line]])[0, :6].tolist()
        rows[number] = row | {"words": len(source), "rarest": min(seen[word] for word in source), "counts": counts}
    return rows


def hidden_order(number: int, names: list[str]) -> list[str]:
    """The trainings in the order in which the sheet has their translations of the sentence of this number."""
    return random.Random(number).sample(names, len(names))


def sheet(folder: Path, runs: Path, names: list[str], seed: int = 0) -> dict:
    """What the trainings of these names say, for a judge who is to add the classes of the errors."""
    val, directories = corpus(load(folder), "val"), {name: run_of(name, runs) for name in names}
    said = {name: translations(TRAININGS.get(name, {}), run, val) for name, run in directories.items()}
    (steps,) = {log_of(run)[-1]["step"] for run in directories.values()}
    sentences = {
        str(number): [{"ours": said[name][number], "classes": []} for name in hidden_order(number, names)]
        for number in drawn(seed, len(val.source))[:ON_SHEET]
    }
    return environment() | {"split": "val", "seed": seed, "steps": steps, "names": names, "sentences": sentences}


if __name__ == "__main__":
    if len(sys.argv) < 3 or len(sys.argv) == 4:
        sys.exit(__doc__)
    folder, path, names = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4:]
    if not names:
        value = json.loads(path.read_text(encoding="utf-8"))
        value["weights"] = digest(folder / "model.safetensors")
        value["translations"] = digest(folder / f"{TEST}.{load(folder)['target']}")
        value["sentences"] = counted(folder, value.pop("sentences"))
    elif path.exists():
        sys.exit(f"errors.py: {path} exists, and may hold verdicts; name a new file")
    else:
        value = sheet(folder, Path(sys.argv[3]), names)
    atomic_write(path, pretty_json(value) + "\n")
