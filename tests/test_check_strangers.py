"""Unusual but right models pass the suite, and what is wrong in an unusual way fails, with the cause that shows."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lib.checks import check_transformer
from transformer_lib.checks.model_under_test import Adapted, ModelUnderTest, hugging_face
from transformer_lib.checks.properties import PROPERTIES, TRAINED_PROPERTIES
from transformer_lib.checks.reference_model import ReferenceModel
from transformer_lib.checks.report import NotApplicable, examine


def findings(factory, **options):
    return {finding.name: finding for finding in check_transformer(factory, training=False, **options).findings}


def failed(factory, **options):
    return [name for name, finding in findings(factory, **options).items() if finding.verdict == "fail"]


# --- right models, unusual in one way ----------------------------------------------------------------------------


class Softmax32(ReferenceModel):
    """The softmax in float32, whatever the model computes in; its lowest number overflows there from float64."""

    def weights(self, scores, mask):
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return scores.softmax(-1, dtype=torch.float32).to(scores.dtype) * mask


class KeepsWeights(ReferenceModel):
    """Keeps its last attention for pictures."""

    def weights(self, scores, mask):
        self.last, self.history = super().weights(scores, mask), [scores]
        return self.last


class Lazy(ReferenceModel):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.output = nn.LazyLinear(self.output.out_features)


class Experts(ReferenceModel):
    """Each token goes through one of four networks, the router's favourite, and no other is computed for it."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        relu = nn.ReLU()  # one for all, so it is always heard from
        for layer in [*self.encoder, *self.decoder]:
            experts = [nn.Sequential(nn.Linear(16, 32), relu, nn.Dropout(), nn.Linear(32, 16)) for _ in range(4)]
            del layer["feed"]["up"], layer["feed"]["down"]
            layer["feed"]["router"], layer["feed"]["experts"] = nn.Linear(16, 4), nn.ModuleList(experts)

    def feed(self, part, x):
        shares, chosen = part["router"](x).softmax(-1).max(-1)
        y = torch.zeros_like(x)
        for i, expert in enumerate(part["experts"]):
            y[chosen == i] = expert(x[chosen == i])
        return y * shares[..., None]


class SkipsExperts(Experts):
    """A network that no token chose is not called, so how many calls there are depends on the tokens."""

    def feed(self, part, x):
        shares, chosen = part["router"](x).softmax(-1).max(-1)
        y = torch.zeros_like(x)
        for i, expert in enumerate(part["experts"]):
            if (chosen == i).any():
                y[chosen == i] = expert(x[chosen == i])
        return y * shares[..., None]


class HoldsNone(ReferenceModel):
    """A list with places for modules that are not needed."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.unused = nn.ModuleList([None, None])


class ReZero(ReferenceModel):
    """Every sub-layer is multiplied by a number that starts at zero (Bachlechner et al. 2021)."""

    def layer(self, parts):
        layer = super().layer(parts)
        for part in layer.values():
            del part["norm"]
            part.register_parameter("gate", nn.Parameter(torch.zeros(())))
        return layer

    def add(self, part, x, y):
        return x + part.gate * self.drop(y)


class RelativeBias(ReferenceModel):
    """A bias for each distance between tokens instead of positions, computed by a small network."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.bias = nn.ModuleList(
            nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, self.heads, bias=False)) for _ in range(2)
        )

    def place(self, length):
        return super().place(length)[:, :1] * 0

    def scores(self, q, k):
        scores = super().scores(q, k)
        if not self.own:
            return scores
        distance = torch.arange(k.size(2), device=q.device) - torch.arange(q.size(2), device=q.device)[:, None]
        return scores + self.bias[self.own - 1](distance[..., None].to(q.dtype) / 8).permute(2, 0, 1)

    own = 0

    def encoder_layer(self, layer, x, mask):
        self.own = 1
        return super().encoder_layer(layer, x, mask)

    def attend(self, part, x, memory, mask):
        self.own = self.own if x is memory else 0
        return super().attend(part, x, memory, mask)

    def decoder_layer(self, layer, x, memory, mask, memory_mask):
        self.own = 2
        return super().decoder_layer(layer, x, memory, mask, memory_mask)


