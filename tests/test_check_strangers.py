"""Unusual but right models pass the suite, and what is wrong in an unusual way fails, with the cause that shows."""

import functools

import pytest
import torch
import torch.nn.functional as F
from patched import RIGHT_DECODERS, decoder, family, patched, table
from torch import nn

from transformer_lib.checks import check_transformer
from transformer_lib.checks.properties import FOLLOWS, PROPERTIES
from transformer_lib.checks.reference_model import ReferenceModel
from transformer_lib.checks.subject import Adapted, ModelUnderTest

LOGITS, BUILT, FIRST = "return self.output(y)", "        self.reset()\n", "        memory_mask, mask = "  # changed


def findings(factory, **options):
    return {finding.name: finding for finding in check_transformer(factory, training=False, **options).findings}


def decoder_findings(factory, *only):
    return findings(factory, family="decoder", max_len=64, only=only)


def failed(found):
    return [name for name, finding in found.items() if finding.verdict == "fail"]


def behind(code):
    """A change: what is done with the logits."""
    return LOGITS, f"y = self.output(y)\n        return {code}"


def more(code):
    """A change: what is built besides."""
    return BUILT, f"{BUILT}        {code}\n"


def adapted(call, factory=ReferenceModel):
    """A model, called in another way."""
    return lambda *sizes: Adapted(factory(*sizes), call)


# --- right models, unusual in one way ----------------------------------------------------------------------------
RIGHT = table("right", "models") | {
    "compiled": (lambda *sizes: torch.compile(ReferenceModel(*sizes), backend="eager"), "sizes, leave no trace"),
    "DataParallel": (lambda *sizes: nn.DataParallel(ReferenceModel(*sizes)), "residual"),
}
PLAIN = [entry for entry in PROPERTIES if ModelUnderTest(ReferenceModel).has(entry.needs)]  # the others need an adapter
DEAR = "sizes and padding", "chooses among", "positions matter", "heads attend", "residual connections"  # half of all
CHEAP = [entry.name for entry in PLAIN if not any(words in entry.name for words in DEAR)]


@pytest.mark.parametrize("seed", [None, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3))])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_model_passes_however_unusual(name, seed):
    """With a seed the whole suite; without one what could blame it, as its line says, and every eighth
    of the properties that take less long."""
    factory, could_blame = RIGHT[name]
    asked = [entry.name for entry in PLAIN if any(words in entry.name for words in could_blame.split(", "))]
    assert len(asked) >= len(could_blame.split(", "))
    asked += CHEAP[[*RIGHT].index(name) % 8 :: 8]
    assert failed(findings(factory, max_len=32, seed=seed or 0, only=asked if seed is None else ())) == []


def test_a_factory_that_gives_the_same_model_again_is_refused_and_the_model_stays_whole():
    model = ReferenceModel(29, 29, 0)
    with pytest.raises(ValueError, match="must build anew"):
        check_transformer(lambda *sizes: Adapted(model, lambda m, *xs: m(*xs)), training=False)
    assert {(p.dtype, p.device.type) for p in model.parameters()} == {(torch.float32, "cpu")}


def test_a_factory_that_leaves_numbers_from_memory_is_refused_with_their_name():
    empty = more("self.output.weight = nn.Parameter(torch.zeros_like(torch.empty(target_vocab_size, self.width)))\n"
                 "        self.output.bias = nn.Parameter(torch.empty(target_vocab_size))")  # fmt: skip
    deterministic = torch.are_deterministic_algorithms_enabled()
    with pytest.raises(ValueError, match=r"output\.bias$"):
        check_transformer(patched(*empty), training=False)
    assert torch.are_deterministic_algorithms_enabled() == deterministic


