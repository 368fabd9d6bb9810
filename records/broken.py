"""How many captions the mistakes of chapters 2, 3, 4 and 6 change, and write broken.json.

With the data, and with PYTHONPATH=.:experiments, as python records/broken.py (some ten minutes).
"""

from pathlib import Path
from unittest.mock import patch

import torch
from record import environment, pretty_json

from transformer_lib.data import load_multi30k
from transformer_lib.exercises.trying import BREAKS, Trial, translator
from transformer_lib.files import atomic_write

CAPTIONS = 100  # the first of the validation set
NAMES = ("scale", "heads", "merge", "positions", "residual", "norm")


def without_positions(side: str, captions: list[str]) -> list[str]:
    """Translations if one side of the model, "encode" or "decode", adds no positions."""
    model = translator().model
    own = getattr(model, side)

    def bare(*given: object, **named: object) -> object:
        with patch.object(model.positions, "forward", lambda x, offset: x):
            return own(*given, **named)

    with patch.object(model, side, bare):
        return translator().translate(captions)


def main() -> None:
    """Translate with the solution's parts in the course's translator, whole and with each mistake."""
    made = {"command": "python records/broken.py"} | environment() | {"threads": torch.get_num_threads()}
    captions = load_multi30k("val").source[:CAPTIONS]
    whole = Trial(Path("none"), [])
    right = whole.translate(captions)
    changed = {}
    for name in NAMES:
        broken = Trial(Path("none"), [], BREAKS[name], whole).translate(captions)
        changed[name] = sum(a != b for a, b in zip(right, broken, strict=True))
        print(name, changed[name], flush=True)
    for side in ("encode", "decode"):
        changed[side] = sum(a != b for a, b in zip(right, without_positions(side, captions), strict=True))
        print(side, changed[side], flush=True)
    record = {"made": made, "captions": CAPTIONS, "changed": changed}
    atomic_write(Path(__file__).with_suffix(".json"), pretty_json(record))


if __name__ == "__main__":
    main()
