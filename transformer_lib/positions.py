# Generated from chapters/04_positions.md: edit it there and `make export`, or here and `make sync`.

"""Positional encodings: what tells a token where it stands."""

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn


def sinusoidal_table(length: int, d_model: int, *, start: int = 0) -> Float64[Tensor, "{length} {d_model}"]:
    """Sines and cosines of each position at speeds from 1 to about 1/10000 (Vaswani et al. 2017, section 3.5).

    Args:
        length: number of positions.
        d_model: number of channels; may be odd.
        start: the first position.

    Returns:
        (length, d_model), float64, values between -1 and 1; sines in even channels, cosines in odd ones.
    """
    position = torch.arange(start, start + length, dtype=torch.float64)
    speed = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (ceil(d_model / 2),)
    angle = position[:, None] * speed  # (length, ceil(d_model / 2))
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :d_model]  # (length, d_model)


class PositionalEncoding(nn.Module):
    """Adds row `offset + i` of a table to token i; `max_len` is the longest sequence."""

    table: Tensor

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.d_model, self.max_len = d_model, max_len

    def forward(
        self, x: Float[Tensor, "batch length d_model"], *, offset: int = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """Add the positions offset … offset + length - 1.

        Args:
            x: (batch, length, d_model).
            offset: the position of the first token; more than 0 when earlier tokens are cached.

        Returns:
            (batch, length, d_model), in the dtype of x.

        Raises:
            ValueError: x has another shape, the offset is negative, or a token stands beyond `max_len`.
        """
        if x.dim() != 3 or x.size(-1) != self.d_model:
            raise ValueError(f"expected (batch, length, d_model = {self.d_model}); got shape {tuple(x.shape)}")
        if offset < 0:
            raise ValueError(f"offset must be at least 0; got {offset}")
        if (end := offset + x.size(1)) > self.max_len:
            raise ValueError(f"the sequence has {end} positions, but max_len is {self.max_len}")
        rows = self.table[offset:end]  # (length, d_model)
        if end > len(self.table):  # of a sinusoidal one, which keeps its first rows only
            rows = sinusoidal_table(x.size(1), self.d_model, start=offset).float().to(self.table)
        return x + rows.to(x.dtype)


class SinusoidalPositionalEncoding(PositionalEncoding):
    """Adds the sinusoidal table to tokens: nothing to learn (Vaswani et al. 2017, section 3.5).

    The table is a buffer, so it moves with the model. It is not stored, so a checkpoint does not depend on `max_len`.
    Rows from 8192 on are made when they are asked for, so a large `max_len` takes no memory.

    Args:
        d_model: width of the tokens.
        max_len: the longest sequence.
    """

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__(d_model, max_len)
        kept = min(max_len, 8192)
        self.register_buffer("table", sinusoidal_table(kept, d_model).float(), persistent=False)


class LearnedPositionalEncoding(PositionalEncoding):
    """Adds a learned vector for each position (Gehring et al. 2017, section 3.1).

    Args:
        d_model: width of the tokens.
        max_len: the longest sequence; positions never seen in training get no gradient, and stay noise.
    """

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__(d_model, max_len)
        self.table = nn.Parameter(torch.randn(max_len, d_model) * d_model**-0.5)
