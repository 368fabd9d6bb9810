# Generated from chapters/08b_parts.md: edit the chapter, not this file, then run `make export`.

"""Properties of attention, held to this book's own; and what it takes to examine a part."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.checks.report import NotApplicable, Outcome, Property, Report, examine, holds_for
from transformer_lib.multi_head import MultiHeadAttention

TOLERANCE = 1e-12  # float64: sums of a few hundred products, in another order, differ by some 1e-15


class Part:
    """A part under test: what is called, what is known about it, and random numbers to call it with.

    Args:
        call: a function, or a module, which is copied to the CPU, float64 and evaluation mode.
        known: what the check was told about it.
    """

    def __init__(self, call: Callable[..., Any], **known: Any) -> None:
        self.call = deepcopy(call).cpu().double().eval() if isinstance(call, nn.Module) else call
        self.known = known
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self, *arguments: Any, **options: Any) -> Tensor:
        """Call it; of several outputs, take the first."""
        output = self.call(*arguments, **options)
        return output[0] if isinstance(output, tuple) else output

    def randn(self, *shape: int) -> Tensor:
        """Draw float64 numbers."""
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)


def apart(new: Tensor, old: Tensor) -> float:
    """The largest difference; infinite if the shapes differ or anything is not finite."""
    if new.shape != old.shape or not (new.isfinite().all() and old.isfinite().all()):
        return math.inf
    return (new - old).abs().max().item()


def shown(moved: float) -> str:
    """A difference in words."""
    if not math.isfinite(moved):
        return "NaN, infinity, or another shape"
    return f"{moved:.2g}" if moved > TOLERANCE else f"less than {TOLERANCE:.0e}"


ATTENTION: list[Property] = []


@holds_for(ATTENTION, "the softmax runs over another axis than the keys", "")
def weights_sum_to_one(attention: Part) -> Outcome:
    """Where all values are 1, the output is 1."""
    output = attention(attention.randn(2, 3, 5, 4), attention.randn(2, 3, 6, 4), torch.ones(2, 3, 6, 4).double(), None)
    moved = apart(output, torch.ones(2, 3, 5, 4).double())
    return moved <= TOLERANCE, f"of values that are all 1, the output differs from 1 by {shown(moved)}"


@holds_for(ATTENTION, "scores are divided by something else than the root of d_k", "scale")
def scores_are_scaled(attention: Part) -> Outcome:
    """Scores are multiplied by 1/√d_k, as two keys show: the output is the sigmoid of the difference of two scores."""
    found = []
    for d_k in (4, 9, 64):
        query, key = torch.zeros(1, 1, 1, d_k).double(), torch.zeros(1, 1, 2, d_k).double()
        query[..., 0], key[..., 0, 0] = 1, 1  # scores 1 and 0, before they are scaled
        value = torch.tensor([1.0, 0.0]).double()[:, None].expand(1, 1, 2, d_k)
        scale = attention(query, key, value, None)[0, 0, 0, 0].logit().item()
        found.append(f"{scale:.3f} at d_k = {d_k}")
        if not abs(scale - d_k**-0.5) < TOLERANCE:
            return False, f"scores are multiplied by {found[-1]}; 1/√d_k is {d_k**-0.5:.3f}"
    return True, f"scores are multiplied by {', '.join(found)}"


@holds_for(ATTENTION, "the mask means the opposite, is not used, or lies on the wrong axis", "blind")
def masking_a_key_is_leaving_it_out(attention: Part) -> Outcome:
    """A mask that forbids the last two keys gives what attention without them gives."""
    query, key, value = attention.randn(2, 3, 5, 4), attention.randn(2, 3, 5, 4), attention.randn(2, 3, 5, 4)
    mask = torch.tensor([True, True, True, False, False]).expand(2, 1, 1, 5)
    moved = apart(attention(query, key, value, mask), attention(query, key[:, :, :3], value[:, :, :3], None))
    return moved <= TOLERANCE, f"masking two keys, and leaving them out, differ by {shown(moved)}"


@holds_for(ATTENTION, "a query whose keys are all forbidden gets NaN, or the mean of all of them", "empty-row")
def empty_rows_are_zero(attention: Part) -> Outcome:
    """A query that may attend to nothing gets zeros, and finite gradients."""
    query = attention.randn(1, 2, 3, 4).requires_grad_()
    mask = torch.ones(1, 1, 3, 5, dtype=torch.bool)
    mask[..., 1, :] = False
    output = attention(query, attention.randn(1, 2, 5, 4), attention.randn(1, 2, 5, 4), mask)
    (gradient,) = torch.autograd.grad(output[:, :, [0, 2]].sum(), query)
    empty, finite = apart(output[:, :, 1], torch.zeros(1, 2, 4).double()), bool(gradient.isfinite().all())
    evidence = f"the empty row differs from 0 by {shown(empty)}; gradients are {'' if finite else 'not '}finite"
    return empty == 0 and finite, evidence


@holds_for(ATTENTION, "a constant such as -1e9 does not fit the dtype", "half")
def half_precision(attention: Part) -> Outcome:
    """float16 runs under a mask, and gives what float64 gives, to two digits."""
    inputs = [attention.randn(1, 2, 5, 4) for _ in range(3)]
    mask = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    moved = apart(attention(*(x.half() for x in inputs), mask).double(), attention(*inputs, mask))
    return moved < 1e-2, f"float16 differs from float64 by {'less than 1e-02' if moved < 1e-2 else shown(moved)}"


@holds_for(ATTENTION, "it is not the softmax of the scaled scores, times the values", "scale")
def agrees_with_the_formula(attention: Part) -> Outcome:
    """It equals this book's attention, masked and unmasked, with fewer queries than keys and wider values."""
    inputs = attention.randn(2, 3, 5, 4), attention.randn(2, 3, 6, 4), attention.randn(2, 3, 6, 7)
    mask = torch.rand(2, 3, 5, 6, generator=attention.generator) < 0.6
    mask[..., 0] = True
    moved = max(
        apart(attention(*inputs, given), scaled_dot_product_attention(*inputs, given)[0]) for given in (None, mask)
    )
    return moved <= TOLERANCE, f"it differs from the formula by {shown(moved)}"


