# Generated from chapters/12a_parts.md: edit it there and `make export`, or here and `make sync`.

"""Properties of the components, held to this book's own: attention, heads, positions, masks, layers."""

import math
from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib import masks as ours
from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.checks.report import NotApplicable, Outcome, Property, Report, examine, register_property
from transformer_lib.checks.subject import UnderTest, contiguous, max_difference, plain_tensors
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.positions import sinusoidal_table


class ComponentUnderTest(UnderTest):
    """A component under test: what is called, and what the check was told about it.

    Args:
        call: a function, or a module, which is copied to the CPU, float64 and evaluation mode.
        d_model: width of the tokens, if it takes tokens.
        known: what else is known about it.
    """

    def __init__(self, call: Callable[..., Any], d_model: int = 0, **known: Any) -> None:
        super().__init__()
        self.call = deepcopy(call).cpu().double().eval() if isinstance(call, nn.Module) else call
        self.d_model, self.known = d_model, known

    def __call__(self, *arguments: Any, **options: Any) -> Tensor:
        """Call it; of several outputs, take the first."""
        output = self.call(*contiguous(arguments), **dict(zip(options, contiguous(options.values()))))
        return output[0] if isinstance(output, tuple) else output

    def randn(self, *shape: int) -> Tensor:
        """Draw float64 numbers."""
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def draw(self, *shapes: tuple[int, ...]) -> list[Tensor]:
        """Draw tokens of width d_model, one tensor for each (batch, length)."""
        return [self.randn(*shape, self.d_model) for shape in shapes]


ATTENTION: list[Property] = []


@register_property(ATTENTION, "the softmax runs over another axis than the keys")
def weights_sum_to_one(attention: ComponentUnderTest) -> Outcome:
    """Where all values are 1, the output is 1."""
    output = attention(attention.randn(2, 3, 5, 4), attention.randn(2, 3, 6, 4), torch.ones(2, 3, 6, 4).double(), None)
    moved = max_difference(output, torch.ones(2, 3, 5, 4).double())
    return attention.at_most_rounding(moved, "of values that are all 1, the output differs from 1 by")


@register_property(ATTENTION, "scores are divided by something else than the root of d_k", "scale")
def scores_are_scaled(attention: ComponentUnderTest) -> Outcome:
    """Scores are multiplied by 1/√d_k, as two keys show: the output is the sigmoid of the difference of two scores."""
    found = []
    for d_k in (4, 9, 64):
        query, key = torch.zeros(1, 1, 1, d_k).double(), torch.zeros(1, 1, 2, d_k).double()
        query[..., 0], key[..., 0, 0] = 1, 1  # scores 1 and 0, before they are scaled
        value = torch.tensor([1.0, 0.0]).double()[:, None].expand(1, 1, 2, d_k)
        scale = attention(query, key, value, None)[0, 0, 0, 0].logit().item()
        found.append(f"{scale:.3f} at d_k = {d_k}")
        if not abs(scale - d_k**-0.5) < attention.tolerance:
            return False, f"scores are multiplied by {found[-1]}; 1/√d_k is {d_k**-0.5:.3f}"
    return True, f"scores are multiplied by {', '.join(found)}"


@register_property(ATTENTION, "the mask means the opposite, is not used, or lies on the wrong axis", "blind")
def masking_a_key_is_leaving_it_out(attention: ComponentUnderTest) -> Outcome:
    """A mask that forbids the last two keys gives what attention without them gives."""
    query, key, value = (attention.randn(2, 3, 5, 4) for _ in range(3))
    mask = torch.tensor([True, True, True, False, False]).expand(2, 1, 1, 5)
    moved = max_difference(attention(query, key, value, mask), attention(query, key[:, :, :3], value[:, :, :3], None))
    return attention.at_most_rounding(moved, "masking two keys, and leaving them out, differ by")


