"""Unusual but right models pass the suite, and what is wrong in an unusual way fails, with the cause that shows."""

import functools
import random
import re

import decoders
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lib.checks import check_transformer
from transformer_lib.checks.bugs import CASES
from transformer_lib.checks.properties import PROPERTIES, TRAINED_PROPERTIES
from transformer_lib.checks.reference_model import ReferenceModel
from transformer_lib.checks.report import NotApplicable, examine
from transformer_lib.checks.subject import Adapted, ModelUnderTest, hugging_face
from transformer_lib.positions import sinusoidal_table


def findings(factory, **options):
    return {finding.name: finding for finding in check_transformer(factory, training=False, **options).findings}


def failed(factory, **options):
    return [name for name, finding in findings(factory, **options).items() if finding.verdict == "fail"]


def spoilt(base=ReferenceModel, built=None, **methods):
    """The model with other methods or sizes, and changed once it is built."""

    def init(self, *sizes):
        base.__init__(self, *sizes)
        built(self)

    return type("Spoilt", (base,), methods | ({"__init__": init} if built else {}))


def every_layer(model):
    return [*model.encoder, *model.decoder]


def up_to(x, memory):
    """Who may see whom, if nobody may see what comes later: (n, m)."""
    return torch.ones(x.size(1), memory.size(1), dtype=torch.bool, device=x.device).tril()


def adapted(call):
    """The reference model, called in another way."""
    return lambda *sizes: Adapted(ReferenceModel(*sizes), call)


R = ReferenceModel


def decoder(**parts):
    """The factory of a decoder with a cache, and how it differs from the usual one."""
    own = {key: parts.pop(key) for key in [*parts] if key not in ("call", "extend", "generate", "loss", "one_cache")}
    return decoders.adapted(decoders.kind(**own), **{"reorder": None, "crop": None, "beams": None} | parts)


# --- right models, unusual in one way ----------------------------------------------------------------------------


class Softmax32(ReferenceModel):
    """The softmax in float32, whatever the model computes in; its lowest number overflows there from float64."""

    def weights(self, scores, mask):
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return scores.softmax(-1, dtype=torch.float32).to(scores.dtype) * mask


def remembered(self, scores, mask):
    """Keeps its last attention for pictures."""
    self.last, self.history = R.weights(self, scores, mask), [scores]
    return self.last


class Experts(ReferenceModel):
    """Each token goes through one of four networks, the router's favourite, and no other is computed for it."""

    skips = False  # a network that no token chose: then how many calls there are depends on the tokens

    def __init__(self, *sizes):
        super().__init__(*sizes)
        relu = nn.ReLU()  # one for all, so it is always heard from
        for layer in every_layer(self):
            experts = [nn.Sequential(nn.Linear(16, 32), relu, nn.Dropout(), nn.Linear(32, 16)) for _ in range(4)]
            del layer["feed"]["up"], layer["feed"]["down"]
            layer["feed"]["router"], layer["feed"]["experts"] = nn.Linear(16, 4), nn.ModuleList(experts)

    def feed(self, part, x):
        shares, chosen = part["router"](x).softmax(-1).max(-1)
        y = torch.zeros_like(x)
        for i, expert in enumerate(part["experts"]):
            if not self.skips or (chosen == i).any():
                y[chosen == i] = expert(x[chosen == i])
        return y * shares[..., None]


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


class SharedMap(ReferenceModel):
    """One linear map makes queries and keys together."""

    def projections(self):
        return {"qk": nn.Linear(self.width, 2 * self.width), "v": nn.Linear(self.width, self.width)}

    def attend(self, part, x, memory, mask):
        q, k = part["qk"](x).chunk(2, -1)[0], part["qk"](memory).chunk(2, -1)[1]
        q, k, v = (self.split(nn.Identity(), y) for y in (q, k, part["v"](memory)))
        return part["o"](self.join(self.weights(self.scores(q, k), mask) @ v))


def near(x):
    """Who may see whom, if each token sees its two neighbours."""
    return torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).triu(-1).tril(1)


class PreNorm(ReferenceModel):
    """A norm before each sub-layer, and one behind the last layer of each stack."""

    norm = last = nn.LayerNorm

    def __init__(self, *sizes):
        super().__init__(*sizes)
        for layer in every_layer(self):
            for part in layer.values():
                part["norm"] = self.norm(self.width)
        self.memory_norm, self.output = self.last(self.width), nn.Sequential(self.last(self.width), self.output)

    def add(self, part, x, y):
        return x + self.drop(y)

    def attend(self, part, x, memory, mask):
        y = part["norm"](x)
        return super().attend(part, y, y if x is memory else memory, mask)

    def feed(self, part, x):
        return super().feed(part, part["norm"](x))

    def decoder_layer(self, layer, x, memory, mask, memory_mask):
        return super().decoder_layer(layer, x, self.memory_norm(memory), mask, memory_mask)


class ReLULinear(nn.Linear):
    def forward(self, x):
        return super().forward(x).relu()


class MultiQuery(ReferenceModel):
    """All heads share one map of keys and one of values (Shazeer 2019)."""

    def projections(self):
        one = self.width // self.heads
        return {name: nn.Linear(self.width, self.width if name == "q" else one) for name in "qkv"}

    def split(self, projection, x):
        y = projection(x)
        return super().split(nn.Identity(), y) if y.size(-1) == self.width else y[:, None]


class OneAttention(ReferenceModel):
    """One attention reads the memory and the target together (He et al. 2018): its maps serve both."""

    def layer(self, parts):
        return super().layer(tuple(part for part in parts if part != "cross"))

    def decoder_layer(self, layer, x, memory, mask, memory_mask):
        both = torch.cat([memory_mask.expand(-1, -1, x.size(1), -1), mask], dim=-1)
        x = self.add(layer["self"], x, self.attend(layer["self"], x, torch.cat([memory, x], dim=1), both))
        return self.add(layer["feed"], x, self.feed(layer["feed"], x))


def running_mean(m, layer, x, memory, mask, memory_mask):
    """What came before is averaged, without weights (Zhang et al. 2018)."""
    part, real = layer["self"], mask[:, 0, -1, :, None].to(x)
    mean = (x * real).cumsum(1) / real.cumsum(1).clamp_min(1)
    x = m.add(part, x, (part["q"](x) + part["k"](mean)).sigmoid() * part["o"](part["v"](mean).relu()))
    x = m.add(layer["cross"], x, m.attend(layer["cross"], x, memory, memory_mask))
    return m.add(layer["feed"], x, m.feed(layer["feed"], x))


def three_best(m, scores, mask):
    """Attention to the three keys with the highest scores, and to no other."""
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return R.weights(m, scores, mask & (scores >= scores.topk(min(3, scores.size(-1))).values[..., -1:]))


def all_or_nan(m, scores, mask):
    """The textbook's softmax, which is NaN where nothing may be seen."""
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


def after_a_gru(m, tokens, table):
    x = R.embed(m, tokens, table) * (tokens != m.pad_id)[..., None]
    return x + m.gru(x)[0] if table is m.target_table else x


def kept_mask(m, target, device=None):
    """The causal mask, made once for each device."""
    device, n = device or target.device, target.size(1)
    if getattr(m, "kept", None) is None or m.kept.device.type != torch.device(device).type:
        m.kept = torch.ones(300, 300, dtype=torch.bool, device=device).tril()
    return m.kept[:n, :n] & (target != m.pad_id)[:, None, None]


def growing(m, length):
    """A table made anew for a longer sentence or another device; nobody can look at values on `meta`."""
    like = m.output.weight
    assert torch.isfinite(like[0, 0])
    assert len(R.place(m, length)) == length, "which raises beyond max_len"
    if getattr(m, "grown", None) is None or len(m.grown) < length or m.grown.device != like.device:
        m.grown = sinusoidal_table(length, m.width).to(like)
    return m.grown[:length].to(like.dtype)


class Residual(nn.Module):
    """A feed-forward network of bare matrices that holds its residual connection and its norm, as XLNet's attention."""

    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(width, 32) / 4), nn.Parameter(torch.randn(32, width) / 4)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + (x @ self.up).relu() @ self.down)


