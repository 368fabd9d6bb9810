# Generated from chapters/13_variants.md: edit the chapter, not this file, then run `make export`.

"""Bricks newer than 2017: rotary positions, a gated feed-forward network, heads that share keys and values."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from transformer_lib.cache import KeysAndValues
from transformer_lib.multi_head import MultiHeadAttention


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


class GroupedQueryAttention(MultiHeadAttention):
    """Self-attention whose query heads share keys and values in groups (Ainslie et al. 2023, section 2.2).

    It is called like `MultiHeadAttention`, with one tensor as query, key and value; a cache holds (batch, groups,
    length, d_k).

    Args:
        d_model: width of the tokens, a multiple of `num_heads`.
        num_heads: number of query heads, a multiple of `num_groups`.
        num_groups: number of key and value heads; 1 is multi-query attention, `num_heads` is the ordinary one.
        base: of rotary positions, for which d_model / num_heads must be even; None = no positions.
        dropout: probability of dropping an attention weight while training.

    Raises:
        ValueError: a number does not divide as it should; when called: key or value is another tensor than query.
    """

    def __init__(
        self, d_model: int, num_heads: int, num_groups: int, *, base: float | None = 10000.0, dropout: float = 0.0
    ) -> None:
        super().__init__(d_model, num_heads, dropout=dropout, bias=False)
        if num_groups < 1 or num_heads % num_groups:
            raise ValueError(f"num_heads must be a positive multiple of num_groups; got {num_heads} and {num_groups}")
        if base is not None and d_model // num_heads % 2:
            raise ValueError(f"rotary positions need an even d_model / num_heads; got {d_model} / {num_heads}")
        self.num_groups, self.base = num_groups, base
        del self.in_projection  # three of different sizes instead
        self.query_projection = nn.Linear(d_model, d_model, bias=False)
        self.key_projection, self.value_projection = (
            nn.Linear(d_model, num_groups * (d_model // num_heads), bias=False) for _ in range(2)
        )
        for linear in (self.query_projection, self.key_projection, self.value_projection):
            nn.init.xavier_uniform_(linear.weight)

    def _project(
        self,
        query: Float[Tensor, "batch n d_model"],
        key: Float[Tensor, "batch m d_model"],
        value: Float[Tensor, "batch m d_model"],
        cache: KeysAndValues | None,
    ) -> tuple[
        Float[Tensor, "batch heads n d_k"],
        Float[Tensor, "batch groups keys d_k"],
        Float[Tensor, "batch groups keys d_k"],
    ]:
        if key is not query or value is not query:
            raise ValueError("grouped-query attention is self-attention: query, key and value must be one tensor")
        q = self.query_projection(query).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (b, h, n, d_k)
        k = self.key_projection(query).unflatten(-1, (self.num_groups, -1)).transpose(1, 2)  # (b, g, n, d_k)
        v = self.value_projection(query).unflatten(-1, (self.num_groups, -1)).transpose(1, 2)  # (b, g, n, d_k)
        if self.base is not None:
            offset = 0 if cache is None or cache.key is None else cache.key.size(2)
            q, k = rotary(q, offset=offset, base=self.base), rotary(k, offset=offset, base=self.base)
        return (q, k, v) if cache is None else (q, *cache.update(k, v))

    def _attend(
        self,
        q: Float[Tensor, "batch heads n d_k"],
        k: Float[Tensor, "batch groups m d_k"],
        v: Float[Tensor, "batch groups m d_k"],
        mask: Bool[Tensor, "#batch #heads #n #m"] | None,
        is_causal: bool,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "batch heads n d_k"], Float[Tensor, "batch heads n m"] | None]:
        if need_weights:  # the readable formula has a key for each head
            k, v = (x.repeat_interleave(self.num_heads // self.num_groups, dim=1) for x in (k, v))  # (b, h, m, d_k)
            return super()._attend(q, k, v, mask, is_causal, need_weights)
        dropout, shared = self.dropout if self.training else 0.0, self.num_groups < self.num_heads
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, enable_gqa=shared), None