@register_property(ATTENTION, "a query whose keys are all forbidden gets NaN, or the mean of all of them", "empty-row")
def empty_rows_are_zero(attention: ComponentUnderTest) -> Outcome:
    """A query that may attend to nothing gets zeros, and finite gradients."""
    query = attention.randn(1, 2, 3, 4).requires_grad_()
    mask = torch.ones(1, 1, 3, 5, dtype=torch.bool)
    mask[..., 1, :] = False
    output = attention(query, attention.randn(1, 2, 5, 4), attention.randn(1, 2, 5, 4), mask)
    (gradient,) = torch.autograd.grad(output[:, :, [0, 2]].sum(), query)
    empty, finite = max_difference(output[:, :, 1], torch.zeros(1, 2, 4).double()), bool(gradient.isfinite().all())
    evidence = f"differs from 0 by {attention.describe(empty)}; gradients are {'' if finite else 'not '}finite"
    return empty == 0 and finite, f"the empty row {evidence}"


@register_property(ATTENTION, "a constant such as -1e9 does not fit the dtype", "half")
def half_precision(attention: ComponentUnderTest) -> Outcome:
    """float16 runs under a mask, and gives what float64 gives, to two digits."""
    inputs = [attention.randn(1, 2, 5, 4) for _ in range(3)]
    mask = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    moved = max_difference(attention(*(x.half() for x in inputs), mask).double(), attention(*inputs, mask))
    return moved < 1e-2, f"float16 differs from float64 by {'less than 0.01' if moved < 1e-2 else f'{moved:.2g}'}"


@register_property(ATTENTION, "it is not the softmax of the scaled scores, times the values", "scale")
def agrees_with_the_formula(attention: ComponentUnderTest) -> Outcome:
    """It equals this book's attention, masked and unmasked, with fewer queries than keys and wider values."""
    inputs = attention.randn(2, 3, 5, 4), attention.randn(2, 3, 6, 4), attention.randn(2, 3, 6, 7)
    mask = torch.rand(2, 3, 5, 6, generator=attention.generator) < 0.6
    mask[..., 0] = True
    pairs = [(attention(*inputs, m), scaled_dot_product_attention(*inputs, m)[0]) for m in (None, mask)]
    return attention.at_most_rounding(max(max_difference(*pair) for pair in pairs), "it differs from the formula by")


def check_attention(attention: Callable[..., Any]) -> Report:
    """Hold an attention function to the formula of Vaswani et al. 2017, section 3.2.1; one finding for each property.

    Args:
        attention: called as attention(query, key, value, mask); query and key (batch, heads, length, d_k), value
            (batch, heads, key length, d_v), the mask boolean, True = may attend, broadcastable to (batch, heads,
            query length, key length), or None. Returns the output (batch, heads, query length, d_v), or a tuple that
            begins with it.
    """
    return examine(ComponentUnderTest(attention), ATTENTION)


MULTI_HEAD: list[Property] = []


@register_property(MULTI_HEAD, "a reshape without a transpose splits or joins the heads, and mixes tokens", "reshape")
def queries_are_independent(layer: ComponentUnderTest) -> Outcome:
    """Other queries in another order, of another batch, give the same answers in that order."""
    x, keys = layer.draw((3, 5), (3, 7))
    rows, queries = torch.tensor([2, 0]), torch.tensor([3, 0, 4, 1])
    moved = max_difference(layer(x[rows][:, queries], keys[rows], keys[rows]), layer(x, keys, keys)[rows][:, queries])
    return layer.at_most_rounding(moved, "among other queries, an answer differs by")


@register_property(MULTI_HEAD, "keys and values do not stay together, or something depends on a key's place", "reshape")
def keys_are_a_set(layer: ComponentUnderTest) -> Outcome:
    """Keys and values in another order give the same answers."""
    (x, keys, values), order = layer.draw((3, 5), (3, 7), (3, 7)), torch.tensor([4, 2, 6, 0, 1, 5, 3])
    moved = max_difference(layer(x, keys[:, order], values[:, order]), layer(x, keys, values))
    return layer.at_most_rounding(moved, "with keys and values in another order, answers differ by")


