# Generated from chapters/12a_parts.md: edit it there and `make export`, or here and `make sync`.

"""Graders of the exercises on parts by themselves."""

from collections.abc import Callable

import torch
from torch import Tensor

from transformer_lib.exercises import Answer, Checks, close

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def _attention(scale: float, axis: int = 1) -> tuple[Callable[[Tensor, Tensor], Tensor], Attention]:
    """The weights of an attention, and the attention, which refuses values of another width."""

    def weights(query: Tensor, key: Tensor) -> Tensor:
        return (scale * query @ key.T).softmax(dim=axis)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if value.shape != key.shape:
            raise ValueError(f"values must be {tuple(key.shape)}; got {tuple(value.shape)}")
        return weights(query, key) @ value

    return weights, attention


def grade_12a_1(answer: Answer) -> Checks:
    """Right and wrong attentions, with more and with fewer keys than channels."""
    generator = torch.Generator().manual_seed(0)
    for n, m, d in ((1, 1, 1), (2, 2, 2), (3, 2, 4), (2, 5, 3)):
        query, key = (torch.randn(rows, d, generator=generator, dtype=torch.float64) for rows in (n, m))
        for scale, axis in ((d**-0.5, 1), (1.0, 1), (-0.3, 1), (0.5, 0)):
            weights, attention = _attention(scale, axis)
            found = answer(attention, query, key)
            yield (
                f"these are the function's own weights, {n} by {m}, to twelve digits",
                close(found, weights(query, key), 1e-12),
            )
