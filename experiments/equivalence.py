"""Each component of the Transformer, every way to compute it, every condition: how far are the results apart?

The judge is `ladder.Loop` in float64. An error is the largest difference from what the judge makes of the same numbers,
relative to the largest entry of the tensor in question, or absolute where that entry is below 1.

How large may an error be? A rounding changes a number by at most eps / 2 of itself, and we take it to go up as often as
down. So R of them, one after another, add up to about √R and not to R: to λ √R eps / 2 at most, with probability
1 - 2 exp(-λ² / 2) (Higham and Mary 2019). With λ = 4, an output may be wrong by 2 √R eps. A gradient is a product of
what came forward and what came back, so it may be wrong by twice that. R counts the roundings on the longest path: a
sum of k terms has k. In bfloat16 it has one, because torch adds the terms up in float32.

`make equivalence` runs this file: it writes records/equivalence.json, of which tools/pages.py makes a table.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from ladder import Einsum, Loop
from torch import nn
from torch.func import functional_call

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.layers import DecoderLayer, EncoderLayer, FeedForward
from transformer_lib.masks import causal_mask
from transformer_lib.model import Decoder, Encoder, Transformer, TransformerConfig
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.positions import SinusoidalPositionalEncoding, sinusoidal_table

PAD = 0
STORED = Path(__file__).resolve().parent.parent / "records" / "equivalence.json"

# --- conditions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    batch: int = 2
    n: int = 4  # queries, target tokens
    m: int = 5  # keys, source tokens
    d_model: int = 8
    heads: int = 2
    d_ff: int = 12
    layers: int = 2


USUAL = [Sizes()]
ODD = [Sizes(1, 1, 1, 3, 1, 1, 1), Sizes(1, 5, 1, 9, 3, 7, 1), Sizes(3, 1, 4, 5, 1, 3, 1)]
CONDITIONS = {  # name: sizes, what is masked, dtype, what is compared
    "float64 output": (USUAL, "nothing", torch.float64, ["output"]),
    "float64 gradient": (USUAL, "nothing", torch.float64, ["gradient"]),
    "float32 output": (USUAL, "nothing", torch.float32, ["output"]),
    "float32 gradient": (USUAL, "nothing", torch.float32, ["gradient"]),
    "bfloat16 output": (USUAL, "nothing", torch.bfloat16, ["output"]),
    "bfloat16 gradient": (USUAL, "nothing", torch.bfloat16, ["gradient"]),
    "masked": (USUAL, "some keys", torch.float64, ["output", "gradient"]),
    "fully masked": (USUAL, "all keys of some queries", torch.float64, ["output", "gradient"]),
    "odd sizes": (ODD, "nothing", torch.float64, ["output", "gradient"]),
}


def real_tokens(batch, length, masked):
    """(batch, length): False is padding; at the worst a sentence begins with it, and another has nothing else."""
    real = torch.ones(batch, length, dtype=torch.bool)
    if masked == "some keys":
        real[-1, (length + 1) // 2 :] = False
    elif masked == "all keys of some queries":
        real[0, 0] = False
        real[-1] = False
    return real


def padding(batch, length, masked):
    """(batch, 1, 1, length); None if nothing is masked."""
    return None if masked == "nothing" else real_tokens(batch, length, masked)[:, None, None]


def causal(s, masked):
    """(batch or 1, 1, n, n), with padding if anything is masked."""
    return causal_mask(s.n) if masked == "nothing" else causal_mask(s.n) & padding(s.batch, s.n, masked)


def random_mask(s, keys, masked):
    """(batch, heads, n, keys); None if nothing is masked."""
    if masked == "nothing":
        return None
    mask = torch.rand(s.batch, s.heads, s.n, keys) < 0.5
    mask[..., 0] = True
    if masked == "all keys of some queries":
        mask[0, :, -1] = False
        mask[-1] = False
    return mask


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def randomise(module, scale=0.4):
    """Give every parameter a random value, so that no bias is 0 and no norm weight is 1 by accident."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * scale + (1.0 if "norm" in name else 0.0))
    return module