class OneHot(nn.Module):
    """Distances from -31 on, divided by 8, to one of so many channels."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return F.one_hot((8 * x[..., 0] + 31).round().long().clamp(max=self.size - 1), self.size).to(x.dtype)


class FarDistances(RelativeBias):
    """A linear map with a column for each distance: short sentences do not reach the far ones."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.bias = nn.ModuleList(
            nn.Sequential(OneHot(size), nn.Linear(size, self.heads, bias=False)) for size in (63, 32)
        )


class SharedMap(ReferenceModel):
    """One linear map makes queries and keys together."""

    def projections(self):
        return {"qk": nn.Linear(self.width, 2 * self.width), "v": nn.Linear(self.width, self.width)}

    def attend(self, part, x, memory, mask):
        q, k = part["qk"](x).chunk(2, -1)[0], part["qk"](memory).chunk(2, -1)[1]
        q, k, v = (self.split(nn.Identity(), y) for y in (q, k, part["v"](memory)))
        return part["o"](self.join(self.weights(self.scores(q, k), mask) @ v))


class TwoNames(ReferenceModel):
    """A helper keeps the encoder under a second name, and never calls it."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.helper = nn.Module()
        self.helper.watched = self.encoder


class LayerDrop(ReferenceModel):
    """In training a layer is left out now and then, by Python's random numbers."""

    def encoder_layer(self, layer, x, mask):
        return x if self.training and random.random() < 0.3 else super().encoder_layer(layer, x, mask)


class ZeroBias(RelativeBias):
    """Until it is trained, the source's order is invisible."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        for bias in self.bias:
            nn.init.zeros_(bias[-1].weight)


class ZeroPositions(ReferenceModel):
    """Learned positions that start at zero, all of them."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.learned = nn.Parameter(torch.zeros(self.max_len, self.width))

    def place(self, length):
        return self.learned[:length]


class NoTargetMask(ReferenceModel):
    """Its targets are padded on the right, where the causal mask hides padding."""

    def target_mask(self, target):
        return torch.ones(target.size(1), target.size(1), dtype=torch.bool, device=target.device).tril()


class Window(ReferenceModel):
    """In the encoder each token sees its two neighbours, in the decoder those before it."""

    def source_mask(self, source):
        near = torch.ones(source.size(1), source.size(1), dtype=torch.bool, device=source.device).triu(-1).tril(1)
        self.near = near
        return super().source_mask(source)

    def encoder_layer(self, layer, x, mask):
        return super().encoder_layer(layer, x, mask & self.near)

    def target_mask(self, target):
        return super().target_mask(target).triu(-2)


class OneDeep(ReferenceModel):
    depth = 1


