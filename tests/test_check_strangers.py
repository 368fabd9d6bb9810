"""Unusual but right models pass the suite, and what is wrong in an unusual way fails, with the cause that shows."""

import functools
import re

import pytest
import torch
import torch.nn.functional as F
from patched import RIGHT_DECODERS, decoder, patched, table
from torch import nn

from transformer_lib.checks import check_transformer
from transformer_lib.checks.bugs import CASES
from transformer_lib.checks.properties import FOLLOWS, PROPERTIES, TRAINED_PROPERTIES
from transformer_lib.checks.reference_model import ReferenceModel
from transformer_lib.checks.report import NotApplicable, examine
from transformer_lib.checks.subject import Adapted, ModelUnderTest, hugging_face

LOGITS, BUILT, FIRST = "return self.output(y)", "        self.reset()\n", "        memory_mask, mask = "  # changed
WRITES, LOSS = "generated tokens are the most probable", "its loss is the cross entropy of its logits"


def findings(factory, **options):
    return {finding.name: finding for finding in check_transformer(factory, training=False, **options).findings}


def decoder_findings(factory, *only, pad_id=3):
    return findings(factory, family="decoder", pad_id=pad_id, max_len=64, only=only)


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
    "compiled": (lambda *sizes: torch.compile(ReferenceModel(*sizes), backend="eager"), "sizes"),
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


def t5(source, target, pad):
    import transformers

    assert source == target
    config = transformers.T5Config(
        vocab_size=source, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, pad_token_id=pad,
        decoder_start_token_id=pad,
    )  # fmt: skip
    return hugging_face(transformers.T5ForConditionalGeneration(config), pad)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("only", [["every dtype", "positions matter"], pytest.param([], marks=pytest.mark.long)])
def test_t5_passes_with_its_softmax_and_norm_in_float32(only):
    assert failed(findings(t5, only=only)) == []


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [2, 3])
def test_t5_learns_to_copy_though_slowly(seed):
    assert examine(ModelUnderTest(t5, seed=seed, source_vocab_size=29), TRAINED_PROPERTIES[1:]).holds


@pytest.mark.parametrize("entry", PLAIN, ids=lambda entry: entry.name)
def test_each_property_stands_on_its_own(entry):
    """Whatever the suite makes of the model at its first call does not count."""
    model = ModelUnderTest(patched(base="a second name"), max_len=32)
    assert examine(model, [entry]).findings[0].verdict == "pass"


@pytest.mark.parametrize("base", ["sub-layers begin at zero: ReZero, Bachlechner et al. 2021",
    "softmax in float32, where the lowest number of float64 overflows"])  # fmt: skip
def test_a_leak_behind_a_gate_or_a_softmax_in_float32_is_still_found(base):
    assert failed(findings(patched("return causal & ", "return ", base=base), only=["causality"])) == ["causality"]


def test_an_interface_that_cannot_say_it_is_not_applicable_with_the_reason():
    """Lengths can only say that the first tokens are real."""

    def by_length(model, source, target):
        if (source[:, 0] == 3).logical_and((source != 3).any(1)).any():
            raise NotApplicable("lengths cannot say that padding is on the left")
        return model(source, target)

    (finding,) = findings(adapted(by_length), only=["source padding on the left"]).values()
    assert (finding.verdict, finding.evidence) == ("not applicable", "lengths cannot say that padding is on the left")


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: Adapted(model, lambda m, *xs: m(*xs))])
def test_a_factory_that_gives_the_same_model_again_is_refused_and_the_model_stays_whole(wrap):
    model = ReferenceModel(29, 29, 0)
    with pytest.raises(ValueError, match="must build anew"):
        check_transformer(lambda *sizes: wrap(model), training=False)
    assert {(p.dtype, p.device.type) for p in model.parameters()} == {(torch.float32, "cpu")}


