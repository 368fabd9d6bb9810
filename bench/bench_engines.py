"""The trained translator on the whole test set: beam 5, batches of 64, one thread. Ours, and the same weights exported.

`extra_mib` is how far the peak of the process's memory rises, over Python with PyTorch and the sentences, while the
model is loaded and translates once; only where the system tells it.
"""

import functools
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from side_by_side import interleaved

from transformer_lib.data import load_multi30k
from transformer_lib.engine import load
from transformer_lib.scores import evaluate_bleu

TRAINED = Path(__file__).parent.parent / "records" / "multi30k-en-de"
SENTENCES = 1000


def peak_mib() -> float | None:
    """The largest memory that this process has had."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), None)


def system(engine: str | None, options: tuple[str, ...] = ()):
    test, folder = load_multi30k("test_2016_flickr"), TRAINED
    source, target = test.source[:SENTENCES], test.target[:SENTENCES]
    if engine:
        pytest.importorskip(engine)
        folder = Path(tempfile.mkdtemp()) / "model"  # exported elsewhere, because that takes memory
        command = ["export", "--model", TRAINED, "--to", engine, *options, "--out", folder]
        subprocess.run([sys.executable, "-m", "transformer_lib", *command], check=True)
    before = peak_mib()
    translator = load(folder)
    answers, after = translator.translate(source), peak_mib()
    facts = {"bleu": round(evaluate_bleu(answers, target)["bleu"], 2)}
    if before and after:
        facts["extra_mib"] = round(after - before)

    def run() -> dict:
        assert translator.translate(source) == answers
        return facts

    return run


test_translate = interleaved(
    "translating the test set: beam 5, batch 64",
    {
        "transformer_lib": functools.partial(system, None),
        "CTranslate2, float32": functools.partial(system, "ctranslate2"),
        "CTranslate2, int8": functools.partial(system, "ctranslate2", ("--quantization", "int8")),
    },
    rounds=5, threads=1, sentences=SENTENCES, corpus="Multi30k", batch=64, beam=5,
)  # fmt: skip
