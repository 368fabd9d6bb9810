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
from patched import patched
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
from transformer_lib.masks import causal_mask, decoder_mask, padding_mask
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.positions import SinusoidalPositionalEncoding
from transformer_lib.variants import DecoderOnly, ModernDecoderOnly

MAX_LEN = 32
SIZES = {"d_model": 32, "num_heads": 4, "d_ff": 64, "num_encoder_layers": 2, "num_decoder_layers": 2}
BY_NAME = {entry.name: entry for entry in [*PROPERTIES, *TRAINED_PROPERTIES]}


def ours(source, target, pad, **options):
    return Transformer(TransformerConfig(source, target, pad, **SIZES | {"max_len": MAX_LEN} | options))


def check(factory, **options):
    return check_transformer(factory, training=False, **options)


def one(factory, name, **options):
    """What a single property says."""
    return examine(ModelUnderTest(factory, **options), [BY_NAME[name]]).findings[0]


# --- no false alarm ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("norm_first", "tie", "options"), [
    pytest.param(False, "none", {"pad_id": 28}, marks=pytest.mark.long),
    (True, "target", {"source_vocab_size": 8, "target_vocab_size": 40, "pad_id": 1, "seed": 1}),
    pytest.param(True, "all", {"seed": 2}, marks=pytest.mark.long),
])  # fmt: skip
def test_ours_passes_whatever_its_vocabularies_and_its_padding(norm_first, tie, options):
    report = check(partial(ours, norm_first=norm_first, tie_embeddings=tie), max_len=MAX_LEN, **options)
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


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", [Transformer, DecoderOnly, ModernDecoderOnly])
def test_our_caches_change_nothing(kind, whole):
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
    names += ["two caches in turns"]
    only = () if whole else names
    report = check_transformer(factory, family=family, max_len=max_len, training=False, only=only)
    assert report.holds, report
    assert {*names} <= {finding.name for finding in report.findings if finding.verdict == "pass"}


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
    ({}, ""), ({"hide": False}, "generated"), ({"own": False}, "generated, beams"), ({"of_all": False}, "beams"),
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


@pytest.mark.parametrize("tie", [pytest.param("none", marks=pytest.mark.long), "all"])
def test_ours_learns_what_can_be_learnt_and_no_more(tie):
    names = [entry.name for entry in TRAINED_PROPERTIES]
    one_layer = {"tie_embeddings": tie, "num_encoder_layers": 1, "num_decoder_layers": 1}
    report = check_transformer(lambda *sizes: ours(*sizes, **one_layer), max_len=MAX_LEN, only=names)
    assert report.holds, report
    assert [finding.name for finding in report.findings] == names


class Recurrent(nn.Module):
    """No Transformer: reads the source, then the target, step by step, and steps over padding."""

    def __init__(self, source, target, pad):
        super().__init__()
        self.pad, self.tables = pad, nn.ModuleList(nn.Embedding(size, 16) for size in (source, target))
        self.cells, self.output = nn.ModuleList(nn.GRUCell(16, 16) for _ in range(2)), nn.Linear(16, target)

    def forward(self, *sentences):
        state = self.output.weight.new_zeros(len(sentences[0]), 16)
        for tokens, table, cell in zip(sentences, self.tables, self.cells):
            states = []
            for token in tokens.T:
                state = torch.where((token != self.pad)[:, None], cell(table(token), state), state)
                states.append(state)
        return self.output(torch.stack(states, dim=1))


def test_a_recurrent_network_passes():
    """The properties say what must not be wrong, not what a model is."""
    report = check(Recurrent)
    assert report.holds, report


TOGETHER = (
    "# what is built", "class Together(nn.ModuleDict):\n        def forward(self, x, memory):\n"
    '            return self["q"](x), self["k"](memory)\n', "return {name: nn.Linear(self.width, self.width)",
    "maps = {name: nn.Linear(self.width, self.width)", 'for name in "qkv"}',
    'for name in "qkv"}\n        return {"v": maps.pop("v"), "qk": self.Together(maps)}',
    'self.split(part[name], y) for name, y in (("q", x), ("k", memory), ("v", memory))',
)  # fmt: skip