class PackedSource(ReferenceModel):
    """A recurrent network before the encoder, which reads as many tokens as are real: padding must stand behind."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.lstm = nn.LSTM(self.width, self.width // 2, bidirectional=True, batch_first=True)

    def embed(self, tokens, table):
        x = super().embed(tokens, table)
        if table is self.target_table:
            return x
        lengths = (tokens != self.pad_id).sum(1).clamp_min(1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return x + nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.size(1))[0]


def softmax_over(axis):
    """Weights that add up to 1 over another axis than the keys, with no weight where the mask says so."""
    return lambda m, scores, mask: scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(axis) * mask


def below(side, other):
    """Ids of one side are cut off where the other vocabulary ends."""

    def forward(m, *tokens):
        tables = (m.source_table, m.target_table)
        cut = [x.clamp(max=tables[other].num_embeddings - 1) if i == side else x for i, x in enumerate(tokens)]
        return R.forward(m, *cut)

    return forward


TWO_NAMES = spoilt(built=lambda m: setattr(m, "helper", nn.ModuleDict({"watched": m.encoder})))
RIGHT = {
    "softmax in float32": Softmax32,
    "lazy output": spoilt(built=lambda m: setattr(m, "output", nn.LazyLinear(m.output.out_features))),
    "experts": Experts,
    "experts that nobody chose are not called": spoilt(Experts, skips=True),
    "sub-layers begin at zero": ReZero,
    "no norm and a bounded activation": spoilt(ReZero, feed=lambda m, part, x: part["down"](part["up"](x).tanh())),
    "a bias for each distance": RelativeBias,
    "the bias begins at zero": spoilt(RelativeBias, lambda m: [nn.init.zeros_(bias[-1].weight) for bias in m.bias]),
    "far distances": spoilt(RelativeBias, lambda m: setattr(m, "bias", nn.ModuleList(
        nn.Sequential(OneHot(size), nn.Linear(size, m.heads, bias=False)) for size in (63, 32)))),
    "positions begin at zero": spoilt(
        built=lambda m: setattr(m, "learned", nn.Parameter(torch.zeros(m.max_len, m.width))),
        place=lambda m, length: m.learned[:length]),
    "one map of queries and keys": SharedMap,
    "a second name": TWO_NAMES,
    "a table with two names and as the output's weight": spoilt(built=lambda m: [
        setattr(m, "once_more", m.target_table), setattr(m.output, "weight", m.target_table.weight)]),
    "layers left out in training": spoilt(encoder_layer=lambda m, layer, x, mask:
            x if m.training and random.random() < 0.3 else R.encoder_layer(m, layer, x, mask)),
    "stochastic depth": spoilt(  # Huang et al. 2016
        drop=lambda m, x: x * (torch.rand(len(x), 1, 1, device=x.device) < 0.8 if m.training else 0.8)),
    "a window": spoilt(encoder_layer=lambda m, layer, x, mask: R.encoder_layer(m, layer, x, mask & near(x)),
        target_mask=lambda m, target: R.target_mask(m, target).triu(-2)),
    "one layer of one head": spoilt(depth=1, heads=1),
    "places for modules that are not needed, and a parameter without numbers": spoilt(built=lambda m: [
            setattr(m, "unused", nn.ModuleList([None, None])),
            setattr(m, "none", nn.Parameter(torch.zeros(m.width, 0)))],
        forward=lambda m, s, t: R.forward(m, s, t) + m.none.sum()),
    "registers": spoilt(  # each sentence begins with two learned vectors, which the memory keeps: Darcet et al. 2023
        built=lambda m: setattr(m, "registers", nn.Parameter(torch.randn(2, m.width))),
        source_mask=lambda m, source: F.pad(R.source_mask(m, source), (2, 0), value=True),
        embed=lambda m, tokens, table: torch.cat(
            [m.registers.expand(len(tokens), -1, -1)] * (table is m.source_table) + [R.embed(m, tokens, table)], dim=1),
    ),
    "pre-norm": PreNorm,
    "RMSNorm and SwiGLU": spoilt(  # a product of two maps: Shazeer 2020
        spoilt(PreNorm, norm=nn.RMSNorm, last=nn.RMSNorm),
        lambda m: [layer["feed"].update({"gate": nn.Linear(m.width, m.inner)}) for layer in every_layer(m)],
        feed=lambda m, part, x: part["down"](F.silu(part["gate"](part["norm"](x))) * part["up"](part["norm"](x)))),
    "attention beside the feed-forward network": spoilt(  # GPT-J, PaLM
        PreNorm, encoder_layer=lambda m, layer, x, mask:
            x + m.drop(m.attend(layer["self"], x, x, mask) + m.feed(layer["feed"], x))),
    "an activation inside the first map": spoilt(
        built=lambda m: [layer["feed"].update({"up": ReLULinear(m.width, m.inner)}) for layer in every_layer(m)],
        feed=lambda m, part, x: part["down"](part["up"](x))),
    "an output map of low rank": spoilt(built=lambda m: [
        part.update({"o": nn.Sequential(nn.Linear(m.width, 4), nn.Linear(4, m.width))})
        for layer in every_layer(m) for part in layer.values() if "o" in part]),
    "one map of keys and values": MultiQuery,
    "one attention to memory and target": OneAttention,
    "sinusoids of another base": spoilt(
        keep=lambda m, table: table_with(lambda i, d: 500 ** (-(i // 2) * 2 / d))(m, table)),
    "a feature map for all heads": spoilt(  # of what each head's own map has made
        built=lambda m: setattr(m, "features", nn.Linear(4, 4)),
        scores=lambda m, q, k: R.scores(m, m.features(q).relu(), m.features(k).relu())),
    "a running mean": spoilt(decoder_layer=running_mean),
    "the three best keys": spoilt(weights=three_best),
    "torch's recurrent network": spoilt(
        embed=after_a_gru, built=lambda m: setattr(m, "gru", nn.GRU(m.width, m.width, batch_first=True))),
    "a table that grows": spoilt(place=growing),
    "remembers its attention, and copies a table at each call": spoilt(
        weights=remembered, keep=lambda m, table: vars(m).update(positions=table),
        place=lambda m, length: R.place(m, length).to(m.output.weight)),
    "a feed-forward network with its own residual connection": spoilt(
        built=lambda m: [layer["feed"].update({"up": Residual(m.width), "down": nn.Identity()})
                         for layer in every_layer(m)], feed=lambda m, part, x: part["up"](x) - x),
    "a mask for each device, and a table made in float64": spoilt(
        target_mask=kept_mask, place=lambda m, n: R.place(m, n).double().to(m.output.weight)),
    "weights beside a sink": spoilt(weights=lambda m, scores, mask:  # of 1, as of a further key
        F.pad(scores.masked_fill(~mask, -torch.inf), (1, 0)).softmax(-1)[..., 1:]),
    "linear attention": spoilt(
        scores=lambda m, q, k: (F.elu(q) + 1) @ (F.elu(k) + 1).mT, weights=lambda m, scores, mask: scores * mask),
    "two maps of each head's slice, to other widths": spoilt(
        built=lambda m: [layer["feed"].update({"mix": nn.Linear(8, 2), "gate": nn.Linear(8, 1)})
                         for layer in every_layer(m)],
        feed=lambda m, part, x: R.feed(m, part, x + (
            part["mix"](y := x.unflatten(-1, (2, 8))).mean(-1, keepdim=True) * part["gate"](y)).flatten(1, 1).repeat(
                1, 1, 1, 8).flatten(2))),
    "cosines": spoilt(scores=lambda m, q, k: F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT),
    "a mixture of softmaxes": spoilt(
        built=lambda m: setattr(m, "other", nn.Linear(m.target_table.num_embeddings, m.output.out_features)),
        forward=lambda m, s, t: torch.logaddexp((y := R.forward(m, s, t)).log_softmax(-1), m.other(y).log_softmax(-1))),
    "rows no longer than 1": spoilt(
        built=lambda m: setattr(m, "target_table", nn.Embedding(m.target_table.num_embeddings, m.width, max_norm=1.0))),
    "a cell that packs the source by its length": PackedSource,
    "compiled": lambda *sizes: torch.compile(R(*sizes), backend="eager"),
    "DataParallel": lambda *sizes: nn.DataParallel(R(*sizes)),
}  # fmt: skip


PLAIN = [entry for entry in PROPERTIES if ModelUnderTest(ReferenceModel).has(entry.needs)]  # the others need an adapter
DEAR = {  # the five properties that take half of the time, and the right models that they could blame
    "sizes and padding are those asked for":
        "lazy output; a table with two names and as the output's weight; a mixture of softmaxes; rows no "
        "longer than 1; a cell that packs the source by its length; compiled",
    "attention chooses among keys":
        "softmax in float32; one map of queries and keys; one layer of one head; remembers its attention, and "
        "copies a table at each call; one map of keys and values; one attention to memory and target; a "
        "feature map for all heads; a running mean; the three best keys; weights beside a sink; linear "
        "attention; cosines; a window; registers",
    "positions matter":
        "a bias for each distance; the bias begins at zero; far distances; positions begin at zero; sinusoids "
        "of another base; a table that grows; remembers its attention, and copies a table at each call; a "
        "mask for each device, and a table made in float64; torch's recurrent network; registers; a window; "
        "sub-layers begin at zero; one layer of one head",
    "heads attend separately":
        "one layer of one head; one map of keys and values; one map of queries and keys; a running mean; a "
        "feature map for all heads; an output map of low rank; two maps of each head's slice, to other widths; one "
        "attention to memory and target; linear attention",
    "layers have residual connections":
        "sub-layers begin at zero; no norm and a bounded activation; pre-norm; attention beside the "
        "feed-forward network; stochastic depth; layers left out in training; RMSNorm and SwiGLU; a "
        "feed-forward network with its own residual connection; one layer of one head; experts; places for "
        "modules that are not needed, and a parameter without numbers; one attention to memory and target; a "
        "running mean; DataParallel",
}  # fmt: skip


@pytest.mark.parametrize("seed", [None, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3))])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_model_passes_however_unusual(name, seed):
    """With a seed the whole suite; without one what is quick, and what names the model."""
    rest = {entry.name for entry in PLAIN} - {other for other, names in DEAR.items() if name not in names.split("; ")}
    assert failed(RIGHT[name], max_len=32, seed=seed or 0, only=rest if seed is None else ()) == []


def test_the_properties_that_take_long_name_right_models():
    assert DEAR.keys() < {entry.name for entry in PLAIN}
    assert {name for names in DEAR.values() for name in names.split("; ")} < RIGHT.keys()


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
    assert failed(t5, only=only) == []


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [2, 3])
def test_t5_learns_to_copy_though_slowly(seed):
    assert examine(ModelUnderTest(t5, seed=seed, source_vocab_size=29), TRAINED_PROPERTIES[1:]).holds


@pytest.mark.parametrize("entry", PLAIN, ids=lambda entry: entry.name)
def test_each_property_stands_on_its_own(entry):
    """Whatever the suite makes of the model at its first call does not count."""
    assert examine(ModelUnderTest(TWO_NAMES, max_len=32), [entry]).findings[0].verdict == "pass"


@pytest.mark.parametrize("base", [ReZero, Softmax32])
def test_a_leak_behind_a_gate_or_a_softmax_in_float32_is_still_found(base):
    assert failed(spoilt(base, target_mask=lambda m, target: m.source_mask(target)), only=["causality"]) == [
        "causality"
    ]


def test_an_interface_that_cannot_say_it_is_not_applicable_with_the_reason():
    """Lengths can only say that the first tokens are real."""

    def by_length(model, source, target):
        if (source[:, 0] == 3).logical_and((source != 3).any(1)).any():
            raise NotApplicable("lengths cannot say that padding is on the left")
        return model(source, target)

    name = "source padding on the left"
    (finding,) = findings(lambda *sizes: Adapted(ReferenceModel(*sizes), by_length), only=[name]).values()
    assert (finding.verdict, finding.evidence) == ("not applicable", "lengths cannot say that padding is on the left")


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: Adapted(model, lambda m, *xs: m(*xs))])
def test_a_factory_that_gives_the_same_model_again_is_refused_and_the_model_stays_whole(wrap):
    model = ReferenceModel(29, 29, 0)
    with pytest.raises(ValueError, match="must build anew"):
        check_transformer(lambda *sizes: wrap(model), training=False)
    assert {(p.dtype, p.device.type) for p in model.parameters()} == {(torch.float32, "cpu")}


def test_a_factory_that_leaves_numbers_from_memory_is_refused_with_their_name():
    def reset(model):
        model.output.weight = nn.Parameter(torch.zeros_like(torch.empty(model.output.weight.shape)))
        model.output.bias = nn.Parameter(torch.empty(model.output.bias.shape))

    deterministic = torch.are_deterministic_algorithms_enabled()
    with pytest.raises(ValueError, match=r"output\.bias$"):
        check_transformer(spoilt(reset=reset), training=False)
    assert torch.are_deterministic_algorithms_enabled() == deterministic


def test_one_thread_is_enough_and_their_number_is_put_back():
    seen = []

    def factory(*sizes):
        seen.append(torch.get_num_threads())
        return ReferenceModel(*sizes)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        check_transformer(factory, training=False, only=["causality"])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


# --- wrong models, and what must notice them ---------------------------------------------------------------------


class Unscaled(nn.Dropout):
    def forward(self, x):
        return super().forward(x) * (1 - self.p) if self.training else x


class DividedByLength(ReferenceModel):
    """The source's positions are a share of the length, padding included."""

    def forward(self, source, target):
        self.share = source.size(1)
        return super().forward(source, target)

    def place(self, length):
        return super().place(length) * (8 / self.share)