def test_a_factory_that_leaves_numbers_from_memory_is_refused_with_their_name():
    empty = more("self.output.weight = nn.Parameter(torch.zeros_like(torch.empty(target_vocab_size, self.width)))\n"
                 "        self.output.bias = nn.Parameter(torch.empty(target_vocab_size))")  # fmt: skip
    deterministic = torch.are_deterministic_algorithms_enabled()
    with pytest.raises(ValueError, match=r"output\.bias$"):
        check_transformer(patched(*empty), training=False)
    assert torch.are_deterministic_algorithms_enabled() == deterministic


def test_one_thread_is_enough_and_their_number_is_put_back():
    seen = []
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        findings(lambda *sizes: seen.append(torch.get_num_threads()) or ReferenceModel(*sizes), only=["causality"])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


# --- wrong models, and what must notice them ---------------------------------------------------------------------
HERE = "in your adapter, at tests/test_check_strangers.py:"
TIMES = "source: Tensor, target: Tensor)", "source, target, matrix)", *behind("y @ matrix")
WRONG = table("wrong", "models") | {  # the factory, the properties that fail, what the cause of the first says
    "made without dtype=": (adapted(lambda m, s, t: m(s, t) @ torch.eye(m.output.out_features)), "every dtype", HERE),
    "handed on without dtype=": (adapted(lambda m, s, t: m(s, t, torch.eye(m.output.out_features)), patched(*TIMES)),
        "every dtype", "it hands torch.float32 to a model in another dtype"),
    "handed on, and rightly": (adapted(lambda m, s, t: m(s, t, torch.ones(1, device=s.device)),
        patched(*TIMES[:2], *behind("y @ torch.eye(29, device=y.device) * matrix.bool()"))), "every dtype", "-"),
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


@pytest.mark.parametrize(("name", "changes"), [
    ("finite answers", behind("y / (source.size(1) <= 7)")),
    ("finite answers", behind("y / (mask[0, 0].diagonal().any() & False)")),
    ("state dict is complete", [*more("self.hidden = [nn.Linear(29, 29)]"), *behind("self.hidden[0](y)")]),
])  # fmt: skip
def test_where_no_property_would_say_more_only_that_is_told(name, changes):
    report = check_transformer(patched(*changes), training=False)
    assert report.failed == [finding.name for finding in report.findings] == [name]


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


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(("factory", "family"), [
    (patched("causal & (target != self.pad_id)[:, None, None, :]", "causal.new_ones(len(target), 1, *causal.shape)"),
        "encoder-decoder"), (decoder(*ROUND), "decoder"),
])  # fmt: skip
def test_what_follows_from_a_fault_is_found_with_it(factory, family, whole):
    side = "target " * (family != "decoder")
    follows = ["a prefix is enough", f"{side}padding on the right"]
    only = () if whole else ["causality", "batch independence", "a prefix is enough", "target padding on the right"]
    (names,) = check_transformer(factory, family=family, training=False, only=only).faults.values()
    assert names.split(", ") == follows


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
    family = "decoder" if "cache in chunks" in both else "encoder-decoder"
    report = check_transformer(factory, family=family, max_len=32, training=False, only={*both, *parents})
    assert {*both} <= {fault.name for fault in report.faults}, report


def test_a_jump_close_by_is_no_broken_gradient():
    """The loss jumps a small step away, as where a token would go to another expert."""
    jumps = patched(*behind("y * (1 + ((self.output.weight - self.here).norm() > 1e-6))"),
        FIRST, "        if torch.is_grad_enabled() or not hasattr(self, 'here'):\n"
        f"            self.here = self.output.weight.detach().clone()\n{FIRST}")  # fmt: skip
    assert failed(findings(jumps, only=["gradient is the derivative"])) == []


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


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
def test_only_contiguous_tensors_are_handed_to_a_model(whole):
    """A model of two sides is asked, if not all, what one of one side is not."""
    found = decoder_findings(all_viewed)
    assert {finding.evidence for finding in found.values() if finding.verdict == "fail"} == set()
    only = () if whole else [entry.name for entry in PLAIN if entry.needs in ("both", "whole")]
    assert failed(findings(adapted(viewed(lambda m, s, t: m(s, t))), only=only)) == []


FLOAT32 = "x.new_zeros(*x.shape[:2], self.max_len, x.size(3))", (
    "torch.from_numpy(__import__('numpy').zeros((*x.shape[:2], 64, x.size(3)), 'float32')).to(x.device)")  # fmt: skip
LEAST_FIRST = ("        for _ in range(steps):\n            new = logits[:, -1:].argmax(-1)",
    "        for n in range(steps):\n            new = (-logits if n == 0 else logits)[:, -1:].argmax(-1)")  # fmt: skip


@pytest.mark.parametrize("kind", ["raises", "casts"])
def test_a_cache_that_stays_in_float32_is_examined_in_float32(kind):
    writes = WRITES, "generated in a batch as alone"
    names = "cache one by one", "cache in chunks", "every dtype", *writes
    casts = ("tuple(kept[:, :, :end]", "tuple(kept[:, :, :end].to(k)") * (kind == "casts")
    found = decoder_findings(decoder(*FLOAT32, *casts, *LEAST_FIRST, base="preallocated"), *names)
    assert {*failed(found)} == {*writes, *(["every dtype"] if kind == "raises" else [])}
    assert found["cache in chunks"].verdict == "pass"
    if kind == "raises":
        assert found["every dtype"].evidence.startswith("its cache stays in float32, so the model runs in no other")
        assert "of code without a file, in scores" in found["every dtype"].evidence


def test_a_window_that_forgets_too_early_is_found_behind_a_cache_in_float32():
    """The last eight are kept, also where a chunk's first queries should read older ones."""
    evicts = decoder(".tril(past)", ".tril(past).triu(past - 7)",
        '        cache["layers"][number] = k, v\n        return k, v',
        '        kept = max(8, k.size(2) - cache["length"])\n        cache["layers"][number] = tuple('
        "torch.cat([0 * x[:, :, :-kept], x[:, :, -kept:]], 2).float() for x in (k, v))\n"
        '        return tuple(x.to(k) for x in cache["layers"][number])')  # fmt: skip
    found = decoder_findings(evicts, "cache one by one", "cache in chunks")
    assert [finding.verdict for finding in found.values()] == ["pass", "fail"]
    assert found["cache in chunks"].cause == "keys are dropped before the first new tokens have read them"


UNUSUAL = table("unusual", "decoders")


@pytest.mark.parametrize("name", [name for name, (_, about, _) in UNUSUAL.items() if about])
def test_the_cause_that_the_numbers_show_is_named(name):
    factory, about, cause = UNUSUAL[name]
    assert decoder_findings(factory, about)[about].cause.startswith(cause)


def test_an_inverted_mask_for_torchs_kernels_is_a_finding_with_its_place():
    def call(m, s, t):
        layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 1).to(m.output.weight)
        layers.train(m.training)(torch.ones(*s.shape, 8).to(m.output.weight), src_key_padding_mask=s != m.pad_id)
        return m(s, t)

    (finding,) = findings(adapted(call)).values()
    assert (finding.name, finding.verdict) == ("finite answers", "fail")
    assert "to_padded_tensor" in finding.evidence
    assert finding.cause.startswith("a mask that forbids everything")
    assert "test_check_strangers.py:" in finding.place


