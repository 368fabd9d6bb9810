# Generated from chapters/02_attention.md and 8 more: edit it there and `make export`, or here and `make sync`.

"""The graders of the parts that the reader writes: what an answer should be, and which wrong one it is."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dis import Bytecode
from functools import partial
from itertools import pairwise, product
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.checks import check_transformer
from transformer_lib.checks.components import check_multi_head_attention
from transformer_lib.exercises import solved
from transformer_lib.exercises.chapter_07 import made_around_the_stacks
from transformer_lib.exercises.grading import (
    ASKED,
    DETACHED,
    ROUGH,
    Bigrams,
    Cases,
    Unfinished,
    Wrong,
    a_tensor,
    alone,
    as_solved,
    behaves,
    built,
    by_part,
    case,
    changed,
    expect,
    filled,
    first_fault,
    gap,
    gives,
    in_sizes,
    is_matrix,
    matrices,
    past,
    random,
    rows,
    same,
    says,
    shared,
    started,
)
from transformer_lib.files import one_line


@gap(2, "attention")
def grade_attention(mine: ModuleType) -> None:
    """Output and weights, with and without a mask, an empty row among them."""
    q, k, v = random(2, 3, 4, 10), random(2, 3, 5, 10, seed=1), random(2, 3, 5, 7, seed=2)
    try:
        answer = mine.attention(q.clone(), k.clone(), v.clone())
    except RuntimeError as error:
        mine.attention(q[0, 0], k[0, 0], v[0, 0])  # if that fails too, its error is told
        raise Wrong("it runs without a batch and heads only: .T turns all axes round; transpose(-2, -1)") from error
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Wrong("it should return two things, the output and the weights")
    if all(isinstance(z, Tensor) for z in answer) and [z.size(-1) for z in answer] == [5, 7]:
        raise Wrong("the two results are the wrong way round: the output comes first")
    behaves(mine.attention, q=q, k=k, v=v)

    def scaled(weights: Tensor, right: Tensor) -> dict[str, object]:
        """By what the scores are divided."""
        spread = (dots := q @ k.transpose(-2, -1)) - dots.mean(dim=-1, keepdim=True)
        factor = (weights.double().log() * spread).sum() / spread.square().sum()
        told = f"where d_k is 10, the scores are divided by {1 / factor:.4g}, not by the root of 10, 3.162"
        return {told: factor and same(weights, (factor * dots).softmax(dim=-1))}

    as_solved(mine, "attention", case("the weights without a mask", q, k, v, place=1), "", ROUGH, scaled)
    as_solved(mine, "attention", case("the output without a mask", q, k, v, place=0), "", ROUGH)
    as_solved(mine, "attention", case("the weights of large scores", 1000 * q, k, v, place=1), "", ROUGH)
    with says("it runs with a batch and heads in front only: in einsum write …, and count axes from the end"):
        plain = case("the output without batch and heads", q[0, 0], k[0, 0], v[0, 0], place=0)
        as_solved(mine, "attention", plain, "", ROUGH)
    x, y, z = 30 * random(4, 4, 4), 30 * random(4, 4, 4, seed=1), random(1, 1, 70, 6)
    one, square = "one query and 70 keys", "batch, queries, keys and width of 4"
    sizes: dict[str, tuple[Any, ...]] = {square: (x, y, x), one: (z[:, :, :1], z, z)}
    in_sizes(mine, "attention", sizes | {"70 queries and keys, d_k = 3": (z[..., :3], z[..., :3], z)})
    for some in (q, k, v), (q[0, 0], k[0, 0], v[0, 0]):
        try:
            grade_masked_attention(mine, *some)
        except Wrong as wrong:
            if "mask" not in Bytecode(getattr(inspect.unwrap(mine.attention), "__code__", "mask")).dis():
                raise Unfinished("step 2, the mask (step 1 is right)") from None
            raise Wrong(f"right without a mask; with one{'' if some[0] is q else ' of two axes'}: {wrong}") from wrong
    nothing = torch.zeros(1, 1, 1, 70).bool()
    sizes = {f"{square}, with a mask": (x, y, x, x > 0), f"{square}, with one mask for all": (x, y, x, x[0] > 0)}
    sizes |= {f"{one}, all of them hidden": (z[:, :, :1], z, z, nothing), "a mask that hides none": (z, z, z, ~nothing)}
    in_sizes(mine, "attention", sizes)


def grade_masked_attention(mine: ModuleType, q: Tensor, k: Tensor, v: Tensor) -> None:
    """The second step: a mask, and a query that may attend to nothing."""
    mask = torch.rand(2, 1, 4, 5, generator=torch.Generator().manual_seed(3)) < 0.6
    mask[..., 0], mask[..., 4] = True, False
    mask = mask if q.dim() == 4 else mask[0, 0]

    def low(weights: Tensor, right: Tensor) -> dict[str, object]:
        """What scores that are not low enough do."""
        return {
            "the weights are NaN: in the softmax, large scores overflow": weights.isnan().any(),
            "forbidden keys still get weights: before the softmax, their scores should be as low as a number can be":
                weights.masked_fill(mask, 0.0).any(),
            "the weights of a query do not sum to one: before the softmax, the forbidden scores are not low enough":
                not same(weights.sum(dim=-1), right.sum(dim=-1), ROUGH),
        }  # fmt: skip

    def cases(part: Any) -> Iterator[tuple[str, Any]]:
        for factor, where in ((1, "under a mask"), (100_000, "under a mask, of scores below -10000")):
            output, weights = part(factor * q, k, v, mask.clone())
            yield f"the weights {where}", weights
            yield f"the output {where}", output
            yield f"forbidden keys with a weight {where}", weights.masked_fill(mask, 0.0) != 0

    as_solved(mine, "attention", cases, "", ROUGH, low)
    mask[..., 1, :] = False

    def empty(part: Any) -> Iterator[tuple[str, Any]]:
        for what, found in zip(("output", "weights"), part(q, k, v, mask.clone())):
            yield f"the {what} where a query may attend to nothing", found

    as_solved(mine, "attention", empty, "", ROUGH)
    behaves(mine.attention, q=q, k=k, v=v, mask=mask)
    half = (x if "attention" in ASKED else x.half() for x in (q, k, v))
    as_solved(mine, "attention", case("the weights in float16", *half, mask, place=1), "", 0.02, low)


@gap(3, "split_heads")
def grade_split_heads(mine: ModuleType) -> None:
    """Each head has its own block of every token's numbers."""
    x, other = random(2, 12, 24), random(3, 3, 9)

    def cases(split: Any) -> Iterator[tuple[str, Any]]:
        for heads, count in ((3, 2), (4, 2), (3, 1)):
            yield f"what split_heads returns for {heads} heads", split(x[:count].clone(), heads)

    as_solved(mine, "split_heads", cases)
    behaves(mine.split_heads, x=x, num_heads=4)
    sizes = {
        "3 tokens and 3 heads": (other, 3),
        "heads of 1 number": (other, 9),
        "1 token, part of a longer tensor": (x[:, :1], 8),
    }
    in_sizes(mine, "split_heads", sizes | {"1 head": (x, 1), "12 tokens and 12 heads": (x, 12)})


@gap(3, "merge_heads")
def grade_merge_heads(mine: ModuleType) -> None:
    """The opposite of splitting."""
    x, other = random(2, 3, 4, 5), random(3, 2, 5, 4)  # three heads, four tokens; two heads, five tokens
    some = x, other, x[:1, :, :1]  # and one token
    as_solved(mine, "merge_heads", lambda merge: (("what merge_heads returns", merge(z.clone())) for z in some))
    behaves(mine.merge_heads, x=x)
    sizes = {"as many heads as tokens": random(3, 3, 3, 3), "1 head": x[:, :1], "heads of 1 number": x[..., :1]}
    in_sizes(mine, "merge_heads", {name: (z,) for name, z in sizes.items()})