class OldResidual(ReferenceModel):
    """The feed-forward network's answer is added to what the layer was given: what attention said is not carried on."""

    def decoder_layer(self, layer, x, memory, mask, memory_mask):
        y = self.add(layer["self"], x, self.attend(layer["self"], x, x, mask))
        y = self.add(layer["cross"], y, self.attend(layer["cross"], y, memory, memory_mask))
        return self.add(layer["feed"], x, self.feed(layer["feed"], y))


def zero_feed(model):
    """Both maps of the feed-forward network start at zero."""
    for feed in (layer["feed"] for layer in every_layer(model)):
        for parameter in (feed["up"].weight, feed["up"].bias, feed["down"].weight):
            nn.init.zeros_(parameter)


def sees_all(long):
    """A causal mask of so many tokens; what comes later sees everything."""
    return lambda m, target: m.source_mask(target) if target.size(1) > long(m) else R.target_mask(m, target)


class OnTokens(nn.Sequential):
    """The output map reads the tokens of all sentences in one row, and a log-softmax stands behind it."""

    def forward(self, x):
        return super().forward(x.flatten(0, 1)).log_softmax(-1).view(*x.shape[:2], -1)


class Ternary(nn.Linear):
    """Weights of -1, 0 and 1 times one number, with the gradient as if they were not rounded."""

    def forward(self, x):
        size = self.weight.abs().mean()
        rounded = (self.weight / size).round().clamp(-1, 1) * size
        return F.linear(x, self.weight + (rounded - self.weight).detach(), self.bias)


def table_with(speed):
    """A constant table of sines and cosines; speed(i, d) is that of channel i."""

    def keep(m, table):
        speeds = torch.tensor([speed(i, m.width) for i in range(m.width)])
        angles = torch.arange(float(m.max_len))[:, None] * speeds
        R.keep(m, torch.where(torch.arange(m.width) % 2 == 0, angles.sin(), angles.cos()))

    return keep


def by_row(m, tokens, table):
    """Positions are those of the sentences in the batch, as by a table for (batch, length) with (length, batch)."""
    return m.drop(4 * table(tokens) + m.place(m.max_len)[torch.arange(len(tokens), device=tokens.device) % 32, None])


def longest(m, length):
    """Positions are as far apart as the longest sentence so far lets them."""
    m.longest = max(getattr(m, "longest", 8), length)
    return R.place(m, length) * (8 / m.longest)


def times(m, source, target, *matrices):
    return functools.reduce(torch.matmul, matrices, R.forward(m, source, target))


def first_source(m, part, x, memory, mask):
    """Attention to the source that came first, if another is as large."""
    if x is not memory:
        kept = m.__dict__.setdefault("kept", {}).setdefault(part, memory.detach())
        memory = kept if kept.shape == memory.shape and kept.dtype == memory.dtype else memory
    return R.attend(m, part, x, memory, mask)


