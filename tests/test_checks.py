"""The property suite: right models pass, each property can fail, and the reports say what was found."""

import json
import math
import sys
from functools import partial
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from bs4 import BeautifulSoup
from torch import nn

from transformer_lib import __main__ as command_line
from transformer_lib import checks
from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.cache import KeyValueCache
from transformer_lib.checks import Finding, Report, assert_transformer, check_transformer
from transformer_lib.checks.bugs import CASES
from transformer_lib.checks.properties import PROPERTIES, TRAINED_PROPERTIES
from transformer_lib.checks.reference_model import ReferenceModel
from transformer_lib.checks.report import Property, examine
from transformer_lib.checks.subject import Adapted, ModelUnderTest, UnderTest
from transformer_lib.layers import DecoderLayer, EncoderLayer
from transformer_lib.masks import causal_mask, padding_mask
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.positions import SinusoidalPositionalEncoding
from transformer_lib.variants import DecoderOnly, ModernDecoderOnly

MAX_LEN = 32
SIZES = {"d_model": 32, "num_heads": 4, "d_ff": 64, "num_encoder_layers": 2, "num_decoder_layers": 2}


def ours(source, target, pad, **options):
    return Transformer(TransformerConfig(source, target, pad, **SIZES | {"max_len": MAX_LEN} | options))


def check(factory, **options):
    return check_transformer(factory, training=False, **options)


# --- no false alarm ----------------------------------------------------------------------------------------------


def test_ours_passes_whatever_its_vocabularies_and_its_padding():
    """The page of the suite tries it with the usual ones."""
    sizes = {"source_vocab_size": 8, "target_vocab_size": 40, "pad_id": 1, "seed": 1}
    report = check(partial(ours, norm_first=True, tie_embeddings="target"), max_len=MAX_LEN, **sizes)
    assert {finding.verdict for finding in report.findings} == {"pass"}, report
    tried = [entry.name for entry in PROPERTIES if ModelUnderTest(ours).has(entry.needs)]  # without an adapter
    assert [finding.name for finding in report.findings] == tried


def with_cache(model, *source, tokens, cache, layers):
    """Logits of new tokens, and the cache of ours with them."""
    *memory, kept = cache or (*(model.encode(each) for each in source), KeyValueCache(layers))
    states = model.decode(tokens, *memory, cache=kept) if source else None
    return model.output_projection(states) if source else model(tokens, cache=kept), (*memory, kept)


def select(model, cache, rows):
    *memory, kept = cache
    kept.select(rows)
    return *(type(each)(*(x[rows] for x in each)) for each in memory), kept


@pytest.mark.parametrize("kind", [Transformer, DecoderOnly, ModernDecoderOnly])
def test_our_caches_change_nothing(kind):
    """That of the translation model, too; padding is not masked in a cache of ours, so no mask is handed over."""
    family = "encoder-decoder" if kind is Transformer else "decoder"

    def factory(*numbers):
        config = TransformerConfig(numbers[0], numbers[-2], numbers[-1], **SIZES, max_len=MAX_LEN, norm_first=True)
        return Adapted(
            kind(config), lambda model, *inputs: model(*inputs), reorder=select,
            extend=lambda model, *inputs, cache: with_cache(
                model, *inputs[:-1], tokens=inputs[-1], cache=cache, layers=2),
        )  # fmt: skip

    max_len = None if kind is ModernDecoderOnly else MAX_LEN  # rotary positions have no end
    names = [f"cache {how}" for how in ("one by one", "after a prefill", "in chunks", "reordered")]
    report = check(factory, family=family, max_len=max_len, only=[*names, "two caches in turns"])
    assert {finding.verdict for finding in report.findings} == {"pass"}, report


def written(model, source, tokens, steps, *, hide=True, own=True, of_all=True):
    """Greedy search from one token on, and the log-probabilities of its answers; perhaps with a mistake."""
    assert tokens.size(1) == 1
    memory, score = model.encode(source), 0.0
    if not hide:
        memory = memory._replace(mask=torch.ones_like(memory.mask))
    for _ in range(steps):
        log_p = model.output_projection(model.decode(tokens, memory)[:, -1]).log_softmax(dim=-1)
        best, new = (log_p if own else log_p[:1].expand_as(log_p)).max(dim=-1)
        tokens, score = torch.cat([tokens, new[:, None]], dim=1), best + score * of_all
    return tokens, score


