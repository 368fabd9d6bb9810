"""Translate the training sentences of Multi30k with several models as one: the pairs that a student learns from.

python experiments/distillation.py RECORD FOLDER MODEL …

Each MODEL is a directory with config.json and model.safetensors; the tokenizer, the languages and the search are those
of RECORD. FOLDER gets two text files, such as train.en and train.de (chapter 17.g).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from record import DECODING, corpus, load

from transformer_lib.files import atomic_write
from transformer_lib.model import Transformer
from transformer_lib.serialization import load_weights
from transformer_lib.translation import Translator
from transformer_lib.variants.ensemble import ensemble_of


def teacher(record: Path, models: Sequence[Path]) -> Translator:
    """One translator of several models, with the tokenizer of the record."""
    first = Translator.from_pretrained(record)
    members = [Transformer(first.model.config) for _ in models]
    for member, folder in zip(members, models):
        load_weights(folder / "model.safetensors", member)
    return ensemble_of([Translator(member, first.tokenizer, length_ratio=first.length_ratio) for member in members])


def distill(record: Path, folder: Path, models: Sequence[Path]) -> None:
    """Write the training sentences and what the models together make of them."""
    languages = load(record)
    source = corpus(languages, "train").source
    answers = teacher(record, models).translate(source, **DECODING)
    folder.mkdir(parents=True, exist_ok=True)
    for language, lines in ((languages["source"], source), (languages["target"], answers)):
        atomic_write(folder / f"train.{language}", "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("record", "folder"):
        parser.add_argument(name, type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    given = parser.parse_args()
    distill(given.record, given.folder, given.models)