@gap(3, "MultiHeadAttention")
def grade_multi_head(mine: ModuleType) -> None:
    """The scale, the number of projections, who reads whom, and what every multi-head attention does."""
    d_model, num_heads = 24, 6
    one = torch.ones(1, 1, d_model).double()
    started(mine.MultiHeadAttention, (d_model, num_heads), one, one, one)
    if (have := matrices(mine.MultiHeadAttention(d_model, num_heads))) != 4 * d_model**2:
        raise Wrong(f"its matrices hold {have} numbers, not {4 * d_model**2}: make four projections, none shared")
    layer = mine.MultiHeadAttention(8, 2).double()
    query, key, value = random(2, 3, 8), random(2, 4, 8, seed=1), random(2, 4, 8, seed=2)
    with says("with 3 queries and 4 keys it raises: is it queries from query, keys from key? ({})", "place", "dtype"):
        layer(query.clone(), key.clone(), value.clone())
    behaves(mine.MultiHeadAttention(8, 2).double(), query=query, key=key, value=value)
    mask = torch.tensor([[[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0]], [[1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 1, 0]]]).bool()
    keys = torch.cat([one / 4, 0 * one], dim=1)
    two, apart = keys.expand(2, -1, -1), torch.arange(24).view(1, 12, 1, 2) % 3 > 0

    def cases(kind: Any) -> Iterator[tuple[str, Any]]:
        """Each projection makes all channels of a token one number, so answers are plain numbers."""
        layer = filled(kind(d_model, num_heads), -2 / d_model)
        for sign in (1, -1):
            said = f"with weights that sum to -2 and values that are {sign}, the output"
            yield said, layer(one, one, sign * one)[0, 0, 0].item()
        yield "the size of the scores inside the layer", (layer(one, keys, 4 * keys)[0, 0, 0] / 4).logit().item()
        kinds = (4, None, "no mask"), (3, None, "no mask"), (4, mask[:, None], "a mask")
        for training, (count, some, told) in product((False, True), kinds):
            layer = filled(kind(8, 2), 0.5).train(training)
            with says("it runs without a mask, but not with one: hand the mask to attention as it comes ({})"):
                answers = layer(query.clone(), 0 * key[:, :count], value[:, :count], some)[..., 0]
            yield f"the means of {count} values of equal keys, with {told}{', in training' * training},", answers

    def others(kind: Any) -> Iterator[tuple[str, Any]]:
        yield "the output if each head has a mask", filled(kind(24, 12), 0.1)(two[:, :1], two, two, apart)
        yield "the output of one head", filled(kind(24, 1), 0.1)(one, keys, keys)

    as_solved(mine, "MultiHeadAttention", cases, "", 1e-5)
    layer = mine.MultiHeadAttention(8, 2).double()
    layer(query, key, value).square().sum().backward()
    for name, parameter in layer.named_parameters():
        if is_matrix(parameter) and not parameter.grad.all():
            raise Wrong(f"a part of {name} has no effect: each head has its own queries, keys and values")
    as_solved(mine, "MultiHeadAttention", others, "", ROUGH)
    x, y = random(4, 4, 8), random(4, 5, 8, seed=1)
    for mask in past(5), past(4)[:, :, 3:]:
        alone(mine.MultiHeadAttention(8, 2).double(), [x, *[y[:, : mask.size(-1)]] * 2], [mask])
    torch.manual_seed(0)
    whole = partial(check_multi_head_attention, mine.MultiHeadAttention(8, 2), 8, 2)
    if whole().faults:
        with patch.object(mine, "attention", solved.attention):  # the reader's own may round to float32
            first_fault(whole())


@gap(4, "sinusoidal_table")
def grade_sinusoidal_table(mine: ModuleType) -> None:
    """Sines in even channels, cosines in odd ones, and the speeds of the paper."""

    def halves(table: Tensor, right: Tensor) -> dict[str, object]:
        good = [same(table[:, i::2], right[:, i::2], 5e-4) for i in (0, 1)]
        return {
            "the sines are right; the cosines (channels 1, 3, …) are not": good[0],
            "the cosines are right; the sines (channels 0, 2, …) are not": good[1],
        }

    as_solved(mine, "sinusoidal_table", case("the table", 4, 6), "", 5e-4, halves)
    for n, d in (3, 2), (5, 8), (1, 4), (2100, 8):
        as_solved(mine, "sinusoidal_table", case(f"the table of {n} positions and {d} channels", n, d), "", 1e-4)
    behaves(mine.sinusoidal_table, length=4, d_model=6)
    if mine.sinusoidal_table(4, 6).requires_grad:
        raise Wrong("the table is made of constants; nothing in it is learned, so no nn.Parameter")


@gap(5, "padding_mask")
def grade_padding_mask(mine: ModuleType) -> None:
    """True at real tokens, on the axis of the keys."""
    tokens = torch.tensor([[259, 2, 7, 3, 3], [3, 1, 3, 0, 1], [3, 3, 3, 3, 3]])
    for some in (tokens, tokens[:1]):
        as_solved(mine, "padding_mask", case("the padding mask", some, 3))
    sizes = {"as many sentences as tokens": (tokens[:, 1:4], 3), "sentences of 1 token": (tokens[:, :1], 3)}
    sizes |= {"pad_id 0": (tokens, 0), "no padding at all": (tokens, 9), "pad_id 2051": (tokens + 2048, 2051)}
    in_sizes(mine, "padding_mask", sizes)
    behaves(mine.padding_mask, tokens=tokens, pad_id=3)
    try:  # on another device, here a pretended one
        here = mine.padding_mask(tokens.to("meta"), 3).device.type != "meta"
    except RuntimeError as error:  # what asks for a number raises, too, which says nothing of devices
        here = "expected device" in str(error) or "copy out of meta" in str(error)
    if here:
        raise Wrong("a tensor is made on the CPU, so on a GPU it would not fit: make it on the device of the inputs")


@gap(5, "causal_mask")
def grade_causal_mask(mine: ModuleType) -> None:
    """True on and below the diagonal."""

    def cases(mask: Any) -> Iterator[tuple[str, Any]]:
        for n in (4, 1, 7, 600):
            found = mask(n)
            if isinstance(found, Tensor) and found.shape in ((n, n), (1, n, n)):
                found = found.expand(1, 1, n, n)  # its numbers first
            yield "the causal mask" + f" of {n} positions" * (n > 4), found

    as_solved(mine, "causal_mask", cases)
    as_solved(mine, "causal_mask", case("the causal mask", 4))
    behaves(mine.causal_mask, length=3)


@gap(6, "LayerNorm")
def grade_layer_norm(mine: ModuleType) -> None:
    """Each token by itself, with the variance of all its numbers, and both learned vectors."""
    d, x = 6, 0.02 * random(2, 3, 6) + 0.1

    def learned(kind: Any) -> nn.Module:
        """A norm whose factors and offsets are random."""
        norm = kind(d).double()
        if sorted(p.flatten().tolist() for p in norm.parameters()) != [[0.0] * d, [1.0] * d]:
            made = ", ".join(f"{name} of shape {tuple(p.shape)}" for name, p in norm.named_parameters())
            told = f"one nn.Parameter should begin as ones, the factors, another as zeros, the offsets, each {d} long"
            raise Wrong(f"where d_model is {d}, {told}; it has {made or 'none'}")
        with torch.no_grad():
            for vector in norm.parameters():
                vector.copy_(random(d, seed=1 if vector.any() else 2).view_as(vector))
        return norm

    def cases(kind: Any) -> Iterator[tuple[str, Any]]:
        yield "the result", learned(kind)(x.clone())
        for some, what in ((x[:1], "one sentence"), (x[:, :1], "one token")):
            yield f"the result for {what}", learned(kind)(some.clone())

    behaves(learned(mine.LayerNorm), x=x)
    as_solved(mine, "LayerNorm", cases, "", 1e-4)
    as_solved(mine, "LayerNorm", lambda kind: iter([("the result for tokens of zeros", learned(kind)(0 * x))]))
    if (made := learned(mine.LayerNorm).bfloat16()(x.bfloat16()).dtype) != torch.bfloat16:
        raise Wrong(f"in bfloat16 it returns {made}: bring what was computed in float32 back with .to(x.dtype)")