# --- torch's modules with our parameters -------------------------------------------------------------------------


def torch_names(parameters, decoder=False):
    """Our parameters by the names that torch's attentions, layers and stacks have for them."""
    names = {"in_projection.": "in_proj_", "out_projection": "out_proj", "self_attention_norm": "norm1"}
    names |= {"self_attention": "self_attn", "cross_attention_norm": "norm2", "cross_attention": "multihead_attn"}
    names |= {"feed_forward_norm": "norm3" if decoder else "norm2", "feed_forward.": ""}
    renamed = {}
    for name, value in parameters.items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        renamed[name] = value
    return renamed


def forbidden(mask, s, queries):
    """A mask in torch.nn's sense, True = may not attend: (batch · heads, queries, keys)."""
    return None if mask is None else ~mask.expand(s.batch, s.heads, queries, -1).flatten(0, 1)


def torch_layer(s, norm_first, decoder=False):
    kind = nn.TransformerDecoderLayer if decoder else nn.TransformerEncoderLayer
    return kind(s.d_model, s.heads, s.d_ff, 0.0, batch_first=True, norm_first=norm_first)


def torch_stack(s, norm_first, decoder=False):
    """nn.Transformer adds a last norm to both stacks whatever the order; the paper's post-norm stacks have none."""
    layer, norm = torch_layer(s, norm_first, decoder), nn.LayerNorm(s.d_model) if norm_first else None
    if decoder:
        return nn.TransformerDecoder(layer, s.layers, norm)
    return nn.TransformerEncoder(layer, s.layers, norm, enable_nested_tensor=False)


def config(s, norm_first, vocabulary=9):
    return TransformerConfig(
        vocabulary, vocabulary, PAD, s.d_model, s.heads, s.d_ff, s.layers, s.layers, 0.0, norm_first=norm_first
    )


# --- components: parameters, inputs, and every way from these to the output --------------------------------------


@dataclass
class Case:
    inputs: tuple[torch.Tensor, ...]
    ways: dict[str, Callable[..., torch.Tensor]]  # each called with the parameters and the inputs
    parameters: nn.Module = field(default_factory=nn.Module)  # whose parameters; by default there are none


def formulas(s, norm_first, compute):
    """The two implementations of ladder.py."""
    return {
        name: lambda p, *x, kind=kind: compute(kind(s.heads, norm_first), p, *x)
        for name, kind in (("loop", Loop), ("einsum", Einsum))
    }


def attention(s, masked, _):
    width, mask = s.d_model // s.heads, random_mask(s, s.m, masked)
    ways = formulas(s, False, lambda by, p, *x: by.attention(*x, mask)) | {
        "ours": lambda p, *x: scaled_dot_product_attention(*x, mask)[0],
        "torch's fused kernel": lambda p, *x: F.scaled_dot_product_attention(*x, mask),
    }
    return Case(tuple(normal(s.batch, s.heads, length, width) for length in (s.n, s.m, s.m)), ways)


def multi_head(s, inputs, mask, is_causal=False):
    ours = MultiHeadAttention(s.d_model, s.heads)
    theirs = nn.MultiheadAttention(s.d_model, s.heads, batch_first=True)
    options = {"is_causal": True} if is_causal else {"mask": mask}
    attn_mask = {"attn_mask": forbidden(mask, s, s.n)}

    def three(x):  # query, key, value: three tensors, or one that is all of them
        return x if len(x) == 3 else x * 3

    ways = formulas(s, False, lambda by, p, *x: by.multi_head(p, *three(x), mask)) | {
        "ours, readable": lambda p, *x: functional_call(ours, p, three(x), options | {"need_weights": True})[0],
        "ours, fused kernel": lambda p, *x: functional_call(ours, p, three(x), options)[0],
        "torch.nn": lambda p, *x: functional_call(theirs, torch_names(p), three(x), attn_mask)[0],
    }
    return Case(inputs, ways, ours)


def self_attention(s, masked, _):
    return multi_head(s, (normal(s.batch, s.n, s.d_model),), random_mask(s, s.n, masked))