# --- wrong models, and what must notice them ---------------------------------------------------------------------
HERE = "in your adapter, at tests/test_check_strangers.py:"
TIMES = "source: Tensor, target: Tensor)", "source, target, matrix)", *behind("y @ matrix")
WRONG = table("wrong", "models") | {  # the factory, the properties that fail, what the cause of the first says
    "made without dtype=": (adapted(lambda m, s, t: m(s, t) @ torch.eye(m.output.out_features)), "every dtype", HERE),
    "handed on without dtype=": (adapted(lambda m, s, t: m(s, t, torch.eye(m.output.out_features)), patched(*TIMES)),
        "every dtype", "it hands torch.float32 to a model in another dtype"),
    "handed on, and rightly": (adapted(lambda m, s, t: m(s, t, torch.ones(1, device=s.device)),
        patched(*TIMES[:2], *behind("y @ torch.eye(y.size(-1)).to(y.device) * matrix.bool()"))), "every dtype", "-"),
    "made on the CPU": (adapted(lambda m, s, t: m(s, t) + torch.zeros(t.size(1), 1)), "buffers move along", HERE),
}  # fmt: skip


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_model_fails_with_the_cause_that_its_evidence_shows(name, whole):
    """Those without a cause fail no other property of the whole suite; with "-" nothing shows a cause."""
    factory, failing, cause = WRONG[name]
    names = failing.split(", ")
    max_len = 32 if failing == "too long raises" else None
    found = findings(factory, max_len=max_len, only=() if whole else names)
    assert {*names} <= {*failed(found)}
    assert not whole or len(cause) > 1 or {*names} == {*failed(found)}
    assert found[names[0]].cause == "" if cause == "-" else cause in found[names[0]].cause


ENCODER = "nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 1)"


@pytest.mark.parametrize(("name", "cause", "changes"), [
    ("finite answers", "", behind("y / (source.size(1) <= 7)")),
    ("finite answers", "", behind("y / (mask[0, 0].diagonal().any() & False)")),
    ("finite answers", "a mask that forbids everything", [*more(f"self.more = {ENCODER}"),
        FIRST, f"        self.more(source.new_ones(*source.shape, 8).to(self.output.weight), "
        f"src_key_padding_mask=source != self.pad_id)\n{FIRST}"]),
    ("state dict is complete", "modules in a plain list", [*more("self.hidden = [nn.Linear(29, 29)]"),
        *behind("self.hidden[0](y)")]),
    ("calls leave no trace", "an earlier call left something behind", [
        FIRST, f"        ReferenceModel.calls = getattr(ReferenceModel, 'calls', 0) + 1\n{FIRST}",
        *behind("y * self.calls")]),
])  # fmt: skip
def test_where_no_property_would_say_more_only_that_is_told(name, cause, changes):
    report = check_transformer(patched(*changes), training=False)
    assert report.failed == [finding.name for finding in report.findings] == [name]
    assert report.findings[0].cause.startswith(cause)


@pytest.mark.parametrize("square", [False, True])
def test_what_needs_equal_sizes_is_asked_for_batch_first(square):
    """Layers that read (length, batch), given (batch, length); with a mask of the target's length all must be equal."""

    def call(model, source, target):
        mask = torch.ones(target.size(1), target.size(1), dtype=torch.bool).triu(1) if square else None
        made = (F.one_hot(tokens, 32).float() for tokens in (source, target))
        return model(*made, tgt_mask=mask)[..., :29]

    with pytest.raises(RuntimeError) as error:
        check_transformer(adapted(call, lambda *sizes: nn.Transformer(32, 2, 1, 1, 8)), training=False)
    assert ("as many sentences as tokens" if square else "are equally long") in error.value.__notes__[0]
    assert "batch_first=True" in error.value.__notes__[0]


def insisting(condition):
    return patched("        super().__init__()\n", f"        assert {condition}\n        super().__init__()\n")


