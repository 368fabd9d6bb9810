# Generated from chapters/02_attention.md and 8 more: edit it there and `make export`, or here and `make sync`.

"""The graders of the parts that the reader writes: what an answer should be, and which wrong one it is."""

import inspect
import math
from collections.abc import Callable
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
    Unfinished,
    Wrong,
    all_used,
    expect,
    filled,
    first_fault,
    gap,
    matrices,
    random,
    same,
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


def enters(mine: ModuleType, found: Tensor, tables: list[Tensor], tokens: Tensor, what: str) -> None:
    """What enters a stack must be rows of one of these tables times the root of the width, plus the positions."""
    d, first = found.size(-1), tables[0][tokens]
    positions = mine.sinusoidal_table(tokens.size(1), d).to(found)
    if any(same(found, table[tokens] * d**0.5 + positions, 1e-5) for table in tables):
        return
    if (found == 0).any():
        raise Wrong("dropout runs in evaluation mode: make an nn.Dropout in __init__, and call that")
    wrong = {
        "the rows of the embedding are not multiplied by the root of d_model": lambda rows: rows + positions,
        "the positions are missing": lambda rows: rows * d**0.5,
        "the positions and the root of d_model are missing": lambda rows: rows,
        "the positions are multiplied by the root of d_model, too: only the rows are": lambda rows: (
            (rows + positions) * d**0.5
        ),
        "the rows are multiplied by d_model, not by its root": lambda rows: rows * d + positions,
        "the rows are divided by the root of d_model; multiply them": lambda rows: rows / d**0.5 + positions,
    }
    known = {f"{sentence} ({what})": make(table[tokens]) for sentence, make in wrong.items() for table in tables}
    expect(what, found, first * d**0.5 + positions, known, 1e-5)


class Pass(NamedTuple):
    """One call of a layer of a stack: what it is given, by name, and what it returns."""

    given: dict[str, Any]
    made: Tensor


def passes(model: nn.Module, kind: type[nn.Module], names: str) -> list[Pass]:
    """A list that grows with each call of a layer of this kind."""
    found: list[Pass] = []

    def keep(layer: nn.Module, given: tuple[Any, ...], named: dict[str, Any], made: Tensor) -> None:
        signature = inspect.signature(layer.forward)
        values = signature.bind(*given, **named).arguments
        own = zip(names.split(), signature.parameters)  # the reader's own names, in this order
        found.append(Pass({name: values[theirs] for name, theirs in own if theirs in values}, made))

    for module in model.modules():
        if isinstance(module, kind):
            module.register_forward_hook(keep, with_kwargs=True)
    return found


def one_stack(found: list[Pass], count: int, name: str) -> None:
    """Each layer is called once, with what the one before returned."""
    if len(found) != count:
        raise Wrong(f"of {count} {name} layers, forward calls {len(found)}: loop over all")
    for before, after in pairwise(found):
        if not same(after.given["x"], before.made, 0.0):
            raise Wrong(f"a layer of the {name} does not get what the one before returned")


