# Generated from chapters/06_layers.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 06."""

import torch
from torch import nn

from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.layers import EncoderLayer


def grade_06_2(answer: Answer) -> Checks:
    """The layer is the identity in both modes, and a gradient reaches a matrix of each sub-layer."""
    generator = torch.Generator().manual_seed(0)
    for d_model, length in ((2, 1), (2, 3), (8, 4)):
        layer = EncoderLayer(d_model, 2, 2 * d_model, dropout=0.0, norm_first=True).double()
        for parameter in layer.parameters():
            nn.init.normal_(parameter, generator=generator)
        result = answer(layer)
        yield "it returns the layer that it got", result is layer
        x, direction = (torch.randn(1, length, d_model, generator=generator, dtype=torch.float64) for _ in range(2))
        for mode in (False, True):
            yield "the output is the input", close(result.train(mode)(x), x, 1e-12)
        (result(x) * direction).sum().backward()
        for name, sublayer in (("attention", layer.self_attention), ("feed-forward", layer.feed_forward)):
            matrices = [p for p in sublayer.parameters() if p.dim() == 2]
            reached = any(p.grad is not None and bool(p.grad.any()) for p in matrices)
            yield f"a matrix of the {name} sub-layer gets a gradient", reached