def test_a_model_of_one_vocabulary_is_not_blamed_for_having_one():
    name, gradient = "sizes and padding are those asked for", "gradient reaches everything"
    joint, zero = (lambda s, t, pad: ReferenceModel(s, s, pad)), (lambda s, t, pad: ReferenceModel(s, t, 0))
    fussy, stubborn = insisting("source_vocab_size == target_vocab_size"), insisting("pad_id == 0")
    found = [findings(factory, only=[name])[name] for factory in (joint, fussy, stubborn, zero)]
    assert [finding.verdict for finding in found] == ["pass", "pass", "not applicable", "fail"]
    assert [finding.pad_id for finding in found] == [None, None, None, 0]
    zero_row = patched(*more("self.source_table.padding_idx = 0"))
    told = [findings(zero_row, only=[gradient, name], **given).values() for given in ({}, {"pad_id": 0})]
    assert [[finding.verdict for finding in each] for each in told] == [["fail", "pass"], ["pass", "pass"]]
    assert [[finding.pad_id for finding in each] for each in told] == [[0, None], [None, None]]


ROUND = (  # a convolution, rightly, whose channels come first; and behind it the last token comes before the first
    "nn.Linear(self.width, vocab)\n", "nn.Linear(self.width, vocab)\n        self.reads = nn.Conv1d(16, 16, 3)\n",
    "return self.table(tokens) + self.places(positions)",
    "x = self.table(tokens) + self.places(positions)\n"
    "        x = self.reads(F.pad(x.mT, (2, 0))).mT\n        return x + x.roll(1, 1)",
)  # fmt: skip


@pytest.mark.parametrize(("factory", "kind"), [
    (patched("causal & (target != self.pad_id)[:, None, None, :]", "causal.new_ones(len(target), 1, *causal.shape)"),
        "encoder-decoder"), (decoder(*ROUND), "decoder"),
])  # fmt: skip
def test_what_follows_from_a_fault_is_found_with_it(factory, kind):
    side = "target " * (kind != "decoder")
    only = ["causality", "batch independence", "a prefix is enough", "target padding on the right"]
    (names,) = check_transformer(factory, family=kind, training=False, only=only).faults.values()
    assert names == f"a prefix is enough, {side}padding on the right"


@pytest.mark.parametrize(("factory", "both"), [
    (decoder("x.unflatten(-1, (-1, ", "(x + 0.1 * x.mean(0, keepdim=True)).unflatten(-1, (-1, ",
        ".tril(past)", ".tril(past + n * (past > 0))"), ["batch independence", "cache in chunks"]),
    (patched("return causal & ", "self.kept = getattr(self, 'kept', torch.ones(300, 300, dtype=torch.bool).tril())\n"
        "        return self.kept[: len(causal), : len(causal)] & ",
        *behind("y * (1 + (y.dtype == torch.float16))")), ["every dtype", "buffers move along"]),
    (patched(*more("self.unused = nn.Linear(2, 2)"), FIRST, f"        source = source[:, :8]\n{FIRST}"),
        ["source sensitivity", "gradient reaches everything"]),
    (patched(*more("self.old, self.source_table = self.source_table, self.target_table"), "y, x, mask, memory_mask)",
        "y, x, mask, memory_mask | True)"), ["sizes and padding are those asked for", "source padding on the right"]),
])  # fmt: skip
def test_an_independent_fault_is_not_swallowed(factory, both):
    """Of those that it could follow from."""
    parents = {name for child in both for name in FOLLOWS.get(child, child).split(", ")}
    kind = "decoder" if "cache in chunks" in both else "encoder-decoder"
    report = check_transformer(factory, family=kind, max_len=32, training=False, only={*both, *parents})
    assert {*both} <= {fault.name for fault in report.faults}, report


# --- what a suite must not blame on a model: views, dtypes of a cache, kept graphs, refusals ------------------------
def viewed(function):
    """The function, which must be given no slice of a tensor."""

    @functools.wraps(function)
    def strict(*arguments, **options):
        for name, x in [*enumerate(arguments), *options.items()]:
            assert not isinstance(x, torch.Tensor) or x.is_contiguous(), f"argument {name} is no tensor of its own"
        return function(*arguments, **options)

    return strict