@gap(7, "Transformer")
def grade_transformer(mine: ModuleType) -> None:
    """The constructor, what enters a stack, both stacks; then every property of `check` without training."""
    sizes = dict(d_model=16, num_heads=2, d_ff=32, num_layers=3)
    model = mine.Transformer(9, 11, 5, **sizes).eval()
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, list | tuple) and any(isinstance(each, nn.Module) for each in value):
                raise Wrong(f"{name} is a plain list, which hides its layers from the optimiser: use nn.ModuleList")
    for kind in (mine.EncoderLayer, mine.DecoderLayer):
        if (count := sum(isinstance(module, kind) for module in model.modules())) != 3:
            raise Wrong(f"for num_layers=3 it has {count} {kind.__name__}s: each stack has so many, of its own")
    encoder = passes(model, mine.EncoderLayer, "x mask")
    decoder = passes(model, mine.DecoderLayer, "x memory mask memory_mask")
    source, target = torch.tensor([[4, 6, 0, 5]]), torch.tensor([[3, 4, 7, 2]])
    try:
        answer = model(source, target)
    except NotImplementedError as error:
        if str(error) not in ("", "chapter 7: write Transformer"):
            raise
        table = nn.Embedding(9, 16)
        try:
            found = model.embed(source, table)
        except NotImplementedError:
            raise Unfinished("step 2, embed (step 1, __init__, is right)") from None
        enters(mine, found, [table.weight], source, "what embed returns")
        raise Unfinished("step 3, the encoder's half of forward (steps 1 and 2 are right)") from None

    one_stack(encoder, 3, "encoder")
    tables = [[p for p in model.parameters() if p.shape == (words, 16)] for words in (9, 11)]
    if tables[0]:
        enters(mine, encoder[0].given["x"], tables[0], source, "what enters the encoder")
    real = torch.ones(1, 2, 4, 4).bool() & (source != 5)
    for each in encoder:
        if (mask := each.given.get("mask")) is None:
            raise Wrong("a layer of the encoder gets no mask, so padded source tokens are read: give each source_mask")
        wrong = {
            "token 0 of the source is hidden although pad_id is 5: give padding_mask the pad_id of the model": (
                torch.ones_like(real) & (source != 0)
            )
        }
        expect("the mask of the encoder", mask.expand_as(real), real, wrong)
    if not decoder:
        if isinstance(answer, Tensor) and answer.size(-1) == 11:
            raise Wrong("forward never calls the decoder's layers")
        raise Unfinished("step 4, the decoder's half of forward (steps 1 to 3 are right)")
    one_stack(decoder, 3, "decoder")
    if tables[1]:
        enters(mine, decoder[0].given["x"], tables[1], target, "what enters the decoder")
    if not isinstance(answer, Tensor):
        raise Wrong(f"forward should return the logits; it returns a {type(answer).__name__}")
    if not all(same(each.given.get("memory"), decoder[0].given.get("memory"), 0.0) for each in decoder):
        raise Wrong("the decoder's layers get different memories: each reads what the last encoder layer returned")
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
    first_fault(check_transformer(lambda *vocabularies: mine.Transformer(*vocabularies, **sizes), training=False))


@gap(8, "make_batch")
def grade_make_batch(mine: ModuleType) -> None:
    """Two rectangles, filled up on the right."""
    pairs = [([5, 6, 2], [1, 7, 2]), ([8, 2], [1, 3, 4, 4, 2]), ([9, 3, 4, 2], [1, 2])]
    given = [(list(a), list(b)) for a, b in pairs]
    answer = mine.make_batch(given, 9)
    if given != pairs:
        raise Wrong("it changes the lists that it is given: make new ones")
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Wrong("it should return two tensors, source and target")

    def padded(side: int, pad: int, length: int, left: bool = False) -> Tensor:
        rows = [pair[side] for pair in pairs]
        return torch.tensor(
            [[pad] * (length - len(r)) * left + r + [pad] * (length - len(r)) * (not left) for r in rows]
        )

    for side, name, length in ((0, "source", 4), (1, "target", 5)):
        if isinstance(answer[side], Tensor) and answer[side].dtype != torch.int64:
            raise Wrong(f"{name} should be int64; its dtype is {answer[side].dtype}")
        expect(
            name,
            answer[side],
            padded(side, 9, length),
            {
                "sentences are filled up on the left": padded(side, 9, length, left=True),
                "sentences are filled up with 0, not with pad_id": padded(side, 0, length),
                "both sides are filled up to one common length; each has its own": padded(side, 9, 5),
                "source and target are the wrong way round": padded(1 - side, 9, 9 - length),
                "all sentences are cut to the shortest": torch.tensor(
                    [p[side][: min(len(q[side]) for q in pairs)] for p in pairs]
                ),
            },
        )


@gap(8, "batches_by_length")
def grade_batches_by_length(mine: ModuleType) -> None:
    """No pair is lost, short ones come first, and every batch is as full as its budget allows."""
    budget = 12
    sizes = [(3, 2), (1, 1), (2, 7), (1, 2), (6, 4), (2, 2), (12, 3), (3, 1), (4, 4), (1, 3), (2, 4), (5, 6)]
    pairs = [([number] * n, [number] * m) for number, (n, m) in enumerate(sizes)]
    given = list(pairs)
    batches = mine.batches_by_length(given, budget)
    if given != pairs:
        raise Wrong("it changes the list that it is given: sorted() makes a new one")
    if sorted(pair for batch in batches for pair in batch) != pairs or not all(batches):
        found = sum(pair in batch for batch in batches for pair in pairs)
        raise Wrong(f"each of {len(pairs)} pairs should be in one batch; {found} are in {len(batches)} batches")
    lengths = [[max(len(side) for side in pair) for pair in batch] for batch in batches]
    if (order := [length for batch in lengths for length in batch]) != sorted(order):
        raise Wrong("the pairs do not go from short to long; the longer side of a pair counts")
    for batch in lengths:
        if len(batch) * batch[-1] > budget:
            raise Wrong(f"with a budget of {budget}, a batch has {len(batch)} pairs of up to {batch[-1]} tokens")
    for batch, following in pairwise(lengths):
        if (len(batch) + 1) * following[0] <= budget:
            raise Wrong(f"a batch of lengths {batch} has room for the next pair, of length {following[0]}")


