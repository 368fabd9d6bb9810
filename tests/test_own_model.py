"""A faulty model of the reader's is one line with the place in its file, and what it keeps comes back."""

import json
import os

import pytest
import torch
from small import MICRO, call, files_below, write_texts
from test_training import in_step

from transformer_lib import recipes
from transformer_lib.files import InputError
from transformer_lib.own_model import architecture
from transformer_lib.training import train_step
from transformer_lib.translation import Translator

SOURCE = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, source, target, pad, positions=1024, kind="right", norm=None, out=None, **options):
        super().__init__()
        self.kind, self.norm, self.calls = kind, norm, 0
        self.source, self.target = (nn.Embedding(size, 8, **options) for size in (source, target))
        self.positions = nn.Embedding(positions, 8)
        self.out = out or nn.Linear(8, target)
    def forward(self, a, b):
        if self.kind == "raises": raise KeyError("my own")
        if self.kind == "exits": sys.exit("enough")
        places = torch.arange(b.size(1))
        y = self.target(b) + self.positions(places) + self.source(a).mean(1, keepdim=True)
        if self.norm is not None: y = self.norm(y.flatten(0, 1)).view_as(y)
        if self.kind == "in_place": y = y.exp(); y.add_(1)
        y = self.out(y)
        if self.kind == "counts" and self.training: self.calls += 1
        if self.kind == "nan": y = y / 0 * 0
        if self.kind == "no_grad":
            with torch.no_grad(): y = y * 1
        return {"tuple": (y, None), "turned": y.mT.contiguous(), "whole": y.argmax(-1)}.get(self.kind, y)

