# Generated from chapters/03a_forms.md: edit it there and `make export`, or here and `make sync`.

"""The grader of chapter 03a."""

import torch
from torch import Tensor

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.multi_head import MultiHeadAttention


def _is_like(answer: object, wanted: Tensor) -> bool:
    """True if the answer is a finite tensor of the wanted shape and dtype."""
    if not isinstance(answer, Tensor) or answer.shape != wanted.shape or answer.dtype != wanted.dtype:
        return False
    return bool(answer.isfinite().all())


def grade_03a_1(answer: Answer) -> Checks:
    """With the packed weight the library's class equals a loop over heads."""
    generator = torch.Generator().manual_seed(0)
    for h, d_k in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 2)):
        d_model = h * d_k
        W_Q, W_K, W_V = torch.randint(-3, 4, (3, h, d_model, d_k), generator=generator).double()
        x = torch.randn(1, 3, d_model, generator=generator, dtype=torch.float64)
        layer = MultiHeadAttention(d_model, h, bias=False).double()
        packed = answer(W_Q, W_K, W_V)
        yield "it is a tensor of shape (3 * d_model, d_model)", _is_like(packed, layer.in_projection.weight)
        with torch.no_grad():
            layer.in_projection.weight.copy_(packed)
            layer.out_projection.weight.copy_(torch.eye(d_model))
            heads = [scaled_dot_product_attention(x @ q, x @ k, x @ v)[0] for q, k, v in zip(W_Q, W_K, W_V)]
            yield "the class equals the loop over heads", close(layer(x, x, x)[0], torch.cat(heads, dim=-1))
