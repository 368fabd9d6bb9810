"""Write book/_static/translator_weights.js, the trained translator for the reader's browser.

python tools/live.py [DIR]      of the trained model in DIR; by default of records/multi30k-en-de
"""

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from transformer_lib.translation import Translator

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "records" / "multi30k-en-de"
SCRIPT = ROOT / "book" / "_static" / "translator_weights.js"


def quantise(matrix: NDArray[np.floating]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Store each row as whole numbers from -127 to 127, times one scale.

    Args:
        matrix: (rows, columns).

    Returns:
        The whole numbers (rows, columns) and the scales (rows,). A row of zeros has the scale 1.
    """
    matrix = matrix.astype(np.float32)
    scales = np.abs(matrix).max(axis=1) / np.float32(127)
    scales[scales == 0] = 1
    return np.rint(matrix / scales[:, None]).astype(np.int8), scales


def pack(folder: Path, *, exact: bool = False) -> dict[str, object]:
    """Gather what the page needs of a trained model: config, merges, shapes, and all numbers in base64.

    `exact` leaves the matrices as they are, flat, so that the page's program can be compared with the library.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not config["norm_first"] or config["tie_embeddings"] != "all":
        sys.exit(f"{folder}: the page knows only models with norm_first and tie_embeddings='all'")
    merges = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["merges"]
    shapes, floats, integers = {}, [], []
    for name, weight in sorted(load_file(folder / "model.safetensors").items()):
        if exact or weight.ndim == 1:
            shapes[name] = (weight.size,)
            floats.append(weight.astype("<f4"))
        else:
            shapes[name] = weight.shape
            rows, scales = quantise(weight)
            floats.append(scales.astype("<f4"))
            integers.append(rows)
    return {
        "config": config,
        "merges": [pair if isinstance(pair, str) else " ".join(pair) for pair in merges],
        "shapes": shapes,
        "floats": b64encode(b"".join(part.tobytes() for part in floats)).decode(),
        "integers": b64encode(b"".join(part.tobytes() for part in integers)).decode(),
    }


def write(script: Path, folder: Path = RUN, *, exact: bool = False) -> None:
    """Write that as a script, which a page can load from a file where it may not load data."""
    text = json.dumps(pack(folder, exact=exact), ensure_ascii=False, separators=(",", ":"))
    part = script.with_suffix(".part")
    part.write_text(f"globalThis.TRANSLATOR_FILE = {text};\n", encoding="utf-8")
    part.replace(script)


def rounded_translator() -> Translator:
    """The library's translator, with the rounded weights of the page."""
    translator = Translator.from_pretrained(RUN)
    for parameter in translator.model.parameters():
        if parameter.dim() == 2:
            rows, scales = quantise(parameter.detach().numpy())
            parameter.data.copy_(torch.from_numpy(rows * scales[:, None]))
    return translator


def ask(requests: Sequence[dict[str, Any]], weights: Path = SCRIPT) -> Iterator[Any]:
    """What tools/live.js answers to each request."""
    command = ["node", str(ROOT / "tools" / "live.js"), str(weights)]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode:
        raise RuntimeError(f"node failed: {done.stderr}")
    return map(json.loads, done.stdout.split("\n")[:-1])  # `splitlines` would also cut at U+2028


if __name__ == "__main__":
    write(SCRIPT, *map(Path, sys.argv[1:2]))