@gap(6, "FeedForward")
def grade_feed_forward(mine: ModuleType) -> None:
    """Two matrices, a ReLU between them, each token by itself."""
    x = random(2, 3, 4) + 0.3

    def cases(kind: Any) -> Iterator[tuple[str, Any]]:
        for d_ff in (6, 3):
            network = filled(kind(4, d_ff), 1.0)
            what = "each token goes through the maps by itself; what the others change in the result"
            yield what, network(x[:1, :1]) - network(x.clone()).flatten()[:4]
            counts = matrices(network), sum(parameter.numel() for parameter in network.parameters())
            yield f"where d_model is 4 and d_ff {d_ff}, the numbers in its matrices, and with its biases", counts
            for w in (1.0, -1.0, 9.0, 0.001):
                yield f"the result where all weights are {w:g} and all biases 0", filled(network, w)(x.clone())

    behaves(built(mine.FeedForward, 4, 6), x=x)
    as_solved(mine, "FeedForward", cases)


class Call(NamedTuple):
    """One call of a sub-layer: its name in the layer, the part, what it is given, and what stands for its output.

    A network that the layer has written out is two linear maps; `hidden` is what the first gives and the second gets.
    """

    name: str
    part: nn.Module
    given: list[Any]
    output: Tensor
    hidden: tuple[Tensor, Tensor] | None = None


def calls_of(
    mine: ModuleType, layer: nn.Module, *inputs: Tensor | None, kept: Sequence[Tensor] = ()
) -> tuple[list[Call], Any]:
    """The calls of a layer's sub-layers, in their order, and what the layer returns, or the error that it raises.

    Attention and network are replaced by numbers that depend on nothing, so all that happens between them is seen.
    kept: factors of these numbers, in the order of the calls.
    """
    calls: list[Call] = []
    kinds = (mine.MultiHeadAttention, mine.FeedForward)

    def replace(name: str, part: nn.Module, forward: Callable[..., Any], *given: Any, **named: Any) -> Tensor:
        bound = inspect.signature(forward).bind(*given, **named)
        bound.apply_defaults()
        read = [*bound.arguments.values()]
        if isinstance(part, nn.Linear) and not (calls and isinstance(calls[-1].part, nn.Linear)):
            made = forward(*read)
            calls.append(Call(name, part, read, made))
            return made
        call = Call(name, part, read, read[0])
        if isinstance(part, nn.Linear):
            first = calls.pop()
            both = nn.Sequential(first.part, part)
            call = Call(f"{first.name}, {name}", both, first.given, read[0], (first.output, read[0]))
        output = random(*call.given[0].shape, seed=50 + len(calls))
        output = (output * kept[len(calls)] if kept else output).requires_grad_()
        calls.append(call._replace(output=output))
        return output

    own = {name: part for name, part in layer.double().named_modules() if isinstance(part, kinds)}
    inside = {module for part in own.values() for module in part.modules()}
    own |= {name: m for name, m in layer.named_modules() if isinstance(m, nn.Linear) and m not in inside}
    for name, part in own.items():
        part.forward = partial(replace, name, part, part.forward)
    try:
        result: Any = layer(*inputs)
    except (RuntimeError, TypeError) as error:
        result = error
    for part in own.values():
        del part.forward
    return calls, result


NEITHER = "it is neither pre-norm, x + f(norm(x)) for each sub-layer f, nor post-norm, norm(x + f(x))"
BARE = "{name} is given the sum without a norm, and no norm follows: x + f(norm(x)), or norm(x + f(x))"
BOTH = "one norm stands before its sub-layer and after the sum as well: {name}"


def formulas(what: str, names: str) -> list[tuple[str, Callable[..., Tensor]]]:
    """What a layer may do at a step, the right ways first: an order or a sentence for each, and the formula."""
    return [(told, eval(f"lambda {names}: {text}")) for kind, text, told in rows("sums.tsv") if kind == what]


# x = the sum so far, old = the one before, start = the input, f = the output of a sub-layer, given z; n and m = norms.
READS = formulas("read", "x, old, n, m")
SUMS = formulas("sum", "x, old, start, z, f, n")


class Way(NamedTuple):
    """How the sums went on: the sum and the one before it, the orders, the norms, and how many steps are wrong."""

    total: Tensor
    old: Tensor
    orders: tuple[str, ...] = ()
    norms: tuple[nn.Module, ...] = ()
    wrong: int = 0


def ways(norms: list[nn.Module], calls: list[Call], x: Tensor) -> list[Way]:
    """All sums that agree with what the sub-layers were given, each with the least wrong way to it."""

    def unlikely(way: Way) -> tuple[int, int, int]:
        return way.wrong, len({*way.orders}), -len({*way.norms})

    found = [Way(x, x)]
    for call in calls:
        after = dict[float, Way]()
        for way, (read, given), n, m in product(found, READS, norms, norms):
            if (m is not n and "norm" not in read) or not same(given(way.total, way.old, n, m), call.given[0], 1e-9):
                continue
            for (then, add), k in product(SUMS, norms):
                wrong = [order for order in (read, then) if order not in ("pre", "post")]
                order = read if read == then else wrong[0] if wrong else BARE if read == "post" else BOTH
                total = add(way.total, way.old, x, call.given[0], call.output, k)
                orders, own = (*way.orders, order), (*way.norms, k if then == "post" else n)
                step = Way(total, way.total, orders, own, way.wrong + (read != then))
                key = round(total.sum().item(), 7)
                after[key] = min(after.get(key, step), step, key=unlikely)
        found = [*after.values()]
        if not found:
            raise Wrong(f"{NEITHER}; {call.name} is given something else")
    return found


def inputs_are_right(
    mine: ModuleType, calls: list[Call], given: list[Tensor], masks: Sequence[Tensor | None], result: Any
) -> None:
    """The right sub-layers in the right order, each with its own keys, values and mask."""
    kinds = ["self-attention", "attention to the memory", "feed-forward"]
    x, memory = given[0], given[-1]
    order = [
        kinds[2] if not isinstance(call.part, mine.MultiHeadAttention)
        else kinds[any(isinstance(z, Tensor) and z.size(1) == 4 for z in call.given[:3])]
        for call in calls
    ]  # fmt: skip
    if len(given) == 2 and kinds[1] not in order and not isinstance(result, Exception):
        raise Wrong("the memory changes nothing: the keys and values of the second attention are made of it")
    for kind, (name, _, (query, *others), _, hidden) in zip(order, calls):
        if hidden and not same(hidden[0].relu(), hidden[1], 1e-9):
            raise Wrong(f"there is no ReLU between {name.replace(', ', ' and ')}")
        if kind == kinds[2]:
            continue
        key, value, mask, *_ = [*others, None, None, None]
        if kind == kinds[0] and not (same(key, query, 0) and same(value, query, 0)):
            raise Wrong(f"{name} is not given one tensor as queries, keys and values; in self-attention it is one")
        if kind == kinds[1] and query.shape != x.shape:
            raise Wrong(f"{name} takes its queries from the memory; they come from x, keys and values from the memory")
        if kind == kinds[1] and not (same(key, memory, 0) and same(value, memory, 0)):
            other = " and ".join(what for what, z in (("keys", key), ("values", value)) if not same(z, memory, 0))
            raise Wrong(f"{name} should get the memory as it comes from the encoder; its {other} are something else")
        own = kinds.index(kind)
        named = ("mask", "memory_mask")[own]
        if masks[own] is None and mask is not None and not mask.all():
            raise Wrong(f"{name} hides keys when the layer is given no {named}")
        if masks[own] is not None and not same(mask, masks[own], 0):
            inverted = isinstance(mask, Tensor) and same(mask.logical_not(), masks[own], 0)
            found = "something else" if not inverted else "its opposite: True should mean may attend"
            found = "the mask of the other attention" if same(mask, masks[1 - own], 0) else found
            told = f"should be given {named} as it comes; it is given {found}"
            raise Wrong(f"{name} {told if mask is not None else f'is not given {named}, so the mask is not used'}")
    if len(given) == 2 and "must match the size" in str(result):
        raise Wrong(f"after {calls[-1].name}, x and the memory are added: all outputs are added to x") from result
    if isinstance(result, Exception):
        raise result
    wanted = kinds[:: 2 if len(given) == 1 else 1]
    if order != wanted:
        raise Wrong(f"the sub-layers should be {', '.join(wanted)}, in this order; here: {', '.join(order) or 'none'}")
    if shared(call.part for call in calls):
        raise Wrong(f"the weights of {calls[0].name} serve as both attentions; each has weights of its own")


