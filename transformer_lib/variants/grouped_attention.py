# Generated from chapters/15b_cache.md: edit it there and `make export`, or here and `make sync`.

"""Attention whose heads share keys and values in groups, with positions that turn queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.multi_head import (
    KeyHeads,
    Keys,
    Mask,
    MultiHeadAttention,
    NewHeads,
    Queries,
    QueryHeads,
    Weights,
    split_heads,
)


class GroupedQueryAttention(MultiHeadAttention):
    """Multi-head attention whose heads share keys and values in groups (Ainslie et al. 2023, section 2.2).

    Args:
        d_model: width of the tokens, a multiple of `num_heads`.
        num_heads: number of heads.
        dropout: probability of dropping an attention weight while training.
        bias: whether the four projections have biases.
        num_groups: number of key and value heads, each shared by as many query heads; None = one for each query head.
            A cache holds (batch, groups, length, d_k).
        positions: called as positions(x, offset=…) with the queries and with the keys (batch, heads, length, d_k) of
            self-attention, `offset` being the position of the first one; None = no positions.

    Raises:
        ValueError: `d_model` is not a positive multiple of `num_heads`, or `num_heads` not one of `num_groups`.
    """

    def __init__(
        self, d_model: int, num_heads: int, *, dropout: float = 0.0, bias: bool = True,
        num_groups: int | None = None, positions: Callable[..., Tensor] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(d_model, num_heads, dropout=dropout, bias=bias)
        self.num_groups, self.positions = num_heads if num_groups is None else num_groups, positions
        if self.num_groups < 1 or num_heads % self.num_groups:
            raise ValueError(f"num_heads must be a positive multiple of num_groups; got {num_heads} and {num_groups}")
        if self.num_groups < num_heads:
            self.widths = [heads * self.d_k for heads in (num_heads, self.num_groups, self.num_groups)]
            self.in_projection = nn.Linear(d_model, sum(self.widths), bias=bias)
            for weight in self.in_projection.weight.split(self.widths):
                nn.init.xavier_uniform_(weight)
            if bias:
                nn.init.zeros_(self.in_projection.bias)

    def forward(self, query: Queries, key: Keys, value: Keys, **options: Any) -> tuple[Queries, Weights | None]:
        """Attend as `MultiHeadAttention` does; with positions, only from a sequence to itself."""
        if self.positions is not None and not (key is query or torch.equal(key, query)):
            raise ValueError("positions are for self-attention: expected equal queries and keys; got others")
        return super().forward(query, key, value, **options)

    def _heads(self, query: Queries, key: Keys, value: Keys, offset: int) -> tuple[QueryHeads, NewHeads, NewHeads]:
        counts = self.num_heads, self.num_groups, self.num_groups
        q, k, v = map(split_heads, self.project(query, key, value), counts)  # (b, h or g, n, d_k)
        if self.positions is not None:
            q, k = self.positions(q, offset=offset), self.positions(k, offset=offset)
        return q, k, v

    def _attend(
        self, q: QueryHeads, k: KeyHeads, v: KeyHeads, mask: Mask | None, is_causal: bool, need_weights: bool
    ) -> tuple[QueryHeads, Weights | None]:
        if k.size(1) < self.num_heads and need_weights:
            k, v = (x.repeat_interleave(self.num_heads // k.size(1), dim=1) for x in (k, v))  # a key for each head
        if k.size(1) == self.num_heads:
            return super()._attend(q, k, v, mask, is_causal, need_weights)
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, enable_gqa=True), None