def test_what_is_left_to_every_model_is_the_only_finding():
    calls = []
    (finding,) = findings(adapted(lambda m, s, t: calls.append(s) or m(s, t) * len(calls))).values()
    assert (finding.name, finding.verdict) == ("calls leave no trace", "fail")
    assert finding.cause.startswith("an earlier call left something behind")


def table_with(speed):
    """A change: a constant table of sines and cosines; `speed` is that of channel i of 16."""
    return "sinusoidal_table(self.max_len, self.width).float()", (
        f"(torch.arange(32.0)[:, None] * torch.tensor([{speed} for i in range(16)])"
        " + torch.arange(16) % 2 * math.pi / 2).sin()")  # fmt: skip


LOGARITHMS = "logarithms of probabilities", "none for NLLLoss"
ON_TOKENS = "self.output(y.flatten(0, 1)).log_softmax(-1).view(*y.shape[:2], -1)"  # of all sentences in one row


@pytest.mark.parametrize(("factory", "name", "words", "mend"), [
    (lambda *sizes: Adapted(ReferenceModel(*sizes), lambda m, s, t: m(s, t), generate=lambda m, s, t, steps:
        F.pad(t, (0, steps), value=30)), WRITES, "gives token 30, and the target has 29, 0 to 28", ""),
    (CASES["half"].factory, "every dtype", "float16 does not run: RuntimeError: value cannot be converted",
        "torch.finfo(scores.dtype).min"),
    (patched(*table_with("10000.0 ** (-2 * i / 16)")), "positions matter",
        "the columns of positions are sines and cosines, but of other frequencies", "one frequency for each pair"),
    (patched(*table_with("1 / (1 + i // 2)")), "positions matter",
        "the frequencies of positions are no powers of one number", "one frequency for each pair"),
    (patched(*behind("y.log_softmax(-1)")), "logits not probabilities", *LOGARITHMS),
    (patched(LOGITS, f"return {ON_TOKENS}"), "logits not probabilities", *LOGARITHMS),
    (patched("scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) * mask",
        "scores.masked_fill(~mask, -math.inf).softmax(-1)"),
        "target padding on the left", "real logits are NaN", "on the right only"),
])  # fmt: skip
def test_what_need_not_be_wrong_is_a_note(factory, name, words, mend):
    report = check_transformer(factory, training=False, only=[name, "logits not probabilities"])
    (note,) = (finding for finding in report.findings if finding.verdict == "note")
    assert report.holds
    assert note.name == name
    assert words in note.evidence
    assert mend in note.cause
    assert report.summary.endswith(", 1 note")