@pytest.mark.parametrize(("mistake", "failing"), [
    ({}, ""), ({"hide": False}, "generated, beams"), ({"own": False}, "generated, beams"), ({"of_all": False}, "beams"),
])  # fmt: skip
def test_a_translator_generates_with_padding_in_its_sources(mistake, failing):
    """Its beams are asked for also if it has nothing else."""
    write, call = partial(written, **mistake), lambda model, *inputs: model(*inputs)
    for part, asked in (
        ({"generate": lambda *given: write(*given)[0]}, "generated in a batch as alone"),
        ({"beams": write}, "beams are as probable as they say"),
    ):
        only = [asked, "generated tokens are the most probable"]
        report = check(lambda *sizes: Adapted(ours(*sizes), call, **part), only=only)  # noqa: B023
        assert report.failed == [asked] * (asked.split()[0] in failing), report


@pytest.mark.parametrize("reads", [0, -1])
def test_generate_reads_a_whole_prefix_where_it_takes_several_tokens(reads):
    """That above refuses several; from the last of them alone it would be wrong."""
    asked, call = "generated tokens are the most probable", lambda model, *inputs: model(*inputs)

    def generate(model, source, tokens, steps):
        before, new = tokens[:, :reads], tokens[:, reads:]
        for _ in range(steps):
            new = torch.cat([new, model(source, new)[:, -1:].argmax(dim=-1)], dim=1)
        return torch.cat([before, new], dim=1)

    report = check(lambda *sizes: Adapted(ours(*sizes), call, generate=generate), only=[asked])
    assert report.failed == [asked] * (reads < 0), report


def test_ours_learns_what_can_be_learnt_and_no_more():
    names = [entry.name for entry in TRAINED_PROPERTIES]
    one_layer = {"tie_embeddings": "all", "num_encoder_layers": 1, "num_decoder_layers": 1}
    report = check_transformer(lambda *sizes: ours(*sizes, **one_layer), max_len=MAX_LEN, only=names)
    assert [(finding.name, finding.verdict) for finding in report.findings] == [(name, "pass") for name in names]


# --- not possible -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("factory", "error", "words"), [
    (lambda *_: print, TypeError, "nn.Module"),
    (lambda *sizes: Adapted(ours(*sizes), lambda model, *xs: (model(*xs), 0)), TypeError, "tuple"),
    (lambda *sizes: Adapted(ours(*sizes), lambda model, *xs: model(*xs)[:, -1]), ValueError, "target length"),
    (lambda *sizes: Adapted(ours(*sizes), lambda model, source: 0), TypeError, "positional"),
    (lambda *sizes: Adapted(ours(*sizes), lambda m, s, t: m(s + 0 * t, t)), RuntimeError, r"equally long.*\(length, "),
])  # fmt: skip
def test_what_cannot_run_gets_no_report(factory, error, words):
    with pytest.raises(error, match=words):
        check(factory)


@pytest.mark.parametrize("options", [
    {"source_vocab_size": 7}, {"target_vocab_size": 3}, {"pad_id": -1}, {"pad_id": 29}, {"max_len": 11},
])  # fmt: skip
def test_numbers_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=r"got -?\d+"):
        check(ours, **options)


def test_the_same_seed_gives_the_same_report_and_leaves_random_numbers_and_threads_as_they_were(monkeypatch):
    threads, before = [], torch.get_rng_state()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    only = ["causality", "source sensitivity", "dropout in training"]
    assert check(ReferenceModel, seed=4, only=only) == check(ReferenceModel, seed=4, only=only)
    assert torch.equal(torch.get_rng_state(), before)
    assert threads[-1] == 7


