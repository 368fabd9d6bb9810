# Generated from chapters/02_attention.md and 8 more: edit it there and `make export`, or here and `make sync`.

"""The graders of the parts that the reader writes: what an answer should be, and which wrong one it is."""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise, permutations, product
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.checks import check_transformer
from transformer_lib.checks.components import check_decoder_layer, check_encoder_layer, check_multi_head_attention
from transformer_lib.checks.report import Report
from transformer_lib.exercises.grading import (
    Bigrams,
    Cases,
    Unfinished,
    Wrong,
    all_used,
    as_solved,
    expect,
    filled,
    first_fault,
    gap,
    gives,
    matrices,
    no_plain_list,
    random,
    same,
    variant,
)
from transformer_lib.positions import sinusoidal_table


@gap(2, "attention")
def grade_attention(mine: ModuleType) -> None:
    """Output and weights, with and without a mask, an empty row among them."""
    q, k, v = random(2, 3, 4, 9), random(2, 3, 5, 9, seed=1), random(2, 3, 5, 6, seed=2)
    try:
        answer = mine.attention(q, k, v, None)
    except RuntimeError as error:
        mine.attention(q[0, 0], k[0, 0], v[0, 0], None)  # if that fails too, its error is told
        raise Wrong(
            "it runs for (length, width), but not with a batch and heads in front: .T turns all axes round, "
            "k.transpose(-2, -1) swaps the last two"
        ) from error
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Wrong("it should return two things, the output and the weights")
    dots = q @ k.transpose(-2, -1)
    expect(
        "the weights without a mask",
        answer[1],
        (dots / 3).softmax(dim=-1),
        {
            "the scores are not divided by the root of d_k": dots.softmax(dim=-1),
            "the scores are divided by d_k, not by its root": (dots / 9).softmax(dim=-1),
            "the scores are multiplied by the root of d_k; divide by it": (dots * 3).softmax(dim=-1),
            "the scores are divided by the root of the number of queries, not of d_k": (dots / 4**0.5).softmax(dim=-1),
            "the scores are divided by the root of the values' width, not of d_k": (dots / 6**0.5).softmax(dim=-1),
            "the softmax runs over axis 1; it should run over the keys, the last axis": (dots / 3).softmax(dim=1),
            "the scores are divided by the root of the number of keys, not of d_k": (dots / 5**0.5).softmax(dim=-1),
            "the softmax runs over the queries; it should run over the keys, the last axis": (dots / 3).softmax(dim=-2),
            "there is no softmax: the weights are the scores": dots / 3,
            "the scores are divided by 8, which is the root of d_k only where d_k is 64": (dots / 8).softmax(dim=-1),
            "the two results are the wrong way round: the output comes first": (dots / 3).softmax(dim=-1) @ v,
            "the softmax is taken first and divided by the root of d_k afterwards": dots.softmax(dim=-1) / 3,
        },
    )
    expect("the output without a mask", answer[0], (dots / 3).softmax(dim=-1) @ v)
    try:
        grade_masked_attention(mine, q, k, v)
    except Wrong as wrong:
        raise Wrong(f"right without a mask; with one: {wrong}") from wrong


def grade_masked_attention(mine: ModuleType, q: Tensor, k: Tensor, v: Tensor) -> None:
    """The second step: a mask, and a query that may attend to nothing."""
    dots = q @ k.transpose(-2, -1)
    mask = torch.rand(2, 1, 4, 5, generator=torch.Generator().manual_seed(3)) < 0.6
    mask[..., 0], mask[..., 4] = True, False
    low, plain = (dots / 3).masked_fill(~mask, -math.inf), (dots / 3).softmax(dim=-1)
    after = plain.masked_fill(~mask, 0.0)
    expect(
        "the weights under a mask",
        mine.attention(q, k, v, mask)[1],
        low.softmax(dim=-1),
        {
            "the mask means the opposite: True should mean may attend": (dots / 3)
            .masked_fill(mask, -math.inf)
            .softmax(dim=-1),
            "the mask is not used": plain,
            "one of two fills of the mask means the opposite: is a ~ missing?": (dots / 3)
            .masked_fill(mask, torch.finfo(dots.dtype).min)
            .softmax(dim=-1)
            .masked_fill(~mask, 0.0),
            "weights are set to zero after the softmax, so a row no longer sums to one": after,
            "forbidden scores are set to 0, which is not low: exp(0) is 1": (dots / 3)
            .masked_fill(~mask, 0.0)
            .softmax(dim=-1),
            "forbidden scores are 0 in the softmax, which is not low: exp(0) is 1": (dots / 3)
            .masked_fill(~mask, 0.0)
            .softmax(dim=-1)
            .masked_fill(~mask, 0.0),
            "forbidden scores are multiplied by 0, which is not low: exp(0) is 1": (dots / 3 * mask).softmax(dim=-1),
        },
    )
    expect("the output under a mask", mine.attention(q, k, v, mask)[0], low.softmax(dim=-1) @ v)
    try:
        mine.attention(q.half(), k.half(), v.half(), mask)
    except RuntimeError as error:
        raise Wrong("a constant such as -1e9 does not fit float16: torch.finfo(scores.dtype).min does") from error
    mask[0, 0, 1] = False
    q = q.requires_grad_()
    output, weights = mine.attention(q, k, v, mask)
    if weights[0, 0, 1].isnan().any():
        raise Wrong(
            "a query that may attend to nothing gets NaN: its scores are minus infinity, or its exponentials sum to 0"
        )
    expect(
        "what a query gets that may attend to nothing",
        weights[0, 0, 1],
        torch.zeros(5).double(),
        {"a query that may attend to nothing gets the mean of all values": torch.full((5,), 0.2, dtype=torch.float64)},
    )
    (gradient,) = torch.autograd.grad(output.sum(), q)
    if not gradient.isfinite().all():
        raise Wrong(
            "a query that may attend to nothing gets a gradient of NaN: use a very low finite number, such as "
            "torch.finfo(scores.dtype).min, and set its weights to 0 after the softmax"
        )


@gap(3, "split_heads")
def grade_split_heads(mine: ModuleType) -> None:
    """Each head has its own block of every token's numbers."""
    x = random(2, 3, 8)
    expect(
        "what split_heads returns",
        mine.split_heads(x.clone(), 2),
        x.view(2, 3, 2, 4).transpose(1, 2),
        {
            "tokens are mixed: cut each token's vector first, then move the heads to the front": x.view(2, 2, 3, 4),
            "the heads stand behind the tokens: expected (batch, heads, length, d_k)": x.view(2, 3, 2, 4),
            "the first head has every second number of a token instead of the first four": x.view(2, 3, 4, 2).permute(
                0, 3, 1, 2
            ),
            "the last two axes are the wrong way round: expected (batch, heads, length, d_k)": x.view(
                2, 3, 2, 4
            ).permute(0, 2, 3, 1),
            "the heads stand before the batch": x.view(2, 3, 2, 4).permute(2, 0, 1, 3),
        },
    )


