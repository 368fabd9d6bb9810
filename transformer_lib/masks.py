# Generated from chapters/05_masks.md: edit it there and `make export`, or here and `make sync`.

"""Masks: boolean, True = may attend, broadcastable to (batch, heads, query length, key length)."""

import torch
from jaxtyping import Bool, Integer
from torch import Tensor


def padding_mask(tokens: Integer[Tensor, "batch length"], pad_id: int) -> Bool[Tensor, "batch 1 1 length"]:
    """Let every query attend to every real token.

    Args:
        tokens: (batch, length), token ids.
        pad_id: the id of the padding token.

    Returns:
        (batch, 1, 1, length), boolean, True where the token is not padding.

    Raises:
        ValueError: the tokens do not have two dimensions, or are not integers.
    """
    if tokens.dim() != 2 or tokens.dtype == torch.bool or tokens.is_floating_point() or tokens.is_complex():
        raise ValueError(f"expected integer token ids (batch, length); got {tokens.dtype} {tuple(tokens.shape)}")
    return (tokens != pad_id)[:, None, None, :]


def causal_mask(
    length: int, *, start: int = 0, device: torch.device | str | None = None
) -> Bool[Tensor, "1 1 {length-start} {length}"]:
    """Let query i attend to keys 0 … i (Vaswani et al. 2017, section 3.2.3).

    Args:
        length: number of keys.
        start: the position of the first query; more than 0 when the keys before it are cached.
        device: where the mask is made.

    Returns:
        (1, 1, length - start, length), boolean, True on and below the diagonal.
    """
    return torch.ones(1, 1, length - start, length, dtype=torch.bool, device=device).tril(diagonal=start)


def decoder_mask(tokens: Integer[Tensor, "batch length"], pad_id: int) -> Bool[Tensor, "batch 1 length length"]:
    """Let query i attend to the real tokens among 0 … i: causal and padding together.

    Args:
        tokens: (batch, length), the decoder's input.
        pad_id: the id of the padding token.

    Returns:
        (batch, 1, length, length), boolean.

    Raises:
        ValueError: the tokens do not have two dimensions, or are not integers.
    """
    return padding_mask(tokens, pad_id) & causal_mask(tokens.size(1), device=tokens.device)