# --- gradients that a CPU does not have -----------------------------------------------------------------------------
class NotOnThisBackend(torch.autograd.Function):
    """As an operation whose backward exists for a GPU alone."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return torch.ops.aten.max(gradient.to_sparse())


def no_backward(*sizes):
    return Adapted(ReferenceModel(*sizes), lambda model, *inputs: NotOnThisBackend.apply(model(*inputs)))


def test_what_a_cpu_cannot_do_is_one_line(monkeypatch, capsys):
    with pytest.raises(AssertionError, match="no property could be tried"):
        assert_transformer(no_backward)
    monkeypatch.setattr(command_line, "function_of", lambda name: no_backward)
    assert command_line.main(["check", "mine:build"]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("not applicable gradients on a CPU: ")
    assert "NotImplementedError: " in said.out
    assert said.out.endswith("\n0 pass, 0 fail, 1 not applicable\n")
    assert said.err.endswith("error: no property applies to mine:build: the lines above say why\n")


def test_what_a_model_itself_refuses_is_a_failure():
    """All of these need the gradient, and what they raise is told once."""
    spoilt = lambda *sizes: Adapted(ReferenceModel(*sizes), lambda model, *x: model(*x).sigmoid().mul_(2))  # noqa: E731
    asked = ["gradient reaches everything", "gradient is the derivative", "first token sees itself"]
    (names,) = check(spoilt, only=asked).faults.values()
    assert names == ", ".join(asked[1:])


# --- reports -----------------------------------------------------------------------------------------------------


LACKS = [Finding(f"cache {i}", "not applicable", f"the adapter has no `{name}`")
         for i, name in enumerate(["extend", "extend", "crop"])]  # fmt: skip
FINDINGS = (
    Finding("later", "fail", "so", "wrong trail", follows_from="two"), Finding("one", "pass", "moves by 0"),
    Finding("two", "fail", "a < b", "x & y", "future", module="m.o", place="mine.py:3"), *LACKS,
    Finding("asked", "pass", "is that meant?"), Finding("<i>", "not applicable", "a <u> b"),
    Finding("half", "note", "float16", "finfo"), Finding("three", "fail", "alone, at mine.py:4", place="mine.py:4"),
)  # fmt: skip
TEXT = """
fail           two: a < b
               at: mine.py:3
               likely: x & y (gallery: future)
               may follow from it: later
fail           three: alone, at mine.py:4
note           half: float16
               mend: finfo
