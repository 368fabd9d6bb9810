"""The rule by which sentences are drawn whose errors somebody classifies by hand, and what can be counted of them.

python experiments/errors.py RECORD FILE   RECORD is the directory that experiments/record.py wrote, FILE has the
verdicts by the sentences' numbers, in the order in which they were drawn; needs the data
"""

import json
import random
import sys
from pathlib import Path

from aligner import words
from analysis import TEST, how_often
from bleu import sentence_counts
from record import corpus, digest, load, pretty_json

from transformer_lib.serialization import atomic_write


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


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, path = map(Path, sys.argv[1:])
    value = json.loads(path.read_text(encoding="utf-8"))
    value["weights"] = digest(folder / "model.safetensors")
    value["translations"] = digest(folder / f"{TEST}.{load(folder)['target']}")
    value["sentences"] = counted(folder, value.pop("sentences"))
    atomic_write(path, pretty_json(value) + "\n")