@gap(3, "merge_heads")
def grade_merge_heads(mine: ModuleType) -> None:
    """The opposite of splitting."""
    x = random(2, 3, 4, 5)  # three heads, four tokens
    right = torch.cat([x[:, head] for head in range(3)], dim=-1)
    expect(
        "what merge_heads returns",
        mine.merge_heads(x.clone()),
        right,
        {
            "tokens are mixed: move the heads behind the tokens before you join them": x.reshape(2, 4, 15),
            "the numbers of the heads alternate; those of one head should stand together": x.permute(
                0, 2, 3, 1
            ).flatten(2),
            "the heads are still apart: join the last two axes": x.transpose(1, 2),
            "the heads are added instead of set side by side": x.sum(dim=1),
            "the heads are averaged instead of set side by side": x.mean(dim=1),
        },
    )
    expect("merge_heads of what split_heads made", mine.merge_heads(right.view(2, 4, 3, 5).transpose(1, 2)), right)


@gap(3, "MultiHeadAttention")
def grade_multi_head(mine: ModuleType) -> None:
    """The scale, the number of projections, and what every multi-head attention does."""
    d_model, num_heads = 32, 8
    d_k = d_model // num_heads
    torch.manual_seed(0)
    layer = mine.MultiHeadAttention(d_model, num_heads)
    if not isinstance(layer, nn.Module):
        raise Wrong("it should be an nn.Module: class MultiHeadAttention(nn.Module)")
    x = torch.ones(1, 1, d_model).double()
    try:
        answer = filled(layer, 1 / d_model)(x, x, x)
    except NotImplementedError as error:
        if str(error) == "chapter 3: write MultiHeadAttention" and matrices(layer) == 4 * d_model**2:
            raise Wrong("__init__ makes four projections, as it should; now write forward") from error
        raise
    if not isinstance(answer, Tensor):
        raise Wrong(f"forward should return the output alone; it returns a {type(answer).__name__}")
    if (have := matrices(layer)) != 4 * d_model**2:
        raise Wrong(
            f"its matrices hold {have} numbers; four projections of {d_model} to {d_model} hold {4 * d_model**2}: "
            "for queries, keys, values, and for the merged heads"
        )
    if filled(layer, 0.0)(x, x, x).any():
        raise Wrong("where all weights are 0, the output should be 0: if the query is added here, the layer does that")
    filled(layer, 1 / d_model)
    # Every projection now gives the mean of its input, in every channel, so a score is known.
    keys, values = torch.stack([x[0, 0], 0 * x[0, 0]])[None], torch.stack([x[0, 0], 0 * x[0, 0]])[None]
    try:
        scale = layer(x, keys, values)[0, 0, 0].logit().item()
    except RuntimeError as error:
        raise Wrong(
            "with 1 query and 2 keys it raises: make the queries from query, the keys from key, the values from value"
        ) from error
    expect(
        "the size of the scores inside the layer",
        scale,
        float(d_k) / math.sqrt(d_k),
        {
            "the scores are divided by the root of d_model; each head is d_k wide": d_k / math.sqrt(d_model),
            "the scores of a head are not divided by the root of d_k": float(d_k),
            "the heads are not split: one head looks at the whole width": math.sqrt(d_model),
            "the heads are not split, only the scale is that of a head": d_model / math.sqrt(d_k),
            "the scores are divided by the number of heads": d_k / num_heads,
        },
    )
    all_used(mine.MultiHeadAttention(8, 2), *[random(1, 3, 8)] * 3)
    torch.manual_seed(0)
    first_fault(check_multi_head_attention(mine.MultiHeadAttention(8, 2), 8, 2))


@gap(4, "sinusoidal_table")
def grade_sinusoidal_table(mine: ModuleType) -> None:
    """Sines in even channels, cosines in odd ones, and the speeds of the paper."""
    n, d = 5, 4
    right = sinusoidal_table(n, d)
    position = torch.arange(n).double()[:, None]
    every = position * 10000.0 ** (-torch.arange(d).double() / d)
    pairs = position * 10000.0 ** (-torch.arange(0, d, 2).double() / d)
    slow = position * 10000.0 ** (-torch.arange(0, d, 2).double() * 2 / d)
    inverse = position * 10000.0 ** (torch.arange(0, d, 2).double() / d)
    thousand = position * 1000.0 ** (-torch.arange(0, d, 2).double() / d)

    def turns(angle: Tensor) -> Tensor:
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)

    try:
        table = mine.sinusoidal_table(n, d)
    except RuntimeError as error:
        if "size of tensor a" in str(error):
            raise Wrong("positions times speeds: one is a column, the other a row; is a [:, None] missing?") from error
        raise
    expect(
        "the table",
        table,
        right,
        {
            "sines stand in the first half and cosines in the second: they should alternate": torch.cat(
                [pairs.sin(), pairs.cos()], dim=1
            ),
            "sines and cosines are swapped: the sine comes first": turns(pairs).view(n, -1, 2).flip(-1).flatten(1),
            "a sine and its cosine have different speeds: both channels of a pair take 2i": torch.where(
                torch.arange(d) % 2 == 0, every.sin(), every.cos()
            ),
            "positions count from 1: the first one is 0": sinusoidal_table(n, d, start=1),
            "the angles are multiplied by 10000^(2i/d); divide by it": turns(inverse),
            "the exponent is twice what it should be: channel 2i takes 2i / d_model": turns(slow),
            "the base is 1000; it should be 10000": turns(thousand),
            "the exponent is half of what it should be: channel 2i takes 2i / d_model": turns(
                position * 10000.0 ** (-torch.arange(0, d, 2).double() / 2 / d)
            ),
        },
        tolerance=1e-4,
    )
    expect(
        "the table of 3 positions and 2 channels", mine.sinusoidal_table(3, 2), sinusoidal_table(3, 2), tolerance=1e-4
    )


@gap(5, "padding_mask")
def grade_padding_mask(mine: ModuleType) -> None:
    """True at real tokens, on the axis of the keys."""
    tokens = torch.tensor([[5, 2, 9, 9], [9, 3, 4, 9]])
    real = tokens != 9
    expect(
        "the padding mask",
        mine.padding_mask(tokens.clone(), 9),
        real[:, None, None, :],
        {
            "it means the opposite: True should mean a real token": ~real[:, None, None, :],
            "it stands on the axis of the queries; the keys are the last axis": real[:, None, :, None],
            "it lacks the axes of heads and queries: expected (batch, 1, 1, length)": real,
            "it lacks one axis: expected (batch, 1, 1, length)": real[:, None, :],
            "it hides token 0, not the token pad_id": (tokens != 0)[:, None, None, :],
            "it also hides the queries that are padding: only keys are hidden": (
                real[:, None, :, None] & real[:, None, None, :]
            ),
        },
    )