pass           asked: is that meant?
not applicable the adapter has no `extend`, `crop`
not applicable <i>: a <u> b
2 pass, 3 fail, 4 not applicable, 1 note
"""


def test_a_report_as_text_json_and_table():
    """Faults first, with what may follow from them; what does not apply in a few lines, and what passes not at all."""
    report = Report(FINDINGS)
    assert f"\n{report}\n" == TEXT
    assert not report.holds
    assert report.failed == ["later", "two", "three"]
    assert {fault.name: after for fault, after in report.faults.items()} == {"two": "later", "three": ""}
    several = Report(tuple(Finding(name, "not applicable", "so") for name in "abcd"))
    assert str(several).split("\n")[:3] == ["not applicable a: so", "not applicable b: so", "not applicable c, d"]
    found = json.loads(report.to_json())
    assert (found["schema"], found["holds"]) == (1, False)
    wanted = {"name": "two", "evidence": "a < b", "cause": "x & y", "module": "m.o", "place": "mine.py:3"}
    assert wanted.items() <= found["findings"][2].items()
    assert found["findings"][2]["page"] == "13_gallery.html#room-future"
    page = BeautifulSoup(report._repr_html_(), "html.parser")
    blocks = [" ".join(block.stripped_strings) for block in page.select("div")]
    assert blocks[0] == "FAIL: two a < b At: mine.py:3 Likely cause: x & y (gallery: future ) May follow from it: later"
    rows = [[cell.get_text() for cell in row.select("th, td")] for row in page.select("details tr")]
    assert [rows[0], rows[-1]] == [["one", "moves by 0"], ["<i>", "not applicable: a <u> b"]]
    assert (page.p.get_text(), page.select_one("a")["href"]) == (report.summary, "13_gallery.html#room-future")


def test_what_a_model_prints_is_shown_once(capsys):
    def talks(*sizes, at=[0]):  # noqa: B006
        print(f"00:0{len(at)} number of parameters: 1", *at.append(0) or ())
        print("\rbuilt", end="", file=sys.stderr)
        return ReferenceModel(*sizes)

    check(talks, only=["causality", "state dict is complete"])
    assert capsys.readouterr() == ("00:01 number of parameters: 1\n", "\rbuilt\r")


def test_only_some_properties_and_each_is_named_before_it_is_tried():
    told = []
    only = ["positions matter", "causality"]
    report = check(ReferenceModel, only=only, on_start=told.append, on_finding=lambda found: told.append(found.verdict))
    assert [finding.name for finding in report.findings] == ["causality", "positions matter"]
    assert told == ["causality", "pass", "positions matter", "pass"]
    with pytest.raises(ValueError, match="got casuality"):
        check(ReferenceModel, only=["casuality", "causality"])
    other = str(check(ReferenceModel, only=["cache in chunks"]))
    assert other.startswith("not applicable cache in chunks: it is about another")


def test_a_property_that_raises_has_failed_and_each_finding_is_told_at_once():
    told = []

    def raises(_):
        raise RuntimeError("two\nlines")

    def looks(_):
        return len(told) == 1, "after the first was told"

    findings = examine(UnderTest(), [Property(raises, "cause", "future"), Property(looks, "", "")], told.append)
    findings = findings.findings
    assert told == list(findings)
    assert findings[0].evidence.startswith("it raised RuntimeError: two lines, at tests/test_checks.py:")
    assert (findings[0].verdict, findings[0].cause) == ("fail", "")
    assert "in raises" in findings[0].traceback
    assert (findings[1].verdict, findings[1].traceback) == ("pass", "")


def test_assert_transformer_raises_the_report():
    only = ["logits not probabilities"]
    assert assert_transformer(ReferenceModel, training=False, only=only) is None
    with pytest.raises(AssertionError, match="1 properties do not hold") as caught:
        assert_transformer(CASES["softmax"].factory, training=False, only=only)
    assert "logits not probabilities: answers lie between" in str(caught.value)


# --- components --------------------------------------------------------------------------------------------------


class Gain(nn.Module):
    """A norm with names of its own."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.gain * F.layer_norm(x, x.shape[-1:])


@pytest.mark.parametrize(("norm", "skipped"), [
    (nn.LayerNorm, set()), (nn.RMSNorm, set()), (Gain, {"input is carried through"}),
])  # fmt: skip
def test_right_layers_pass_with_other_norms_and_trained_ones(norm, skipped):
    """What a trained gain of an unknown norm does to x is no evidence."""
    layer = EncoderLayer(12, 3, 20)
    layer.self_attention_norm, layer.feed_forward_norm = norm(12), norm(12)
    for part in (layer.self_attention_norm, layer.feed_forward_norm):
        next(part.parameters()).data += 0.3 * torch.randn(12)
    report = checks.check_encoder_layer(layer, 12)
    assert report.holds, report
    assert {f.name for f in report.findings if f.verdict == "not applicable"} == skipped


def test_a_table_made_in_float32_passes():
    """Its angles are off in proportion to the position: by 0.0001 at the last of 3000."""
    angles = torch.arange(3000.0)[:, None] * torch.exp(torch.arange(0, 12, 2) * (-math.log(10000.0) / 12))
    layer = SinusoidalPositionalEncoding(12, 3000)
    layer.table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    report = checks.check_positional_encoding(layer, 12, max_len=3000)
    assert report.holds, report


def uniform_rows(query, key, value, mask=None, *_, **__):
    """Attention that gives an empty row the mean of all values."""
    scores = query @ key.mT / query.size(-1) ** 0.5
    return (scores if mask is None else scores.masked_fill(~mask, torch.finfo(scores.dtype).min)).softmax(-1) @ value


def with_a_gradient_of_nan(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores + torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1).nan_to_num(0.0) @ value


def multi_head(call):
    layer = Adapted(MultiHeadAttention(12, 3), call)
    return checks.check_multi_head_attention(layer, 12, 3, weights=lambda m: tuple(m.parameters()))


def with_uniform_rows(layer, query, key, value, *, mask=None):
    with patch.object(F, "scaled_dot_product_attention", uniform_rows):
        return layer(query, key, value, mask=mask)