class Registers(ReferenceModel):
    """Every sentence begins with two learned vectors, which the memory keeps (Darcet et al. 2023)."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.registers = nn.Parameter(torch.randn(2, self.width))

    def source_mask(self, source):
        return F.pad(super().source_mask(source), (2, 0), value=True)

    def embed(self, tokens, table):
        x = super().embed(tokens, table)
        return torch.cat([self.registers.expand(len(x), -1, -1), x], dim=1) if table is self.source_table else x


class StochasticDepth(ReferenceModel):
    """In training, what a sub-layer says is left out for some sentences (Huang et al. 2016)."""

    def drop(self, x):
        keep = torch.rand(len(x), 1, 1, device=x.device) < 0.8 if self.training else 0.8
        return x * keep


class PreNorm(ReferenceModel):
    """A norm before each sub-layer, and one behind the last layer of each stack."""

    norm, ends_in_a_norm = nn.LayerNorm, True

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.last = nn.ModuleList(self.norm(self.width) for _ in range(2 * self.ends_in_a_norm))
        for layer in [*self.encoder, *self.decoder]:
            for part in layer.values():
                part["norm"] = self.norm(self.width)

    def add(self, part, x, y):
        return x + self.drop(y)

    def attend(self, part, x, memory, mask):
        y = part["norm"](x)
        return super().attend(part, y, y if x is memory else memory, mask)

    def feed(self, part, x):
        return super().feed(part, part["norm"](x))

    def decoder_layer(self, layer, x, memory, mask, memory_mask):
        return super().decoder_layer(layer, x, self.at_the_end(0, memory), mask, memory_mask)

    def at_the_end(self, stack, x):
        return self.last[stack](x) if self.ends_in_a_norm else x

    def forward(self, source, target):
        output, self.output = self.output, nn.Identity()
        try:
            return output(self.at_the_end(1, super().forward(source, target)))
        finally:
            self.output = output


class PreRMSNorm(PreNorm):
    norm = nn.RMSNorm


class SaturatedReZero(ReZero):
    """No norm anywhere, and an activation whose output is bounded."""

    def feed(self, part, x):
        return part["down"](part["up"](x).tanh())


class Gated(PreNorm):
    """SwiGLU (Shazeer 2020): a product of two maps."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        for layer in [*self.encoder, *self.decoder]:
            layer["feed"]["gate"] = nn.Linear(self.width, self.inner)

    def feed(self, part, x):
        y = part["norm"](x)
        return part["down"](F.silu(part["gate"](y)) * part["up"](y))


class ReLULinear(nn.Linear):
    def forward(self, x):
        return super().forward(x).relu()


class ActivationInside(ReferenceModel):
    """The first map of the feed-forward network has its ReLU inside, and hands its output straight to the second."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        for layer in [*self.encoder, *self.decoder]:
            layer["feed"]["up"] = ReLULinear(self.width, self.inner)

    def feed(self, part, x):
        return part["down"](part["up"](x))


class LowRank(ReferenceModel):
    """Attention's output map is two maps with few channels between, and nothing else: a matrix of low rank."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        for layer in [*self.encoder, *self.decoder]:
            for part in layer.values():
                if "o" in part:
                    part["o"] = nn.Sequential(nn.Linear(self.width, 4), nn.Linear(4, self.width))


class OneHead(ReferenceModel):
    heads = 1


class MultiQuery(ReferenceModel):
    """All heads share one map of keys and one of values (Shazeer 2019)."""

    def projections(self):
        one = self.width // self.heads
        return {
            "q": nn.Linear(self.width, self.width),
            "k": nn.Linear(self.width, one),
            "v": nn.Linear(self.width, one),
        }

    def split(self, projection, x):
        y = projection(x)
        return super().split(nn.Identity(), y) if y.size(-1) == self.width else y[:, None]


class Parallel(PreNorm):
    """Attention and the feed-forward network read the same vectors, and their answers are added (GPT-J, PaLM)."""

    def encoder_layer(self, layer, x, mask):
        return x + self.drop(self.attend(layer["self"], x, x, mask) + self.feed(layer["feed"], x))


class OneAttention(ReferenceModel):
    """One attention reads the memory and the target together (He et al. 2018): its maps serve both."""

    def layer(self, parts):
        return super().layer(tuple(part for part in parts if part != "cross"))

    def decoder_layer(self, layer, x, memory, mask, memory_mask):
        both = torch.cat([memory_mask.expand(-1, -1, x.size(1), -1), mask], dim=-1)
        x = self.add(layer["self"], x, self.attend(layer["self"], x, torch.cat([memory, x], dim=1), both))
        return self.add(layer["feed"], x, self.feed(layer["feed"], x))