WRONG = {  # the model, a property that fails, what its cause says; or the model, and all properties that fail
    "softmax over heads": (spoilt(weights=softmax_over(1)), "attention chooses among keys", "another axis"),
    "softmax over queries": (spoilt(weights=softmax_over(-2)), "attention chooses among keys", "another axis"),
    "softmax twice": (spoilt(weights=lambda m, scores, mask: R.weights(m, R.weights(m, scores, mask), mask)),
        "attention chooses among keys", "that a softmax gave"),
    "source cut to the target's vocabulary": (spoilt(forward=below(0, 1)), "tokens are told apart", "cut off"),
    "target cut to the source's vocabulary": (
        spoilt(forward=below(1, 0)), "sizes and padding are those asked for", ""),
    "padding rewritten": (spoilt(forward=lambda m, s, t:
            (R.forward(m, s, t), s.masked_fill_(s == m.pad_id, 0))[0]), "calls leave no trace", "in place"),
    "half of the memory detached": (
        spoilt(decoder_layer=lambda m, layer, x, memory, mask, memory_mask: R.decoder_layer(
            m, layer, x, torch.cat([memory[..., :8], memory[..., 8:].detach()], -1), mask, memory_mask)),
        "gradient is the derivative", "detach()"),
    "rounded, with the gradient of what was not": (spoilt(built=lambda m: [
            layer["feed"].update({"up": Ternary(m.width, m.inner)}) for layer in every_layer(m)]),
        "gradient is the derivative", "is the gradient changed on purpose"),
    "gradients by frequency": (spoilt(built=lambda m: setattr(m.target_table, "scale_grad_by_freq", True)),
        "gradient is the derivative", "scale_grad_by_freq"),
    "an encoder that learns at a tenth of the rate": (
        spoilt(built=lambda m: [p.register_hook(lambda gradient: gradient / 10) for p in m.encoder.parameters()]),
        "gradient is the derivative", "a hook"),
    "a norm behind": (spoilt(forward=lambda m, s, t: F.normalize(R.forward(m, s, t), dim=-1)),
        "logits not probabilities", "a norm"),
    "a layer norm behind": (
        spoilt(built=lambda m: setattr(m, "output", nn.Sequential(m.output, nn.LayerNorm(m.output.out_features)))),
        "logits not probabilities", "a norm"),
    "a sigmoid behind": (
        spoilt(forward=lambda m, s, t: R.forward(m, s, t).sigmoid()), "logits not probabilities", ""),
    "NaN in training": (spoilt(forward=lambda m, s, t: R.forward(m, s, t) * (torch.nan if m.training else 1)),
        "dropout in training", ""),
    "half detached": (  # half of each attention weight counts as a constant
        spoilt(weights=lambda m, scores, mask: ((w := R.weights(m, scores, mask)) + w.detach()) / 2),
        "gradient is the derivative", "detach()"),
    "tied through data": (  # two tables in one memory, which an optimiser moves twice
        spoilt(reset=lambda m: (R.reset(m), setattr(m.target_table.weight, "data", m.source_table.weight.data))),
        "parameters shared on purpose", "moves them twice"),
    "causal everywhere": (  # also in the encoder and to the memory: early positions do not hear the end
        spoilt(source_mask=lambda m, source: R.source_mask(m, source) & up_to(source, source),
            target_mask=lambda m, target: m.source_mask(target),
            decoder_layer=lambda m, layer, x, memory, mask, memory_mask:
                R.decoder_layer(m, layer, x, memory, mask, up_to(x, memory) & memory_mask[:, :, -1:])),
        "source sensitivity", "causal mask on cross-attention"),
    "a causal encoder": (
        spoilt(encoder_layer=lambda m, layer, x, mask: R.encoder_layer(m, layer, x, mask & up_to(x, x))),
        "memory is whole", "one side only"),
    "position i reads the memory up to i": (  # which the encoder has mixed, so all is heard in some way
        spoilt(decoder_layer=lambda m, layer, x, memory, mask, memory_mask:
               R.decoder_layer(m, layer, x, memory, mask, up_to(x, memory) & memory_mask)),
        "memory is whole", "cross-attention"),
    "peeks in training": (spoilt(target_mask=lambda m, t: m.source_mask(t) if m.training else R.target_mask(m, t)),
        "causality", "in training mode"),
    "peeks in evaluation": (spoilt(target_mask=lambda m, t: R.target_mask(m, t) if m.training else m.source_mask(t)),
        "causality", "in training mode only"),
    "each sees itself": (
        spoilt(target_mask=lambda m, t: R.target_mask(m, t).triu()), "the past is seen", "hides the past"),
    "turned round": (spoilt(target_mask=lambda m, t: m.source_mask(t).expand(-1, 1, t.size(1), -1).triu()),
        "the past is seen", "hides the past"),
    "a mask of 8": (spoilt(target_mask=sees_all(lambda m: 8)), "causality", "causal mask"),
    "a mask of a number that the suite can see": (
        spoilt(built=lambda m: setattr(m, "limit", 20), target_mask=sees_all(lambda m: m.limit)),
        "causality", "causal mask"),
    "a source cut at 8": (
        spoilt(forward=lambda m, s, t: R.forward(m, s[:, :8], t)), "source sensitivity, positions matter", ""),
    "an unused part, and another padding_idx": (spoilt(built=lambda m: [
            setattr(m, "unused", nn.Linear(2, 2)), setattr(m.source_table, "padding_idx", 1)]),
        "gradient reaches everything", "not used; and padding_idx=1 of source_table"),
    "another padding_idx": (spoilt(built=lambda m: setattr(
            m, "source_table", nn.Embedding(m.source_table.num_embeddings, m.width, padding_idx=1))),
        "gradient reaches everything", "padding_idx=1 of source_table is not the padding 3: if it is fixed on purpose, "
        "give --pad-id 1"),
    "padding is 0": (lambda s, t, pad: R(s, t, 0), "source padding on the right", "reaches padded source"),
    "sizes swapped": (lambda s, t, pad: R(t, s, pad), "sizes and padding are those asked for", ""),
    "padding is below the words": (spoilt(source_mask=lambda m, source: (source > m.pad_id)[:, None, None, :]),
        "memory is whole, tokens are told apart, gradient reaches everything, "
        "sizes and padding are those asked for", ""),
    "divided by the padded length": (DividedByLength, "source padding on the right", ""),
    "a mask on the wrong axis": (spoilt(target_mask=lambda m, t: up_to(t, t) & m.source_mask(t).transpose(-2, -1)),
        "target padding on the left", "wrong axis"),
    "heads merged without a transpose": (
        spoilt(join=lambda m, x: x.reshape(len(x), x.size(2), -1)), "causality", "merged without transposing"),
    "heads cut without a transpose": (CASES["reshape"].factory, "source padding on the right", "cut without"),
    "chosen among all tokens": (spoilt(feed=lambda m, part, x:  # for the louder half of all tokens
            (y := R.feed(m, part, x)) * ((z := y.sum(-1, keepdim=True)) >= z.median())),
        "causality, a prefix is enough, batch independence, source padding on the right, target padding on the right, "
        "source padding on the left, target padding on the left, empty sentences", ""),
    "padding seen in cross-attention": (spoilt(decoder_layer=lambda m, layer, x, memory, mask, memory_mask:
            R.decoder_layer(m, layer, x, memory, mask, torch.ones_like(memory_mask))),
        "source padding on the right", "cross-attention reaches padded source positions"),
    "a log-softmax over positions": (spoilt(forward=lambda m, s, t: R.forward(m, s, t).log_softmax(1)),
        "logits not probabilities", "over the positions, in place of the vocabulary"),
    "detached and used": (spoilt(built=lambda m: setattr(m, "more", nn.Linear(29, 29)),
            forward=lambda m, s, t: R.forward(m, s, t) + F.linear(
                R.forward(m, s, t), m.more.weight.detach(), m.more.bias)),
        "gradient reaches everything", "it moves the logits, but is cut off from the loss"),
    "batch for length": (spoilt(encoder_layer=lambda m, layer, x, mask:
            R.encoder_layer(m, layer, x.transpose(0, 1), mask.new_ones(1)).transpose(0, 1)),
        "batch independence", "batch is taken for the length"),
    "a mask without the heads' axis": (
        spoilt(CASES["rank"].factory, heads=4), "batch independence", "lacks the axis of the heads"),
    "tied, and another padding_idx": (
        spoilt(built=lambda m: [
            setattr(m.target_table, "padding_idx", 0), setattr(m.output, "weight", m.target_table.weight)]),
        "gradient is the derivative", "padding_idx=0 of target_table"),
    "one small map for all heads": (CASES["slices"].factory, "heads attend separately", "one small map"),
    "keys of an earlier source": (spoilt(attend=first_source), "deterministic in evaluation", "an earlier one kept"),
    "clipped words": (spoilt(forward=lambda m, s, t: R.forward(m, s.clamp(max=m.source_table.num_embeddings - 2), t)),
        "tokens are told apart", "cut off"),
    "no residual": (spoilt(add=lambda m, part, x, y: part["norm"](y) if "up" in part else R.add(m, part, x, y)),
        "layers have residual connections", "missing"),
    "an old residual": (OldResidual, "layers have residual connections", "before attention"),
    "what came in is taken away again": (spoilt(PreNorm, encoder_layer=lambda m, layer, x, mask:
            PreNorm.encoder_layer(m, layer, x, mask) - x), "layers have residual connections", "what came in as well"),
    "words dropped in place": (spoilt(forward=lambda m, s, t: R.forward(
            m, s.masked_fill_(torch.rand(s.shape, device=s.device) < 0.1, m.pad_id) if m.training else s, t)),
        "calls leave no trace", "in place"),
    "the longest length is kept": (spoilt(place=longest), "calls leave no trace", "or a longer one's table"),
    "what is to be seen is hidden": (spoilt(weights=lambda m, scores, mask:
            (scores + mask * torch.finfo(scores.dtype).min).softmax(-1)),
        "gradient is the derivative", "hides all keys"),
    "seeds": (
        spoilt(forward=lambda m, s, t: (torch.manual_seed(0), R.forward(m, s, t))[1]), "calls leave no trace", "seed"),
    "dropout without its scale": (
        spoilt(built=lambda m: setattr(m, "dropout", Unscaled(0.1))), "dropout in training", "differ in scale"),
    "kept for dropped": (
        spoilt(built=lambda m: setattr(m, "dropout", nn.Dropout(0.9))), "dropout in training", "share to keep"),
    "drops logits": (spoilt(forward=lambda m, s, t: m.drop(R.forward(m, s, t))), "logits not probabilities", "dropout"),
    "logits cut at zero": (
        spoilt(forward=lambda m, s, t: R.forward(m, s, t).relu()), "logits not probabilities", "ReLU"),
    "frozen": (spoilt(built=lambda m: m.source_table.weight.requires_grad_(False)),
        "gradient reaches everything", "requires_grad"),
    "multiplied by positions": (  # the sine of the first is 0, so every other channel of the first token is
        spoilt(embed=lambda m, tokens, table: m.drop(table(tokens) * 4 * m.place(tokens.size(1)))),
        "gradient reaches everything", ""),
    "multiplied away": (  # used, but its gradient is exactly 0
        spoilt(built=lambda m: setattr(m, "gate", nn.Linear(2, 1)),
            forward=lambda m, s, t: R.forward(m, s, t) + 0 * m.gate(torch.ones_like(m.gate.weight[0]))),
        "gradient reaches everything", ""),
    "a dead head": (
        spoilt(join=lambda m, x: R.join(m, x * (torch.arange(m.heads, device=x.device) > 0)[:, None, None])),
        "gradient reaches everything", "not used"),
    "a feed-forward network that begins at zero": (
        spoilt(built=zero_feed), "gradient reaches everything", "block each other"),
    "a linear feed-forward network": (
        spoilt(feed=lambda m, part, x: part["down"](m.drop(part["up"](x)))), "feed forward is not linear", "activation",
    ),
    "averaged heads": (
        spoilt(weights=lambda m, scores, mask: (w := R.weights(m, scores, mask)).mean(1, keepdim=True).expand_as(w)),
        "heads attend separately", "averaged"),
    "no last norm": (spoilt(PreNorm, last=nn.Identity), "a norm stands at the end", "without a norm"),
    "a target without positions": (spoilt(embed=lambda m, tokens, table:
               R.embed(m, tokens, table) if table is m.source_table else m.drop(4 * table(tokens))),
        "positions matter", "missing"),
    "a period of four": (
        spoilt(place=lambda m, length: m.positions[torch.arange(length, device=m.positions.device) % 4]),
        "positions matter", "repeat"),
    "beyond the table all places are the same": (spoilt(place=lambda m, length:
               m.positions[torch.arange(length, device=m.positions.device).clamp(max=m.max_len - 1)]),
        "positions matter", "end too soon"),
    "positions along the batch": (spoilt(embed=by_row), "positions matter", "missing"),
    "positions along the batch mix sentences": (
        spoilt(embed=by_row), "batch independence", "positions along the batch axis"),
    "made without dtype=": (adapted(lambda m, s, t: m(s, t) @ torch.eye(m.output.out_features)),
        "every dtype", "in your adapter, at tests/test_check_strangers.py:"),
    "handed on without dtype=": (lambda *sizes: Adapted(
            spoilt(forward=times)(*sizes), lambda m, s, t: m(s, t, torch.eye(m.output.out_features))),
        "every dtype", "it hands torch.float32 to a model in another dtype"),
    "scores in half": (spoilt(weights=lambda m, scores, mask: R.weights(m, scores.half(), mask).to(scores.dtype)),
        "every dtype", "half"),
    "off in half": (
        adapted(lambda m, s, t: m(s, t) * (1.025 if m.output.weight.dtype == torch.float16 else 1)), "every dtype", ""),
    "off under autocast": (
        adapted(lambda m, s, t: m(s, t) * (2 if torch.is_autocast_enabled("cpu") else 1)), "every dtype", ""),
    "another scale in training": (
        adapted(lambda m, s, t: m(s, t) * (1.1 if m.training else 1)), "training without dropout is evaluation", ""),
    "made on the CPU": (adapted(lambda m, s, t: m(s, t) + torch.zeros(t.size(1), 1)),
        "buffers move along", "in your adapter, at tests/test_check_strangers.py:"),
    "positions asked from the CPU": (  # the device `meta` lets a table be read with indices that lie elsewhere
        spoilt(built=lambda m: setattr(m, "more", nn.Embedding(32, m.output.out_features)),
            forward=lambda m, s, t: R.forward(m, s, t) + m.more(torch.arange(t.size(1)))), "buffers move along", ""),
    "cut": (adapted(lambda m, s, t: m(s, t[:, :32])), "too long raises", ""),  # a wrong shape is no refusal
    "divided by the length": (adapted(lambda m, s, t: m(s, t) / t.size(1)),
                              "a prefix is enough, target padding on the right", ""),
    "shifted again": (adapted(lambda m, s, t: m(s, F.pad(t, (1, -1), value=1))), "present seen", "twice"),
    "a mask that stays behind": (
        spoilt(target_mask=lambda m, t: kept_mask(m, t, "cpu")), "buffers move along", "plain attribute"),
    "all frozen": (spoilt(built=lambda m: m.requires_grad_(False)), "gradient reaches everything", ""),
    "no gradient": (spoilt(forward=torch.inference_mode()(R.forward)), "gradient reaches everything", ""),
    "looks ahead": (  # every position gets a little of the next one, but not in a batch of two or more
        adapted(lambda m, s, t: (y := m(s, t)) + y.roll(-1, 1) / 8 * (len(y) == 1)),
        "causality, batch independence", ""),
    "reads the sentence before": (  # and all of it; what a batch mixes is blamed on the batch
        adapted(lambda m, s, t: torch.cat([(y := m(s, t))[:1], y[1:] + y[:-1].mean(dim=1, keepdim=True) / 8])),
        "a prefix is enough, batch independence, target padding on the right, target padding on the left", ""),
}  # fmt: skip


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_model_fails_with_the_cause_that_its_evidence_shows(name, whole):
    """Those without a cause fail no other property of the whole suite."""
    factory, failing, cause = WRONG[name]
    names = failing.split(", ")
    only = () if whole else {*names, "causality", "batch independence"}
    found = findings(factory, max_len=32 if failing == "too long raises" else None, only=only)
    fail = [name for name, finding in found.items() if finding.verdict == "fail"]
    assert {*names} <= {*fail} if cause else names == fail
    assert cause in found[names[0]].cause