@pytest.mark.parametrize(("call", "name", "words"), [
    (lambda model, tokens, mask=None: model(tokens, mask), "padding in front", "moves"),
    (lambda model, tokens: model(tokens, (tokens != 3).long()), "padding on the left", "though it is hidden, moves"),
])  # fmt: skip
def test_padding_in_front_without_positions_is_a_question_with_the_number(call, name, words):
    note = decoder_findings(adapted(call, lambda *sizes: decoder()(*sizes).model), name)[name]
    assert note.verdict == "note"
    assert note.evidence.startswith("padding in front")
    assert re.search(f"{words} logits by [2-5].*is that meant", note.evidence)


KEPT = (  # each call writes its keys into a tensor, with their graph
    "nn.Linear(self.width, vocab)\n",
    "nn.Linear(self.width, vocab)\n        self.kept = [{'keys': torch.zeros(100, 4, 64, 4)}]\n",
    "        if cache is not None:\n            k, v = self.store(cache, number, k, v)\n",
    "        keys = self.kept[0]['keys'] = self.kept[0]['keys'].to(k)\n        keys[: len(k), :, : k.size(2)] = k\n"
    "        k = keys[: len(k), :, : k.size(2)]\n")  # fmt: skip


@pytest.mark.parametrize("trained", [True, False])
def test_a_kept_graph_is_one_finding_and_no_crash_of_the_suite(trained):
    def generate(model, tokens, steps):
        for _ in range(steps):
            tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], 1)
        return tokens

    parts = {} if trained else {"generate": generate}
    report = check_transformer(
        lambda *sizes: Adapted(decoder(*KEPT)(*sizes).model, lambda m, tokens: m(tokens), **parts),
        family="decoder", training=False, max_len=64,
    )  # fmt: skip
    found = {finding.name: finding for finding in report.findings}
    assert found["calls leave no trace"].verdict == ("fail" if trained else "pass")
    assert "tensors that have a graph (model.kept.0.keys): a second backward raises" in (
        found["calls leave no trace"].evidence)  # fmt: skip
    assert not any("deepcopy" in f.evidence or "backward through" in f.evidence for f in report.findings)
    assert not trained or report.fault_lines[0].startswith("fail           calls leave no trace")
    assert {finding.follows_from for finding in report.findings} == {""}
    assert {*report.failed} <= {"calls leave no trace", "buffers move along"}