def cross_attention(s, masked, _):
    inputs = tuple(normal(s.batch, length, s.d_model) for length in (s.n, s.m, s.m))  # keys are not values
    return multi_head(s, inputs, random_mask(s, s.m, masked))


def causal_attention(s, masked, _):
    return multi_head(s, (normal(s.batch, s.n, s.d_model),), causal(s, masked), is_causal=masked == "nothing")


def positions(s, masked, _):
    ours, table = SinusoidalPositionalEncoding(s.d_model, s.n), sinusoidal_table(s.n, s.d_model)
    ways = formulas(s, False, lambda by, p, x: x + by.positions(s.n, s.d_model).to(x.dtype)) | {
        "ours": lambda p, x: functional_call(ours, {"table": table.to(x.dtype)}, (x,))
    }
    return Case((normal(s.batch, s.n, s.d_model),), ways)


def feed_forward(s, masked, _):
    ours = FeedForward(s.d_model, s.d_ff)
    theirs = nn.Sequential(nn.Linear(s.d_model, s.d_ff), nn.ReLU(), nn.Linear(s.d_ff, s.d_model))
    names = list(theirs.state_dict())
    ways = formulas(s, False, lambda by, p, x: by.feed_forward(p, x)) | {
        "ours": lambda p, x: functional_call(ours, p, (x,)),
        "torch.nn": lambda p, x: functional_call(theirs, dict(zip(names, p.values(), strict=True)), (x,)),
    }
    return Case((normal(s.batch, s.n, s.d_model),), ways, ours)


def encoder_part(s, masked, norm_first, ours, theirs, name, mask_name):
    mask = padding(s.batch, s.n, masked)
    ways = formulas(s, norm_first, lambda by, p, x: getattr(by, name)(p, x, mask)) | {
        "ours": lambda p, x: functional_call(ours, p, (x,), {"mask": mask}),
        "torch.nn": lambda p, x: functional_call(theirs, torch_names(p), (x,), {mask_name: forbidden(mask, s, s.n)}),
    }
    return Case((normal(s.batch, s.n, s.d_model),), ways, ours)


def encoder_layer(s, masked, norm_first):
    ours, theirs = EncoderLayer(**config(s, norm_first).layer_arguments()), torch_layer(s, norm_first)
    return encoder_part(s, masked, norm_first, ours, theirs, "encoder_layer", "src_mask")


def encoder(s, masked, norm_first):
    ours, theirs = Encoder(config(s, norm_first)), torch_stack(s, norm_first)
    return encoder_part(s, masked, norm_first, ours, theirs, "encoder", "mask")


def decoder_part(s, masked, norm_first, ours, theirs, name):
    mask, memory_mask = causal(s, masked), padding(s.batch, s.m, masked)
    options = ({"is_causal": True} if masked == "nothing" else {"mask": mask}) | {"memory_mask": memory_mask}
    their_masks = {"tgt_mask": forbidden(mask, s, s.n), "memory_mask": forbidden(memory_mask, s, s.n)}
    ways = formulas(s, norm_first, lambda by, p, *x: getattr(by, name)(p, *x, mask, memory_mask)) | {
        "ours": lambda p, *x: functional_call(ours, p, x, options),
        "torch.nn": lambda p, *x: functional_call(theirs, torch_names(p, decoder=True), x, their_masks),
    }
    return Case(tuple(normal(s.batch, length, s.d_model) for length in (s.n, s.m)), ways, ours)


def decoder_layer(s, masked, norm_first):
    ours, theirs = DecoderLayer(**config(s, norm_first).layer_arguments()), torch_layer(s, norm_first, decoder=True)
    return decoder_part(s, masked, norm_first, ours, theirs, "decoder_layer")


def decoder(s, masked, norm_first):
    ours, theirs = Decoder(config(s, norm_first)), torch_stack(s, norm_first, decoder=True)
    return decoder_part(s, masked, norm_first, ours, theirs, "decoder")


