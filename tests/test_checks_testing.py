"""One test for each property, as pytest runs them, and the workflow that runs pytest."""

import faulthandler
import multiprocessing
import os
import re
import signal
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch.nn.functional as F
import yaml
from small import call
from torch import nn

from transformer_lib import EncoderOnly, Transformer, TransformerConfig
from transformer_lib.checks import check_transformer, hf
from transformer_lib.checks.cached_decoder import CachedDecoder
from transformer_lib.checks.template import template
from transformer_lib.files import InputError


def encoder(size, pad):
    return EncoderOnly(TransformerConfig(size, size, pad, **SIZES))


def both(source, target, pad):
    return Transformer(TransformerConfig(source, target, pad, **SIZES))


SIZES = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_encoder_layers": 1, "num_decoder_layers": 1}
RIGHT = {"encoder": encoder, "decoder": CachedDecoder, "encoder-decoder": both}


@pytest.fixture
def my_model(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "my_model", module := ModuleType("my_model"))
    yield module
    sys.modules.pop("mine", None)


@pytest.mark.parametrize("family", RIGHT)
def test_a_template_as_it_is_written_is_green_and_none_is_overwritten(family, my_model, tmp_path):
    """With the command that it names, that the workflow on the page has, too, behind the package's installation."""
    my_model.MyModel = RIGHT[family]
    status, out, err = call("check", "--template", family)
    command = out.rpartition(": ")[2].strip()
    assert (status, err) == (0, "")
    written = (tmp_path / "mine.py").read_text("utf-8")
    assert command in written
    status, out, err = call("check", "--template", "encoder")
    assert (status, out, err.partition(":")[2][:24]) == (2, "", " mine.py is there alread")
    assert (tmp_path / "mine.py").read_text("utf-8") == written
    page = next(Path(__file__).parents[1].glob("chapters/*_adapters.md")).read_text("utf-8")
    workflow = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    _torch, install, check = (step["run"] for step in workflow["jobs"]["check"]["steps"] if "run" in step)
    assert f'"{metadata.metadata("tested-transformer")["Name"]} @ git+https://' in install
    assert family != "decoder" or command == check
    status, out, err = call(*command.split()[3:])
    assert (status, err) == (0, ""), out


class Answers(nn.Module):
    """A right model, called in another way."""

    def __init__(self, model, answer):
        super().__init__()
        self.model, self.answer, self.cache, self.pooler = model, answer, {}, nn.Linear(2, 2)

    def forward(self, *given, **options):
        return self.answer(self, *given, **options)

    def generate(self, tokens, steps, top_k):
        assert top_k == 1
        return CachedDecoder.generate(self.model, tokens, steps)

    def reset_cache(self):
        self.cache = {}


def with_cache(self, tokens, cache=0):
    cache = {} if cache is None else cache
    return self.model(tokens) if cache == 0 else (self.model(tokens, cache), cache)


def with_targets(self, tokens, targets=None, cache=None):
    cache = {} if cache is None else cache
    return self.model(tokens) if targets is None else (self.model(tokens, cache), cache)


def with_loss(self, tokens, labels=None):
    logits = self.model(tokens)
    if labels is None:
        return logits
    return logits, F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-1)


FOR_0 = TransformerConfig(29, 29, 0, **SIZES)
BY, MOVED = ["cache one by one"], ["every dtype", "buffers move along"]
CASES = [
    ("decoder", "a tuple", lambda self, x: (self.model(x), None), ["causality"]),
    ("decoder", "an object", lambda self, x: SimpleNamespace(logits=self.model(x)), ["causality"]),
    ("decoder", "tokens, tokens)[0]", lambda self, x, y=None: (self.model(x)[:, (y is None) * -1 :], 0), ["causality"]),
    ("decoder", "a mask of floats", lambda self, x, mask: mask.diag_embed() @ self.model(x), MOVED),
    ("encoder", "assert pad_id", lambda self, x: (vars(self.model).update(config=FOR_0), self.model(x))[1],
        ["padding on the right"]),
    ("encoder", "pooler", lambda self, x: self.model(x), ["gradient reaches everything"]),
    ("encoder", "1 = real", lambda self, x, types=None, attention_mask=None: self.model(x) / attention_mask.max(),
        ["padding on the right"]),
    ("encoder-decoder", "True = padding", lambda self, x, y, m, n: self.model(x, y) / ~n[0, 0], ["causality"]),
    ("encoder-decoder", "(length, batch)", lambda self, x, y: self.model(x.T, y.T).transpose(0, 1), ["causality"]),
    ("decoder", "None is an empty cache", with_cache, BY),
    ("decoder", "tokens, tokens, cache", with_targets, BY),
    ("decoder", "one_cache=True", lambda self, x, use_cache=0: self.model(x, self.cache if use_cache else None), BY),
    ("decoder", "def generate", lambda self, x: self.model(x), ["generated tokens are the most probable"]),
    ("decoder", "def loss", with_loss, ["its loss is the cross entropy of its logits"]),
]  # fmt: skip


@pytest.mark.parametrize(("family", "case", "answer", "names"), CASES, ids=[case[1] for case in CASES])
def test_each_comment_of_a_template_is_right_for_a_model_of_its_kind(family, case, answer, names, my_model):
    my_model.MyModel = lambda *sizes: Answers(RIGHT[family](*sizes), answer)
    text = template(family)
    (block,) = [block for block in text.split("    #\n") if case in block]
    if "def call" not in block:
        block = block.partition("\n    return Adapted")[0]
        name, more = re.search(r"def (\w+)", block)[1], ", one_cache=True" if "one_cache" in block else ""
        text = text.replace(block, block := re.sub("^    # ", "    ", block, flags=re.MULTILINE))
        text = text.replace("(model, call)\n", f"(model, call, {name}={name}{more})\n")
    (line,) = [line for line in block.splitlines() if case in line]
    if "# return" in line:  # in the place of the first
        text = text.replace(block, re.sub(r"\n +return model.*", "", block, count=1))
    text = text.replace(line, re.sub("^( +)# ", r"\1", line))
    exec(text.replace("mask.to", "(tokens != pad_id).to"), names_in := {})
    report = check_transformer(names_in["build"], family=family, training=False, only=names)
    assert {finding.verdict for finding in report.findings} - {"not applicable"} == {"pass"}, report


@pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="the other process would not see the change")
@pytest.mark.parametrize(("end", "words"), [
    (lambda: os._exit(3), "it ended itself, with status 3"),
    (lambda: faulthandler.disable() and os.kill(os.getpid(), signal.SIGSEGV), r"it crashed \(SIGSEGV\)"),
    (lambda: os.kill(os.getpid(), signal.SIGKILL), "it needs more than 600 seconds of processor time or 8 GiB"),
], ids=["exit", "crash", "kill"])  # fmt: skip
def test_a_process_that_ends_says_how(monkeypatch, end, words):
    monkeypatch.setattr(hf, "configured", lambda *_: end())
    with pytest.raises(InputError, match=f"^hf:LlamaConfig was ended when the model was built: {words}"):
        hf.check_configuration("LlamaConfig")