@pytest.mark.parametrize(("name", "forward"), [
    ("finite answers", lambda m, s, t: R.forward(m, s, t) / (s.size(1) <= 7)),
    ("finite answers", lambda m, s, t: R.forward(m, s, t) / (m.target_mask(t)[0, 0].diagonal().any() & False)),
    ("state dict is complete", lambda m, s, t: m.hidden[0](R.forward(m, s, t))),
])  # fmt: skip
def test_where_no_property_would_say_more_only_that_is_told(name, forward):
    hides = spoilt(forward=forward, built=lambda m: setattr(m, "hidden", [nn.Linear(29, 29)]))
    report = check_transformer(hides, training=False)
    assert report.failed == [finding.name for finding in report.findings] == [name]


@pytest.mark.parametrize("square", [False, True])
def test_what_needs_equal_sizes_is_asked_for_batch_first(square):
    """Layers that read (length, batch), given (batch, length); with a mask of the target's length all must be equal."""

    def call(model, source, target):
        mask = torch.ones(target.size(1), target.size(1), dtype=torch.bool).triu(1) if square else None
        made = (F.one_hot(tokens, 32).float() for tokens in (source, target))
        return model(*made, tgt_mask=mask)[..., :29]

    with pytest.raises(RuntimeError) as error:
        check_transformer(lambda *sizes: Adapted(nn.Transformer(32, 2, 1, 1, 8), call), training=False)
    assert ("as many sentences as tokens" if square else "are equally long") in error.value.__notes__[0]
    assert "batch_first=True" in error.value.__notes__[0]