class Count(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.more = 0, {1} if False else []
        self.register_buffer("hidden", torch.zeros(3), persistent=False)
        self.register_buffer("grows", None)
        self.norm = nn.BatchNorm1d(8)
    def get_extra_state(self): return {"seen": self.seen}
    def set_extra_state(self, state): self.seen = state["seen"]
    def forward(self, x):
        if self.training:
            self.seen += 1
            self.hidden += x.detach().mean()
            last = x.new_zeros(0) if self.grows is None else self.grows
            self.grows = torch.cat([last, x.detach().mean().view(1)])
        return self.norm(x) * (1 + self.seen / 100) + self.hidden.mean() + (self.grows.sum() if self.seen else 0)

class Odd(Count):
    def get_extra_state(self): return {1, 2}

right = Net
def short(*sizes): return Net(*sizes, positions=3)
def sparse(*sizes): return Net(*sizes, sparse=True)
def lazy(*sizes): return Net(*sizes, out=nn.LazyLinear(sizes[1]))
def small(source, target, pad): return Net(4, target, pad)
def state(*sizes): return Net(*sizes, norm=Count())
def odd(*sizes): return Net(*sizes, norm=Odd())
def batch_norm(*sizes): return Net(*sizes, norm=nn.BatchNorm1d(8))
def plain(*sizes): return nn.Sequential(nn.Linear(2, 2))
def fails(*sizes): return Net(*sizes, nonsense=1)
for kind in ("raises", "exits", "in_place", "counts", "nan", "no_grad", "tuple", "turned", "whole"):
    globals()[kind] = lambda *sizes, kind=kind: Net(*sizes, kind=kind)
"""


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Train a model of own.py into a folder: status, output, errors."""
    monkeypatch.setitem(recipes.PRESETS, "small", MICRO)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(SOURCE.lstrip("\n"))
    files = write_texts(tmp_path)

    def run(out, name, *options, steps=2, own=True):
        own_model = ["--architecture", f"own.py:{name}"] if own else []
        return call("train", *files, "--device", "cpu", "--out", out, "--steps", steps, *own_model, *options)

    return run


FAULTS = {
    "short": ("fails: IndexError: index out of range", "(own.py:16)"), "small": ("fails: IndexError", "(own.py:16)"),
    "raises": ("fails: KeyError: 'my own'", "(own.py:13)"), "exits": ("fails: SystemExit: enough", "(own.py:14)"),
    "tuple": ("returns a tuple; expected logits, one tensor", "(own.py:12)"),
    "turned": ("returns float32 (", "(own.py:12)"), "whole": ("returns int64 (", "(own.py:12)"),
    "nan": ("returns NaN", "(own.py:12)"), "no_grad": ("returns logits without a gradient", "(own.py:12)"),
    "in_place": ("fails: RuntimeError: one of the variables needed for gradient", ""),
    "sparse": ("has source, whose gradient is sparse", "(own.py:12)"),
    "plain": ("fails: TypeError", ""), "fails": ("called with the sizes of two vocabularies", "(own.py:"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_model_is_one_line(name, run):
    """With the place in the file."""
    words, place = FAULTS[name]
    status, out, err = run("run", name)
    last = err.splitlines()[-1]
    assert (status, out, "Traceback" in err) == (2, "", False)
    assert last.startswith(f"error: own.py:{name}")
    assert (words in last, place in last, "mistake of the library" in err) == (True, True, False), last


def test_the_folder_of_a_faulty_model_is_free(run, tmp_path):
    """The mended file begins there, with and without --resume, as in a new folder, or the library's model."""
    for folder in ("run", "again", "other"):
        assert run(folder, "raises")[0] == 2
    assert run("other", "", own=False)[0] == 0
    assert not (tmp_path / "other" / "architecture.py").exists()
    Translator.from_pretrained(tmp_path / "other")
    (tmp_path / "own.py").write_text(SOURCE.lstrip("\n") + "\n# mended\n")
    assert run("new", "right")[0] == 0
    for folder, options in (("run", []), ("again", ["--resume"])):
        assert run(folder, "right", *options)[0] == 0
        for file in ("model.safetensors", "architecture.py"):
            assert (tmp_path / folder / file).read_bytes() == (tmp_path / "new" / file).read_bytes()


def test_a_lazy_layer_gets_its_shape_and_trains(run, tmp_path):
    assert run("lazy", "lazy")[0] == 0
    built = Translator.from_pretrained(tmp_path / "lazy", build=architecture("own.py:lazy"))
    assert built.model.model.out.weight.shape == (built.tokenizer.vocab_size, 8)


@pytest.mark.parametrize("name", ["state", "batch_norm"])
def test_a_model_s_own_state_is_resumed_byte_for_byte(name, run, tmp_path):
    """Buffers, also those that grow or that no file of weights has, and what get_extra_state returns."""
    options = ["--evaluate-every", 100]
    assert run("whole", name, *options, steps=5)[0] == 0
    for steps in (2, 3):
        assert run("parts", name, *options, *(["--resume"] if steps > 2 else []), steps=steps)[0] == 0
    with in_step(1, lambda: os.kill(os.getpid(), 15)):
        assert run("parts", name, *options, "--resume", steps=5)[0] == 130
    status, _, err = run("parts", name, *options, "--resume", steps=5)
    assert (status, "cannot be stored" in err, "changes its" in err) == (0, False, False)
    if name != "state":  # a buffer that grows is no weight that can be loaded
        whole, parts = ((tmp_path / folder / "model.safetensors").read_bytes() for folder in ("whole", "parts"))
        assert whole == parts
    rows = [json.loads((tmp_path / folder / "log.jsonl").read_text().splitlines()[-1]) for folder in ("whole", "parts")]
    assert rows[0] | {"seconds": 0} | {"train_loss": 0} == rows[1] | {"seconds": 0} | {"train_loss": 0}


@pytest.mark.filterwarnings("default")  # as outside of the tests
@pytest.mark.parametrize(("name", "words"), [
    ("odd", "_extra_state cannot be stored"), ("counts", "own.py:counts changes its calls; a run that is resumed"),
])  # fmt: skip
def test_what_cannot_come_back_is_told(name, words, run):
    status, _, err = run("run", name)
    assert status == 0, err
    assert words in err


def test_a_run_of_ones_own_says_what_it_is(run, tmp_path):
    """Also if the file of the model was not kept."""
    assert run("run", "right")[0] == 0
    files = write_texts(tmp_path)
    before = files_below(tmp_path / "run")
    for kept in ("run/architecture.py", "FILE.py"):
        export = call("export", "--model", "run", "--to", "ctranslate2", "--out", "fast")
        start = call("train", *files, "--start-from", "run", "--steps", 1, "--out", "new")
        for status, out, err in (export, start, call("translate", "--model", "run", "a dog")):
            assert (status, out) == (2, "")
            assert err.startswith("error: run has a model of its own")
        assert "CTranslate2" in export[2]
        assert f"--architecture {kept}:FUNCTION" in start[2]
        with pytest.raises(InputError, match="has a model of its own"):
            Translator.from_pretrained("run")
        (tmp_path / "run" / "architecture.py").unlink(missing_ok=True)
    assert before.keys() - files_below(tmp_path / "run").keys() == {tmp_path / "run" / "architecture.py"}
    assert not (tmp_path / "new").exists()


def test_a_run_that_is_not_there_is_said_to_be_not_there(run):
    """And nothing is said where none was asked for, or where there is one."""
    for out, options, told in (("one", [], False), ("two", ["--resume"], True), ("two", ["--resume"], False)):
        status, _, err = run(out, "", *options, own=False, steps=3)
        line = f"warning: there is no run to resume in {out}; a new one begins\n"
        assert (status, line in err) == (0, told)


def test_without_a_compiler_nothing_is_written(run, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("No working C++ compiler found")

    train_step.require_compiler.cache_clear()
    monkeypatch.setattr(torch, "compile", fail)
    for own in (True, False):
        status, out, err = run("run", "right", "--compile", own=own)
        assert (status, out, len(err.splitlines())) == (2, "", 1)
        assert err.startswith("error: torch.compile does not work here: leave out compile (--compile)")
        assert "No working C++ compiler" in err
    assert not (tmp_path / "run").exists()