@gap(9, "label_smoothed_loss")
def grade_label_smoothed_loss(mine: ModuleType) -> None:
    """The mean over real labels, with part of the probability spread over all tokens."""
    logits, labels = random(2, 3, 7), torch.tensor([[4, 2, 6], [1, 6, 6]])
    flat, real = logits.flatten(0, 1), labels.flatten()
    each = F.cross_entropy(flat, real, label_smoothing=0.2, ignore_index=6, reduction="none")
    counted = real != 6
    log_probs = flat.log_softmax(dim=-1)
    target = F.one_hot(real, 7).double()
    others = 0.8 * target + 0.2 / 6 * (1 - target)
    entropy = -(0.8 * target + 0.2 / 7).mul((0.8 * target + 0.2 / 7).log()).sum(-1)
    answer = mine.label_smoothed_loss(logits.clone(), labels.clone(), 6, 0.2)
    expect(
        "the loss",
        answer,
        each.sum() / counted.sum(),
        {
            "padding counts as well": F.cross_entropy(flat, real, label_smoothing=0.2),
            "the mean is over all positions; padding should not count": each.mean(),
            "it is the sum, not the mean": each.sum(),
            "nothing is smoothed": F.cross_entropy(flat, real, ignore_index=6),
            "the label is left out when the rest is spread: all V tokens share it": -(others * log_probs)
            .sum(-1)[counted]
            .mean(),
            "it is the Kullback-Leibler divergence, not the cross-entropy": (each - entropy)[counted].mean(),
            "the sign is wrong": -each.sum() / counted.sum(),
            "gather takes its tokens from other positions: give it the labels as (b, m, 1)": (
                -0.8 * logits.log_softmax(-1).gather(-1, labels[:, None])[:, 0] - 0.2 * logits.log_softmax(-1).mean(-1)
            )[labels != 6].mean(),
            "the label's own part lacks the factor (1 - smoothing)": -(
                log_probs.gather(-1, real[:, None])[:, 0] + 0.2 * log_probs.mean(-1)
            )[counted].mean(),
            "it is a mean of the sentences' means; each real label should count alike": torch.stack(
                [row[label != 6].mean() for row, label in zip(each.view_as(labels), labels)]
            ).mean(),
            "smoothing is always 0.1; use the argument": F.cross_entropy(
                flat, real, label_smoothing=0.1, ignore_index=6
            ),
        },
    )


@gap(9, "learning_rate")
def grade_learning_rate(mine: ModuleType) -> None:
    """Up in a straight line, then down as one over the root."""
    cases = [(1, 0.5, 4), (4, 0.5, 4), (9, 0.5, 4), (100, 2.0, 16)]
    known: dict[str, Callable[[int, float, int], float]] = {
        "there is no way up: the rate begins at its peak": lambda s, p, w: p * min(1.0, math.sqrt(w / s)),
        "it does not fall after the peak": lambda s, p, w: p * min(1.0, s / w),
        "it falls as 1 / step; it should fall as 1 / sqrt(step)": lambda s, p, w: p * min(s / w, w / s),
        "the peak is not used": lambda s, p, w: min(s / w, math.sqrt(w / s)),
        "the larger of the two is taken; the smaller is the rate": lambda s, p, w: p * max(s / w, math.sqrt(w / s)),
        "the curve should equal peak at step warmup: it lacks the factor sqrt(warmup)": lambda s, p, w: (
            p * min(s / w, s**-0.5)
        ),
        "it is not peak at step warmup: multiply by the root of warmup": lambda s, p, w: p * min(s * w**-1.5, s**-0.5),
        "steps count from 0; the first one is 1": lambda s, p, w: p * min((s - 1) / w, math.sqrt(w / max(s - 1, 1))),
    }
    found = [mine.learning_rate(*case) for case in cases]
    right = [p * min(s / w, math.sqrt(w / s)) for s, p, w in cases]
    for sentence, rate in known.items():
        wrong = [rate(*case) for case in cases]
        if all(same(a, b, 1e-12) for a, b in zip(found, wrong)) and wrong != right:
            raise Wrong(sentence)
    for (step, peak, warmup), have, want in zip(cases, found, right):
        expect(f"the rate of step {step} with peak {peak} and warmup {warmup}", have, want, tolerance=1e-12)


