# Generated from chapters/08b_parts.md: edit the chapter, not this file, then run `make export`.

"""Properties of positional encodings and of masks, held to this book's own."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib import masks as ours
from transformer_lib.checks.components import TOLERANCE, Part, apart, shown
from transformer_lib.checks.report import NotApplicable, Outcome, Property, Report, examine, holds_for
from transformer_lib.checks.subject import plain_tensors
from transformer_lib.positions import sinusoidal_table

POSITIONS: list[Property] = []


@holds_for(POSITIONS, "tokens are scaled, doubled or mixed on the way", "doubled")
def only_positions_are_added(layer: Part) -> Outcome:
    """What is added does not depend on the tokens, on the sentence, or on how many tokens follow."""
    d = layer.known["d_model"]
    x, other = layer.randn(2, 6, d), layer.randn(2, 6, d)
    table = layer(x) - x
    moved = max(apart(layer(other) - other, table), apart(table[1], table[0]))
    moved = max(moved, apart(layer(x[:, :4]) - x[:, :4], table[:, :4]))
    return moved <= TOLERANCE, f"what is added differs between tokens by {shown(moved)}"


@holds_for(POSITIONS, "the table is constant along the positions", "positions")
def positions_differ(layer: Part) -> Outcome:
    """No two of twelve positions get the same vector."""
    zeros = torch.zeros(1, 12, layer.known["d_model"]).double()
    table = layer(zeros)[0]
    nearest = (table[:, None] - table[None]).abs().amax(dim=-1).fill_diagonal_(math.inf).min().item()
    return nearest > 1e-6, f"the two nearest of twelve positions differ by {nearest:.2g}"


@holds_for(POSITIONS, "sines and cosines stand elsewhere, or the speeds are others", "positions")
def agrees_with_the_table(layer: Part) -> Outcome:
    """It adds this book's sinusoidal table, up to `max_len`, as far as float32 holds it."""
    if not layer.known["sinusoidal"]:
        raise NotApplicable("the table is learned, or of another kind")
    length, d = layer.known["max_len"] or 12, layer.known["d_model"]
    places = torch.arange(1, length + 1)[:, None]  # an angle in float32 is off in proportion to its position
    moved = apart(layer(torch.zeros(1, length, d).double())[0] / places, sinusoidal_table(length, d) / places)
    return (
        moved < 1e-6,
        f"it differs from the table, per place, by {'less than 1e-06' if moved < 1e-6 else shown(moved)}",
    )


@holds_for(POSITIONS, "the table is a plain attribute; register_buffer makes it move with the module", "buffer")
def table_moves_along(layer: Part) -> Outcome:
    """Nothing is a plain tensor, and tokens keep their dtype."""
    plain = plain_tensors(layer.call) if isinstance(layer.call, nn.Module) else []
    if plain:
        return False, f"plain tensors: {', '.join(plain[:3])}"
    for dtype in (torch.bfloat16, torch.float16):
        module = deepcopy(layer.call).to(dtype) if isinstance(layer.call, nn.Module) else layer.call
        answer = module(torch.zeros(1, 3, layer.known["d_model"], dtype=dtype)).dtype
        if answer != dtype:
            return False, f"{dtype} goes in, {answer} comes out"
    return True, "every tensor is a parameter or a buffer, and tokens keep their dtype"


@holds_for(POSITIONS, "a sequence beyond max_len is cut or wrapped without a word", "too-long")
def too_many_positions_raise(layer: Part) -> Outcome:
    """A sequence longer than `max_len` is refused."""
    length, d = layer.known["max_len"], layer.known["d_model"]
    if length is None:
        raise NotApplicable("no max_len was given")
    try:
        layer(torch.zeros(1, length + 1, d).double())
    except Exception:
        return True, f"{length + 1} positions are refused"
    return False, f"{length + 1} positions are accepted, though max_len is {length}"