def check_attention(attention: Callable[..., Any]) -> Report:
    """Hold an attention function to the formula of Vaswani et al. 2017, section 3.2.1.

    Args:
        attention: called as attention(query, key, value, mask); query and key (batch, heads, length, d_k), value
            (batch, heads, key length, d_v), the mask boolean, True = may attend, broadcastable to (batch, heads,
            query length, key length), or None. Returns the output (batch, heads, query length, d_v), or a tuple that
            begins with it.

    Returns:
        One finding for each property.
    """
    return examine(Part(attention), ATTENTION)


MULTI_HEAD: list[Property] = []


@holds_for(MULTI_HEAD, "heads are split or joined by a reshape without a transpose, which mixes tokens", "reshape")
def queries_are_independent(layer: Part) -> Outcome:
    """Other queries in another order, of another batch, give the same answers in that order."""
    d, queries, keys = layer.known["d_model"], torch.tensor([3, 0, 4, 1]), layer.randn(3, 7, layer.known["d_model"])
    x, rows = layer.randn(3, 5, d), torch.tensor([2, 0])
    every = layer(x, keys, keys)
    moved = apart(layer(x[rows][:, queries], keys[rows], keys[rows]), every[rows][:, queries])
    return moved <= TOLERANCE, f"among other queries, an answer differs by {shown(moved)}"


@holds_for(MULTI_HEAD, "keys and values do not stay together, or something depends on a key's place", "reshape")
def keys_are_a_set(layer: Part) -> Outcome:
    """Keys and values in another order give the same answers."""
    d, order = layer.known["d_model"], torch.tensor([4, 2, 6, 0, 1, 5, 3])
    x, keys, values = layer.randn(3, 5, d), layer.randn(3, 7, d), layer.randn(3, 7, d)
    moved = apart(layer(x, keys[:, order], values[:, order]), layer(x, keys, values))
    return moved <= TOLERANCE, f"with keys and values in another order, answers differ by {shown(moved)}"