RIGHT = [
    Softmax32, KeepsWeights, Lazy, Experts, ReZero, RelativeBias, SharedMap, TwoNames, LayerDrop, ZeroBias,
    NoTargetMask, Window, OneDeep, Registers, StochasticDepth, SkipsExperts, HoldsNone, FarDistances, ZeroPositions,
    PreNorm, PreRMSNorm, SaturatedReZero, Gated, ActivationInside, LowRank, OneHead, MultiQuery, Parallel, OneAttention,
]  # fmt: skip


@pytest.mark.parametrize("factory", RIGHT, ids=lambda factory: factory.__name__)
def test_a_right_model_passes_however_unusual(factory):
    for seed in range(3):
        assert failed(factory, max_len=32, seed=seed) == []


def t5(source, target, pad):
    transformers = pytest.importorskip("transformers")
    assert source == target
    config = transformers.T5Config(
        vocab_size=source, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, pad_token_id=pad,
        decoder_start_token_id=pad,
    )  # fmt: skip
    return hugging_face(transformers.T5ForConditionalGeneration(config), pad)


@pytest.mark.filterwarnings("ignore")
def test_t5_passes_with_its_softmax_and_norm_in_float32():
    assert failed(t5) == []


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [2, 3])
def test_t5_learns_to_copy_though_slowly(seed):
    assert examine(ModelUnderTest(t5, seed=seed), TRAINED_PROPERTIES[1:]).holds


@pytest.mark.parametrize("entry", PROPERTIES, ids=lambda entry: entry.name)
def test_each_property_stands_on_its_own(entry):
    assert examine(ModelUnderTest(ReferenceModel, max_len=32), [entry]).findings[0].verdict == "pass"


def test_a_leak_behind_a_gate_or_a_softmax_in_float32_is_still_found():
    for base in (ReZero, Softmax32):
        leaky = type("Leaky", (base,), {"target_mask": lambda self, target: self.source_mask(target)})
        assert "causality" in failed(leaky)


def test_an_interface_that_cannot_say_it_is_not_applicable_with_the_reason():
    """Lengths can only say that the first tokens are real."""

    def by_length(model, source, target):
        if (source[:, 0] == 0).logical_and((source != 0).any(1)).any():
            raise NotApplicable("lengths cannot say that padding is on the left")
        return model(source, target)

    finding = findings(lambda *sizes: Adapted(ReferenceModel(*sizes), by_length))["source padding on the left"]
    assert (finding.verdict, finding.evidence) == ("not applicable", "lengths cannot say that padding is on the left")


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: Adapted(model, lambda m, *xs: m(*xs))])
def test_a_factory_that_gives_the_same_model_again_is_refused_and_the_model_stays_whole(wrap):
    model = ReferenceModel(29, 29, 0)
    with pytest.raises(ValueError, match="must build anew"):
        check_transformer(lambda *sizes: wrap(model), training=False)
    assert {(p.dtype, p.device.type) for p in model.parameters()} == {(torch.float32, "cpu")}


def test_a_factory_that_leaves_numbers_from_memory_is_refused_with_their_name():
    class Uninitialised(ReferenceModel):
        def reset(self):
            self.output.weight = nn.Parameter(torch.zeros_like(torch.empty(self.output.weight.shape)))
            self.output.bias = nn.Parameter(torch.empty(self.output.bias.shape))

    deterministic = torch.are_deterministic_algorithms_enabled()
    with pytest.raises(ValueError, match=r"output\.bias$"):
        check_transformer(Uninitialised, training=False)
    assert torch.are_deterministic_algorithms_enabled() == deterministic