def check_positional_encoding(
    layer: Callable[..., Any], d_model: int, *, sinusoidal: bool = True, max_len: int | None = None
) -> Report:
    """Hold a positional encoding to its properties (Vaswani et al. 2017, section 3.5).

    Args:
        layer: called as layer(x) with (batch, length, d_model); returns x plus the positions. At least 12 positions.
        d_model: width of the tokens.
        sinusoidal: whether it should be the paper's table.
        max_len: the longest sequence, if there is one.

    Returns:
        One finding for each property.
    """
    return examine(Part(layer, d_model=d_model, sinusoidal=sinusoidal, max_len=max_len), POSITIONS)


MASKS: list[Property] = []


def _same(name: str, mask: Any, wanted: Tensor) -> str:
    """What is wrong with a mask, in words; empty if nothing is."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        return f"{name} must be boolean; got {getattr(mask, 'dtype', type(mask).__name__)}"
    if mask.dim() != 4:
        return f"{name} must have four dimensions; got {tuple(mask.shape)}"
    try:
        cells = (mask.expand(wanted.shape) != wanted).sum().item()
    except RuntimeError:
        return f"{name} {tuple(mask.shape)} does not stretch to {tuple(wanted.shape)}"
    return f"{name}: {cells} of {wanted.numel()} cells are wrong" if cells else ""


def _right(name: str, given: Callable[..., Any], wanted: Callable[..., Tensor], calls: list[tuple]) -> Outcome:
    """Whether two functions give the same mask in every call, for four sentences and two heads."""
    for call in calls:
        mask = wanted(*call)
        if wrong := _same(name, given(*call), mask.expand(4, 2, mask.size(-1), mask.size(-1))):
            return False, wrong
    return True, f"{name} is right in every cell"


def _sentences(pad_id: int) -> tuple[Tensor, int]:
    rows = torch.tensor([[5, 6, 7, 8, 2], [5, -1, 7, -1, -1], [-1, -1, 5, 6, 7], [-1, -1, -1, -1, -1]])
    return torch.where(rows < 0, pad_id, rows), pad_id  # padding on the right, within, on the left, everywhere


@holds_for(MASKS, "the padding mask is inverted, or padding is looked for under a fixed number", "blind")
def padding_is_hidden(masks: Part) -> Outcome:
    """Keys that are padding are forbidden to every query, wherever they stand, and whatever their number is."""
    calls = [_sentences(0), _sentences(3)]
    return _right("the padding mask", masks.known["padding_mask"], ours.padding_mask, calls)


@holds_for(MASKS, "the causal mask is inverted, transposed, or without its diagonal", "causal")
def the_future_is_hidden(masks: Part) -> Outcome:
    """Query i may attend to keys 0 … i."""
    return _right("the causal mask", masks.known["causal_mask"], ours.causal_mask, [(1,), (2,), (5,)])


@holds_for(MASKS, "the two masks are united where allowed cells intersect", "target-padding")
def both_are_combined(masks: Part) -> Outcome:
    """The decoder's mask allows what both masks allow."""
    if masks.known["decoder_mask"] is None:
        raise NotApplicable("no decoder_mask was given")
    calls = [_sentences(0), _sentences(3)]
    return _right("the decoder's mask", masks.known["decoder_mask"], ours.decoder_mask, calls)


def check_masks(
    padding_mask: Callable[[Tensor, int], Tensor],
    causal_mask: Callable[[int], Tensor],
    decoder_mask: Callable[[Tensor, int], Tensor] | None = None,
) -> Report:
    """Hold three mask functions to this book's convention: boolean, True = may attend, four dimensions.

    Args:
        padding_mask: of tokens (batch, length) and the padding token; broadcastable to (batch, heads, queries, keys).
        causal_mask: of the length; broadcastable to (batch, heads, length, length).
        decoder_mask: of tokens and the padding token: both together.

    Returns:
        One finding for each property.
    """
    known = {"padding_mask": padding_mask, "causal_mask": causal_mask, "decoder_mask": decoder_mask}
    return examine(Part(padding_mask, **known), MASKS)