def transformer(s, masked, norm_first):
    ours = Transformer(config(s, norm_first))
    theirs = [torch_stack(s, norm_first, decoder) for decoder in (False, True)]
    source, target = (
        torch.where(real_tokens(s.batch, length, masked), torch.randint(1, 9, (s.batch, length)), PAD)
        for length in (s.m, s.n)
    )
    source_mask, target_mask = padding(s.batch, s.m, masked), causal(s, masked)
    table = sinusoidal_table(max(s.n, s.m), s.d_model)

    def torch_transformer(p):
        def embed(side, tokens):
            vectors = F.embedding(tokens, p[f"{side}_embedding.weight"]) * math.sqrt(s.d_model)
            return vectors + table[: tokens.size(1)].to(vectors.dtype)

        def part(prefix):
            named = {name.removeprefix(prefix): value for name, value in p.items() if name.startswith(prefix)}
            return torch_names(named, decoder=prefix == "decoder.")

        own, other = forbidden(target_mask, s, s.n), forbidden(source_mask, s, s.n)
        masks = {"mask": forbidden(source_mask, s, s.m)}, {"tgt_mask": own, "memory_mask": other}
        memory = functional_call(theirs[0], part("encoder."), (embed("source", source),), masks[0])
        hidden = functional_call(theirs[1], part("decoder."), (embed("target", target), memory), masks[1])
        return F.linear(hidden, p["output_projection.weight"])

    def our_transformer(p):
        buffer = {"positions.table": table.to(p["output_projection.weight"].dtype)}
        return functional_call(ours, p | buffer, (source, target))

    ways = formulas(s, norm_first, lambda by, p: by.transformer(p, source, target, source_mask, target_mask))
    return Case((), ways | {"ours": our_transformer, "torch.nn": torch_transformer}, ours)


# --- how many roundings stand one behind another -----------------------------------------------------------------