@register_property(MULTI_HEAD, "arguments come in another order: query, key, value was expected")
def equal_values_need_no_keys(layer: ComponentUnderTest) -> Outcome:
    """Where all values are equal, the answer does not depend on the keys; otherwise it does."""
    x, keys, other, value = layer.draw((2, 5), (2, 7), (2, 7), (2, 1))
    values = value.expand(2, 7, -1)
    same = max_difference(layer(x, other, values), layer(x, keys, values))
    differ = max_difference(layer(x, other, keys), layer(x, keys, keys))
    evidence = f"with equal values, other keys move the answer by {layer.describe(same)}"
    return same <= layer.tolerance < differ < math.inf, evidence


@register_property(MULTI_HEAD, "the mask means the opposite, is not used, or lies on the wrong axis", "blind")
def masked_keys_are_left_out(layer: ComponentUnderTest) -> Outcome:
    """Each query gets what it gets alone with the keys that its own row of the mask allows."""
    x, keys = layer.draw((2, 5), (2, 7))
    mask = torch.rand(2, 1, 5, 7, generator=layer.generator) < 0.6
    mask[..., 0] = True
    output, moved = layer(x, keys, keys, mask=mask), 0.0
    for b, i in torch.cartesian_prod(torch.arange(2), torch.arange(5)).tolist():
        left = keys[b, mask[b, 0, i]][None]
        moved = max(moved, max_difference(layer(x[b, i][None, None], left, left)[0, 0], output[b, i]))
    return layer.at_most_rounding(moved, "masking keys, and leaving them out, differ by")


@register_property(MULTI_HEAD, "a query whose keys are all forbidden gets NaN, or the mean of all of them", "empty-row")
def empty_queries_read_nothing(layer: ComponentUnderTest) -> Outcome:
    """A query that may attend to nothing gets the same answer, whatever the inputs are."""
    (x, other), mask = layer.draw((1, 5), (1, 5)), torch.zeros(1, 1, 5, 5, dtype=torch.bool)
    moved = max_difference(layer(other, other, other, mask=mask), layer(x, x, x, mask=mask))
    return layer.at_most_rounding(moved, "where nothing may be seen, other inputs move the answer by")


@register_property(MULTI_HEAD, "the scale is not that of one head, or the heads are not independent", "scale")
def agrees_with_its_weights(layer: ComponentUnderTest) -> Outcome:
    """It equals this book's layer with the same weights."""
    if layer.known["weights"] is None:
        raise NotApplicable("no function `weights` was given, which names the projections")
    reference = MultiHeadAttention(layer.d_model, layer.known["num_heads"]).double().eval()
    with torch.no_grad():
        for parameter, weight in zip(reference.parameters(), layer.known["weights"](layer.call), strict=True):
            parameter.copy_(weight)
    inputs = layer.draw((2, 5), (2, 7), (2, 7))
    moved = max_difference(layer(*inputs), reference(*inputs)[0])
    return layer.at_most_rounding(moved, "it differs from the formula with these weights by")


def check_multi_head_attention(
    layer: nn.Module,
    d_model: int,
    num_heads: int,
    *,
    weights: Callable[[nn.Module], tuple[Tensor, Tensor, Tensor, Tensor]] | None = None,
) -> Report:
    """Hold a multi-head attention to its properties (Vaswani et al. 2017, section 3.2.2); one finding for each.

    Args:
        layer: called as layer(query, key, value) and layer(query, key, value, mask=mask); (batch, length, d_model)
            each, the mask as for `check_attention`. Returns (batch, query length, d_model), or a tuple that begins
            with it.
        d_model: width of the tokens.
        num_heads: number of heads.
        weights: given the layer, returns the weight (3 d_model, d_model) and bias of the projections of queries, keys
            and values, one below the other, and the weight and bias of the output projection.
    """
    return examine(ComponentUnderTest(layer, d_model, num_heads=num_heads, weights=weights), MULTI_HEAD)