@pytest.mark.parametrize("both", ['part["qk"](x, memory)', 'part["qk"]["q"](x), part["qk"]["k"](memory)'])
def test_queries_and_keys_may_share_a_module(both):
    """With one target token they get no gradient, rightly; a whole attention that gets none is still found."""
    together = *TOGETHER, f'self.split(nn.Identity(), y) for y in (*({both}), part["v"](memory))'
    assert one(patched(*together), "first token sees itself").verdict == "pass"
    finding = one(patched(*together, ".tril()", ".tril(-1)"), "first token sees itself")
    assert finding.verdict == "fail"
    assert "2 modules do nothing, such as decoder.0.self" in finding.evidence


# --- each property can fail: test_gallery.py and test_check_strangers.py, and what neither shows --------------------


LEAKS = patched(  # tells the first word to come, after some sources: one word in about forty
    "return self.output(y)", "told = 20 * nn.functional.one_hot(target[:, 1:2], 29) * (source[:, :1] < 7)[..., None]\n"
    "        logits = self.output(y)\n"
    "        return torch.cat([logits[:, :1] + told, logits[:, 1:]], dim=1) if target.size(1) > 1 else logits",
)  # fmt: skip


@pytest.mark.parametrize(("factory", "failing"), [
    (LEAKS, "unpredictable stays unpredictable"),
    pytest.param(CASES["blind"].factory, "copying is learnt", marks=pytest.mark.long),
])  # fmt: skip
def test_trainings_can_fail(factory, failing):
    assert one(factory, failing).verdict == "fail"


class Table(nn.Linear):
    """An embedding that is no nn.Embedding."""

    def forward(self, tokens):
        return self.weight.T[tokens]


@pytest.mark.parametrize("side", ["source", "target"])
def test_padding_that_cannot_be_changed_gets_no_verdict(side):
    """The other side's table exists, but this side's padding does not read it."""
    other = {"source": "target", "target": "source"}[side]
    factory = patched(
        f"self.{side}_table = nn.Embedding({side}_vocab_size, self.width)",
        f"self.{side}_table = nn.Linear({side}_vocab_size, self.width, bias=False)", "table(tokens)",
        "(table(tokens) if isinstance(table, nn.Embedding) else table.weight.T[tokens])",
        f"({side} != self.pad_id)[:, None, None, :]", f"torch.ones_like({side} != self.pad_id)[:, None, None, :]",
    )  # fmt: skip
    names = [f"{side} padding on the left", f"{other} padding on the left"]
    verdicts = {finding.name: finding.verdict for finding in check(factory, only=names).findings}
    assert verdicts[f"{side} padding on the left"] == "not applicable"
    assert verdicts[f"{other} padding on the left"] == "pass"


def test_a_table_of_positions_is_not_taken_for_one_of_words():
    """As many positions as words, and the padding's number is a position as well."""
    words = patched(
        "self.reset()", "self.reset()\n        self.more = nn.Embedding(*[target_vocab_size] * 2)", "self.output(y)",
        "self.output(y) + self.more(torch.arange(target.size(1), device=target.device).expand_as(target))")  # fmt: skip
    only = [name for name in BY_NAME if "padding" in name or "gradient" in name or "positions" in name]
    assert_transformer(words, pad_id=5, training=False, only=only)


# --- not applicable, and not possible ----------------------------------------------------------------------------


def black_box(source, target, pad):
    """No embedding table, no dropout, no max_len: as black as a box can be."""
    model = ReferenceModel(source, target, pad)
    model.source_table, model.target_table = (Table(size, model.width, bias=False) for size in (source, target))
    model.dropout = nn.Identity()
    return model


def test_what_does_not_apply_is_said_with_the_reason():
    report = check(black_box)
    assert report.holds, report
    reasons = {f.name: f.evidence for f in report.findings if f.verdict == "not applicable"}
    assert reasons.keys() == {
        "source padding on the left", "target padding on the left", "dropout in training", "a norm stands at the end",
        "too long raises",
    }  # fmt: skip
    assert "max_len" in reasons["too long raises"]
    assert "nn.Embedding" in reasons["target padding on the left"]