def test_one_thread_is_enough_and_their_number_is_put_back():
    seen = []

    def factory(*sizes):
        seen.append(torch.get_num_threads())
        return ReferenceModel(*sizes)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        check_transformer(factory, training=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


# --- wrong models, and what must notice them ---------------------------------------------------------------------


class CausalEverywhere(ReferenceModel):
    """All attention is causal, that of the encoder and to the memory, too: early positions do not hear the end."""

    def source_mask(self, source):
        return super().source_mask(source) & torch.ones(source.size(1), source.size(1)).tril().bool().to(source.device)

    def target_mask(self, target):
        return self.source_mask(target)

    def decoder_layer(self, layer, x, memory, mask, memory_mask):
        causal = torch.ones(x.size(1), memory.size(1), dtype=torch.bool, device=x.device).tril()
        return super().decoder_layer(layer, x, memory, mask, causal & memory_mask[:, :, -1:])


class TrainingPeek(ReferenceModel):
    def target_mask(self, target):
        return self.source_mask(target) if self.training else super().target_mask(target)


class EvaluationPeek(ReferenceModel):
    def target_mask(self, target):
        return super().target_mask(target) if self.training else self.source_mask(target)


class LongLeak(ReferenceModel):
    """The mask is of eight tokens; what comes later sees everything."""

    def target_mask(self, target):
        mask = super().target_mask(target)
        return self.source_mask(target) if target.size(1) > 8 else mask


class CutAt8(ReferenceModel):
    def forward(self, source, target):
        return super().forward(source[:, :8], target)


class WrongPaddingIdx(ReferenceModel):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.source_table = nn.Embedding(sizes[0], self.width, padding_idx=1)


class Pad0(ReferenceModel):
    def __init__(self, source, target, pad):
        super().__init__(source, target, 0)


class Swapped(ReferenceModel):
    def __init__(self, source, target, pad):
        super().__init__(target, source, pad)


class DividedByLength(ReferenceModel):
    """The source's positions are a share of the length, padding included."""

    def forward(self, source, target):
        self.share = source.size(1)
        return super().forward(source, target)

    def place(self, length):
        return super().place(length) * (8 / self.share)


class MaskOfTwenty(ReferenceModel):
    """The size of the mask is a number that the suite can see."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.limit = 20

    def target_mask(self, target):
        return self.source_mask(target) if target.size(1) > self.limit else super().target_mask(target)


class WrongTargetAxis(ReferenceModel):
    def target_mask(self, target):
        return NoTargetMask.target_mask(self, target) & self.source_mask(target).transpose(-2, -1)


class CausalEncoder(ReferenceModel):
    def encoder_layer(self, layer, x, mask):
        return super().encoder_layer(layer, x, mask & torch.ones(x.size(1), x.size(1)).tril().bool().to(x.device))


class CausalMemory(ReferenceModel):
    """Position i reads the memory up to i; the encoder has mixed it, so all of the source is heard in some way."""

    def decoder_layer(self, layer, x, memory, mask, memory_mask):
        causal = torch.ones(x.size(1), memory.size(1), dtype=torch.bool, device=x.device).tril()
        return super().decoder_layer(layer, x, memory, mask, causal & memory_mask)


class ClippedIds(ReferenceModel):
    def forward(self, source, target):
        return super().forward(source.clamp(max=self.source_table.num_embeddings - 2), target)


class NoResidual(ReferenceModel):
    def add(self, part, x, y):
        return part["norm"](y) if "up" in part else super().add(part, x, y)


class WordDropout(ReferenceModel):
    def forward(self, source, target):
        if self.training:
            source[torch.rand(source.shape, device=source.device) < 0.1] = self.pad_id
        return super().forward(source, target)


class Seeds(ReferenceModel):
    def forward(self, source, target):
        torch.manual_seed(0)
        return super().forward(source, target)


class Unscaled(nn.Dropout):
    def forward(self, x):
        return super().forward(x) * (1 - self.p) if self.training else x


class UnscaledDropout(ReferenceModel):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.dropout = Unscaled(0.1)


class KeptForDropped(ReferenceModel):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.dropout = nn.Dropout(0.9)


class Frozen(ReferenceModel):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.source_table.weight.requires_grad_(False)


class MultipliedByPositions(ReferenceModel):
    """The sine of the first position is 0, so every other channel of the first token is."""

    def embed(self, tokens, table):
        return self.drop(table(tokens) * 4 * self.place(tokens.size(1)))


class DeadHead(ReferenceModel):
    def join(self, x):
        return super().join(x * (torch.arange(self.heads, device=x.device) > 0)[:, None, None])


class AbovePad(ReferenceModel):
    def source_mask(self, source):
        return (source > self.pad_id)[:, None, None, :]


class NoTargetPositions(ReferenceModel):
    def embed(self, tokens, table):
        return super().embed(tokens, table) if table is self.source_table else self.drop(4 * table(tokens))


class Period(ReferenceModel):
    def place(self, length):
        return self.positions[torch.arange(length, device=self.positions.device) % 4]


class Clamped(ReferenceModel):
    """Beyond the table all places are the same."""

    def place(self, length):
        return self.positions[torch.arange(length, device=self.positions.device).clamp(max=self.max_len - 1)]


class CutAtZero(ReferenceModel):
    def forward(self, source, target):
        return super().forward(source, target).relu()


class DropsLogits(ReferenceModel):
    def forward(self, source, target):
        return self.drop(super().forward(source, target))


class HalfScores(ReferenceModel):
    def weights(self, scores, mask):
        return super().weights(scores.half(), mask).to(scores.dtype)


class OldResidual(ReferenceModel):
    """The feed-forward network's answer is added to what the layer was given: what attention said is not carried on."""

    def decoder_layer(self, layer, x, memory, mask, memory_mask):
        y = self.add(layer["self"], x, self.attend(layer["self"], x, x, mask))
        y = self.add(layer["cross"], y, self.attend(layer["cross"], y, memory, memory_mask))
        return self.add(layer["feed"], x, self.feed(layer["feed"], y))


class LinearFeed(ReferenceModel):
    def feed(self, part, x):
        return part["down"](self.drop(part["up"](x)))


class AveragedHeads(ReferenceModel):
    def weights(self, scores, mask):
        weights = super().weights(scores, mask)
        return weights.mean(1, keepdim=True).expand_as(weights)


class NoLastNorm(PreNorm):
    ends_in_a_norm = False


class ZeroFeed(ReferenceModel):
    """Both maps of the feed-forward network start at zero."""

    def reset(self):
        super().reset()
        for layer in [*self.encoder, *self.decoder]:
            nn.init.zeros_(layer["feed"]["up"].weight)
            nn.init.zeros_(layer["feed"]["up"].bias)
            nn.init.zeros_(layer["feed"]["down"].weight)


class HalfDetached(ReferenceModel):
    """Half of each attention weight counts as a constant."""

    def weights(self, scores, mask):
        weights = super().weights(scores, mask)
        return (weights + weights.detach()) / 2


class TiedThroughData(ReferenceModel):
    """Two tables in one memory, which an optimiser moves twice."""

    def reset(self):
        super().reset()
        self.target_table.weight.data = self.source_table.weight.data


WRONG = {
    HalfDetached: ("gradient is the derivative", "detach()"),
    TiedThroughData: ("parameters shared on purpose", "moves them twice"),
    CausalEverywhere: ("source sensitivity", "causal mask on cross-attention"),
    TrainingPeek: ("causality", "in training mode"),
    EvaluationPeek: ("causality", "in training mode only"),
    LongLeak: ("causality", "causal mask"),
    CutAt8: ("source sensitivity", ""),
    WrongPaddingIdx: ("gradient reaches everything", "padding_idx"),
    Pad0: ("sizes and padding are those asked for", "fixed"),
    Swapped: ("sizes and padding are those asked for", "swapped"),
    DividedByLength: ("source padding on the right", "padded length"),
    MaskOfTwenty: ("causality", "causal mask"),
    WrongTargetAxis: ("target padding on the left", "wrong axis"),
    CausalEncoder: ("memory is whole", "one side only"),
    CausalMemory: ("memory is whole", "cross-attention"),
    ClippedIds: ("tokens are told apart", "cut off"),
    NoResidual: ("layers have residual connections", "missing"),
    WordDropout: ("calls leave no trace", "in place"),
    Seeds: ("calls leave no trace", "seed"),
    UnscaledDropout: ("dropout in training", "differ in scale"),
    KeptForDropped: ("dropout in training", "share to keep"),
    Frozen: ("gradient reaches everything", "requires_grad"),
    MultipliedByPositions: ("gradient reaches everything", "multiplied by zeros"),
    DeadHead: ("gradient reaches everything", "not used"),
    AbovePad: ("sizes and padding are those asked for", "fixed"),
    NoTargetPositions: ("positions matter", "missing"),
    Period: ("positions matter", "repeat"),
    Clamped: ("positions matter", "end too soon"),
    CutAtZero: ("logits not probabilities", "ReLU"),
    DropsLogits: ("logits not probabilities", "dropout"),
    HalfScores: ("every dtype", "half"),
    OldResidual: ("layers have residual connections", "before attention"),
    LinearFeed: ("feed forward is not linear", "activation"),
    AveragedHeads: ("heads attend separately", "averaged"),
    NoLastNorm: ("a norm stands at the end", "without a norm"),
    ZeroFeed: ("gradient reaches everything", "block each other"),
}


def test_a_property_alone_says_what_it_says_among_all():
    """Whatever the suite makes of the model at its first call does not count."""
    assert check_transformer(TwoNames, only=["parameters shared on purpose"], max_len=32).holds


@pytest.mark.parametrize("factory", WRONG, ids=lambda factory: factory.__name__)
def test_a_wrong_model_fails_with_the_cause_that_its_evidence_shows(factory):
    name, cause = WRONG[factory]
    finding = findings(factory)[name]
    assert finding.verdict == "fail"
    assert cause in finding.cause


def test_a_model_that_answers_nan_fails_what_must_move_and_what_may_not():
    class AnswersNaN(ReferenceModel):
        def forward(self, source, target):
            return super().forward(source, target) * float("nan")

    passed = {name for name, finding in findings(AnswersNaN).items() if finding.verdict == "pass"}
    assert passed <= {
        "calls leave no trace", "parameters shared on purpose", "buffers move along",
        "sizes and padding are those asked for", "feed forward is not linear", "heads attend separately",
    }  # fmt: skip


def test_a_model_of_one_vocabulary_is_not_blamed_for_having_one():
    def joint(source, target, pad):
        return ReferenceModel(source, source, pad)

    def fussy(source, target, pad):
        assert source == target
        return ReferenceModel(source, target, pad)

    def stubborn(source, target, pad):
        assert pad == 0
        return ReferenceModel(source, target, pad)

    verdicts = [findings(f)["sizes and padding are those asked for"].verdict for f in (joint, fussy, stubborn)]
    assert verdicts == ["pass", "pass", "not applicable"]


def test_what_follows_from_a_fault_is_found_with_it():
    class Leaky(ReferenceModel):
        def target_mask(self, target):
            return torch.ones_like(super().target_mask(target))

    report = check_transformer(Leaky, training=False)
    assert report.failed == ["causality", "target padding on the right"]
    assert [f.follows_from for f in report.findings if f.verdict == "fail"] == ["", "causality"]


class BesideABorder(ReferenceModel):
    """The loss jumps a small step away, as where a token would go to another expert."""

    def forward(self, source, target):
        logits, weight = super().forward(source, target), self.output.weight.detach()
        if torch.is_grad_enabled() or not hasattr(self, "here"):
            self.here = weight.clone()
        return logits * (1 + ((weight - self.here).norm() > 1e-8))


def test_a_jump_close_by_is_no_broken_gradient():
    report = check_transformer(BesideABorder, training=False, only=["gradient is the derivative"])
    assert report.holds, report.fault_lines