def refuses(condition, more=""):
    """The decoder refuses some tokens."""
    line = "        past, n = self.past(cache), tokens.size(1)\n"
    return decoder(line, f"        if {condition}:\n            raise ValueError('not such a sentence')\n{line}",
        "extend reorder crop generate beams loss", "")  # fmt: skip


WHOLE, CACHED = ["a prefix is enough", "batch independence"], ["cache one by one", "two caches in turns"]
SEVERAL = ["cache in chunks", "cache after a prefill"]
EXTEND = "    cache = model.empty() if cache is None else cache\n"
NO_CALL = "not tokens.is_meta and (tokens == self.pad).all(1).any()"


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(("factory", "refused", "passes", "words"), [
    (refuses("tokens.size(1) == 1"), ["first token sees itself"], WHOLE,
        "it refuses a sentence of one token: ValueError: not such a sentence"),
    (refuses(NO_CALL), ["empty sentences"], [], "not such a sentence, at line "),
    (decoder(EXTEND, f'    assert tokens.size(1) == 1, "one token only"\n{EXTEND}', "reorder crop generate beams ", ""),
        SEVERAL, CACHED, "it refuses several new tokens: AssertionError: one token only"),
    (decoder("return model(tokens, mask, positions, cache), cache",
        "return model(tokens, mask, positions, cache)[:, -1:], cache", "reorder crop generate beams ", ""),
        SEVERAL, CACHED,
        "`extend` gives the last new token's logits only; to have this judged, return those of all new tokens"),
    (decoder(base="a second head"), [LOSS], ["gradient reaches everything"],
        "it hears model.ahead.bias, too, which the logits do not"),
])  # fmt: skip
def test_a_refusal_is_no_failure(factory, refused, passes, words, whole):
    found = decoder_findings(factory, *(() if whole else refused + passes + WHOLE + CACHED))
    assert failed(found) == []
    assert [found[name].verdict for name in passes] == ["pass"] * len(passes)
    assert all(words in found[name].evidence for name in refused)
    assert refused != SEVERAL or {found[name].verdict for name in refused} == {"not applicable"}


def beside(dropped):
    """Changes: tokens are looked up as usual, and for nothing some of the vectors are dropped."""
    new = f"x = self.embed(tokens, positions)\n        x = x + 0 * {dropped}\n        allowed = "
    return "x, allowed = self.embed(tokens, positions), ", new


def with_part(part):
    """Changes: the model has another part, `more`."""
    return "        self.norm, self.output", f"        self.more = {part}\n        self.norm, self.output"


TRACE, STATE, REACHES = "calls leave no trace", "state dict is complete", "gradient reaches everything"
PLACES, TRAINS, U, ONE_LAYER = "positions matter", "training without dropout is evaluation", "rotary", (
    "16, 4, 4, 2, 64, 0", "16, 4, 4, 1, 64, 0", "rotary(x, positions)\n", "x\n")  # fmt: skip