@gap(5, "causal_mask")
def grade_causal_mask(mine: ModuleType) -> None:
    """True on and below the diagonal."""
    for n in (4, 1):
        full = torch.ones(n, n, dtype=torch.bool)
        found = mine.causal_mask(n)
        if isinstance(found, Tensor) and found.shape in ((n, n), (1, n, n)):
            found = found.expand(1, 1, n, n)  # it fits as well
        expect(
            "the causal mask",
            found,
            full.tril()[None, None],
            {
                "it means the opposite: True should mean may attend": ~full.tril()[None, None],
                "it hides the past and shows the future: True belongs on and below the diagonal": full.triu()[
                    None, None
                ],
                "a position may not attend to itself: the diagonal should be True": full.tril(-1)[None, None],
                "a position sees one token of the future": full.tril(1)[None, None],
                "it hides nothing": full[None, None],
            },
        )


@gap(6, "LayerNorm")
def grade_layer_norm(mine: ModuleType) -> None:
    """Each token by itself, with the variance of all its numbers, and both learned vectors."""
    d, x = 6, 0.02 * random(2, 3, 6) + 1
    norm = mine.LayerNorm(d).double()
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = x.var(dim=-1, keepdim=True, unbiased=False)
    expect(
        "the result",
        norm(x.clone()),
        F.layer_norm(x, (d,)),
        {
            "the variance is divided by d - 1: give unbiased=False": centred
            / torch.sqrt(x.var(dim=-1, keepdim=True) + 1e-5),
            "1e-5 is added to the root of the variance, not to the variance": centred / (variance.sqrt() + 1e-5),
            "it divides by the variance, not by its root": centred / (variance + 1e-5),
            "the mean is not subtracted": x / torch.sqrt(variance + 1e-5),
            "it divides by the root of the mean square; subtract the mean first": x
            / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5),
            "the mean runs over all tokens of a sentence; each token has its own": (x - x.mean((1, 2), keepdim=True))
            / torch.sqrt(variance + 1e-5),
            "mean and variance run over all tokens of a sentence; each token has its own": F.layer_norm(x, (3, d)),
            "mean and variance run over the sentences of the batch": (x - x.mean(0))
            / torch.sqrt(x.var(0, unbiased=False) + 1e-5),
            "mean and variance run over the tokens, not over the numbers of a token": (x - x.mean(1, keepdim=True))
            / torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5),
            "the mean is subtracted, but nothing is divided": centred,
            "1e-5 is left out": centred / variance.sqrt(),
        },
    )
    factors, offsets = ([p for p in norm.parameters() if bool((p == start).all())] for start in (1, 0))
    if len(factors) != 1 or len(offsets) != 1:
        raise Wrong("one nn.Parameter should begin as ones, the factors, and another as zeros, the offsets")
    with torch.no_grad():
        factors[0].copy_(random(d, seed=1))
        offsets[0].copy_(random(d, seed=2))
    right = F.layer_norm(x, (d,), factors[0], offsets[0])
    expect("the result with other factors and offsets", norm(x.clone()), right)


@gap(6, "FeedForward")
def grade_feed_forward(mine: ModuleType) -> None:
    """Two matrices, a ReLU between them, each token by itself."""
    d, d_ff = 4, 6
    network = mine.FeedForward(d, d_ff)
    expect("the numbers in its matrices", matrices(network), 2 * d * d_ff)
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0], [-1.0, -2.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]]).double()
    total = x.sum(dim=-1, keepdim=True).expand_as(x)
    network = filled(network, -1.0)
    expect(
        "the result where all weights are -1 and all biases 0",
        network(x.clone()),
        -d_ff * (-total).relu(),
        {
            "there is no ReLU between the two linear maps": d_ff * total,
            "the ReLU comes last, after the second linear map": (d_ff * total).relu(),
            "there is a second ReLU, after the second linear map": torch.zeros_like(x),
            "the ReLU comes first, before the first linear map": d_ff * x.relu().sum(dim=-1, keepdim=True).expand_as(x),
            "x is added here; the layer does that": x - d_ff * (-total).relu(),
        },
    )


class WrittenOut(nn.Module):
    """The feed-forward network of a layer that has its two linear maps itself."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, length, d_model) to the same shape."""
        return self.second(torch.relu(self.first(x)))


class Call(NamedTuple):
    """One call of a sub-layer: its name in the layer, the part, what it is given, what it returns, and whose output."""

    name: str
    part: nn.Module
    given: list[Any]
    made: Tensor
    end: nn.Module


def calls_of(mine: ModuleType, layer: nn.Module, *inputs: Tensor | None) -> tuple[list[Call], Tensor]:
    """The calls of a layer's attention and feed-forward networks, in their order, and what the layer returns."""
    calls: list[Call] = []

    def note(name: str, part: nn.Module, given: tuple[Any, ...], named: dict[str, Any], made: Tensor) -> None:
        if isinstance(part, nn.Linear) and calls and isinstance(calls[-1].part, nn.Linear):
            first = calls.pop()
            calls.append(Call(f"{first.name}, {name}", WrittenOut(first.part, part), first.given, made, part))
        else:
            calls.append(Call(name, part, [*given, *named.values()], made, part))

    own = {name: part for name, part in layer.named_modules() if isinstance(part, attention_or_network(mine))}
    inside = {module for part in own.values() for module in part.modules()}
    own |= {name: m for name, m in layer.named_modules() if isinstance(m, nn.Linear) and m not in inside}
    hooks = [part.register_forward_hook(partial(note, name), with_kwargs=True) for name, part in own.items()]
    result = layer.double().eval()(*inputs)
    for hook in hooks:
        hook.remove()
    return calls, result


def attention_or_network(mine: ModuleType) -> tuple[type[nn.Module], ...]:
    """The classes that layers are made of."""
    return mine.MultiHeadAttention, mine.FeedForward


def ways_to_the_end(mine: ModuleType, layer: nn.Module, training: bool, *inputs: Tensor) -> dict[str, Tensor]:
    """The gradient by what each sub-layer returns; that is replaced, so only the sums connect it with the end."""
    returned: dict[str, Tensor] = {}

    def replace(name: str, part: nn.Module, given: Any, made: Tensor) -> Tensor:
        returned[name] = random(*made.shape, seed=len(returned)).requires_grad_()
        return returned[name]

    for call in calls_of(mine, layer, *inputs)[0]:
        call.end.register_forward_hook(partial(replace, call.name))
    result = layer.train(training)(*inputs)
    gradients = torch.autograd.grad(
        (result * random(*result.shape)).sum(), [*returned.values()], materialize_grads=True
    )
    return dict(zip(returned, gradients))