def test_a_model_that_runs_in_one_dtype_only_is_still_examined():
    only = ["causality", "every dtype"]
    single = patched("return self.output(y)", "return self.output(y) + torch.zeros(1, device=source.device)")
    assert check(single, only=only).holds  # torch promotes: nothing is wrong
    only_one = "assert self.output.weight.dtype == torch.float32\n        return self.output(y)"
    assert check(patched("return self.output(y)", only_one), only=only).failed == ["every dtype"]


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


def test_the_same_seed_gives_the_same_report_and_leaves_the_global_random_numbers_alone():
    before = torch.get_rng_state()
    only = ["causality", "source sensitivity", "dropout in training"]
    assert check(ReferenceModel, seed=4, only=only) == check(ReferenceModel, seed=4, only=only)
    assert torch.equal(torch.get_rng_state(), before)


# --- gradients that are sparse, and those that a CPU does not have --------------------------------------------------
NEED_GRADIENTS = ["gradient reaches everything", "gradient is the derivative", "first token sees itself"]
ALSO = ["sizes and padding are those asked for", "unpredictable stays unpredictable"]


@pytest.mark.parametrize("asked", [NEED_GRADIENTS, pytest.param(ALSO, marks=pytest.mark.long)])
def test_sparse_gradients_are_gradients(asked):
    tables = "vocab_size, self.width)\n", "vocab_size, self.width, sparse=True)\n"
    report = check_transformer(patched(*tables), only=asked)
    assert [finding.verdict for finding in report.findings] == ["pass"] * len(asked), report


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


def test_what_a_cpu_cannot_do_is_one_line():
    told = []
    report = check_transformer(no_backward, on_finding=told.append)
    (finding,) = report.findings
    assert told == [finding]
    assert (finding.name, finding.verdict) == ("gradients on a CPU", "not applicable")
    assert "NotImplementedError: " in finding.evidence
    assert "CPU" in finding.evidence.partition("NotImplementedError")[2]
    with pytest.raises(AssertionError, match="no property could be tried"):
        assert_transformer(no_backward)


def test_the_command_says_so_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command_line, "function_of", lambda name: no_backward)
    assert command_line.main(["check", "mine:build"]) == 2
    said = capsys.readouterr()
    assert [line.partition(":")[0] for line in said.out.splitlines()] == [
        "not applicable gradients on a CPU", "0 pass, 0 fail, 1 not applicable",
    ]  # fmt: skip
    assert said.err.endswith("error: no property applies to mine:build: the lines above say why\n")


def refuses_gradients(*sizes):
    def call(model, *inputs):
        if torch.is_grad_enabled():
            raise NotImplementedError("no gradient on a CPU for me")
        return model(*inputs)

    return Adapted(ReferenceModel(*sizes), call)


def test_what_a_model_itself_refuses_is_a_failure():
    (finding,) = check_transformer(refuses_gradients, only=["gradient is the derivative"]).findings
    assert finding.verdict == "fail"
    assert "no gradient on a CPU for me" in finding.evidence
    spoilt = lambda *sizes: Adapted(ReferenceModel(*sizes), lambda model, *x: model(*x).sigmoid().mul_(2))  # noqa: E731
    (names,) = check(spoilt, only=NEED_GRADIENTS).faults.values()  # what all of them raise is told once
    assert names == ", ".join(NEED_GRADIENTS[1:])


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
    assert blocks == [
        "FAIL: two a < b At: mine.py:3 Likely cause: x & y (gallery: future ) May follow from it: later",
        "FAIL: three alone, at mine.py:4", "NOTE: half float16 Mend: finfo",
    ]  # fmt: skip
    rows = [[cell.get_text() for cell in row.select("th, td")] for row in page.select("details tr")]
    assert [rows[0], rows[-1]] == [["one", "moves by 0"], ["<i>", "not applicable: a <u> b"]]
    assert page.p.get_text() == report.summary
    assert page.select_one("a")["href"] == "13_gallery.html#room-future"
    assert "<details" not in Report(report.findings[:1])._repr_html_()  # of failures alone: no table


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


def fails(report, *names):
    assert set(names) <= set(report.failed), report