def as_in_the_formula(
    mine: ModuleType, layer: nn.Module, given: list[Tensor], masks: Sequence[Tensor | None], known: Tensor | None = None
) -> Tensor:
    """A layer must give a result that is known to be right, or that of its own parts in either order, pre or post."""
    norms = {part: name for name, part in layer.named_modules() if isinstance(part, (mine.LayerNorm, nn.LayerNorm))}
    with torch.no_grad():
        for seed, vector in enumerate(vector for norm in norms for vector in norm.parameters()):
            vector.copy_(random(*vector.shape, seed=seed))
    given = [x.clone().requires_grad_() for x in given]
    calls, result = calls_of(mine, layer, *given, *deepcopy(masks[: len(given)]))
    inputs_are_right(mine, calls, given, masks, result)
    if not same(result, calls_of(mine, layer, *given, *masks[: len(given)])[1], 1e-12):
        raise Wrong("in evaluation two calls give two answers: dropout works there, too (use nn.Dropout)")
    if known is not None and same(result, known, 1e-9):
        return result
    if len(norms) < len(calls):
        raise Wrong(f"it makes {len(norms)} norms; each of its {len(calls)} sub-layers has one of its own")
    if any(len([*norm.parameters()]) != 2 or getattr(norm, "eps", 1e-5) != 1e-5 for norm in norms):
        raise Wrong("a norm has learned factors and offsets, and adds 1e-5; here one does not")
    with torch.no_grad():
        found = ways([*norms], calls, given[0])
    best = next((way for way in found if same(way.total, result, 1e-9)), None)
    if best is None:
        raise Wrong(f"{NEITHER}; after {calls[-1].name} comes something else")
    for before, call, order in zip([*calls[:1], *calls], calls, best.orders):
        if order not in ("pre", "post"):
            raise Wrong(order.format(name=call.name, before=before.name))
    if len(set(best.orders)) > 1:
        raise Wrong("one norm stands before its sub-layer, another after the sum: choose one order for all")
    if best.orders[0] == "pre" and type(layer).__name__ in ASKED:
        raise Wrong("this is pre-norm")
    used = [norms[norm] for norm in best.norms]
    if again := [name for name in used if used.count(name) > 1]:
        raise Wrong(f"{again[0]} serves more than one sub-layer; each has a norm of its own")
    return result


def dropout_is_right(mine: ModuleType, layer: nn.Module, rate: float, *inputs: Tensor) -> None:
    """In training, the outputs of the sub-layers are dropped, each with this probability, and nothing else."""
    torch.manual_seed(0)
    given = [x.repeat(1, 100, 1).requires_grad_() for x in inputs]
    calls, result = calls_of(mine, layer.train(), *given)
    loud = (result * random(*result.shape)).sum()
    of_x, *gradients = torch.autograd.grad(loud, [given[0], *[call.output for call in calls]], materialize_grads=True)
    if (result == 0).any() or (of_x == 0).any():
        raise Wrong("dropout stands after the sum or after the norm, and drops x as well; it belongs on each output")
    for (name, _, read, *_), gradient in zip(calls, gradients):
        share = (gradient == 0).double().mean().item()
        if any((z == 0).any() for z in read[:3] if isinstance(z, Tensor)):
            raise Wrong(f"dropout stands before {name}; it belongs on its output, before that is added")
        if share == 1:
            raise Wrong(f"{DETACHED} (nothing reaches what {name} returns)")
        if share == 0:
            raise Wrong(f"{name} has no dropout: in training, a part of each output is dropped before it is added")
        if abs(share - 1 + (1 - rate) ** 2) < 0.02:
            raise Wrong(f"what {name} returns is dropped twice")
        if abs(share - rate) > 0.06:
            raise Wrong(f"with dropout={rate}, {share:.0%} of what {name} returns is dropped: pass the rate on")
        for axis, what in enumerate(("the same numbers of every sentence", "whole channels", "whole tokens")):
            if ((gradient == 0) == (gradient.narrow(axis, 0, 1) == 0)).all():
                raise Wrong(f"of what {name} returns, {what} are dropped; nn.Dropout drops each number by itself")
    kept = [(gradient != 0).double() / (1 - rate) for gradient in gradients]
    if not same(calls_of(mine, layer.eval(), *given, kept=kept)[1], result, 1e-5):
        raise Wrong("in training, what is not dropped is not divided by 1 - dropout, or the rest not 0: use nn.Dropout")


def sizes_are_used(mine: ModuleType, build: Callable[..., nn.Module], *inputs: Tensor) -> None:
    """The number of heads and d_ff must reach the parts."""
    one, four = build(8, 1, 5).double().eval(), build(8, 4, 5).double().eval()
    for name, part, *_ in calls_of(mine, one, *inputs)[0]:
        with says(f"{name} does not take tokens that are d_model wide: are the sizes swapped in __init__?"):
            part(*[inputs[0]] * (3 if isinstance(part, mine.MultiHeadAttention) else 1))
        if not isinstance(part, mine.MultiHeadAttention):
            expect(f"with d_model 8 and d_ff 5, the numbers in the matrices of {name}", matrices(part), 2 * 8 * 5)
            continue
        weights, four_heads = part.state_dict(), four.get_submodule(name)
        if [w.shape for w in weights.values()] == [w.shape for w in four_heads.state_dict().values()]:
            four_heads.load_state_dict(weights)
            if same(four_heads(*[inputs[0]] * 3), part(*[inputs[0]] * 3), 1e-9):
                raise Wrong(f"{name} gives the same with 1 head and with 4: pass num_heads on")


def grade_layer(mine: ModuleType, build: Callable[..., nn.Module], *lengths: int) -> None:
    """The formula of exactly one order, with masks and without, in training, too; then its sizes, and dropout."""
    inputs = [random(2, length, 8, seed=length) for length in lengths]
    with suppress(RuntimeError, TypeError):  # they are seen more closely
        started(build, (8, 2, 16), *inputs)
    hidden = torch.Generator().manual_seed(2)
    masks = [torch.rand(2, 1, n, lengths[-1] if n == 1 else 3, generator=hidden) < 0.6 for n in (3, 1)]
    layer = build(8, 2, 16).eval()
    plain = as_in_the_formula(mine, layer, inputs, [None, None])
    for some in (masks, [masks[0], None], [None, masks[1]]):
        as_in_the_formula(mine, layer, inputs, some, plain)
    sizes_are_used(mine, build, *inputs)
    dropout_is_right(mine, build(8, 2, 10, 0.75), 0.75, *inputs)
    try:
        as_in_the_formula(mine, build(8, 2, 16, 0.0).train(), inputs, masks, plain)
    except Wrong as wrong:
        raise Wrong(f"right in evaluation; in training: {wrong}") from wrong
    behaves(build(8, 2, 16, 0.0).double(), **dict(zip(("x", "memory"), inputs)))
    long = range(4, 4 + len(lengths))
    alone(layer.eval(), [random(4, n, 8) for n in long], [past(n) for n in long])