POSITIONS: list[Property] = []


@register_property(POSITIONS, "tokens are scaled, doubled or mixed on the way", "doubled")
def only_positions_are_added(layer: ComponentUnderTest) -> Outcome:
    """What is added does not depend on the tokens, on the sentence, or on how many tokens follow."""
    x, other = layer.draw((2, 6), (2, 6))
    table = layer(x) - x
    shorter = layer(x[:, :4]) - x[:, :4]
    pairs = (layer(other) - other, table), (table[1], table[0]), (shorter, table[:, :4])
    moved = max(max_difference(*pair) for pair in pairs)
    return layer.at_most_rounding(moved, "what is added differs between tokens by")


@register_property(POSITIONS, "the table is constant along the positions", "positions")
def positions_differ(layer: ComponentUnderTest) -> Outcome:
    """No two of twelve positions get the same vector."""
    table = layer(torch.zeros(1, 12, layer.d_model).double())[0]
    nearest = (table[:, None] - table[None]).abs().amax(dim=-1).fill_diagonal_(math.inf).min().item()
    return nearest > 1e-6, f"the two nearest of twelve positions differ by {nearest:.2g}"


@register_property(POSITIONS, "sines and cosines stand elsewhere, or the speeds are others", "positions")
def agrees_with_the_table(layer: ComponentUnderTest) -> Outcome:
    """It adds this book's sinusoidal table, up to `max_len`, as far as float32 holds it."""
    if not layer.known["sinusoidal"]:
        raise NotApplicable("the table is learned, or of another kind")
    length, d = layer.known["max_len"] or 12, layer.d_model
    difference = (layer(torch.zeros(1, length, d).double())[0] - sinusoidal_table(length, d)).abs()
    places = torch.arange(1, length + 1)[:, None]  # an angle in float32 is off in proportion to its position
    moved = (difference / places).max().item()
    return (
        moved < 1e-6,
        f"it differs from the table, per place, by {'less than 1e-06' if moved < 1e-6 else f'{moved:.2g}'}",
    )


@register_property(POSITIONS, "the table is a plain attribute; register_buffer makes it move with the module", "buffer")
def table_moves_along(layer: ComponentUnderTest) -> Outcome:
    """Nothing is a plain tensor, and tokens keep their dtype."""
    module = layer.call if isinstance(layer.call, nn.Module) else nn.Module()
    if plain := plain_tensors(module):
        return False, f"plain tensors: {', '.join(plain[:3])}"
    for dtype in (torch.bfloat16, torch.float16):
        call = deepcopy(layer.call).to(dtype) if isinstance(layer.call, nn.Module) else layer.call
        answer = call(torch.zeros(1, 3, layer.d_model, dtype=dtype)).dtype
        if answer != dtype:
            return False, f"{dtype} goes in, {answer} comes out"
    return True, "every tensor is a parameter or a buffer, and tokens keep their dtype"


@register_property(POSITIONS, "a sequence beyond max_len is cut or wrapped without a word", "too-long")
def too_many_positions_raise(layer: ComponentUnderTest) -> Outcome:
    """A sequence longer than `max_len` is refused."""
    length = layer.known["max_len"]
    if length is None:
        raise NotApplicable("no max_len was given")
    try:
        layer(torch.zeros(1, length + 1, layer.d_model).double())
    except Exception:
        return True, f"{length + 1} positions are refused"
    return False, f"{length + 1} positions are accepted, though max_len is {length}"