def roundings(s, dtype):
    """On the longest path through each component; a sum of k terms has k, but one in bfloat16."""
    width, d_k, d_ff, n, m = (
        1 if dtype == torch.bfloat16 else terms for terms in (s.d_model, s.d_model // s.heads, s.d_ff, s.n, s.m)
    )
    attention = {keys: d_k + 1 + 2 * keys for keys in (n, m)}  # score, scaling, softmax, average
    own, other, residual = 2 * width + attention[n], 2 * width + attention[m], 1 + 2 * width  # a norm: mean, variance
    network = width + d_ff
    encoder_layer = own + network + 2 * residual
    decoder_layer = encoder_layer + other + residual
    encoder, decoder = (s.layers * layer + residual for layer in (encoder_layer, decoder_layer))
    return {
        "attention": attention[m], "self_attention": own, "causal_attention": own, "cross_attention": other,
        "feed_forward": network, "encoder_layer": encoder_layer,
        "decoder_layer": decoder_layer, "encoder": encoder, "decoder": decoder,
        "transformer": 2 + encoder + decoder + width,  # embedding scaled, position added
    }  # fmt: skip


# --- the ladder --------------------------------------------------------------------------------------------------

JUDGE = "the judge"
NO_MASK = "no mask goes in"
JUMP = "the gradient of a ReLU jumps at 0: where rounding moves a number across, no bound holds"
NOT_A_NUMBER = "NaN: `nn.MultiheadAttention` returns the weights by default, and then a query without keys is 0 / 0"
UNMASKED = {"masked": NO_MASK, "fully masked": NO_MASK}


@dataclass(frozen=True)
class Component:
    build: Callable[[Sizes, str, bool], Case]
    missing: dict[str, str] = field(default_factory=dict)  # conditions that do not apply, and why
    orders: tuple[bool, ...] = (False,)  # post-norm, pre-norm: the larger error counts


with_orders: dict[str, Any] = {"missing": {"bfloat16 gradient": JUMP}, "orders": (False, True)}
LADDER = {
    "attention": Component(attention),
    "self-attention": Component(self_attention),
    "cross-attention": Component(cross_attention),
    "causal self-attention": Component(causal_attention),
    "positions": Component(positions, UNMASKED),
    "feed-forward": Component(feed_forward, UNMASKED | {"bfloat16 gradient": JUMP}),
    "encoder layer": Component(encoder_layer, **with_orders),
    "decoder layer": Component(decoder_layer, **with_orders),
    "encoder": Component(encoder, **with_orders),
    "decoder": Component(decoder, **with_orders),
    "Transformer": Component(transformer, **with_orders),
}


def bound(component, condition):
    """The largest error that the arithmetic explains."""
    sizes, _, dtype, compared = CONDITIONS[condition]
    build, eps = LADDER[component].build, torch.finfo(dtype).eps
    if build is positions:  # an angle, at most the length, is rounded twice; table and sum once
        return max(s.n for s in sizes) * eps if "output" in compared else 0.0
    longest = max(roundings(s, dtype)[build.__name__] for s in sizes)
    return (4 if "gradient" in compared else 2) * math.sqrt(longest) * eps


def leaf(value, dtype, computed):
    return value.detach().to(dtype).to(computed).requires_grad_()


def evaluate(way, case, dtype, precise):
    """Output and gradients, in float64, computed in `dtype`, or from numbers of this dtype in float64."""
    computed = torch.float64 if precise else dtype
    p = {name: leaf(value, dtype, computed) for name, value in case.parameters.named_parameters()}
    x = [leaf(value, dtype, computed) for value in case.inputs]
    output = way(p, *x)
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(dtype).to(computed)
    leaves = [*p.values(), *x]
    gradients = torch.autograd.grad(output, leaves, direction, materialize_grads=True) if leaves else []
    return {"output": [output.detach().double()], "gradient": [gradient.double() for gradient in gradients]}


def largest(errors):
    """The maximum; NaN if there is any."""
    return torch.tensor(list(errors), dtype=torch.float64).amax().item()


def error(found, exact):
    """The largest relative difference of two lists of tensors."""
    pairs = zip(found, exact, strict=True)
    return largest([0.0, *((one - other).abs().amax() / other.abs().amax().clamp(min=1) for one, other in pairs)])


@cache
def measure(component):
    """{way: {condition: the largest error, or the reason why there is none}}."""
    part, settings = LADDER[component], {}
    for condition, (sizes, masked, dtype, _) in CONDITIONS.items():
        if condition not in part.missing:  # output and gradient come of one computation
            settings.setdefault((masked, dtype, *sizes), []).append(condition)
    table = {}
    for (masked, dtype, *sizes), conditions in settings.items():
        for s in sizes:
            for norm_first in part.orders:
                torch.manual_seed(0)
                case = part.build(s, masked, norm_first)
                randomise(case.parameters, 0.25)
                exact = evaluate(case.ways["loop"], case, dtype, precise=True)
                for name, way in case.ways.items():
                    row = table.setdefault(name, dict(part.missing))
                    if name == "loop" and dtype == torch.float64:
                        row |= dict.fromkeys(conditions, JUDGE)
                        continue
                    found = evaluate(way, case, dtype, precise=False)
                    for condition in conditions:
                        errors = [error(found[what], exact[what]) for what in CONDITIONS[condition][3]]
                        row[condition] = largest([row.get(condition, 0.0), *errors])
    return table


def one_digit(number):
    """Rounded up, so that what is printed is never less than what was found."""
    if number == 0 or math.isnan(number):
        return number
    unit = 10.0 ** math.floor(math.log10(number))
    return float(f"{math.ceil(number / unit * (1 - 1e-9)) * unit:.0e}")


def table():
    """{component: {"bound" or a way: {condition: a number, or the reason why there is none}}}, as the page shows it."""
    shown = {}
    for component, part in LADDER.items():
        bounds = {name: part.missing.get(name) or one_digit(bound(component, name)) for name in CONDITIONS}
        shown[component] = {"bound": bounds}
        for way, row in measure(component).items():
            shown[component][way] = {name: _shown(row[name]) for name in CONDITIONS}
    return shown


def _shown(entry):
    if isinstance(entry, str):
        return entry
    return NOT_A_NUMBER if math.isnan(entry) else one_digit(entry)


if __name__ == "__main__":
    torch.set_num_threads(1)
    record = {"torch": torch.__version__.partition("+")[0], "components": table()}
    STORED.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