def test_a_model_of_one_vocabulary_is_not_blamed_for_having_one():
    def joint(source, target, pad):
        return R(source, source, pad)

    def fussy(source, target, pad):
        assert source == target
        return R(source, target, pad)

    def stubborn(source, target, pad):
        assert pad == 0
        return R(source, target, pad)

    def zero_row(source, target, pad):
        model = R(source, target, pad)
        model.source_table.padding_idx = 0
        return model

    name, gradient = "sizes and padding are those asked for", "gradient reaches everything"
    found = [findings(f, only=[name])[name] for f in (joint, fussy, stubborn, lambda s, t, pad: R(s, t, 0))]
    assert [finding.verdict for finding in found] == ["pass", "pass", "not applicable", "fail"]
    assert [finding.pad_id for finding in found] == [None, None, None, 0]
    told = [findings(zero_row, only=[gradient, name], **given).values() for given in ({}, {"pad_id": 0})]
    assert [[finding.verdict for finding in each] for each in told] == [["fail", "pass"], ["pass", "pass"]]
    assert [[finding.pad_id for finding in each] for each in told] == [[0, None], [None, None]]


class GoesRound(decoders.Decoder):
    """A convolution, rightly, whose channels come first; and behind it the last token comes before the first."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.reads = nn.Conv1d(16, 16, 3)

    def embed(self, tokens, positions):
        x = self.reads(F.pad(super().embed(tokens, positions).mT, (2, 0))).mT
        return x + x.roll(1, 1)


@pytest.mark.parametrize(("factory", "family"), [
    (spoilt(target_mask=lambda m, target: torch.ones_like(R.target_mask(m, target))), "encoder-decoder"),
    (GoesRound, "decoder"),
])  # fmt: skip
def test_what_follows_from_a_fault_is_found_with_it(factory, family):
    (names,) = check_transformer(factory, family=family, training=False).faults.values()
    assert names.replace("target ", "") == "a prefix is enough, padding on the right"


@pytest.mark.parametrize(("factory", "family", "both"), [
    (decoder(split=lambda m, x: decoders.Decoder.split(m, x + 0.1 * x.mean(0, keepdim=True)),
        allowed=lambda m, past, n, mask, device: decoders.ones(1, past + n, device) if past else
            decoders.Decoder.allowed(m, past, n, mask, device)), "decoder", ["batch independence", "cache in chunks"]),
    (spoilt(target_mask=lambda m, t: kept_mask(m, t, "cpu"), weights=lambda m, scores, mask:
        R.weights(m, scores * (1 + (scores.dtype == torch.float16)), mask)), "encoder-decoder",
        ["every dtype", "buffers move along"]),
    (spoilt(built=lambda m: setattr(m, "unused", nn.Linear(2, 2)), forward=lambda m, s, t: R.forward(m, s[:, :8], t)),
        "encoder-decoder", ["source sensitivity", "gradient reaches everything"]),
])  # fmt: skip
def test_an_independent_fault_is_not_swallowed(factory, family, both):
    report = check_transformer(factory, family=family, max_len=32, training=False)
    assert {*both} <= {fault.name for fault in report.faults}, report


class BesideABorder(ReferenceModel):
    """The loss jumps a small step away, as where a token would go to another expert."""

    def forward(self, source, target):
        logits, weight = super().forward(source, target), self.output.weight.detach()
        if torch.is_grad_enabled() or not hasattr(self, "here"):
            self.here = weight.clone()
        return logits * (1 + ((weight - self.here).norm() > 1e-6))


def test_a_jump_close_by_is_no_broken_gradient():
    report = check_transformer(BesideABorder, training=False, only=["gradient is the derivative"])
    assert report.holds, report.fault_lines


# --- what a suite must not blame on a model: views, dtypes of a cache, kept graphs, refusals ------------------------


def decoder_findings(factory, *only, pad_id=3):
    report = check_transformer(factory, family="decoder", pad_id=pad_id, max_len=64, training=False, only=only)
    return {finding.name: finding for finding in report.findings}


def viewed(function):
    """The function, which must be given no slice of a tensor."""

    @functools.wraps(function)
    def strict(*arguments, **options):
        for name, x in [*enumerate(arguments), *options.items()]:
            assert not isinstance(x, torch.Tensor) or x.is_contiguous(), f"argument {name} is no tensor of its own"
        return function(*arguments, **options)

    return strict


def test_only_contiguous_tensors_are_handed_to_a_model():
    usual = decoders.adapted(decoders.Decoder)(29, 3)
    parts = {name: viewed(getattr(usual, name)) for name in ("call", "extend", "generate", "beams", "loss", "reorder")}
    found = decoder_findings(decoders.adapted(decoders.Decoder, **parts))
    assert {finding.evidence for finding in found.values() if finding.verdict == "fail"} == set()
    both = check_transformer(lambda *sizes: Adapted(R(*sizes), viewed(lambda m, s, t: m(s, t))), training=False)
    assert both.failed == []


def fixed_cache(kind):
    """Keys and values are kept in a tensor of one dtype."""

    def store(m, cache, number, k, v):
        if number not in cache["layers"]:
            zeros = np.zeros((2, *k.shape[:2], 64, k.size(3)), np.float32)
            cache["layers"][number] = tuple(torch.from_numpy(zeros).to(k.device))
        end = cache["length"] + k.size(2)
        for kept, new in zip(cache["layers"][number], (k, v)):
            kept[:, :, cache["length"] : end] = new
        found = [kept[:, :, :end] for kept in cache["layers"][number]]
        return tuple(x.to(k) for x in found) if kind == "casts" else tuple(found)

    return store


def sampled(model, tokens, steps, mask=None):
    """The first new token is drawn, as by a prefill that forgets `top_k`."""
    least = model(tokens)[:, -1:].argmin(-1)
    return model.generate(torch.cat([tokens, least], 1), steps - 1)


@pytest.mark.parametrize("kind", ["raises", "casts"])
def test_a_cache_that_stays_in_float32_is_examined_in_float32(kind):
    writes = decoders.WRITES, "generated in a batch as alone"
    names = "cache one by one", "cache in chunks", "every dtype", *writes
    found = decoder_findings(decoder(store=fixed_cache(kind), generate=sampled), *names)
    failing = {name for name, finding in found.items() if finding.verdict == "fail"}
    assert failing == {*writes, *(["every dtype"] if kind == "raises" else [])}
    assert found["cache in chunks"].verdict == "pass"
    if kind == "raises":
        assert found["every dtype"].evidence.startswith("its cache stays in float32, so the model runs in no other")
        assert "at tests/decoders.py:" in found["every dtype"].evidence


def evicts(m, cache, number, k, v):
    """The last eight are kept, also where a chunk's first queries should read older ones."""
    k, v = decoders.Decoder.store(m, cache, number, k, v)
    kept = max(8, k.size(2) - cache["length"])
    cache["layers"][number] = tuple(torch.cat([0 * x[:, :, :-kept], x[:, :, -kept:]], 2).float() for x in (k, v))
    return tuple(x.to(k) for x in cache["layers"][number])


def test_a_window_that_forgets_too_early_is_found_behind_a_cache_in_float32():
    found = decoder_findings(decoder(allowed=decoders.window(8), store=evicts), "cache one by one", "cache in chunks")
    assert [finding.verdict for finding in found.values()] == ["pass", "fail"]
    assert found["cache in chunks"].cause == "keys are dropped before the first new tokens have read them"


def from_1(model, tokens, cache=None):
    cache = model.empty() if cache is None else cache
    return model(tokens, None, model.numbers(model.past(cache) + 1, tokens.size(1), tokens.device), cache), cache


class Ahead(decoders.Decoder):
    """A second head, for the token after the next one, and perhaps a map that nothing reads."""

    dead = False

    def __init__(self, vocab, pad):
        super().__init__(vocab, pad)
        self.ahead = nn.Linear(vocab, vocab)
        self.unused = nn.Linear(2, 2) if self.dead else None


def two_heads(model, tokens, labels):
    later = model.ahead(model(tokens)[:, :-2]).flatten(0, 1)
    return decoders.loss(model, tokens, labels) + F.cross_entropy(later, labels[:, 2:].flatten())


def first_key_stays(m, cache, number, k, v):
    """The key of the first token is that of the first sentence that came."""
    k, v = decoders.Decoder.store(m, cache, number, k, v)
    if not hasattr(m, "first_keys"):
        m.first_keys = {}
    kept = m.first_keys.setdefault(number, k[:1, :, :1].detach())
    return torch.cat([kept.to(k).expand_as(k[:, :, :1]), k[:, :, 1:]], dim=2), v