def one_after_another(mine: ModuleType, layer: nn.Module, *inputs: Tensor) -> None:
    """Each sub-layer must read a sum to which the one before it has added, and what each adds must reach the end."""
    for before, call in pairwise(calls_of(mine, layer, *inputs)[0]):
        loud = (call.given[0] * random(*call.given[0].shape)).sum() + 0 * before.made.sum()  # a graph even for x
        (gradient,) = torch.autograd.grad(loud, before.made, retain_graph=True)
        if not gradient.any():
            raise Wrong(
                f"{call.name} does not see what {before.name} has added: "
                "each sub-layer reads the sum that the last one made"
            )
    for name, way in ways_to_the_end(mine, layer, False, *inputs).items():
        if not way.any():
            raise Wrong(f"what {name} adds is lost in a later sum: add each output to the sum so far, not to x")


Map = Callable[[Tensor], Tensor]
# From x, a sub-layer f and its norm n to the next x: the two right ways, and wrong ones.
ORDERS: dict[str, Callable[[Tensor, Map, Map], Tensor]] = {
    "pre": lambda x, f, n: x + f(n(x)),
    "post": lambda x, f, n: n(x + f(x)),
    "a norm stands on the output of a sub-layer; it stands before it, or after the sum": lambda x, f, n: x + n(f(x)),
    "the output of a sub-layer is added to norm(x); add it to x": lambda x, f, n: n(x) + f(n(x)),
    "one norm stands before its sub-layer and after the sum as well": lambda x, f, n: n(x + f(n(x))),
    "the output of a sub-layer is not added to x": lambda x, f, n: f(n(x)),
    "x is added twice": lambda x, f, n: 2 * x + f(n(x)),
}


def as_in_the_formula(mine: ModuleType, layer: nn.Module, x: Tensor, memory: Tensor | None = None) -> None:
    """A layer must give what its own parts give in the order of the formula, either pre-norm or post-norm."""
    norms = [part for part in layer.modules() if isinstance(part, (mine.LayerNorm, nn.LayerNorm))]
    with torch.no_grad():
        for seed, vector in enumerate(vector for norm in norms for vector in norm.parameters()):
            vector.copy_(random(*vector.shape, seed=seed))
    given = [x] if memory is None else [x, memory]
    calls, result = calls_of(mine, layer, *given)
    wanted = ["self-attention", "attention to the memory", "feed-forward"][:: 2 if memory is None else 1]
    order = [
        wanted[0 if call.given[1].size(1) == x.size(1) else 1]  # by the number of keys
        if isinstance(call.part, mine.MultiHeadAttention)
        else "feed-forward"
        for call in calls
    ]
    if order != wanted:
        raise Wrong(f"the sub-layers should be {', '.join(wanted)}, in this order; here: {', '.join(order) or 'none'}")
    for call in calls:
        if isinstance(call.part, WrittenOut):
            linear = call.part.second(call.part.first(call.given[0]))
            sentence = f"there is no ReLU between {call.name.replace(', ', ' and ')}"
            expect(f"what {call.name} return", call.made, call.part(call.given[0]), {sentence: linear})
    for kind, (name, _, (query, *others), *_) in zip(order, calls):
        if kind == "self-attention" and not all(torch.equal(query, other) for other in others[:2]):
            raise Wrong(f"{name} is not given one tensor as queries, keys and values; in self-attention it is one")
        if kind == "attention to the memory" and not all(torch.equal(given[-1], other) for other in others[:2]):
            raise Wrong(f"{name} should get the memory as it comes from the encoder, as keys and as values")
    if len(norms) != len(calls):
        raise Wrong(f"it makes {len(norms)} norms; each of its {len(calls)} sub-layers has one of its own")

    def sub_layer(kind: str, part: nn.Module, z: Tensor) -> Tensor:
        if kind == "feed-forward":
            return part(z)
        return part(z, z, z) if kind == "self-attention" else part(z, memory, memory)

    right = [(name,) * len(calls) for name in ("pre", "post")]
    for names in [*right, *product(ORDERS, repeat=len(calls))]:
        for own in permutations(norms):
            total = x
            for name, kind, call, norm in zip(names, wanted, calls, own):
                total = ORDERS[name](total, partial(sub_layer, kind, call.part), norm)
            if same(result, total, 1e-9):
                if names in right:
                    return
                mixed = "one norm stands before its sub-layer, another after the sum: choose one order for all"
                raise Wrong(next((name for name in names if name not in ("pre", "post")), mixed))
    raise Wrong("it is neither pre-norm, x + f(norm(x)) for each sub-layer f, nor post-norm, norm(x + f(x))")


def sizes_are_used(mine: ModuleType, build: Callable[..., nn.Module], *inputs: Tensor) -> None:
    """The number of heads, d_ff and the rate of the dropout must reach the parts."""
    other = build(8, 4, 10).double()
    for name, part, given, made, _ in calls_of(mine, build(8, 1, 10), *inputs)[0]:
        if not isinstance(part, mine.MultiHeadAttention):
            expect(f"with d_model 8 and d_ff 10, the numbers in the matrices of {name}", matrices(part), 2 * 8 * 10)
            continue
        weights, four_heads = part.state_dict(), other.get_submodule(name)
        if [w.shape for w in weights.values()] == [w.shape for w in four_heads.state_dict().values()]:
            four_heads.load_state_dict(weights)
            if same(four_heads(*given), made, 1e-9):
                raise Wrong(f"{name} gives the same with 1 head and with 4: pass num_heads on")
    torch.manual_seed(0)
    long = [x.repeat(1, 50, 1) for x in inputs]
    for name, way in ways_to_the_end(mine, build(8, 2, 10, 0.75), True, *long).items():
        if way.all():
            raise Wrong(f"{name} has no dropout: in training, a part of each output is dropped before it is added")
        if not 0.65 < (dropped := (way == 0).double().mean().item()) < 0.85:
            raise Wrong(f"with dropout=0.75, {dropped:.0%} of what {name} returns is dropped: pass the rate on")


def steps(mine: ModuleType, build: Callable[..., nn.Module], *lengths: int) -> None:
    """Raise `Unfinished` if the constructor of a layer is written and its forward is not."""
    layer = build(8, 2, 16).double()
    try:
        layer(*(random(1, length, 8) for length in lengths))
    except NotImplementedError as error:
        if str(error) != f"chapter 6: write {build.__name__}":
            raise
        for kind, count in ((mine.MultiHeadAttention, len(lengths)), (mine.LayerNorm, len(lengths) + 1)):
            if (found := sum(isinstance(part, kind) for part in layer.modules())) != count:
                raise Wrong(f"__init__ makes {found} {kind.__name__}s; expected {count}") from None
        raise Unfinished("forward (__init__ is right)") from None