def all_viewed(vocab, pad):
    made = decoder()(vocab, pad)
    for name in ("call", "extend", "generate", "beams", "loss", "reorder"):
        setattr(made, name, viewed(getattr(made, name)))
    return made


def test_only_contiguous_tensors_are_handed_to_a_model():
    """A model of two sides is asked what one of one side is not."""
    found = decoder_findings(all_viewed)
    assert {finding.evidence for finding in found.values() if finding.verdict == "fail"} == set()
    only = [entry.name for entry in PLAIN if entry.needs in ("both", "whole")]
    assert failed(findings(adapted(viewed(lambda m, s, t: m(s, t))), only=only)) == []


KEPT = (  # each call writes its keys into a tensor, with their graph
    "nn.Linear(self.width, vocab)\n",
    "nn.Linear(self.width, vocab)\n        self.kept = [{'keys': torch.zeros(100, 4, 64, 4)}]\n",
    "        if cache is not None:\n            k, v = self.store(cache, number, k, v)\n",
    "        keys = self.kept[0]['keys'] = self.kept[0]['keys'].to(k)\n        keys[: len(k), :, : k.size(2)] = k\n"
    "        k = keys[: len(k), :, : k.size(2)]\n")  # fmt: skip


def test_a_kept_graph_is_one_finding_and_no_crash_of_the_suite():
    report = check_transformer(
        lambda *sizes: Adapted(decoder(*KEPT)(*sizes).model, lambda m, tokens: m(tokens)),
        family="decoder", training=False, max_len=64,
    )  # fmt: skip
    found = {finding.name: finding for finding in report.findings}
    assert {*report.failed} <= {"calls leave no trace", "buffers move along"}
    told = found["calls leave no trace"].evidence
    assert "tensors that have a graph (model.kept.0.keys): a second backward raises" in told
    assert not any("deepcopy" in f.evidence or "backward through" in f.evidence for f in report.findings)
    assert report.fault_lines[0].startswith("fail           calls leave no trace")
    assert {finding.follows_from for finding in report.findings} == {""}


@pytest.mark.parametrize(("file", "place"), [
    ("<string>", "line 2 of code without a file, in call"), ("site-packages/x.py", "tests/test_check_strangers.py:"),
])  # fmt: skip
def test_a_model_that_raises_is_told_with_its_own_place_and_without_a_cause(file, place):
    source = "def call(model, tokens):\n return model(tokens).view(0 if len(tokens) == 5 else tokens.size(0), -1, 29)"
    names = {}
    exec(compile(source, file, "exec"), names)
    (finding,) = decoder_findings(
        lambda vocab, pad: Adapted(RIGHT_DECODERS["plain"][0](vocab, pad), lambda m, x: names["call"](m, x)),
        "batch independence",
    ).values()  # fmt: skip
    assert (finding.verdict, finding.cause, finding.case) == ("fail", "", "")
    assert f", at {place}" in finding.evidence
    assert "likely" not in str(finding)


# --- one verdict about something unusual -------------------------------------------------------------------------
UNUSUAL = {name: ({}, *line) for name, line in table("unusual", "models").items()} | {
    name: ({"family": family(name), "max_len": 64}, *line) for name, line in table("unusual", "decoders").items()
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in UNUSUAL if UNUSUAL[name][2]])
def test_what_is_said_of_something_unusual(name):
    """Wrong, right, or a question; and what is refused or cannot be known is not held against a model."""
    options, factory, about, verdict, words = UNUSUAL[name]
    report = check_transformer(factory, pad_id=3, only=about.split(", "), **options)
    for finding in {finding.name: finding for finding in report.findings}.values():  # of one side, but for the last
        assert finding.verdict == verdict, finding
        told = finding.evidence + finding.cause
        assert all((part.removeprefix("no:") in told) != part.startswith("no:") for part in words.split("|")), told