@gap(9, "training_step")
def grade_training_step(mine: ModuleType) -> None:
    """The model reads all but the last token, predicts all but the first, and its weights move by the rate."""
    source, target = torch.tensor([[3, 2], [4, 2]]), torch.tensor([[1, 3, 4, 2], [1, 4, 2, 0]])

    def run(step: Callable[..., Any]) -> tuple[list[Any], Tensor]:
        model = Bigrams(6, seed=0)
        optimizer = torch.optim.SGD([{"params": [model.table]}, {"params": [model.offset]}], lr=123.0)
        losses = [step(model, optimizer, source.clone(), target.clone(), 0, rate) for rate in (0.5, 0.25)]
        if step is mine.training_step:
            if not model.read:
                raise Wrong("the model is never called")
            if model.read[0].shape == target.shape:
                raise Wrong("the model reads the whole target; leave out its last token, which nothing follows")
        return losses, torch.cat([model.table.flatten(), model.offset]).detach()

    def step(
        model: Any, optimizer: Any, source: Tensor, target: Tensor, pad_id: int, rate: float, spoilt: str = ""
    ) -> float:
        groups = optimizer.param_groups[: 1 if spoilt == "group" else 0 if spoilt in ("rate", "late") else None]
        for group in groups:
            group["lr"] = rate
        labels = target[:, :-1] if spoilt == "labels" else target[:, 1:]
        logits = model(source, target[:, :-1])
        if spoilt == "twice":
            logits, labels = logits[:, :-1], labels[:, 1:]
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad_id, label_smoothing=0.1)
        if spoilt != "zero":
            optimizer.zero_grad()
        loss.backward()
        if spoilt != "still":
            optimizer.step()
        for group in optimizer.param_groups if spoilt == "late" else ():
            group["lr"] = rate
        return loss.item()

    losses, table = run(mine.training_step)
    if not all(isinstance(loss, float) for loss in losses):
        raise Wrong(f"it should return the loss as a number (loss.item()); it returns a {type(losses[0]).__name__}")
    right, wanted = run(step)
    known = {
        "the weights do not change: after loss.backward() comes optimizer.step(), with no zero_grad() between": "still",
        "gradients of the step before are still there: call optimizer.zero_grad() before loss.backward()": "zero",
        "the rate is not used: set it in each of optimizer.param_groups": "rate",
        "the rate is set in the first of optimizer.param_groups only": "group",
        "the rate is set after the step that it is for": "late",
        "logits and labels are shifted once more; leaving out the last and the first target token is enough": "twice",
        "the labels are the tokens that the model reads; they are the next ones, target[:, 1:]": "labels",
    }
    wrong = {sentence: run(partial(step, spoilt=name))[1] for sentence, name in known.items()}
    expect("the weights after two steps", table, wanted, wrong)
    for have, want in zip(losses, right):
        expect("the loss that is returned", have, want)


def greedy_of(source: Tensor, scale: float, size: int, limit: int, seed: int) -> tuple[Bigrams, list[int]]:
    """A model and what greedy decoding of it gives."""
    model, tokens = Bigrams(size, seed, scale), [1]
    while len(tokens) <= limit:
        token = int(model(source, torch.tensor([tokens]))[0, -1].argmax())
        if token == 2:
            break
        tokens.append(token)
    return model, tokens[1:]


@gap(10, "greedy")
def grade_greedy(mine: ModuleType) -> None:
    """The most probable token, again and again, up to the end token or the limit."""
    source = torch.tensor([[3, 2]])
    for seed in range(12):
        model, right = greedy_of(source, 1.0, 6, 7, seed)
        model.read.clear()
        found = mine.greedy(model, source, 1, 2, 7)
        if isinstance(found, Tensor):
            raise Wrong("it should return a list of token ids; it returns a tensor")
        expect(
            f"the translation by test model {seed}, whose weights are random,",
            found,
            right,
            {
                "bos_id is part of the result": [1, *right],
                "eos_id is part of the result": [*right, 2],
                "bos_id and eos_id are part of the result": [1, *right, 2],
                "it stops one token too early": right[:-1],
            },
        )
        if len(right) == 7 and max(len(row[0]) for row in model.read) > 7:
            raise Wrong("it goes on after max_length tokens")


