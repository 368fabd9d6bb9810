# Generated from chapters/03_multi_head.md: edit it there and `make export`, or here and `make sync`.

"""The grader of chapter 03."""

import torch

from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.multi_head import MultiHeadAttention


def grade_03_3(answer: Answer) -> Checks:
    """The layer with the new bias alone equals the layer with both old ones."""
    generator = torch.Generator().manual_seed(0)
    for h, d_k in ((1, 1), (1, 2), (2, 1), (2, 2), (2, 4)):
        d_model = h * d_k
        layer = MultiHeadAttention(d_model, h).double()
        W_O = torch.randn(d_model, d_model, generator=generator, dtype=torch.float64).round(decimals=1)
        b_V, b_O = torch.randn(2, d_model, generator=generator, dtype=torch.float64).round(decimals=1)
        x = torch.randn(1, 3, d_model, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            layer.out_projection.weight.copy_(W_O.T)
            layer.out_projection.bias.copy_(b_O)
            layer.in_projection.bias[2 * d_model :] = b_V
            expected = layer(x, x, x)[0]
            bias = answer(W_O, b_V, b_O)
            layer.in_projection.bias[2 * d_model :] = 0
            layer.out_projection.bias.zero_()
            yield "the new bias is shaped like the old one", isinstance(bias, torch.Tensor) and bias.shape == b_O.shape
            yield "the output stays the same", close(layer(x, x, x)[0] + bias, expected)