def turned_at(start, keys=True):
    """With a cache the new queries, and perhaps keys, are turned as if so many tokens came before them."""

    def attend(m, layer, x, allowed, positions, cache, number):
        new = positions if cache is None else positions - positions[:, :1] + start(m.past(cache))
        m.turned = iter((new, new if keys else positions))
        return decoders.Decoder.attend(m, layer, x, allowed, positions, cache, number)

    return decoder(base=decoders.Rotary, attend=attend, turn=lambda m, x, _: decoders.rotary(m, x, next(m.turned)))


@pytest.mark.parametrize(("factory", "name", "cause"), [
    (decoder(extend=from_1), "cache one by one",
        "positions: 1, 2, 3, 4 … with a cache, and 0, 1, 2, 3 … in one call: they start at 1"),
    (decoder(counted=lambda m, mask: decoders.Decoder.counted(m, mask) + 1), decoders.WRITES,
        "already the first call inside `generate` gives other logits"),
    (decoder(generate=sampled), decoders.WRITES, "already the first new token"),
    (decoder(generate=lambda m, tokens, steps: torch.cat([tokens, torch.randint(4, 29, (len(tokens), steps))], 1)),
        decoders.WRITES, "two calls of `generate` differ"),
    (decoder(generate=lambda m, tokens, steps: m.generate(tokens, steps)[:, -steps:]),
        decoders.WRITES, "it returns tokens (1, 8), not (1, 17)"),
    (decoders.stored(lambda k, v: (k[:1].expand_as(k), v)), "cache one by one", "with a cache only the first sentence"),
    (lambda *sizes: Adapted(decoders.Inside(*sizes), lambda m, x: m(x), extend=decoders.inside), "two caches in turns",
        "one cache takes the other's place: if the model keeps its cache itself, one_cache=True"),
    (decoder(loss=lambda m, x, y: decoders.loss(m, x, y, reduction="sum") / y[:, 1:].numel()), decoders.LOSS,
        "the mean is"),
    (decoders.adapted(decoders.kind(Ahead, dead=True), loss=two_heads), "gradient reaches everything",
        "a part of the model has no effect"),
    (decoder(store=first_key_stays), "cache one by one", "a call reads what an earlier one kept"),
    (decoders.WRONG["no window with a cache"][0], "cache one by one",
        "tokens heard, from token 5 on: 5, 6, 7, 8 … with a cache, and 5, 5, 5, 5 … in one call; the mask hides"),
    (decoders.WRONG["rotary without offset"][0], "cache one by one",
        "places from the first keys to token 4, by its scores: 0, 0, 0, 0 … with a cache, and 3, 2, 1, 0 … in one"),
    (turned_at(lambda past: 0, keys=False), "cache one by one",
        "places from the first keys to token 4, by its scores: 0, ?, ?, ? … with a cache"),
    (turned_at(lambda past: past + (past > 0)), "cache one by one",
        "places from the first keys to token 4, by its scores: 4, 2, 1, 0 … with a cache"),
])  # fmt: skip
def test_the_cause_that_the_numbers_show_is_named(factory, name, cause):
    assert decoder_findings(factory, name)[name].cause.startswith(cause)


@pytest.mark.parametrize(("factory", "name"), [  # what could have another cause than the usual one
    (spoilt(forward=lambda m, s, t: R.forward(m, s, t).log_softmax(1)), "causality"),
    (WRONG["looks ahead"][0], "causality"),
    (WRONG["reads the sentence before"][0], "batch independence"),
    (WRONG["chosen among all tokens"][0], "batch independence"),
    (DividedByLength, "source padding on the right"),
])  # fmt: skip
def test_a_cause_that_nothing_shows_is_not_named(factory, name):
    finding = findings(factory, only=[name])[name]
    assert (finding.verdict, finding.cause) == ("fail", "")


def test_an_inverted_mask_for_torchs_kernels_is_a_finding_with_its_place():
    def forward(m, s, t):
        layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 1).to(m.output.weight)
        layers.train(m.training)(torch.ones(*s.shape, 8).to(m.output.weight), src_key_padding_mask=s != m.pad_id)
        return R.forward(m, s, t)

    (finding,) = check_transformer(spoilt(forward=forward), training=False).findings
    assert (finding.name, finding.verdict) == ("finite answers", "fail")
    assert "to_padded_tensor" in finding.evidence
    assert finding.cause.startswith("a mask that forbids everything")
    assert "test_check_strangers.py:" in finding.place


def test_what_is_left_to_every_model_is_the_only_finding():
    calls = []

    def forward(m, s, t):
        calls.append(s)
        return R.forward(m, s, t) * len(calls)

    (finding,) = check_transformer(spoilt(forward=forward), training=False).findings
    assert (finding.name, finding.verdict) == ("calls leave no trace", "fail")
    assert finding.cause.startswith("an earlier call left something behind")