def search(
    model: nn.Module, source: Tensor, limit: int, size: int, alpha: float, *,
    keeps: bool = True, ends: bool = True, eos: int = 1,
) -> list[int]:  # fmt: skip
    """The best translation of beam search.

    It goes on after an end token if `ends` is False. Finished ones keep their slots (`keeps`), and the end token counts
    `eos`.
    """
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    for length in range(1, limit + 1):
        log_probs = model(source.expand(len(live), -1), torch.tensor([[1, *t] for _, t in live]))[:, -1].log_softmax(-1)
        found = [
            (total + row[i].item(), [*t, i]) for (total, t), row in zip(live, log_probs) for i in range(row.numel())
        ]
        found.sort(key=lambda candidate: -candidate[0])
        live = []
        for total, tokens in found[: size - len(finished) * keeps]:
            if tokens[-1] == 2 and ends:
                finished.append((total / max(length - 1 + eos, 1) ** alpha, tokens[:-1]))
            else:
                live.append((total, tokens))
        if not live:
            break
    finished = finished or [(total / limit**alpha, tokens) for total, tokens in live]
    return max(finished, key=lambda hypothesis: hypothesis[0])[1]


@gap(10, "beam_search")
def grade_beam_search(mine: ModuleType) -> None:
    """The best of several beginnings, by log-probability over length."""
    source = torch.tensor([[3, 2]])
    cases = [(seed, size, alpha) for seed in range(15) for size, alpha in ((1, 1.0), (2, 0.0), (3, 1.0), (4, 0.6))]
    cases += [(1, 7, 0.6)]  # more slots than the six tokens
    models = {seed: Bigrams(6, seed, 0.7).requires_grad_(False) for seed in range(15)}

    def all_of(answer: Callable[[nn.Module, int, float], Any]) -> list[Any]:
        return [answer(models[seed], size, alpha) for seed, size, alpha in cases]

    found = all_of(lambda model, size, alpha: mine.beam_search(model, source, 1, 2, 6, size, alpha))
    right = all_of(lambda model, size, alpha: search(model, source, 6, size, alpha))
    if isinstance(found[0], Tensor):
        raise Wrong("it should return a list of token ids; it returns a tensor")
    if found == right:
        return  # the wrong ones take time
    endless = [Bigrams(6, seed, 0.7).requires_grad_(False) for seed in range(5)]
    for model in endless:
        model.table[..., 2] -= 40  # the end token is never chosen
    tried = [(model, size) for model in endless for size in (1, 2, 3)]
    answers = [mine.beam_search(model, source, 1, 2, 6, size, 0.0) for model, size in tried]
    first = [search(model, source, 6, size, 0.0) for model, size in tried]
    expect(
        "step 1: the translation by a test model that never ends",
        answers,
        first,
        {
            "step 1: it is greedy: only one beginning is kept": [search(m, source, 6, 1, 0.0) for m, _ in tried],
            "step 1: bos_id is part of the result": [[1, *tokens] for tokens in first],
        },
    )
    if found == all_of(lambda model, size, _: search(model, source, 6, size, 0.0, ends=False)):
        raise Unfinished("step 2, the slots (step 1 is right)")
    slots = all(a == b for a, b, (_, _, alpha) in zip(found, right, cases) if alpha == 0)
    step = "steps 1 and 2 are right; now step 3: " if slots else "step 1 is right; now step 2: "
    wrong = {
        "scores are not divided by length ** length_penalty, or the search ends with the first end": all_of(
            lambda model, size, _: search(model, source, 6, size, 0.0)
        ),
        "length_penalty is always 1": all_of(lambda model, size, _: search(model, source, 6, size, 1.0)),
        "the end token is not counted in the length": all_of(
            lambda model, size, alpha: search(model, source, 6, size, alpha, eos=0)
        ),
        "a finished hypothesis gives its slot away; it should keep it": all_of(
            lambda model, size, alpha: search(model, source, 6, size, alpha, keeps=False)
        ),
        "eos_id is part of the result": [[*tokens, 2] if len(tokens) < 6 else tokens for tokens in right],
    }
    what = "the translation by one of 15 test models, whose weights are random,"
    expect(step + what, found, right, {step + sentence: value for sentence, value in wrong.items()})