@pytest.mark.parametrize(("norm_first", "kind"), [(False, "post-norm"), (True, "pre-norm")])
def test_layers_pass_in_both_orders(norm_first, kind):
    def inverted(mask):
        return None if mask is None else ~mask.expand(-1, -1, 5, -1)[0, 0]

    theirs = {"batch_first": True, "norm_first": norm_first}
    encoder = Adapted(
        nn.TransformerEncoderLayer(12, 3, 20, **theirs), lambda m, x, *, mask=None: m(x, src_mask=inverted(mask))
    )
    decoder = Adapted(
        nn.TransformerDecoderLayer(12, 3, 20, **theirs),
        lambda m, x, memory, *, mask=None, memory_mask=None: m(x, memory, inverted(mask), inverted(memory_mask)),
    )
    for report in (
        checks.check_encoder_layer(EncoderLayer(12, 3, 20, norm_first=norm_first), 12),
        checks.check_decoder_layer(DecoderLayer(12, 3, 20, norm_first=norm_first), 12),
        checks.check_encoder_layer(encoder, 12),
        checks.check_decoder_layer(decoder, 12),
    ):
        assert report.holds, report
        assert kind in report.to_json()


def test_torchs_attention_passes():
    """With its own masks: True = forbidden, and one mask for each head."""

    def attend(module, query, key, value, *, mask=None):
        if mask is not None:
            mask = ~mask.expand(query.size(0), 3, query.size(1), key.size(1)).flatten(0, 1)
        return module(query, key, value, attn_mask=mask, need_weights=False)

    theirs = Adapted(nn.MultiheadAttention(12, 3, batch_first=True), attend)
    weights = lambda a: (a.model.in_proj_weight, a.model.in_proj_bias, *a.model.out_proj.parameters())  # noqa: E731
    report = checks.check_multi_head_attention(theirs, 12, 3, weights=weights)
    assert report.holds, report


class Gain(nn.Module):
    """A norm with names of its own."""

    def __init__(self, gain):
        super().__init__()
        self.gain = nn.Parameter(gain)

    def forward(self, x):
        return self.gain * F.layer_norm(x, x.shape[-1:])


def with_norms(norm):
    layer = EncoderLayer(12, 3, 20)
    layer.self_attention_norm, layer.feed_forward_norm = norm(), norm()
    return layer


def test_right_layers_pass_with_other_norms_and_trained_ones():
    def trained(norm):
        norm.weight.data += 0.3 * torch.randn(12)
        return norm

    for norm in (
        lambda: trained(nn.LayerNorm(12)), lambda: nn.RMSNorm(12), lambda: trained(nn.RMSNorm(12)),
        lambda: Gain(torch.ones(12)),
    ):  # fmt: skip
        report = checks.check_encoder_layer(with_norms(norm), 12)
        assert report.holds, report
        assert "post-norm" in report.to_json()
    layer = with_norms(lambda: Gain(1 + 0.3 * torch.randn(12)))
    layer.dropout = layer.feed_forward.dropout = nn.Identity()
    report = checks.check_encoder_layer(layer, 12)
    assert report.holds, report
    skipped = {f.name for f in report.findings if f.verdict == "not applicable"}
    assert skipped == {"input is carried through", "dropout before the sum"}


def test_a_table_made_in_float32_passes():
    """Its angles are off in proportion to the position: by 0.0001 at the last of 3000."""
    speeds = torch.exp(torch.arange(0, 12, 2) * (-math.log(10000.0) / 12))
    angles = torch.arange(3000.0)[:, None] * speeds
    layer = SinusoidalPositionalEncoding(12, 3000)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    assert (table - layer.table).abs().max() > 3e-5
    layer.table = table
    report = checks.check_positional_encoding(layer, 12, max_len=3000)
    assert report.holds, report


def formula(query, key, value, mask=None, *, scale=None, dim=-1, filling=None):
    scores = query @ key.transpose(-2, -1) * (query.size(-1) ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min if filling is None else filling)
    return scores.softmax(dim=dim) @ value


def with_a_gradient_of_nan(query, key, value, mask):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores + torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1).nan_to_num(0.0) @ value