def encoder_layer(**methods):
    return checks.check_encoder_layer(type("Broken", (EncoderLayer,), methods)(12, 3, 20), 12)


def decoder_layer(call):
    return checks.check_decoder_layer(Adapted(DecoderLayer(12, 3, 20), call), 12)


ATTENTION, MASKS = checks.check_attention, checks.check_masks
POSITIONS, TABLE = partial(checks.check_positional_encoding, d_model=12, max_len=20), (
    SinusoidalPositionalEncoding(12, 20).table)  # fmt: skip
BROKEN = [  # what the cells of chapters 12 and 13 and of page F do not show
    ("empty rows are zero", lambda: ATTENTION(uniform_rows)),
    ("empty rows are zero", lambda: ATTENTION(with_a_gradient_of_nan)),
    ("half precision", lambda: ATTENTION(
        lambda q, k, v, m: (q @ k.mT / 2 if m is None else (q @ k.mT / 2).masked_fill(~m, -1e9)).softmax(-1) @ v)),
    ("agrees with the formula", lambda: ATTENTION(lambda *given: scaled_dot_product_attention(*given)[0] + 1e-11)),
    ("masked keys are left out", lambda: multi_head(
        lambda layer, *inputs, mask=None: layer(*inputs, mask=None if mask is None else mask[:1]))),
    ("empty queries read nothing", lambda: multi_head(with_uniform_rows)),
    ("agrees with its weights", lambda: multi_head(lambda layer, q, k, v, mask=None: layer(q / 2, k, v, mask=mask))),
    ("only positions are added", lambda: POSITIONS(lambda x: x + TABLE[: x.size(1)].flip(0))),
    ("positions differ", lambda: POSITIONS(lambda x: x + TABLE[:1])),
    ("agrees with the table", lambda: POSITIONS(lambda x: x + TABLE[: x.size(1)].roll(1, -1))),
    ("too many positions raise", lambda: POSITIONS(lambda x: x + TABLE[torch.arange(x.size(1)) % 20])),
    ("padding is hidden", lambda: MASKS(lambda t, p: padding_mask(t, 0), causal_mask)),
    ("padding is hidden", lambda: MASKS(lambda t, p: padding_mask(t, p).float(), causal_mask)),
    ("the future is hidden", lambda: MASKS(padding_mask, lambda n: causal_mask(n).tril(-1))),
    ("both are combined", lambda: MASKS(
        padding_mask, causal_mask, lambda t, p: padding_mask(t, p) | causal_mask(t.size(1)))),
    ("dropout before the sum", lambda: encoder_layer(_add=lambda layer, x, norm, f: norm(layer.dropout(x + f(x))))),
    ("input is carried through", lambda: encoder_layer(_add=lambda *given: 1.0001 * EncoderLayer._add(*given))),
    ("input is carried through", lambda: encoder_layer(_add=lambda layer, x, norm, f: norm(layer.dropout(f(x))))),
    ("tokens hear each other", lambda: encoder_layer(
        forward=lambda layer, x, *, mask=None: layer._add(x, layer.feed_forward_norm, layer.feed_forward))),
    ("mask is obeyed", lambda: encoder_layer(forward=lambda layer, x, *, mask=None: EncoderLayer.forward(layer, x))),
    ("order is free", lambda: encoder_layer(
        forward=lambda layer, x, *, mask=None: EncoderLayer.forward(layer, x - x.mean(dim=0), mask=mask))),
    ("memory is heard", lambda: decoder_layer(lambda layer, x, y, mask=None, memory_mask=None: layer(x, x, mask=mask))),
    ("mask is obeyed", lambda: decoder_layer(
        lambda layer, x, y, mask=None, memory_mask=None: layer(x, y, mask=memory_mask, memory_mask=mask))),
]  # fmt: skip


@pytest.mark.parametrize(("failing", "check"), BROKEN)
def test_a_broken_component_fails(failing, check):
    assert failing in (report := check()).failed, report


def test_a_check_leaves_its_component_as_it_was():
    layer = EncoderLayer(12, 3, 20)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    checks.check_encoder_layer(layer, 12)
    assert layer.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in layer.state_dict().items())