def grade_layer(mine: ModuleType, build: Callable[..., nn.Module], check: Callable[..., Report], *lengths: int) -> None:
    """What every encoder or decoder layer does, and the formula of exactly one order."""
    inputs = [random(1, length, 8, seed=length) for length in lengths]
    one_after_another(mine, build(8, 2, 16), *inputs)
    all_used(build(8, 2, 16), *inputs)
    as_in_the_formula(mine, build(8, 2, 16), *inputs)
    torch.manual_seed(0)
    first_fault(check(build(16, 2, 32), 16))
    sizes_are_used(mine, build, *inputs)


@gap(6, "EncoderLayer")
def grade_encoder_layer(mine: ModuleType) -> None:
    """Self-attention and a feed-forward network."""
    steps(mine, mine.EncoderLayer, 3)
    grade_layer(mine, mine.EncoderLayer, check_encoder_layer, 3)


@gap(6, "DecoderLayer")
def grade_decoder_layer(mine: ModuleType) -> None:
    """The same with attention to the memory between them."""
    steps(mine, mine.DecoderLayer, 3, 4)
    x, memory = random(1, 3, 8), random(1, 4, 8)
    layer = mine.DecoderLayer(8, 2, 16).double().eval()
    if same(layer(x, memory), layer(x, -memory), 1e-9):
        raise Wrong("the memory changes nothing: the keys and values of the second attention are made of it")
    try:
        layer(x, memory, mask=torch.ones(1, 1, 3, 3).bool(), memory_mask=torch.ones(1, 1, 1, 4).bool())
    except RuntimeError as error:
        what = "mask is for the target's self-attention, memory_mask for the attention to the memory"
        raise Wrong(f"with both masks it does not run: {what} ({' '.join(str(error).split()):.90})") from error
    grade_layer(mine, mine.DecoderLayer, check_decoder_layer, 3, 4)


def enters(mine: ModuleType, found: Tensor, tables: list[Tensor], words: int, tokens: Tensor, what: str) -> Tensor:
    """What enters a stack must be rows of a table of so many rows times the root of the width, plus positions."""
    d = found.size(-1)
    later = mine.sinusoidal_table(tokens.size(1) + 1, d).to(found)
    p = later[:-1]
    if (found == 0).any():
        raise Wrong(
            "dropout does not heed its rate, or runs in evaluation mode: make an nn.Dropout(dropout), and call that"
        )
    for table in (table for table in tables if len(table) > tokens.max()):
        rows, root = table[tokens], d**0.5
        if same(found, rows * root + p, 1e-5):
            if len(table) == words:
                return table
            raise Wrong(f"{what} are rows of a table with {len(table)} rows; this side's vocabulary has {words}")
        wrong = {
            "the rows of the embedding are not multiplied by the root of d_model": rows + p,
            "the positions are missing": rows * root,
            "the positions and the root of d_model are missing": rows,
            "the positions are multiplied by the root of d_model, too: only the rows are": (rows + p) * root,
            "the rows are multiplied by d_model, not by its root": rows * d + p,
            "the rows are divided by the root of d_model; multiply them": rows / root + p,
            "the rows are multiplied by the root of 128; use d_model": rows * 128**0.5 + p,
            "the rows are multiplied by the root of 512; use d_model": rows * 512**0.5 + p,
            "the positions are added twice": rows * root + 2 * p,
            "the positions are multiplied with the rows; add them": rows * root * p,
            "positions begin with 1; the first one is 0": rows * root + later[1:],
            "all tokens of a sentence get one position: count tokens.size(1), not tokens.size(0)": (
                rows * root + later[: len(rows), None]
            ),
            "all tokens get the last position": rows * root + p[-1],
            "all tokens get the first position": rows * root + p[0],
            "the positions are counted from the end": rows * root + p.flip(0),
            "the tokens are read in reverse order": rows.flip(1) * root + p,
            "the last token is cut off: training_step does that, the model reads all": (rows * root + p)[:, :-1],
            "the first token is cut off: the model reads all": (rows[:, 1:] * root + p[:-1]),
        }
        for sentence, value in wrong.items():
            if same(found, value, 1e-5):
                raise Wrong(f"{sentence} ({what})")
    right = next(table for table in tables if len(table) == words)
    expect(f"{what}, embedding(tokens) * sqrt(d_model) + positions", found, right[tokens] * d**0.5 + p, {}, 1e-5)
    return right


class Pass(NamedTuple):
    """One call of a layer of a stack: what it is given, by name, what it returns, and what a new layer would return."""

    layer: nn.Module
    given: dict[str, Any]
    made: Tensor
    anew: Callable[[nn.Module], Tensor]


def passes(model: nn.Module, kind: type[nn.Module], names: str) -> list[Pass]:
    """A list that grows with each call of a layer of this kind."""
    found: list[Pass] = []

    def keep(layer: nn.Module, given: tuple[Any, ...], named: dict[str, Any], made: Tensor) -> None:
        signature = inspect.signature(layer.forward)
        values = signature.bind(*given, **named).arguments
        own = zip(names.split(), signature.parameters)  # the reader's own names, in this order
        by_name = {name: values[theirs] for name, theirs in own if theirs in values}
        found.append(Pass(layer, by_name, made, lambda other: other(*given, **named)))

    for module in model.modules():
        if isinstance(module, kind):
            module.register_forward_hook(keep, with_kwargs=True)
    return found


def one_stack(found: list[Pass], new: nn.Module, name: str) -> None:
    """Each of three layers is called once, with what the one before returned, and does what a new one does."""
    if len(found) != 3:
        raise Wrong(f"of 3 {name} layers, forward calls {len(found)}: loop over all")
    if len({id(each.layer) for each in found}) != 3:
        raise Wrong(f"forward calls one layer of the {name} more than once, and another one never")
    for before, after in pairwise(found):
        if same(after.given["x"], before.given["x"] + before.made, 1e-9):
            raise Wrong(f"what a layer of the {name} returns is added to its input once more: it holds the sum already")
        if not same(after.given["x"], before.made, 0.0):
            raise Wrong(f"a layer of the {name} does not get what the one before returned")
    for each in found:
        new.load_state_dict(each.layer.state_dict())
        if not same(each.anew(new), each.made, 1e-6):
            raise Wrong(f"num_heads or dropout does not reach {type(new).__name__}(d_model, num_heads, d_ff, dropout)")


def mask_is(what: str, mask: Any, tokens: Tensor, right: Tensor, wrong: dict[str, Tensor]) -> None:
    """A mask must be right for the queries that are tokens; padding may see anything."""
    if mask is None:
        seen = "tokens read what comes later" if "target" in what else "padded source tokens are read"
        raise Wrong(f"the layers get no {what}, so {seen}: give it to each")
    if mask.dtype != torch.bool:
        raise Wrong(f"the {what} is no longer boolean ({mask.dtype}): masks are combined with &")
    right = right.expand(2, 2, tokens.size(1), -1)
    real = (tokens != 5)[:, None, :, None]
    if (mask := mask.expand_as(right)).logical_xor(right).logical_and(real).any():
        told = {sentence: value.expand_as(right) & real for sentence, value in wrong.items()}
        expect(f"the {what}", mask & real, right & real, told)