@holds_for(MULTI_HEAD, "arguments come in another order: query, key, value was expected", "")
def equal_values_need_no_keys(layer: Part) -> Outcome:
    """Where all values are equal, the answer does not depend on the keys; otherwise it does."""
    d = layer.known["d_model"]
    x, keys, other = layer.randn(2, 5, d), layer.randn(2, 7, d), layer.randn(2, 7, d)
    values = layer.randn(2, 1, d).expand(2, 7, d)
    same = apart(layer(x, other, values), layer(x, keys, values))
    differ = apart(layer(x, other, keys), layer(x, keys, keys))
    return same <= TOLERANCE < differ, f"with equal values, other keys move the answer by {shown(same)}"


@holds_for(MULTI_HEAD, "the mask means the opposite, is not used, or lies on the wrong axis", "blind")
def masked_keys_are_left_out(layer: Part) -> Outcome:
    """Each query gets what it gets alone with the keys that its own row of the mask allows."""
    d = layer.known["d_model"]
    x, keys = layer.randn(2, 5, d), layer.randn(2, 7, d)
    mask = torch.rand(2, 1, 5, 7, generator=layer.generator) < 0.6
    mask[..., 0] = True
    output, moved = layer(x, keys, keys, mask=mask), 0.0
    for b, i in torch.cartesian_prod(torch.arange(2), torch.arange(5)).tolist():
        left = keys[b, mask[b, 0, i]][None]
        moved = max(moved, apart(layer(x[b, i][None, None], left, left)[0, 0], output[b, i]))
    return moved <= TOLERANCE, f"masking keys, and leaving them out, differ by {shown(moved)}"


@holds_for(MULTI_HEAD, "a query whose keys are all forbidden gets NaN, or the mean of all of them", "empty-row")
def empty_queries_read_nothing(layer: Part) -> Outcome:
    """A query that may attend to nothing gets the same answer, whatever the inputs are."""
    d, mask = layer.known["d_model"], torch.zeros(1, 1, 5, 5, dtype=torch.bool)
    x, other = layer.randn(1, 5, d), layer.randn(1, 5, d)
    moved = apart(layer(other, other, other, mask=mask), layer(x, x, x, mask=mask))
    return moved <= TOLERANCE, f"where nothing may be seen, other inputs move the answer by {shown(moved)}"


@holds_for(MULTI_HEAD, "the scale is not that of one head, or the heads are not independent", "scale")
def agrees_with_its_weights(layer: Part) -> Outcome:
    """It equals this book's layer with the same weights."""
    if layer.known["weights"] is None:
        raise NotApplicable("no function `weights` was given, which names the projections")
    d = layer.known["d_model"]
    ours = MultiHeadAttention(d, layer.known["num_heads"]).double().eval()
    with torch.no_grad():
        for parameter, weight in zip(ours.parameters(), layer.known["weights"](layer.call), strict=True):
            parameter.copy_(weight)
    x, keys, values = layer.randn(2, 5, d), layer.randn(2, 7, d), layer.randn(2, 7, d)
    moved = apart(layer(x, keys, values), ours(x, keys, values)[0])
    return moved <= TOLERANCE, f"it differs from the formula with these weights by {shown(moved)}"


def check_multi_head_attention(
    layer: nn.Module,
    d_model: int,
    num_heads: int,
    *,
    weights: Callable[[nn.Module], tuple[Tensor, Tensor, Tensor, Tensor]] | None = None,
) -> Report:
    """Hold a multi-head attention to its properties (Vaswani et al. 2017, section 3.2.2).

    Args:
        layer: called as layer(query, key, value) and layer(query, key, value, mask=mask); (batch, length, d_model)
            each, the mask as for `check_attention`. Returns (batch, query length, d_model), or a tuple that begins
            with it.
        d_model: width of the tokens.
        num_heads: number of heads.
        weights: given the layer, returns the weight (3 d_model, d_model) and bias of the projections of queries, keys
            and values, one below the other, and the weight and bias of the output projection.

    Returns:
        One finding for each property.
    """
    return examine(Part(layer, d_model=d_model, num_heads=num_heads, weights=weights), MULTI_HEAD)