@pytest.mark.parametrize(("factory", "name", "words", "mend"), [
    (lambda *sizes: Adapted(R(*sizes), lambda m, s, t: m(s, t), generate=lambda m, s, t, steps:
        F.pad(t, (0, steps), value=30)), decoders.WRITES, "gives token 30, and the target has 29, 0 to 28", ""),
    (CASES["half"].factory, "every dtype", "float16 does not run: RuntimeError: value cannot be converted",
        "torch.finfo(scores.dtype).min"),
    (spoilt(keep=table_with(lambda i, d: 10000.0 ** (-2 * i / d))), "positions matter",
        "the columns of positions are sines and cosines, but of other frequencies", "one frequency for each pair"),
    (spoilt(keep=table_with(lambda i, d: 1 / (1 + i // 2))), "positions matter",
        "the frequencies of positions are no powers of one number", "one frequency for each pair"),
    (spoilt(forward=lambda m, s, t: R.forward(m, s, t).log_softmax(-1)),
        "logits not probabilities", "logarithms of probabilities", "none for NLLLoss"),
    (spoilt(built=lambda m: setattr(m, "output", OnTokens(m.output))),
        "logits not probabilities", "logarithms of probabilities", "none for NLLLoss"),
    (spoilt(weights=all_or_nan), "target padding on the left", "real logits are NaN", "on the right only"),
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
    note = decoder_findings(decoder(call=call, extend=None, generate=None), name)[name]
    assert note.verdict == "note"
    assert note.evidence.startswith("padding in front")
    assert re.search(f"{words} logits by [2-5].*is that meant", note.evidence)


class Kept(decoders.Decoder):
    """Each call writes its keys into a tensor, with their graph."""

    def __init__(self, vocab, pad):
        super().__init__(vocab, pad)
        self.kept = [{"keys": torch.zeros(100, 4, 64, 4)}]

    def store(self, cache, number, k, v):
        return k, v

    def attend(self, layer, x, allowed, positions, cache, number):
        k = self.split(layer["k"](x))
        keys = self.kept[0]["keys"] = self.kept[0]["keys"].to(k)
        keys[: len(k), :, : k.size(2)] = k
        layer = {**layer, "k": lambda _: keys[: len(k), :, : k.size(2)].transpose(1, 2).flatten(2)}
        return super().attend(layer, x, allowed, positions, cache, number)


@pytest.mark.parametrize("trained", [True, False])
def test_a_kept_graph_is_one_finding_and_no_crash_of_the_suite(trained):
    def generate(model, tokens, steps):
        for _ in range(steps):
            tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], 1)
        return tokens

    parts = {} if trained else {"generate": generate}
    report = check_transformer(
        lambda vocab, pad: Adapted(Kept(vocab, pad), lambda m, tokens: m(tokens), **parts),
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


def refuses(wrong):
    """The decoder refuses some tokens."""

    def forward(m, tokens, *rest, **options):
        if wrong(m, tokens):
            raise ValueError("not such a sentence")
        return decoders.Decoder.forward(m, tokens, *rest, **options)

    return decoder(forward=forward, extend=None, generate=None, loss=None)


def one(model, tokens, cache=None):
    assert tokens.size(1) == 1, "one token only"
    return decoders.extend(model, tokens, cache)


def last(model, tokens, cache=None):
    logits, cache = decoders.extend(model, tokens, cache)
    return logits[:, -1:], cache


WHOLE, CACHED = ["a prefix is enough", "batch independence"], ["cache one by one", "two caches in turns"]
SEVERAL = ["cache in chunks", "cache after a prefill"]


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(("factory", "refused", "passes", "words"), [
    (refuses(lambda m, tokens: tokens.size(1) == 1), ["first token sees itself"], WHOLE,
        "it refuses a sentence of one token: ValueError: not such a sentence"),
    (refuses(lambda m, tokens: not tokens.is_meta and (tokens == m.pad).all(1).any()), ["empty sentences"], [],
        "not such a sentence, at tests/test_check_strangers.py:"),
    (decoder(extend=one), SEVERAL, CACHED, "it refuses several new tokens: AssertionError: one token only"),
    (decoder(extend=last), SEVERAL, CACHED,
        "`extend` gives the last new token's logits only; to have this judged, return those of all new tokens"),
    (decoders.adapted(Ahead, loss=two_heads), [decoders.LOSS], ["gradient reaches everything"],
        "it hears model.ahead.bias, too, which the logits do not"),
])  # fmt: skip
def test_a_refusal_is_no_failure(factory, refused, passes, words, whole):
    found = decoder_findings(factory, *(() if whole else refused + passes + WHOLE + CACHED))
    assert [name for name, finding in found.items() if finding.verdict == "fail"] == []
    assert [found[name].verdict for name in passes] == ["pass"] * len(passes)
    assert all(words in found[name].evidence for name in refused)
    assert refused != SEVERAL or {found[name].verdict for name in refused} == {"not applicable"}


def beside(dropped):
    """Tokens are looked up as usual, and for nothing some of the vectors are dropped."""
    return {"embed": lambda m, *given: (x := decoders.Decoder.embed(m, *given)) + 0 * dropped(x, 0.1 * m.training)}


def with_part(make):
    def init(m, *sizes):
        decoders.Decoder.__init__(m, *sizes)
        m.more = make(sizes[0], m.width)

    return init


PLACES, TRAINS, U = "positions matter", "training without dropout is evaluation", decoders.Unplaced
TRACE, STATE = "calls leave no trace", "state dict is complete"


@pytest.mark.parametrize(("base", "parts", "name", "verdict", "words"), [
    (U, {"depth": 2}, PLACES, "pass", "are positions left out on purpose?"),
    (U, {"depth": 1}, PLACES, "fail", "changes nothing"),
    (U, {"embed": lambda m, tokens, _: m.table(tokens) + torch.arange(len(tokens), device=tokens.device)[:, None, None]
        * m.output.bias[:16].cos()}, PLACES, "fail", "one sentence in two rows gets two answers"),
    (decoders.Decoder, beside(F.dropout), TRAINS, "pass", "differ by"),
    (decoders.Decoder, beside(lambda x, p: F.scaled_dot_product_attention(x, x, x, None, p)), TRAINS, "pass", "by"),
    (decoders.Decoder, beside(lambda x, p: torch.rand_like(x)), TRAINS, "not applicable", "not by torch's dropout"),
    (decoders.Rotary, {"scores": lambda m, q, k, p: decoders.Decoder.scores(m, q.flip(-1), k, p)}, PLACES, "note",
        "depend on more than the distance"),
    (decoders.Rotary, {"weights": lambda m, s, a: decoders.Decoder.weights(m, s, a) * torch.arange(s.size(-1)).to(s)},
        PLACES, "note", "from place to place"),
    (decoders.Decoder, {"turn": lambda m, x, p: F.layer_norm(x, x.shape[2:])}, "causality", "fail",
        "`layer_norm` runs over the positions"),
    (decoders.Decoder, {"turn": lambda m, x, p: x.softmax(2)}, "causality", "fail", "`softmax` runs over the"),
    (decoders.Decoder, {"generate": lambda m, *given: decoders.Decoder.generate(m.eval(), *given)}, TRACE, "fail",
        "after `generate` a model in training mode is in evaluation mode"),
    (decoders.Decoder, {"generate": lambda m, tokens, steps, mask, kept=[]: kept.append(0) or torch.cat(
        [tokens, (decoders.Decoder.generate(m, tokens, steps, mask)[:, -steps:] + len(kept)) % 29], 1)},
        decoders.WRITES, "fail", "a call reads what an earlier one kept"),
    (decoders.Decoder, {"_load_from_state_dict": lambda m, state, *given: state.update(
        {key: x.T for key, x in state.items() if key.endswith("q.weight")})}, STATE, "fail", "loading changes what it"),
    (decoders.Decoder, {"embed": lambda m, tokens, p: decoders.Decoder.embed(m, tokens, p) + (p > 2)[..., None] * (
        m.__dict__.setdefault("old", m.table.weight[3].detach().clone()) - m.table.weight[3])
        * (tokens.size(1) == 1)}, STATE, "fail", "after loading, logits with a cache differ"),
    (decoders.Decoder, {"forward": lambda m, tokens, mask=None, p=None, cache=None: decoders.Decoder.forward(
        m, tokens, mask, m.counted(mask) if p is None and mask is not None and not m.past(cache) else p, cache)},
        "cache with padding in front", "fail", "from token 9 of 40"),
    (decoders.Decoder, {"__init__": with_part(lambda *sizes: nn.Embedding(*sizes).requires_grad_(False)),
        "embed": lambda m, tokens, p: decoders.Decoder.embed(m, tokens, p) + m.more(0 * tokens)},
        "gradient reaches everything", "pass", "all"),
    (decoders.Decoder, {"__init__": with_part(lambda _, width: nn.Linear(width, 1)), "embed": lambda m, *given:
        (y := decoders.Decoder.embed(m, *given)) * (x := m.more(y).exp()) / x},
        "gradient reaches everything", "fail", "such as model.more.weight"),
])  # fmt: skip
def test_what_a_decoder_is_asked_or_told(base, parts, name, verdict, words):
    (finding,) = decoder_findings(decoders.adapted(decoders.kind(base, **parts)), name).values()
    assert finding.verdict == verdict
    assert words in finding.evidence + finding.cause


@pytest.mark.parametrize(
    ("shift", "words"), [(0, "do you shift them before you call it?"), (1, "of the next token, the")]
)
def test_a_loss_says_how_it_reads_labels(shift, words):
    finding = decoder_findings(decoder(loss=functools.partial(decoders.loss, shift=shift)), decoders.LOSS)[
        decoders.LOSS
    ]
    assert finding.verdict == "pass"
    assert words in finding.evidence
    assert not finding.evidence.endswith("?")  # its forward takes no "labels"


def test_a_mean_of_means_is_told():
    def loss(model, tokens, labels):
        each = F.cross_entropy(model(tokens).transpose(1, 2), labels, reduction="none").sum(1)
        return (each / (labels != -100).sum(1)).mean()

    def before(model, tokens, labels):
        return F.cross_entropy(model(tokens)[:, 1:].flatten(0, 1), labels[:, :-1].flatten())

    def other_order(model, tokens, labels):
        return F.cross_entropy(model(tokens).flatten(0, 1), labels.T.flatten())

    def in_place(model, tokens, labels):
        return loss(model, tokens, labels.masked_fill_(labels == -100, 0))

    causes = ["the mean is taken of each sentence, and then of these", "logits are held against the label of the token"
              " before", "labels are flattened in another order than logits"]  # fmt: skip
    for wrong, cause in zip((loss, before, other_order), causes):
        (finding,) = decoder_findings(decoder(loss=wrong), decoders.LOSS).values()
        assert finding.cause == cause
    assert "`loss` writes into" in decoder_findings(decoder(loss=in_place), TRACE)[TRACE].evidence


@pytest.mark.parametrize(("file", "place"), [
    ("<string>", "line 2 of code without a file, in call"), ("site-packages/x.py", "tests/test_check_strangers.py:"),
])  # fmt: skip
def test_a_model_that_raises_is_told_with_its_own_place_and_without_a_cause(file, place):
    source = "def call(model, tokens):\n return model(tokens).view(0 if len(tokens) == 5 else tokens.size(0), -1, 29)"
    names = {}
    exec(compile(source, file, "exec"), names)
    (finding,) = decoder_findings(
        lambda vocab, pad: Adapted(decoders.Decoder(vocab, pad), lambda m, x: names["call"](m, x)), "batch independence"
    ).values()
    assert (finding.verdict, finding.cause, finding.case) == ("fail", "", "")
    assert f", at {place}" in finding.evidence
    assert "likely" not in str(finding)


def test_rows_behind_the_vocabulary_need_no_gradient():
    def padded(vocab, pad):
        return Adapted(decoders.Decoder(64, pad), lambda m, tokens: m(tokens)[..., :vocab])

    (finding,) = decoder_findings(padded, "gradient reaches everything").values()
    assert finding.verdict == "pass", finding