def ends(model: nn.Module, decoder: list[Pass], answer: Tensor) -> None:
    """The logits must be a linear map of the norm of what the last decoder layer returned."""

    def linear(hidden: Tensor) -> bool:
        inputs = torch.cat([hidden, torch.ones_like(hidden[..., :1])], dim=-1).flatten(0, 1)
        best = inputs @ torch.linalg.pinv(inputs.detach(), rtol=1e-9) @ answer.flatten(0, 1)
        return same(best, answer.flatten(0, 1), 1e-4)

    last = decoder[-1].made
    if linear(F.layer_norm(last, (8,))):
        return
    if same(answer.sum(dim=-1), torch.ones(2, 12).double(), 1e-6):
        raise Wrong("a softmax stands at the end: forward returns logits")
    if linear(last):
        raise Wrong("the decoder's stack of pre-norm layers ends without a norm of its own")
    if same(answer.logsumexp(dim=-1), torch.zeros(2, 12).double(), 1e-6):
        raise Wrong("a log_softmax stands at the end: forward returns logits")
    raise Wrong("the logits are no linear map of the norm of what the last decoder layer returns")


def dropped(mine: ModuleType, source: Tensor, target: Tensor) -> None:
    """Half of what enters each stack must be zero in training, and the rest twice as large."""
    torch.manual_seed(0)
    model = mine.Transformer(90, 110, 5, d_model=8, num_heads=2, d_ff=12, num_layers=1, dropout=0.5).double()
    stacks = {"encoder": passes(model, mine.EncoderLayer, "x mask"), "decoder": passes(model, mine.DecoderLayer, "x")}
    model(source, target)
    if not model.training:
        raise Wrong("forward switches the model to evaluation mode; the caller sets the mode")
    model.eval()(source, target)
    if model.training:
        raise Wrong("forward switches the model to training mode; the caller sets the mode")
    for name, (training, whole) in stacks.items():
        x, y = (each.given["x"] for each in (training, whole))
        if (y == 0).any():
            raise Wrong("dropout runs in evaluation mode: make an nn.Dropout in __init__, and call that")
        if not 0.3 < (share := (x == 0).double().mean().item()) < 0.7:
            raise Wrong(f"with dropout=0.5, {share:.0%} of what enters the {name} is dropped in training")
        if not same(x, y.where(x != 0, 0.0) * 2, 1e-5):
            raise Wrong(f"what enters the {name} is dropout(rows * sqrt(d_model) + positions): of the whole sum")


@gap(7, "Transformer")
def grade_transformer(mine: ModuleType) -> None:
    """The constructor, what enters a stack, both stacks, masks and memory, the end; then some properties of `check`."""
    sizes = dict(d_model=8, num_heads=2, d_ff=12, num_layers=3)
    torch.manual_seed(1)
    model = mine.Transformer(90, 110, 5, **sizes, dropout=0.0).double()
    if torch.initial_seed() != 1:
        raise Wrong("__init__ sets the seed of all random numbers: leave that to who builds the model")
    no_plain_list(model)
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout) and module.p:
            raise Wrong(f"with dropout=0, {name} has the rate {module.p}: pass `dropout` on to each layer, too")
    for kind in (mine.EncoderLayer, mine.DecoderLayer):
        if (count := sum(isinstance(module, kind) for module in model.modules())) != 3:
            raise Wrong(f"for num_layers=3 it has {count} {kind.__name__}s: each stack has so many, of its own")
        for layer in (module for module in model.modules() if isinstance(module, kind)):
            new, own = kind(8, 2, 12, 0.0).state_dict(), layer.state_dict()
            for name in new:
                if new[name].shape != own[name].shape:
                    told = f"its {name} has shape {tuple(own[name].shape)}, not {tuple(new[name].shape)}"
                    raise Wrong(f"{kind.__name__} takes d_model, num_heads, d_ff, dropout; with d_ff=12, {told}")
    encoder = passes(model, mine.EncoderLayer, "x mask")
    decoder = passes(model, mine.DecoderLayer, "x memory mask memory_mask")
    draw = torch.Generator().manual_seed(0)
    source, target = (torch.randint(6, 90, (2, 12), generator=draw) for _ in range(2))
    source[0, 9:], target[1, 10:], source[1, 3], target[0, 4] = 5, 5, 0, 0
    given = source.clone(), target.clone()
    try:
        answer = model(*given)
    except NotImplementedError as error:
        if str(error) not in ("", "chapter 7: write Transformer"):
            raise
        table = nn.Embedding(90, 8).double().weight
        try:
            found = model.embed(source, nn.Embedding.from_pretrained(table))
        except NotImplementedError:
            raise Unfinished("step 2, embed (step 1, __init__, is right)") from None
        enters(mine, found, [table], 90, source, "what embed returns")
        raise Unfinished("step 3, the encoder's half of forward (steps 1 and 2 are right)") from None
    except RuntimeError as error:
        if "size of tensor" not in str(error):
            raise
        advice = "a mask, or what a layer reads, has the length of other tokens than it should, or some are cut off"
        raise Wrong(f"{advice} ({' '.join(str(error).split()):.90})") from error
    if not (torch.equal(given[0], source) and torch.equal(given[1], target)):
        raise Wrong("forward changes source or target: make new tensors")

    one_stack(encoder, mine.EncoderLayer(8, 2, 12, 0.0).double(), "encoder")
    tables = [p for p in model.parameters() if p.dim() == 2 and p.size(1) == 8 and len(p) >= 90]
    used = []
    if tables:
        used = [enters(mine, encoder[0].given["x"], tables, 90, source, "what enters the encoder")]
    own, theirs = (tokens[:, None, None] != 5 for tokens in (target, source))
    causal = torch.ones(12, 12).bool().tril()
    not_0 = "token 0 of the {} is hidden although pad_id is 5: give padding_mask the pad_id of the model"
    for each in encoder:
        wrong = {
            not_0.format("source"): source[:, None, None] != 0,
            "the mask of the encoder is causal; the source may be read as a whole": theirs & causal,
            "the mask of the encoder hides the tokens and shows the padding": ~theirs,
        }
        mask_is("mask of the encoder (source_mask)", each.given.get("mask"), source, theirs, wrong)
    if not decoder:
        if isinstance(answer, Tensor) and answer.size(-1) == 110:
            raise Wrong("forward never calls the decoder's layers")
        raise Unfinished("step 4, the decoder's half of forward (steps 1 to 3 are right)")
    one_stack(decoder, mine.DecoderLayer(8, 2, 12, 0.0).double(), "decoder")
    if tables:
        used += [enters(mine, decoder[0].given["x"], tables, 110, target, "what enters the decoder")]
    for table in used:
        if not 0.8 < table.std().item() * 8**0.5 < 1.2 or abs(table.mean().item()) > 0.1:
            raise Wrong(
                f"the numbers of the {len(table)} rows of an embedding begin with standard deviation "
                f"{table.std().item():.2g}, not 1 / sqrt(d_model), which is {8**-0.5:.2g}, and mean 0"
            )
    made = encoder[-1].made
    if not all(same(each.given.get("memory"), decoder[0].given.get("memory"), 0.0) for each in decoder):
        raise Wrong("the decoder's layers get different memories: each reads what the last encoder layer returned")
    for each in decoder:
        memory = {
            "pre-norm layers: the encoder's stack ends without a norm of its own": made,
            "cross-attention reads what enters the encoder, not the memory": encoder[0].given["x"],
            "cross-attention reads the target, not the memory": decoder[0].given["x"],
        }
        what, right = "the memory, the norm of what the last encoder layer returns", F.layer_norm(made, (8,))
        expect(what, each.given.get("memory"), right, memory, 1e-4)
        wrong = {
            "the mask of the target is not causal: & causal_mask(...) is missing, or | stands for &": own | causal,
            "the mask of the target lets each token read all others: & causal_mask(...) is missing": own,
            "the causal mask is transposed: tokens read what comes later": own & causal.T,
            not_0.format("target"): (target[:, None, None] != 0) & causal,
            "the target's own attention gets the mask of the source": theirs,
        }
        mask_is("mask of the decoder (target_mask)", each.given.get("mask"), target, own & causal, wrong)
        wrong = {
            "cross-attention gets the mask of the target; the memory has the source's": own & causal,
            "cross-attention gets the mask of the target; the memory has that of the source": own,
        }
        mask_is("memory_mask of the decoder (source_mask)", each.given.get("memory_mask"), target, theirs, wrong)
    if not isinstance(answer, Tensor):
        raise Wrong(f"forward should return the logits; it returns a {type(answer).__name__}")
    if answer.shape != (2, 12, 110):
        raise Wrong(f"the logits should have shape (batch, m, target_vocab_size), (2, 12, 110); {tuple(answer.shape)}")
    ends(model, decoder, answer)
    if not answer.requires_grad:
        raise Wrong("the logits have no gradient: is there a no_grad() or a detach()?")
    answer.square().sum().backward()
    idle = {name: parameter for name, parameter in model.named_parameters() if parameter.grad is None}
    if any(each is parameter for layer in encoder for each in layer.layer.parameters() for parameter in idle.values()):
        raise Wrong("no gradient reaches the encoder: is there a detach() or a no_grad()?")
    if idle:
        raise Wrong(f"{next(iter(idle))} is made, but forward never uses it, or it is frozen")
    dropped(mine, source, target)
    try:
        model(source, target[:, :2])
    except RuntimeError as error:
        advice = "a layer's own attention takes the mask of its own tokens, cross-attention that of the source"
        raise Wrong(f"source and target of unequal length: {advice} ({' '.join(str(error).split()):.90})") from error
    for place, where in ((torch.bfloat16, "in bfloat16"), ("meta", "on another device")):
        there = target.to("meta") if place == "meta" else target  # a device without numbers
        try:
            model.to(place)(there, there)
        except RuntimeError as error:
            advice = "bring the positions to the embeddings with .to(x), and the causal mask to target.device"
            raise Wrong(f"{where} it does not run: {advice} ({' '.join(str(error).split()):.90})") from error
    names = ["batch independence", "empty sentences", "calls leave no trace", "state dict is complete", "every dtype"]
    names += ["gradient reaches everything"]
    first_fault(check_transformer(lambda *ids: mine.Transformer(*ids, **sizes), training=False, only=names))


