"""Translate the training sentences of Multi30k with several models as one: the pairs that a student learns from.

python experiments/distillation.py RECORD FOLDER MODEL …

Each MODEL is a directory with config.json and model.safetensors; the tokenizer, the languages and the search are those
of RECORD. FOLDER gets two text files, such as train.en and train.de (chapter 17.g). The scores of the models together
are written into RECORD, as those of "ensemble".
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from record import DECODING, SPLITS, corpus, environment, load, save_record, scores

from transformer_lib.files import atomic_write
from transformer_lib.model import Transformer
from transformer_lib.translation import Translator
from transformer_lib.variants.ensemble import ensemble_of
from transformer_lib.weights import load_weights


def teacher(record: Path, models: Sequence[Path]) -> Translator:
    """One translator of several models, with the tokenizer of the record."""
    first = Translator.from_pretrained(record)
    members = [Transformer(first.model.config) for _ in models]
    for member, folder in zip(members, models):
        load_weights(folder / "model.safetensors", member)
    return ensemble_of([Translator(member, first.tokenizer, length_ratio=first.length_ratio) for member in members])


def add_scores(record: Path, ensemble: Translator) -> None:
    """Write into a record how well the models together translate."""
    found = load(record)
    test, val = (corpus(found, split) for split in SPLITS)
    rated = [scores(ensemble.translate(d.source, **DECODING), d.target, found["target"]) for d in (test, val)]
    row = environment() | dict(zip(("scores", "val_scores"), rated))
    found["others"] = found.get("others", {}) | {"ensemble": row}
    save_record(found, record)


def distill(record: Path, folder: Path, ensemble: Translator) -> None:
    """Write the training sentences and what the models together make of them."""
    languages = load(record)
    source = corpus(languages, "train").source
    answers = ensemble.translate(source, **DECODING)
    folder.mkdir(parents=True, exist_ok=True)
    for language, lines in ((languages["source"], source), (languages["target"], answers)):
        atomic_write(folder / f"train.{language}", "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("record", "folder"):
        parser.add_argument(name, type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    given = parser.parse_args()
    ensemble = teacher(given.record, given.models)
    add_scores(given.record, ensemble)
    distill(given.record, given.folder, ensemble)