@gap(6, "EncoderLayer")
def grade_encoder_layer(mine: ModuleType) -> None:
    """Self-attention and a feed-forward network."""
    grade_layer(mine, mine.EncoderLayer, 3)


@gap(6, "DecoderLayer")
def grade_decoder_layer(mine: ModuleType) -> None:
    """The same with attention to the memory between them."""
    grade_layer(mine, mine.DecoderLayer, 3, 4)


def enters(mine: ModuleType, found: Tensor, tables: list[Tensor], words: int, tokens: Tensor, what: str) -> Tensor:
    """What enters a stack must be rows of a table of so many rows times the root of the width, plus positions."""
    if (found == 0).any():
        raise Wrong("dropout does not heed its rate, or runs in evaluation mode: make and call an nn.Dropout(dropout)")

    def embedded(table: Tensor, *change: Sequence[str]) -> Tensor:
        """What the solution makes of the tokens, with a table, and perhaps with a mistake."""
        embed = changed("Transformer", *change).embed
        embed.__globals__["sinusoidal_table"] = mine.sinusoidal_table
        return embed(SimpleNamespace(d_model=found.size(-1), dropout=nn.Identity()), tokens, lambda ids: table[ids])

    for table in (table for table in tables if len(table) > tokens.max()):
        if same(found, embedded(table), 1e-5):
            if len(table) == words:
                return table
            raise Wrong(f"{what} are rows of a table with {len(table)} rows, not {words}: is it the other side's?")
        for *change, sentence in by_part("mistakes.tsv")["Transformer"]:
            if same(found, embedded(table, change), 1e-5):
                raise Wrong(f"{sentence} ({what})")
    right = next(table for table in tables if len(table) == words)
    wanted, positions = embedded(right), embedded(right * 0)
    if found.shape == wanted.shape:
        what = f"{what} less the positions, which is embedding(tokens) * sqrt(d_model)"
        expect(what, found - positions, wanted - positions, {}, 1e-5)
    expect(what, found, wanted, {}, 1e-5)
    return right


class Pass(NamedTuple):
    """One call of a layer of a stack: what it is given, by name, what it returns, and what a new layer would return."""

    layer: nn.Module
    given: dict[str, Any]
    made: Tensor
    anew: Callable[[nn.Module], Tensor]


GIVEN = {"encoder": ("x", "mask"), "decoder": ("x", "memory", "mask", "memory_mask"), "norm": ("x",)}


def passes(mine: ModuleType, model: nn.Module) -> dict[str, list[Pass]]:
    """Of both stacks and of norms, a list that grows with each call of a layer."""
    kinds = {"encoder": mine.EncoderLayer, "decoder": mine.DecoderLayer, "norm": mine.LayerNorm}
    found: dict[str, list[Pass]] = {name: [] for name in kinds}

    def keep(name: str, layer: nn.Module, given: tuple[Any, ...], named: dict[str, Any], made: Tensor) -> None:
        values = inspect.signature(layer.forward).bind(*given, **named)
        own = zip(GIVEN[name], values.signature.parameters)  # the reader's own names, in this order
        by_name = {known: values.arguments[theirs] for known, theirs in own if theirs in values.arguments}
        found[name].append(Pass(layer, by_name, made, lambda other: other(*given, **named)))

    for name, module in product(kinds, model.modules()):
        if isinstance(module, kinds[name]):
            module.register_forward_hook(partial(keep, name), with_kwargs=True)
    return found


def one_stack(found: list[Pass], new: nn.Module, name: str) -> None:
    """Each of three layers is called once, and does what a new one does."""
    if len(found) != 3:
        raise Wrong(f"of 3 {name} layers, forward calls {len(found)}: loop over all")
    if len({id(each.layer) for each in found}) != 3:
        raise Wrong(f"forward calls one layer of the {name} more than once, and another one never")
    for each in found:
        new.load_state_dict(each.layer.state_dict())
        if not same(each.anew(new), each.made, 1e-6):
            raise Wrong(f"num_heads or dropout does not reach {type(new).__name__}(d_model, num_heads, d_ff, dropout)")


def would_be_given(kind: Any, stacks: dict[str, list[Pass]], *tokens: Tensor) -> dict[str, list[dict[str, Any]]]:
    """What another Transformer's forward would give to the layers of a model, if they return what they returned."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in stacks}

    def layer(name: str, made: Tensor, *given: Any) -> Tensor:
        found[name].append(dict(zip(GIVEN[name], given)))
        return made

    encoder, decoder = ([partial(layer, name, each.made) for each in stacks[name]] for name in ("encoder", "decoder"))
    norm = nn.LayerNorm(8).double()
    model = SimpleNamespace(
        pad_id=5, embed=lambda _, stack: stack[0].given["x"] if stack else norm.weight, output=nn.Identity(),
        source_embedding=stacks["encoder"], encoder_layers=encoder, encoder_norm=norm,
        target_embedding=stacks["decoder"], decoder_layers=decoder, decoder_norm=norm,
    )  # fmt: skip
    kind.forward(model, *tokens)
    return found


READ = (
    ("encoder", "x", "input of a layer of the encoder, what the one before it returned"),
    ("encoder", "mask", "mask of the encoder (source_mask)"),
    ("decoder", "x", "input of a layer of the decoder, what the one before it returned"),
    ("decoder", "memory", "memory, the norm of what the last encoder layer returns"),
    ("decoder", "mask", "mask of the decoder (target_mask)"),
    ("decoder", "memory_mask", "memory_mask of the decoder (source_mask)"),
)


def are_given(mine: ModuleType, stacks: dict[str, list[Pass]], count: int, *tokens: Tensor) -> None:
    """The first of what is READ must be what the solution gives; in a mask, the rows of padding may be anything."""

    def cases(last: int, n: int, kind: Any) -> Iterator[tuple[str, Any]]:
        known = {name: [each.given for each in stack] for name, stack in stacks.items()}
        given = known if kind is mine.Transformer else would_be_given(kind, stacks, *tokens)
        for name, value, what in READ[: last + 1]:
            found = given[name][n].get(value)
            if isinstance(found, Tensor) and found.dtype == torch.bool:
                found = found.expand(2, 2, 12, 12) & (tokens[name == "decoder"] != 5)[:, None, :, None]
            yield f"the {what}", found

    for last, n in product(range(count), range(3)):
        name, value, what = READ[last]
        if stacks[name][n].given.get(value) is None:
            seen = "tokens read what comes later" if "target" in what else "padded source tokens are read"
            raise Wrong(f"the layers get no {what}, so {seen}: give it to each")
        memories = [each.given[value] for each in stacks[name]] if value == "memory" else []
        if not all(same(memory, memories[0], 0.0) for memory in memories):
            raise Wrong("the decoder's layers get different memories: each reads what the last encoder layer returned")
        as_solved(mine, "Transformer", partial(cases, last, n), "", 1e-4)


def ends(model: nn.Module, decoder: list[Pass], answer: Tensor) -> None:
    """The logits must be a linear map of the norm of what the last decoder layer returned."""
    weights = [z for p in model.parameters() if p.dim() == 2 for z in (p, p.T) if z.shape == (8, 110)]
    biases = [torch.zeros(110).double(), *(p for p in model.parameters() if p.shape == (110,))]

    def linear(hidden: Tensor) -> bool:
        return any(same(hidden @ weight + bias, answer, 1e-4) for weight, bias in product(weights, biases))

    last = decoder[-1].made
    if linear(F.layer_norm(last, (8,))):
        return
    for name, p in (("softmax", answer), ("log_softmax", answer.exp())):
        if same(p.sum(dim=-1), torch.ones(2, 12).double(), 1e-6):
            raise Wrong(f"a {name} stands at the end: forward returns logits")
    if linear(last):
        raise Wrong("the decoder's stack of pre-norm layers ends without a norm of its own")
    raise Wrong("the logits are not one nn.Linear of the norm of what the last decoder layer returns")


def rates_are(model: nn.Module, rate: float) -> None:
    """Every dropout must have this rate."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout) and module.p != rate:
            raise Wrong(f"with dropout={rate}, {name} has the rate {module.p}: pass `dropout` on to each layer, too")