@gap(8, "make_batch")
def grade_make_batch(mine: ModuleType) -> None:
    """Two rectangles, filled up on the right."""
    pairs = [([8, 6, 2], [1, 7, 2]), ([5, 2], [1, 3, 4, 4, 2]), ([9, 3, 4, 2], [1, 2])]

    def cases(make: Any) -> Iterator[tuple[str, Any]]:
        for used, pad in ((pairs, 11), (pairs[:1], 7)):
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
    for budget in (12, 13, 17, 24):
        given = list(pairs)
        batches = mine.batches_by_length(given, budget)
        if given != pairs:
            raise Wrong("it changes the list that it is given: sorted() makes a new one")
        if not isinstance(batches, list | tuple):
            raise Wrong(f"it should return a list of lists of pairs; it returns a {type(batches).__name__}")
        if not all(batches):
            raise Wrong("a batch is empty: begin with no batch at all")
        found = [pair for batch in batches for pair in batch]
        if not all(isinstance(pair, tuple) for pair in found) or len(found) == len(pairs) != sum(
            p in pairs for p in found
        ):
            raise Wrong("the batches, lists of pairs, hold something else than the pairs that were given")
        if sorted(found) != sorted(pairs):
            told = f"{len(found)} are in {len(batches)} batches"
            raise Wrong(f"each of {len(pairs)} pairs should be in one batch; {told}")
        lengths = [[max(len(side) for side in pair) for pair in batch] for batch in batches]
        keys = {"length of the source": (1, 0), "length of the target": (0, 1), "sum of both lengths": (1, 1)}
        for name, (a, b) in keys.items():
            order = [a * len(source) + b * len(target) for source, target in found]
            if order == sorted(order) and lengths != sorted(lengths):
                raise Wrong(f"the pairs go from short to long by the {name}; the longer side counts")
        if (order := [length for batch in lengths for length in batch]) != sorted(order):
            raise Wrong("the pairs do not go from short to long; the longer side of a pair counts")
        for batch in lengths:
            if len(batch) * batch[-1] > budget:
                raise Wrong(f"with a budget of {budget}, a batch has {len(batch)} pairs of up to {batch[-1]} tokens")
        for batch, following in pairwise(lengths):
            if (len(batch) + 1) * following[0] <= budget:
                told = f"a batch of lengths {batch} has room for the next pair, of length {following[0]}"
                raise Wrong(f"{told}, with a budget of {budget}")
    if list(mine.batches_by_length([], 12)):
        raise Wrong("of no pairs there should be no batch")


