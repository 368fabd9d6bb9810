# Generated from chapters/03c_two_heads.md: edit it there and `make export`, or here and `make sync`.

"""The grader of chapter 03c."""

import torch
from torch import Tensor

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.exercises import Answer, Checks


def _is_like(answer: object, wanted: Tensor) -> bool:
    """True if the answer is a finite tensor of the wanted shape and dtype."""
    if not isinstance(answer, Tensor) or answer.shape != wanted.shape or answer.dtype != wanted.dtype:
        return False
    return bool(answer.isfinite().all())


def grade_03c_1(answer: Answer) -> Checks:
    """Token i gives more than 0.99 of its weight to token i - 1."""
    for n in range(2, 33):
        W_Q, W_K = answer(n)
        wanted = torch.zeros(n, 2, dtype=torch.float64)
        yield "both are (n, 2), of float64 and finite", _is_like(W_Q, wanted) and _is_like(W_K, wanted)
        _, weights = scaled_dot_product_attention(W_Q, W_K, torch.eye(n, dtype=torch.float64))
        back = weights.diagonal(-1)  # token i at token i - 1
        i = int(back.argmin()) + 1
        yield f"token {i} gives more than 0.99 to token {i - 1}, not {float(back[i - 1]):.4f}", bool(back.min() > 0.99)