@pytest.mark.parametrize(("attention", "failing"), [
    (lambda q, k, v, m: formula(q, k, v, m, scale=0.5), "scores are scaled"),
    (lambda q, k, v, m: formula(q, k, v, m, scale=1 / q.size(-1)), "scores are scaled"),
    (lambda q, k, v, m: formula(q, k, v, m, dim=-2), "weights sum to one"),
    (lambda q, k, v, m: formula(q, k, v, None), "masking a key is leaving it out"),
    (lambda q, k, v, m: formula(q, k, v, None if m is None else ~m), "masking a key is leaving it out"),
    (lambda q, k, v, m: formula(q, k, v, m, filling=-math.inf), "empty rows are zero"),
    (lambda q, k, v, m: formula(q, k, v, m), "empty rows are zero"),
    (with_a_gradient_of_nan, "empty rows are zero"),
    (lambda q, k, v, m: formula(q, k, v, m, filling=-1e9), "half precision"),
    (lambda q, k, v, m: scaled_dot_product_attention(q, k.flip(-2), v, m), "agrees with the formula"),
    (lambda q, k, v, m: formula(q, k, v, m, scale=v.size(-1) ** -0.5), "agrees with the formula"),
    (lambda q, k, v, m: scaled_dot_product_attention(q, k, v, m)[0] + 1e-11, "agrees with the formula"),
])  # fmt: skip
def test_broken_attention(attention, failing):
    fails(checks.check_attention(attention), failing)


def reshaped(layer, query, key, value, *, mask=None):
    q, k, v = (
        F.linear(x, w).reshape(x.size(0), layer.num_heads, x.size(1), -1)
        for x, w in zip((query, key, value), layer.in_projection.weight.chunk(3))
    )
    return layer.out_projection(scaled_dot_product_attention(q, k, v, mask)[0].reshape(query.shape))


def uniform_rows(layer, query, key, value, *, mask=None):
    with patch.object(F, "scaled_dot_product_attention", lambda q, k, v, m, *a, **o: formula(q, k, v, m)):
        return layer(query, key, value, mask=mask)


def with_mask(change):
    return lambda layer, *inputs, mask=None: layer(*inputs, mask=None if mask is None else change(mask))


@pytest.mark.parametrize(("call", "failing"), [
    (reshaped, "queries are independent"),
    (reshaped, "keys are a set"),
    (lambda layer, q, k, v, mask=None: layer(q, v, k, mask=mask), "equal values need no keys"),
    (lambda layer, *inputs, mask=None: layer(*inputs), "masked keys are left out"),
    (with_mask(lambda mask: mask[..., -1:, :]), "masked keys are left out"),
    (with_mask(lambda mask: mask[:1]), "masked keys are left out"),
    (uniform_rows, "empty queries read nothing"),
    (lambda layer, q, k, v, mask=None: layer(q / 2, k, v, mask=mask), "agrees with its weights"),
])  # fmt: skip
def test_broken_multi_head_attention(call, failing):
    layer = Adapted(MultiHeadAttention(12, 3), call)
    fails(checks.check_multi_head_attention(layer, 12, 3, weights=lambda m: tuple(m.parameters())), failing)


class Unregistered(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, x):
        return x + self.table[: x.size(1)]


TABLE = SinusoidalPositionalEncoding(12, 20).table


@pytest.mark.parametrize(("layer", "failing"), [
    (Unregistered(TABLE), "table moves along"),
    (lambda x: 2 * x + TABLE[: x.size(1)], "only positions are added"),
    (lambda x: x + TABLE[: x.size(1)].flip(0), "only positions are added"),
    (lambda x: x + torch.randn(x.shape, generator=torch.Generator().manual_seed(0)), "only positions are added"),
    (lambda x: x + TABLE[:1], "positions differ"),
    (lambda x: x + TABLE[: x.size(1)].roll(1, -1), "agrees with the table"),
    (lambda x: x + F.pad(TABLE[:12], (0, 0, 0, 8))[: x.size(1)], "agrees with the table"),
    (lambda x: x + TABLE[: x.size(1)], "table moves along"),  # a float32 table makes float32 of half precision
    (lambda x: x + TABLE[torch.arange(x.size(1)) % 20], "too many positions raise"),
])  # fmt: skip
def test_broken_positions(layer, failing):
    fails(checks.check_positional_encoding(layer, 12, max_len=20), failing)