@gap(9, "label_smoothed_loss")
def grade_label_smoothed_loss(mine: ModuleType) -> None:
    """The mean over real labels, with part of the probability spread over all tokens; for large logits, too."""

    def cases(loss: Any) -> Iterator[tuple[str, Any]]:
        for pad, smoothing, scale in ((6, 0.2, 1), (2, 0.3, 1), (6, 0.2, 900)):
            logits = (scale * random(2, 3, 7)).requires_grad_()
            labels = torch.tensor([[4, 0, 1], [5, pad, pad]])
            answer = loss(logits, given := labels.clone(), pad, smoothing)
            if not torch.equal(given, labels):
                raise Wrong("it changes the labels: make new ones")
            if isinstance(answer, Tensor) and not answer.dim() and not answer.requires_grad:
                raise Wrong("the loss has no gradient: no detach(), no_grad() or item() on the way")
            yield "the loss of large logits" if scale > 1 else "the loss", answer

    as_solved(mine, "label_smoothed_loss", cases)


@gap(9, "learning_rate")
def grade_learning_rate(mine: ModuleType) -> None:
    """Up in a straight line, then down as one over the root."""

    def cases(rate: Any) -> Iterator[tuple[str, Any]]:
        for step, peak, warmup in ((1, 0.5, 4), (2, 0.5, 4), (4, 0.5, 4), (9, 0.5, 4), (100, 2.0, 16), (4500, 3.0, 9)):
            where = "on the way up" if step <= warmup else "after the peak, where it falls as 1 / sqrt(step)"
            yield f"{where}: the rate of step {step} with peak {peak} and warmup {warmup}", rate(step, peak, warmup)

    as_solved(mine, "learning_rate", cases)
    for _, last in cases(mine.learning_rate):
        if not isinstance(last, float | int):
            raise Wrong(f"it should return a number; it returns a {type(last).__name__}")


@gap(9, "training_step")
def grade_training_step(mine: ModuleType) -> None:
    """The model reads all but the last token, predicts all but the first, and its weights move by the rate."""
    source, target = torch.tensor([[3, 2], [4, 2]]), torch.tensor([[5, 0, 4, 2], [5, 4, 2, 3]])
    whole = "the model reads the whole target; leave out its last token, which nothing follows"

    def cases(step: Any) -> Iterator[tuple[str, Any]]:
        for training in (True, False):
            model = Bigrams(0, 1.0, source, 3, whole).train(training)
            groups = [{"params": [model.table]}, {"params": [model.offset]}]
            optimizer = torch.optim.SGD(groups, lr=123.0, momentum=0.9)
            for number, rate in ((1, 2e-3), (2, 1e-3)):
                given = source.clone(), target.clone()
                loss = step(model, optimizer, *given, 3, rate)
                if not model.modes:
                    raise Wrong("the model is never called")
                if {*model.modes, model.training} != {training}:
                    raise Wrong("it switches the model to training or evaluation mode; the caller sets the mode")
                if not (torch.equal(given[0], source) and torch.equal(given[1], target)):
                    raise Wrong("it changes source or target: make new tensors")
                if not isinstance(loss, float):
                    told = f"it should return the loss as a number (loss.item()); it returns a {type(loss).__name__}"
                    raise Wrong(told)
                yield "the rates of the optimiser's groups", [group["lr"] for group in optimizer.param_groups]
                weights = torch.cat([model.table.flatten(), model.offset]).detach()
                yield (
                    "the weights after a step of SGD, weights - rate * gradient"
                    if number == 1
                    else "the weights after two steps",
                    weights,
                )
                yield "the loss that is returned", loss

    as_solved(mine, "training_step", cases)


def listed(answer: Any) -> Any:
    """What a search returns, if it is a list of numbers."""
    if isinstance(answer, Tensor):
        raise Wrong("it should return a list of token ids; it returns a tensor")
    if isinstance(answer, list) and any(isinstance(token, Tensor) for token in answer):
        raise Wrong("the list that it returns holds tensors: .item() makes a number of one")
    return answer


def goes_along(function: Any, model: nn.Module, source: Tensor) -> None:
    """Its tokens must be on the device of the source: here one without numbers, so only the first call counts."""
    try:
        function(model, source.to("meta"), 5, 4, 7)
    except Wrong:
        raise
    except Exception:
        return


@gap(10, "greedy")
def grade_greedy(mine: ModuleType) -> None:
    """The most probable token, again and again, up to the end token or the limit."""
    source = torch.tensor([[6, 2]])

    def cases(decode: Any) -> Iterator[tuple[str, Any]]:
        for seed in range(14):
            limit = 1 if seed == 12 else 15 if seed == 13 else 7
            model = Bigrams(seed, 1.0, source, limit, "it goes on after max_length tokens").eval()
            if seed == 13:
                model.table.data[..., 4] -= 40  # the end token is never chosen
            what = f"the translation by test model {seed}, whose weights are random,"
            torch.manual_seed(seed)
            yield what, listed(decode(model.forward, source.clone(), 5, 4, limit))
            if any(model.modes):
                raise Wrong("it switches the model to training mode")

    as_solved(mine, "greedy", cases)
    goes_along(mine.greedy, Bigrams(0, 1.0, source, 7, ""), source)


@gap(10, "beam_search")
def grade_beam_search(mine: ModuleType) -> None:
    """The best of several beginnings, by log-probability over length: without an end, then slots, then the length."""
    source = torch.tensor([[6, 2]])

    def searches(seeds: range, limit: int, settings: list[tuple[int, float]]) -> Cases:
        def cases(search: Any) -> Iterator[tuple[str, Any]]:
            for seed, (size, alpha) in product(seeds, settings):
                model = Bigrams(
                    seed, (0.7, 2.0)[seed % 2], source, limit, "it goes on after max_length tokens"
                ).requires_grad_(False)
                if limit == 15:
                    model.table[..., 4] -= 40  # the end token is never chosen
                told = "that never ends" if limit == 15 else f"(beam_size {size}, length_penalty {alpha})"
                answer = search(model.eval(), source.clone(), 5, 4, limit, size, alpha)
                if any(model.modes):
                    raise Wrong("it switches the model to training mode")
                yield f"the translation by a test model {told}", listed(answer)

        return cases

    as_solved(mine, "beam_search", searches(range(4), 15, [(2, 0.0), (1, 0.0), (3, 0.0)]), "step 1: ")
    slots_only = searches(range(15), 6, [(2, 0.0), (3, 0.0), (5, 0.0)])
    endless = variant("beam_search", "if tokens[-1] == eos_id:", "if False:")
    found: list[tuple[str, Any]] = []
    with suppress(Exception):
        found.extend(slots_only(mine.beam_search))
    if gives(endless, slots_only, found, None):
        raise Unfinished("step 2, the slots (step 1 is right)")
    as_solved(mine, "beam_search", slots_only, "step 1 is right; now step 2: ")
    whole = searches(range(15), 6, [(1, 1.0), (3, 1.0), (4, 0.6), (8, 0.5)])
    as_solved(mine, "beam_search", whole, "steps 1 and 2 are right; now step 3: ")
    goes_along(mine.beam_search, Bigrams(0, 1.0, source, 7, ""), source)
