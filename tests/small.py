"""Forty small pairs, a preset that trains on them within a blink, and the command line in this process."""

import io
import json
import os
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch

from transformer_lib import __main__ as command_line
from transformer_lib import recipes
from transformer_lib.data import Tokenizer
from transformer_lib.files import InputError
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.translation import Translator

ENGLISH = ["a dog runs", "a cat sleeps", "the man sees a dog", "the old cat", "a woman reads"]
GERMAN = ["ein Hund läuft", "eine Katze schläft", "der Mann sieht einen Hund", "die alte Katze", "eine Frau liest"]
ENGLISH, GERMAN = ([text + f" {n}" * (n > 0) for n in range(8) for text in texts] for texts in (ENGLISH, GERMAN))
MICRO = {
    "model": {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_encoder_layers": 1, "num_decoder_layers": 1,
              "dropout": 0.1, "norm_first": True, "tie_embeddings": "all"},
    "training": {"batch_tokens": 128, "peak_lr": 5e-3, "warmup_steps": 2},
    "tokenizer": {"vocab_size": 300},
}  # fmt: skip
ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}  # of a process


def write_texts(folder, source=ENGLISH, target=GERMAN):
    """Two files, and the options that name them."""
    for name, lines in (("en", source), ("de", target)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return ["--source", folder / "en", "--target", folder / "de"]


def nonsense(folder, texts=ENGLISH + GERMAN, **options):
    """A translator that has learnt nothing, stored in a folder."""
    tokenizer = Tokenizer.train(texts, 300)
    size = tokenizer.vocab_size
    torch.manual_seed(0)
    made = Translator(Transformer(TransformerConfig(size, size, 0, **MICRO["model"] | options)), tokenizer)
    made.save(folder)
    return made


def recorded_training(monkeypatch):
    """Replace the training; keep what it was given."""
    seen = {}

    def train(model, pairs, config, *, prepare, **options):
        prepare()
        seen.update(model=model, pairs=pairs, config=config, **options)
        return [{"step": 0}]

    monkeypatch.setattr(recipes, "train", train)
    return seen


def call(*arguments, stdin=None):
    """Run a command in this process: its status, its output and its errors."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="latin-1"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        if stdin is not None:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = command_line.main([str(argument) for argument in arguments])
    out.flush()
    return status, out.buffer.getvalue().decode(), err.getvalue()


def refused(words, function, *arguments, **options):
    """The function raises an InputError in one line, which has these words."""
    with pytest.raises(InputError) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert all(str(word) in str(caught.value) for word in words), str(caught.value)


def files_below(folder):
    """What is below a folder, and what is in the files."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def stored_cells(stem):
    """The cells of a page's stored notebook."""
    return json.loads((ROOT / "book" / f"{stem}.ipynb").read_text(encoding="utf-8"))["cells"]


def node():
    """Node's path; a test that asks for it is skipped where there is none."""
    return shutil.which("node") or pytest.skip("there is no `node` on this machine")