def check_positional_encoding(
    layer: Callable[..., Any], d_model: int, *, sinusoidal: bool = True, max_len: int | None = None
) -> Report:
    """Hold a positional encoding to its properties (Vaswani et al. 2017, section 3.5); one finding for each.

    Args:
        layer: called as layer(x) with (batch, length, d_model); returns x plus the positions. At least 12 positions.
        d_model: width of the tokens.
        sinusoidal: whether it should be the paper's table.
        max_len: the longest sequence, if there is one.
    """
    return examine(ComponentUnderTest(layer, d_model, sinusoidal=sinusoidal, max_len=max_len), POSITIONS)


MASKS: list[Property] = []


def _agree(masks: ComponentUnderTest, name: str, calls: list[tuple]) -> Outcome:
    """Whether a mask function and this book's give the same mask in every call, for four sentences and two heads."""
    words = f"the {name.replace('_', ' ')}"
    for call in calls:
        mask, wanted = masks.known[name](*call), getattr(ours, name)(*call)
        wanted = wanted.expand(4, 2, wanted.size(-1), wanted.size(-1))
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.dim() != 4:
            came = f"{mask.dtype} {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
            return False, f"{words} must be boolean, of four dimensions; got {came}"
        try:
            cells = (mask.expand(wanted.shape) != wanted).sum().item()
        except RuntimeError:
            return False, f"{words} {tuple(mask.shape)} does not stretch to {tuple(wanted.shape)}"
        if cells:
            return False, f"{words}: {cells} of {wanted.numel()} cells are wrong"
    return True, f"{words} is right in every cell"


def _sentences(pad_id: int) -> tuple[Tensor, int]:
    rows = torch.tensor([[5, 6, 7, 8, 2], [5, -1, 7, -1, -1], [-1, -1, 5, 6, 7], [-1, -1, -1, -1, -1]])
    return torch.where(rows < 0, pad_id, rows), pad_id  # padding on the right, within, on the left, everywhere


@register_property(MASKS, "the padding mask is inverted, or padding is looked for under a fixed number", "blind")
def padding_is_hidden(masks: ComponentUnderTest) -> Outcome:
    """Keys that are padding are forbidden to every query, wherever they stand, and whatever their number is."""
    return _agree(masks, "padding_mask", [_sentences(0), _sentences(3)])


@register_property(MASKS, "the causal mask is inverted, transposed, or without its diagonal", "causal")
def the_future_is_hidden(masks: ComponentUnderTest) -> Outcome:
    """Query i may attend to keys 0 … i."""
    return _agree(masks, "causal_mask", [(1,), (2,), (5,)])


@register_property(MASKS, "the two masks are united where allowed cells intersect", "target-padding")
def both_are_combined(masks: ComponentUnderTest) -> Outcome:
    """The decoder's mask allows what both masks allow."""
    if masks.known["decoder_mask"] is None:
        raise NotApplicable("no decoder_mask was given")
    return _agree(masks, "decoder_mask", [_sentences(0), _sentences(3)])


def check_masks(
    padding_mask: Callable[[Tensor, int], Tensor],
    causal_mask: Callable[[int], Tensor],
    decoder_mask: Callable[[Tensor, int], Tensor] | None = None,
) -> Report:
    """Hold mask functions to this book's convention: boolean, True = may attend, four dimensions; a finding for each.

    Args:
        padding_mask: of tokens (batch, length) and the padding token; broadcastable to (batch, heads, queries, keys).
        causal_mask: of the length; broadcastable to (batch, heads, length, length).
        decoder_mask: of tokens and the padding token: both together.
    """
    known: dict[str, Any] = {"padding_mask": padding_mask, "causal_mask": causal_mask, "decoder_mask": decoder_mask}
    return examine(ComponentUnderTest(padding_mask, **known), MASKS)


LAYER: list[Property] = []
DECODER_LAYER: list[Property] = []