def dropped(mine: ModuleType, source: Tensor, target: Tensor) -> None:
    """Half of what enters each stack must be zero in training, and the rest twice as large; nothing else is dropped."""
    torch.manual_seed(0)
    model = mine.Transformer(90, 110, 0, d_model=8, num_heads=2, d_ff=12, num_layers=2, dropout=0.5).double()
    rates_are(model, 0.5)
    encoder, decoder, _ = passes(mine, model).values()
    for mode, other in ((False, "training"), (True, "evaluation")):
        answer = model.train(mode)(source, target)
        if model.training != mode:
            raise Wrong(f"forward switches the model to {other} mode; the caller sets the mode")
    if encoder[0].given["mask"].all():
        raise Wrong("where pad_id is 0, the encoder's mask hides nothing: 0 is a pad_id like any other")
    for name, (whole, _, training, last) in zip(GIVEN, (encoder, decoder)):
        x, y = (each.given["x"] for each in (training, whole))
        if not same(last.given["x"], training.made, 0.0):
            raise Wrong(f"in training, something stands between the layers of the {name}; each drops its own outputs")
        if (y == 0).any():
            raise Wrong("dropout runs in evaluation mode: make an nn.Dropout in __init__, and call that")
        if ((x - mine.sinusoidal_table(*x.shape[1:]).to(x)).abs() < 1e-6).double().mean() > 0.3:
            raise Wrong("the positions are added after the dropout: dropout comes last, on the sum")
        if not 0.3 < (share := (x == 0).double().mean().item()) < 0.7:
            raise Wrong(f"with dropout=0.5, {share:.0%} of what enters the {name} is dropped in training")
        if not same(x, y.where(x != 0, 0.0) * 2, 1e-5):
            raise Wrong(f"what enters the {name} is dropout(rows * sqrt(d_model) + positions): of the whole sum")
    if not same(decoder[-1].given["memory"], F.layer_norm(encoder[-1].made, (8,)), 1e-4):
        raise Wrong("in training the memory is not the norm of what the encoder returns: is it dropped, or kept?")
    ends(model, decoder, answer)


