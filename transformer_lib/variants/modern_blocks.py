# Generated from chapters/15a_layer.md: edit it there and `make export`, or here and `make sync`.

"""Components newer than 2017: rotary positions and a gated feed-forward network."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


def rotary(
    x: Float[Tensor, "*batch n d_k"], *, offset: int = 0, base: float = 10000.0
) -> Float[Tensor, "*batch n d_k"]:
    """Turn each pair of channels (2i, 2i + 1) by its position times base^(-2i / d_k) (Su et al. 2024, section 3.2.2).

    Args:
        x: queries or keys (…, length, d_k), d_k even.
        offset: the position of the first one.
        base: the slowest pair turns once in 2π · base^(1 - 2 / d_k) positions.

    Returns:
        (…, length, d_k), of the same lengths; a query's product with a key depends on the distance of their positions.

    Raises:
        ValueError: d_k is odd.
    """
    d_k = x.size(-1)
    if d_k % 2:
        raise ValueError(f"rotary positions turn pairs of channels; got d_k = {d_k}")
    position = torch.arange(offset, offset + x.size(-2), dtype=torch.float64, device=x.device)
    angle = position[:, None] * base ** (-torch.arange(0, d_k, 2, dtype=torch.float64, device=x.device) / d_k)
    cosine, sine = angle.cos().to(x.dtype), angle.sin().to(x.dtype)  # (n, d_k / 2)
    even, odd = x[..., 0::2], x[..., 1::2]  # (…, n, d_k / 2)
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1).flatten(-2)


class SwiGLU(nn.Module):
    """A gated feed-forward network without biases (Shazeer 2020, section 2).

    Args:
        d_model: width of the tokens.
        d_ff: inner width; two thirds of a `FeedForward`'s give as many parameters.
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate, self.linear1 = nn.Linear(d_model, d_ff, bias=False), nn.Linear(d_model, d_ff, bias=False)
        self.linear2 = nn.Linear(d_ff, d_model, bias=False)
        for linear in (self.gate, self.linear1, self.linear2):
            nn.init.xavier_uniform_(linear.weight)

    def forward(self, x: Float[Tensor, "batch n d_model"]) -> Float[Tensor, "batch n d_model"]:
        """Map (batch, length, d_model) to the same shape."""
        return self.linear2(F.silu(self.gate(x)) * self.linear1(x))