class LayerUnderTest(ComponentUnderTest):
    """A layer under test, and a way to call it that is the same for both kinds: x in, x out."""

    call: nn.Module

    def __init__(self, layer: nn.Module, d_model: int, has_memory: bool) -> None:
        super().__init__(layer, d_model)
        self.memory = self.randn(4, 7, d_model) if has_memory else torch.empty(0)

    def run(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Call the layer on x (batch, length, d_model); the memory is the same for every sentence."""
        memory = [self.memory[:1].expand(x.size(0), -1, -1)] if len(self.memory) else []
        return self(x, *memory, mask=mask)

    def silent(self) -> "LayerUnderTest":
        """A copy whose sub-layers say 0: matrices and their biases are 0, torch's norms are as they start."""
        silent = copy(self)
        silent.call = deepcopy(self.call)
        for module in silent.call.modules():
            if isinstance(module, nn.LayerNorm | nn.RMSNorm):
                module.reset_parameters()
        for parameter in silent.matrices_and_biases():
            nn.init.zeros_(parameter)
        return silent

    def matrices_and_biases(self) -> list[Tensor]:
        """The parameters of all modules that have a matrix: not those of norms."""
        owns = [list(module.parameters(recurse=False)) for module in self.call.modules()]
        return [parameter for own in owns if any(p.dim() > 1 for p in own) for parameter in own]

    def influences(self, mask: Tensor | None) -> tuple[list[float], float]:
        """The moves of outputs by tokens that they may see, and the largest by one that they may not."""
        (x,), seen, most = self.draw((2, 5)), [], 0.0
        before = self.run(x, mask)
        for j in range(5):
            changed = x.clone()
            changed[:, j] = self.randn(2, self.d_model)
            after = self.run(changed, mask)
            for i in range(5):
                moved = max_difference(after[:, i], before[:, i])
                if mask is not None and i != j and not mask[0, 0, i, j]:
                    most = max(most, moved)
                else:
                    seen.append(moved)
        return seen, most


@register_property(LAYER, "self-attention is not used, or its result is overwritten", "dead")
def tokens_hear_each_other(layer: LayerUnderTest) -> Outcome:
    """Without a mask every token moves every output."""
    return layer.more_than_rounding(
        layer.influences(None)[0], "the least that a token moves an output is", "some token does not reach some output"
    )


@register_property(LAYER, "the mask means the opposite, is not used, or is not handed on", "blind")
def mask_is_obeyed(layer: LayerUnderTest) -> Outcome:
    """Under a causal mask no later token moves an output, and every earlier one does."""
    seen, most = layer.influences(ours.causal_mask(5))
    holds, evidence, *_ = layer.more_than_rounding(seen, "allowed ones by")
    return holds and most <= layer.tolerance, f"forbidden tokens move outputs by {layer.describe(most)}, {evidence}"


@register_property(LAYER, "sentences or tokens are mixed: a wrong reshape, or a norm over the wrong axis", "batch")
def order_is_free(layer: LayerUnderTest) -> Outcome:
    """Fewer sentences in another order, their tokens in another order, give the outputs in that order."""
    (x,), rows, order = layer.draw((4, 5)), torch.tensor([2, 0]), torch.tensor([3, 0, 4, 1, 2])
    moved = max_difference(layer.run(x[rows][:, order]), layer.run(x)[rows][:, order])
    return layer.at_most_rounding(moved, "in another order, outputs differ by")


@register_property(LAYER, "a residual connection is missing, or x is added twice")
def input_is_carried_through(layer: LayerUnderTest) -> Outcome:
    """With silent sub-layers the output is x, or its norm; a constant that one of them says is added to x once."""
    silent, width = layer.silent(), (layer.d_model,)
    x, said = (F.layer_norm(layer.randn(*many, *width), width, eps=0) for many in ((2, 5), ()))  # means are 0
    said = said / 2  # too short to cancel x
    with torch.no_grad():
        if max_difference(silent.run(2 * x), 2 * x) <= layer.tolerance:
            return True, "with silent sub-layers the output is the input: pre-norm"
        moved = max_difference(silent.run(2 * x), x)
        for bias in silent.matrices_and_biases():
            if bias.shape == width:  # a sub-layer's last, or one that nobody hears
                bias.copy_(said)
                output = silent.run(x)
                bias.zero_()
                wanted = x, F.layer_norm(x + said, width)
                moved = max(moved, min(max_difference(output, right) for right in wanted))
    if moved < 1e-4:  # two or three norms in a row differ from one by their epsilon
        return True, "with silent sub-layers the output is the norm of the input: post-norm"
    if any(parameter.min() < parameter.max() for parameter in silent.call.parameters()):
        raise NotApplicable("a norm that is not torch's has been trained")
    return False, f"the output differs from the norm of input plus sub-layer by {layer.describe(moved)}"


@register_property(LAYER, "dropout stands after the sum or after the norm, and drops x as well", "dropout-place")
def dropout_before_the_sum(layer: LayerUnderTest) -> Outcome:
    """Where sub-layers say 0 there is nothing to drop: in training, at a rate of one half, nothing changes."""
    silent = layer.silent()
    drops = [module for module in silent.call.modules() if isinstance(module, nn.Dropout)]
    if not drops:
        raise NotApplicable("the layer has no nn.Dropout")
    for module in drops:
        module.p = 0.5
    (x,) = layer.draw((4, 5))
    before = silent.run(x)
    silent.call.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        moved = max_difference(silent.run(x), before)
    return layer.at_most_rounding(moved, "with silent sub-layers, dropout moves outputs by")


@register_property(DECODER_LAYER, "the layer does not attend to the memory, or to its own input instead", "blind")
def memory_is_heard(layer: LayerUnderTest) -> Outcome:
    """Each vector of the memory moves each output, whatever its place."""
    (x,), moves = layer.draw((4, 5)), []
    before = layer(x, layer.memory)
    for j in range(layer.memory.size(1)):
        changed = layer.memory.clone()
        changed[:, j] = layer.randn(4, layer.d_model)
        after = layer(x, changed)
        moves += [max_difference(after[:, i], before[:, i]) for i in range(5)]
    return layer.more_than_rounding(
        moves,
        "the least that a vector of the memory moves an output is",
        "some vector of it does not reach some output",
    )


@register_property(
    DECODER_LAYER, "the memory's mask is not used, inverted, or swapped with the other", "source-padding"
)
def memory_mask_is_obeyed(layer: LayerUnderTest) -> Outcome:
    """A mask that forbids two vectors of the memory gives what the layer gives without them."""
    (x,), mask = layer.draw((4, 5)), (torch.arange(7) < 5).expand(4, 1, 1, 7)
    moved = max_difference(layer(x, layer.memory, memory_mask=mask), layer(x, layer.memory[:, :5]))
    return layer.at_most_rounding(moved, "masking two vectors, and leaving them out, differ by")


def check_encoder_layer(layer: nn.Module, d_model: int) -> Report:
    """Hold an encoder layer to its properties (Vaswani et al. 2017, sections 3.1 and 5.4); one finding for each.

    Args:
        layer: called as layer(x, mask=mask): x is (batch, length, d_model), the mask boolean, True = may attend,
            broadcastable to (batch, heads, length, length), or None. Returns (batch, length, d_model).
        d_model: width of the tokens.
    """
    return examine(LayerUnderTest(layer, d_model, has_memory=False), LAYER)


def check_decoder_layer(layer: nn.Module, d_model: int) -> Report:
    """Hold a decoder layer to its properties (Vaswani et al. 2017, sections 3.1 and 5.4); one finding for each.

    Args:
        layer: called as layer(x, memory), with mask=mask for x, or with memory_mask=mask for the memory: x is
            (batch, target length, d_model), memory (batch, source length, d_model), masks boolean, True = may attend,
            broadcastable to (batch, heads, target length, keys). Returns (batch, target length, d_model).
        d_model: width of the tokens.
    """
    return examine(LayerUnderTest(layer, d_model, has_memory=True), [*LAYER, *DECODER_LAYER])