@gap(7, "Transformer")
def grade_transformer(mine: ModuleType) -> None:
    """The constructor, what enters a stack, both stacks, masks and memory, the end; then some properties of `check`."""
    sizes = dict(d_model=8, num_heads=2, d_ff=12, num_layers=3)
    model = built(mine.Transformer, 90, 110, 5, **sizes, dropout=0.0)
    rates_are(model, 0)
    kinds: dict[str, Any] = {"encoder": mine.EncoderLayer, "decoder": mine.DecoderLayer}
    for kind in kinds.values():
        if (count := sum(isinstance(module, kind) for module in model.modules())) != 3:
            again = " (one that stands three times, as in [layer] * 3, is one)" if count == 1 else ""
            raise Wrong(f"for num_layers=3 it has {count} {kind.__name__}s: each stack has so many, of its own{again}")
        for layer in (module for module in model.modules() if isinstance(module, kind)):
            with says(f"{kind.__name__} takes d_model, num_heads, d_ff, dropout; with d_ff=12, {{}}"):
                kind(8, 2, 12, 0.0).load_state_dict(layer.state_dict())
    if shared(module for module in model.modules() if isinstance(module, (*kinds.values(),))):
        raise Wrong("layers share weights, as copies by copy.copy do: make each anew")
    encoder, decoder, normed = (stacks := passes(mine, model)).values()
    source, target = torch.randint(6, 90, (2, 2, 12), generator=torch.Generator().manual_seed(0))
    source[0, 9:], target[1, 10:], source[1, 3], target[0, 4] = 5, 5, 0, 0
    given, weights = (source.clone(), target.clone()), [p.clone() for p in model.parameters()]
    try:
        answer = model(*given)
    except NotImplementedError as error:
        if str(error) not in ("", "chapter 7: write Transformer"):
            raise
        if encoder:
            raise Unfinished("in forward, a `raise` still stands behind your lines: delete it") from None
        table = nn.Embedding(90, 8).double().weight
        try:
            found = model.embed(source, nn.Embedding.from_pretrained(table))
        except NotImplementedError:
            made_around_the_stacks(mine, model)
            raise Unfinished("step 2, embed (step 1, __init__, is right)") from None
        enters(mine, found, [table], 90, source, "what embed returns")
        raise Unfinished("step 3, the encoder's half of forward (of steps 1 and 2, what is tried is right)") from None
    except RuntimeError as error:
        if "size of tensor" not in str(error):
            raise
        raise Wrong(f"a mask, or what a layer reads, has the length of other tokens ({one_line(error):.90})") from error
    if not all(map(torch.equal, (*given, *weights), (source, target, *model.parameters()))):
        raise Wrong("forward changes source or target: make new tensors (or weights, as by max_norm)")
    tables = [p for p in model.parameters() if p.dim() == 2 and p.size(1) == 8 and len(p) >= 90]
    begin: dict[int, Tensor] = {}
    for name, words, tokens, count in (("encoder", 90, source, 2), ("decoder", 110, target, len(READ))):
        if not decoder and name == "decoder":
            if isinstance(answer, Tensor) and answer.size(-1) == 110:
                raise Wrong("forward never calls the decoder's layers")
            raise Unfinished("step 4, the decoder's half of forward (of the steps before, what is tried is right)")
        one_stack(stacks[name], kinds[name](8, 2, 12, 0.0).double(), name)
        are_given(mine, stacks, count // 2, source, target)
        if tables:
            begin[words] = enters(mine, stacks[name][0].given["x"], tables, words, tokens, f"what enters the {name}")
        are_given(mine, stacks, count, source, target)
    if a_tensor(answer, "what forward returns").shape != (2, 12, 110):
        raise Wrong(f"the logits should have shape (batch, m, target_vocab_size), (2, 12, 110); {tuple(answer.shape)}")
    if len({each.layer for each in normed}) < len(normed):
        raise Wrong("a norm is called twice in one pass: each stack ends with one of its own")
    ends(model, decoder, answer)
    for words, table in begin.items():
        if not 0.8 < table.std().item() * 8**0.5 < 1.2 or abs(table.mean().item()) > 0.1:
            told = f"the {words} rows of an embedding begin with mean {table.mean():.2g}, deviation {table.std():.2g}"
            raise Wrong(f"{told}; they should with 0 and 1 / sqrt(d_model), {8**-0.5:.2g}")
    dropped(mine, source, target)
    rows_of_8 = [p.reshape(-1, 8) for p in model.parameters() if p.requires_grad and p.size(-1) == 8]
    if any(same(p[:12], mine.sinusoidal_table(12, 8), 1e-5) for p in rows_of_8):
        raise Wrong("the positions are an nn.Parameter, so they are learned; they are constants")
    trained, answers = decoder[-1].given, model.eval()(source, target)
    for name in ("mask", "memory_mask"):
        expect(f"right in training; in evaluation, {name} of a decoder layer", decoder[-1].given[name], trained[name])
    expect("right in training; in evaluation, the answer", answers, answer)
    for n, m in ((9, 9), (9, 2), (9, 1), (1, 1)):
        cut = source.clone()
        cut[0, n:] = 5
        what = f"one sentence of {n} tokens, with {m} of the target"
        with says(f"{what}: self-attention takes the mask of its own tokens, cross-attention the source's ({{}})"):
            single, padded = model(cut[:1, :n], target[:1, :m]), model(cut[:1], target[:1, :m])
            among = model(cut, target)[:1, :m], model(cut, target[:, :m])[:1]
        expect(f"{what}, and with padding behind them: the answer without other sentences", padded, single, {}, 1e-6)
        for found in among:
            expect(f"{what}: the answer among other sentences", found, single, {}, 1e-6)
    counts = [sum(p.numel() for p in mine.Transformer(90, n, 5, 8, 2, 12, 1).parameters()) for n in (90, 91, 92)]
    if counts[2] - counts[1] != counts[1] - counts[0]:
        raise Wrong("where both vocabularies have one size, a table serves twice: each side has its own in any case")
    usual = mine.Transformer(9, 9, 5), mine.Transformer(9, 9, 5, 128, 4, 256, 4)
    first, second = ([[*p.shape] for p in model.parameters()] for model in usual)
    expect("with no sizes given, d_model=128, num_heads=4, d_ff=256, num_layers=4: the parameters", first, second)
    long = source.repeat(1, 25)
    with says("100 tokens are too many for it: is the table of positions short, or a mask kept? ({})"):
        model(long[:, :100], long[:, :100])
    with suppress(RuntimeError, IndexError, ValueError):  # a table that ends is a limit, and says so
        model(long, target)
        if tables:
            enters(mine, encoder[-3].given["x"], tables, 90, long, "among 300 tokens, what enters the encoder")
    places = (torch.bfloat16, "in bfloat16", target), ("meta", "on another device", target.to("meta"))  # no numbers
    for place, where, there in places:
        try:
            model.to(place)(there, there)
        except RuntimeError as error:
            if "item() cannot be called" in str(error):
                continue  # as by an assert, which asks for a number
            told = f"{where} it does not run: positions want .to(x), the causal mask .to(target.device)"
            raise Wrong(f"{told} ({one_line(error):.90})") from error
    names = "empty sentences, calls leave no trace, state dict is complete, every dtype, gradient reaches everything"
    first_fault(check_transformer(partial(mine.Transformer, **sizes), training=False, only=names.split(", ")))


@gap(8, "make_batch")
def grade_make_batch(mine: ModuleType) -> None:
    """Two rectangles, filled up on the right."""
    pairs = [([8, 0, 2], [1, 7, 2]), ([5, 2], [1, 3, 4, 4, 2]), ([9, 3, 4, 2], [1, 2])]

    def cases(make: Any) -> Iterator[tuple[str, Any]]:
        for used, pad in ((pairs, 11), (pairs[:1], 7), (pairs, 0), ([([1] * 600, [70_001] * 600)] * 2, 7)):
            given = [(list(a), list(b)) for a, b in used]
            answer = make(given, pad)
            if given != used:
                raise Wrong("it changes the lists that it is given: make new ones")
            if not isinstance(answer, tuple | list) or len(answer) != 2:
                raise Wrong("it should return two tensors, source and target")
            for side, name in zip(answer, ("source", "target")):
                if isinstance(side, Tensor) and side.dtype != torch.int64:
                    raise Wrong(f"{name} should be int64; its dtype is {side.dtype}")
                yield name, side

    as_solved(mine, "make_batch", cases)


@gap(8, "batches_by_length")
def grade_batches_by_length(mine: ModuleType) -> None:
    """No pair is lost, short ones come first, and every batch is as full as its budget allows."""
    sizes = [(3, 2), (1, 1), (2, 7), (1, 2), (6, 4), (2, 2), (12, 3), (3, 1), (4, 4), (1, 3), (2, 4), (5, 6), (2, 2)]
    pairs = [([number] * n, [number] * m) for number, (n, m) in enumerate(sizes)]
    pairs.append(pairs[1])  # twice in the data, and twice in the batches
    one, small = [([1] * 600, [2] * 600)], [([1], [2])] * 600

    def longer(pair: tuple[list[int], list[int]]) -> int:
        return max(map(len, pair))

    for given, budget in (*product([pairs], (12, 13, 17, 24, 40)), (one, 600), (small, 600)):
        batches = mine.batches_by_length(kept := list(given), budget)
        if kept != given:
            raise Wrong("it changes the list that it is given: sorted() makes a new one")
        if not isinstance(batches, list | tuple):
            raise Wrong(f"it should return a list of lists of pairs; it returns a {type(batches).__name__}")
        if not all(batches):
            raise Wrong("a batch is empty: begin with no batch at all")
        found = [pair for batch in batches for pair in batch]
        every = all(isinstance(pair, tuple) for pair in found)
        if not every or (len(found) == len(given) and any(pair not in given for pair in found)):
            raise Wrong("the batches, lists of pairs, hold something else than the pairs that were given")
        if sorted(found) != sorted(given):
            last = "" if max(given, key=longer) in found else "; is the last batch appended?"
            raise Wrong(f"each of {len(given)} pairs should be in one batch; {len(found)} are{last}")
        lengths, flat = [[longer(pair) for pair in batch] for batch in batches], [*map(longer, found)]
        keys = {"length of the source": (1, 0), "length of the target": (0, 1), "sum of both lengths": (1, 1)}
        for name, (a, b) in keys.items():
            order = [a * len(source) + b * len(target) for source, target in found]
            if order == sorted(order) and flat != sorted(flat):
                raise Wrong(f"the pairs go from short to long by the {name}; the longer side counts")
        if flat != sorted(flat):
            raise Wrong("the pairs do not go from short to long; the longer side of a pair counts")
        for batch, following in pairwise([*lengths, [budget + 1]]):
            if (cells := len(batch) * batch[-1]) > budget:
                raise Wrong(f"with a budget of {budget}, a batch of lengths {batch} has {cells} cells, with padding")
            if (len(batch) + 1) * following[0] <= budget:
                raise Wrong(f"with a budget of {budget}, a batch of lengths {batch} has room for one of {following[0]}")


@gap(9, "label_smoothed_loss")
def grade_label_smoothed_loss(mine: ModuleType) -> None:
    """The mean over real labels, with part of the probability spread over all tokens; for large logits, too."""

    def cases(loss: Any) -> Iterator[tuple[str, Any]]:
        for pad, smoothing, scale in ((6, 0.2, 1), (2, 0.3, 1), (6, 0.2, 900)):
            logits = (scale * random(2, 3, 7)).requires_grad_()
            labels = torch.tensor([[0, 4, 0, 1], [0, 5, pad, pad]])[:, 1:]  # no copy, as in training_step
            answer = loss(logits, labels, pad, smoothing)
            yield "the loss of large logits" if scale > 1 else "the loss", answer / scale

    as_solved(mine, "label_smoothed_loss", cases, "", ROUGH)
    x, y = random(8, 8, 8), torch.arange(64).view(8, 8) * 5 // 3 % 8
    sizes: dict[str, tuple[Any, ...]] = {"smoothing 0": (x, y, 3, 0.0), "smoothing 0.8": (x, y, 3, 0.8)}
    sizes |= {"8 sentences, labels and tokens": (x, y, 3, 0.2), "1 label": (x[:1, :1], y[:1, :1], 3, 0.2)}
    sizes |= {"1 label in each": (x[:, :1], y[:, :1], 0, 0.2), "1 sentence": (x[:1], y[:1], 3, 0.2)}
    in_sizes(mine, "label_smoothed_loss", sizes)
    behaves(mine.label_smoothed_loss, logits=x[:1, :2], labels=y[:1, :2], pad_id=6, smoothing=0.5)


@gap(9, "learning_rate")
def grade_learning_rate(mine: ModuleType) -> None:
    """Up in a straight line, then down as one over the root."""

    def cases(rate: Any) -> Iterator[tuple[str, Any]]:
        fall = "" if "learning_rate" in ASKED else ", where it falls as 1 / sqrt(step)"
        steps = *((step, 0.5, 4) for step in (1, 2, 3, 4, 5, 6, 9)), (100, 2.0, 16), (4500, 3.0, 9), (2, 1e-7, 9)
        steps += (1, 0.5, 1), (2, 0.5, 1), (100, 3, 10_000), (200_000, 3, 10_000)
        for step, peak, warmup in steps:
            where = "on the way up" if step < warmup else "at the peak" if step == warmup else f"after the peak{fall}"
            found = rate(step, peak, warmup)
            if not isinstance(found, float | int):
                raise Wrong(f"it should return a number; it returns a {type(found).__name__}")
            yield f"{where}: the rate of step {step} with peak {peak} and warmup {warmup}", found

    as_solved(mine, "learning_rate", cases)


@gap(9, "training_step")
def grade_training_step(mine: ModuleType) -> None:
    """The model reads all but the last token, predicts all but the first, and its weights move by the rate."""
    source, target = torch.tensor([[3, 2], [4, 2]]), torch.tensor([[5, 0, 4, 2], [5, 4, 2, 3]])
    whole = "the model reads the whole target; leave out its last token, which nothing follows"

    def cases(step: Any) -> Iterator[tuple[str, Any]]:
        for training, count in (True, 2), (False, 2), (True, 1):
            model = Bigrams(0, 1.0 if training else 30.0, source[:count], 3, whole).train(training)
            model.table.grad = torch.ones_like(model.table)  # which the step should clear
            model.first = "it should read the target without its last token, and predict it without its first"
            groups = [{"params": [model.table]}, {"params": [model.offset]}]
            optimizer = torch.optim.SGD(groups, lr=123.0, momentum=0.9)
            for number, rate in ((1, 2e-3), (2, 1e-3), (3, 0.0)):
                given = source[:count].clone(), target[:count].clone()
                loss = step(model, optimizer, *given, 3, rate)
                if not model.modes:
                    raise Wrong("the model is never called")
                if {*model.modes, model.training} != {training}:
                    raise Wrong("it switches the model to training or evaluation mode; the caller sets the mode")
                if not (torch.equal(given[0], source[:count]) and torch.equal(given[1], target[:count])):
                    raise Wrong("it changes source or target: make new tensors")
                if not isinstance(loss, float):
                    raise Wrong(f"it should return a number, loss.item(); it returns a {type(loss).__name__}")
                yield "the rates of the optimiser's groups", [group["lr"] for group in optimizer.param_groups]
                weights = torch.cat([model.table.flatten(), model.offset]).detach()
                yield f"the weights after {number} steps of SGD, weights - rate * gradient,", weights
                yield "the loss that is returned", loss

    as_solved(mine, "training_step", cases)


def searched(search: Callable[..., Any], model: Bigrams, source: Tensor, *settings: float) -> Any:
    """What a search returns, if that is a list of numbers, and the model stays in evaluation mode."""
    answer = search(model.eval(), source.clone(), 5, 4, *settings)
    if any(model.modes):
        raise Wrong("it switches the model to training mode")
    if isinstance(answer, list) and any(isinstance(token, Tensor) for token in answer):
        raise Wrong("the list that it returns holds tensors: .item() makes a number of one")
    return answer


BEYOND = "it goes on after max_length tokens, or the model is given places that no token fills yet"


def goes_along(function: Any, model: nn.Module, source: Tensor) -> None:
    """Its tokens must be on the device of the source: here one without numbers, so only the first call counts."""
    with suppress(RuntimeError, TypeError, ValueError, IndexError):
        function(model, source.to("meta"), 5, 4, 7)


@gap(10, "greedy")
def grade_greedy(mine: ModuleType) -> None:
    """The most probable token, again and again, up to the end token or the limit."""
    source = torch.tensor([[6, 2]])

    def cases(decode: Any) -> Iterator[tuple[str, Any]]:
        for seed in range(14):
            limit = 1 if seed == 12 else 15 if seed == 13 else 7
            scale = 1e-3 if seed == 11 else 1.0  # where a probability that is rounded is no longer the largest
            model = Bigrams(seed, scale, source, limit, BEYOND)
            if seed == 13:
                model.table.data[..., 4] -= 40  # the end token is never chosen
            what = f"the translation by test model {seed}, whose weights are random,"
            torch.manual_seed(seed)
            yield what, searched(lambda model, *given: decode(model.forward, *given), model, source, limit)

    as_solved(mine, "greedy", cases)
    goes_along(mine.greedy, Bigrams(0, 1.0, source, 7, ""), source)


@gap(10, "beam_search")
def grade_beam_search(mine: ModuleType) -> None:
    """The best of several beginnings, by log-probability over length: without an end, then slots, then the length."""
    source = torch.tensor([[6, 2]])

    def searches(seeds: range, limit: int, settings: list[tuple[int, float]]) -> Cases:
        def cases(search: Any) -> Iterator[tuple[str, Any]]:
            for seed, (size, alpha) in product(seeds, settings):
                scale = 0.01 if seed == 3 else (0.7, 2.0)[seed % 2]
                model = Bigrams(seed, scale, source, limit, BEYOND).requires_grad_(False)
                if limit == 15:
                    model.table[..., 4] -= 40  # the end token is never chosen
                told = "that never ends" if limit == 15 else f"(beam_size {size}, length_penalty {alpha})"
                yield f"the translation by a test model {told}", searched(search, model, source, limit, size, alpha)

        return cases

    as_solved(mine, "beam_search", searches(range(4), 15, [(2, 0.0), (1, 0.0), (3, 0.0)]), "step 1: ")
    slots_only = searches(range(15), 6, [(2, 0.0), (3, 0.0), (5, 0.0)])
    endless = changed("beam_search", ("if tokens[-1] == eos_id:", "if False:"))
    found: list[tuple[str, Any]] = []
    with suppress(Exception):
        found.extend(slots_only(mine.beam_search))
    if gives(endless, slots_only, found, None, 0.0):
        raise Unfinished("step 2, the slots (step 1 is right)")
    as_solved(mine, "beam_search", slots_only, "step 1 is right; now step 2: ")
    random_ones = searches(range(15), 6, [(1, 1.0), (3, 1.0), (4, 0.6), (8, 0.5)])

    def whole(search: Any) -> Iterator[tuple[str, Any]]:
        """And a model whose best translation begins badly, which an early stop can miss."""
        yield from random_ones(search)
        model = Bigrams(0, 1.0, source, 6, BEYOND).requires_grad_(False)
        chances = {5: {4: 0.5, 1: 0.2}, 1: {2: 0.94, 4: 0.02}, 2: {4: 0.94, 1: 0.02}}
        for last, row in chances.items():
            others = (1 - sum(row.values())) / (7 - len(row))
            model.table[:, last] = torch.tensor([row.get(token, others) for token in range(7)]).log()
        yield "the translation by a test model whose best one begins badly", searched(search, model, source, 6, 2, 1.0)

    as_solved(mine, "beam_search", whole, "steps 1 and 2 are right; now step 3: ")
    goes_along(mine.beam_search, Bigrams(0, 1.0, source, 7, ""), source)