@pytest.mark.parametrize(("changes", "base", "name", "verdict", "words"), [
    (ONE_LAYER[2:], U, PLACES, "pass", "are positions left out on purpose?"),
    (ONE_LAYER, U, PLACES, "fail", "changes nothing"),
    (("self.table(tokens)", "self.table(tokens) + torch.arange(len(tokens), device=tokens.device)[:, None, None] "
        "* self.output.bias[:16].cos()", *ONE_LAYER[2:]), U, PLACES, "fail", "one sentence in two rows gets two"),
    (beside("F.dropout(x, 0.1 * self.training)"), "", TRAINS, "pass", "differ by"),
    (beside("F.scaled_dot_product_attention(x, x, x, None, 0.1 * self.training)"), "", TRAINS, "pass", "by"),
    (beside("torch.rand_like(x)"), "", TRAINS, "not applicable", "not by torch's dropout"),
    (("self.scores(q, k, positions)", "self.scores(q.flip(-1), k, positions)"), U, PLACES, "note",
        "depend on more than the distance"),
    (("weights @ v", "(weights * torch.arange(weights.size(-1)).to(weights)) @ v"), U, PLACES, "note",
        "from place to place"),
    (("        return x\n", "        return F.layer_norm(x, x.shape[2:])\n"), "", "causality", "fail",
        "`layer_norm` runs over the positions"),
    (("        return x\n", "        return x.softmax(2)\n"), "", "causality", "fail", "`softmax` runs over the"),
    (("        mask, cache = torch.ones",
        "        self.register_buffer('kept', tokens)\n        mask, cache = torch.ones"), "", STATE, "fail",
        "calls add model.kept to the state dict"),
    (("        return x\n", "        calls = self.__dict__['calls'] = 1 + self.__dict__.get('calls', 0)\n"
        "        return x * calls**0.3 / calls**0.3\n"), "", STATE, "pass", "differ by 0"),
    (("        mask, cache = torch.ones", "        self.eval()\n        mask, cache = torch.ones"), "", TRACE, "fail",
        "after `generate` a model in training mode is in evaluation mode"),
    (("        mask, cache =", "        self.eval()\n        mask, cache =", "s loss", "s"), "", TRACE, "pass", "?"),
    (("steps, width=3", "steps, width=1"), "", "beams are as probable as they say", "pass", "begin alike?"),
    (("steps, mask=None):\n        mask", "steps, mask=None, kept=[]):\n        kept.append(0)\n        mask",
        "        return tokens\n",
        "        return torch.cat([tokens[:, :-steps], (tokens[:, -steps:] + len(kept)) % 29], 1)\n"), "",
        WRITES, "fail", "a call reads what an earlier one kept"),
    (("    def numbers", "    def _load_from_state_dict(self, state, *given):\n        state.update({key: x.T for "
        "key, x in state.items() if key.endswith('q.weight')})\n\n    def numbers"), "", STATE, "fail",
        "loading changes what it"),
    (("self.places(positions)", "self.places(positions) + (positions > 2)[..., None] * (self.__dict__"
        ".setdefault('old', self.table.weight[3].detach().clone()) - self.table.weight[3]) * (tokens.size(1) == 1)"),
        "", STATE, "fail", "after loading, logits with a cache differ"),
    (("        if positions is None:\n", "        if positions is None and mask is not None and not past:\n"
        "            positions = self.counted(mask)\n        if positions is None:\n"), "",
        "cache with padding in front", "fail", "from token 9 of 40"),
    ((*with_part("nn.Embedding(vocab, self.width).requires_grad_(False)"), "self.places(positions)",
        "self.places(positions) + self.more(0 * tokens)"), "", REACHES, "pass", "all"),
    ((*with_part("nn.Linear(self.width, 1)"), "return self.table(tokens) + self.places(positions)",
        "y = self.table(tokens) + self.places(positions)\n        return y * (x := self.more(y).exp()) / x"), "",
        REACHES, "fail", "such as model.more.weight"),
    (("    logits, labels = model(tokens)", "    labels = labels.masked_fill_(labels == ignored, 0)\n"
        "    logits, labels = model(tokens)"), "", TRACE, "fail", "`loss` writes into"),
])  # fmt: skip
def test_what_a_decoder_is_asked_or_told(changes, base, name, verdict, words):
    (finding,) = decoder_findings(decoder(*changes, base=base), name).values()
    assert finding.verdict == verdict
    assert words in finding.evidence + finding.cause


@pytest.mark.parametrize(("shift", "words"), [("0", "do you shift them before you call"), ("1", "of the next token, ")])
def test_a_loss_says_how_it_reads_labels(shift, words):
    finding = decoder_findings(decoder("shift=1", f"shift={shift}"), LOSS)[LOSS]
    assert finding.verdict == "pass"
    assert words in finding.evidence
    assert not finding.evidence.endswith("?")  # its forward takes no "labels"


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


def test_rows_behind_the_vocabulary_need_no_gradient():
    def padded(vocab, pad):
        return Adapted(RIGHT_DECODERS["plain"][0](64, pad), lambda m, tokens: m(tokens)[..., :vocab])

    (finding,) = decoder_findings(padded, "gradient reaches everything").values()
    assert finding.verdict == "pass", finding