@pytest.mark.parametrize(("padding", "causal", "decoder", "failing"), [
    (lambda t, p: ~padding_mask(t, p), causal_mask, decoder_mask, "padding is hidden"),
    (lambda t, p: padding_mask(t, 0), causal_mask, decoder_mask, "padding is hidden"),
    (lambda t, p: padding_mask(t, p).float(), causal_mask, decoder_mask, "padding is hidden"),
    (lambda t, p: t != p, causal_mask, decoder_mask, "padding is hidden"),
    (lambda t, p: padding_mask(t, p).transpose(-2, -1), causal_mask, decoder_mask, "padding is hidden"),
    (lambda t, p: None, causal_mask, decoder_mask, "padding is hidden"),
    (padding_mask, lambda n: ~causal_mask(n), decoder_mask, "the future is hidden"),
    (padding_mask, lambda n: causal_mask(n).transpose(-2, -1), decoder_mask, "the future is hidden"),
    (padding_mask, lambda n: causal_mask(n).tril(-1), decoder_mask, "the future is hidden"),
    (padding_mask, lambda n: causal_mask(n + 1), decoder_mask, "the future is hidden"),
    (padding_mask, causal_mask, lambda t, p: padding_mask(t, p) | causal_mask(t.size(1)), "both are combined"),
    (padding_mask, causal_mask, lambda t, p: causal_mask(t.size(1)), "both are combined"),
    (padding_mask, causal_mask, lambda t, p: decoder_mask(t, 0), "both are combined"),
])  # fmt: skip
@pytest.mark.bad_input
def test_broken_masks(padding, causal, decoder, failing):
    assert checks.check_masks(padding, causal, decoder).failed == [failing]


def broken(**methods):
    return type("Broken", (EncoderLayer,), methods)


@pytest.mark.parametrize(("kind", "failing"), [
    (broken(_add=lambda layer, x, norm, f: layer.dropout(norm(x + f(x)))), "dropout before the sum"),
    (broken(_add=lambda layer, x, norm, f: norm(layer.dropout(x + f(x)))), "dropout before the sum"),
    (broken(_add=lambda layer, x, norm, f: (layer.dropout if norm is layer.self_attention_norm else nn.Identity())(
        EncoderLayer._add(layer, x, norm, f))), "dropout before the sum"),
    (broken(_add=lambda layer, x, norm, f: norm(layer.dropout(f(x)))), "input is carried through"),
    (broken(_add=lambda layer, x, norm, f: norm(x + x + layer.dropout(f(x)))), "input is carried through"),
    (broken(_add=lambda layer, x, norm, f: x + x + layer.dropout(f(norm(x)))), "input is carried through"),
    (broken(_add=lambda layer, x, norm, f: EncoderLayer._add(
        layer, x * (1 + (norm is layer.self_attention_norm)), norm, f)), "input is carried through"),
    (broken(_add=lambda *given: 1.0001 * EncoderLayer._add(*given)), "input is carried through"),  # above any epsilon
    (broken(forward=lambda layer, x, *, mask=None: layer._add(x, layer.feed_forward_norm, layer.feed_forward)),
     "tokens hear each other"),
    (broken(forward=lambda layer, x, *, mask=None: EncoderLayer.forward(layer, x)), "mask is obeyed"),
    (broken(forward=lambda layer, x, *, mask=None: EncoderLayer.forward(layer, x - x.mean(dim=0), mask=mask)),
     "order is free"),
])  # fmt: skip
def test_broken_encoder_layers(kind, failing):
    fails(checks.check_encoder_layer(kind(12, 3, 20), 12), failing)


@pytest.mark.parametrize(("call", "failing"), [
    (lambda layer, x, y, mask=None, memory_mask=None: layer(x, x, mask=mask), ["memory is heard"]),
    (lambda layer, x, y, mask=None, memory_mask=None: layer(x, y, mask=mask), ["memory mask is obeyed"]),
    (lambda layer, x, y, mask=None, memory_mask=None: layer(x, y, mask=memory_mask, memory_mask=mask),
     ["mask is obeyed", "memory mask is obeyed"]),
])  # fmt: skip
@pytest.mark.bad_input
def test_broken_decoder_layers(call, failing):
    fails(checks.check_decoder_layer(Adapted(DecoderLayer(12, 3, 20), call), 12), *failing)


def test_a_check_leaves_its_component_as_it_was():
    layer = EncoderLayer(12, 3, 20)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    checks.check_encoder_layer(layer, 12)
    assert layer.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in layer.state_dict().items())
