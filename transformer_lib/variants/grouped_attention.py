# Generated from chapters/15b_cache.md: edit it there and `make export`, or here and `make sync`.

"""Attention whose heads share keys and values in groups, with positions that turn queries and keys."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.cache import KeysAndValues
from transformer_lib.multi_head import (
    Keys,
    Mask,
    MultiHeadAttention,
    Queries,
    Weights,
    check_arguments,
    merge_heads,
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

    def forward(
        self, query: Queries, key: Keys, value: Keys, *, mask: Mask | None = None, is_causal: bool = False,
        cache: KeysAndValues | None = None, need_weights: bool = False,
    ) -> tuple[Queries, Weights | None]:  # fmt: skip
        """Attend as `MultiHeadAttention` does; with positions, only from a sequence to itself."""
        if self.positions is not None and not (key is query or torch.equal(key, query)):
            raise ValueError("positions are for self-attention: expected equal queries and keys; got others")
        check_arguments(query, key, value, self.num_heads, mask, is_causal, cache)
        heads, groups = self.num_heads, self.num_groups
        q, k, v = map(split_heads, self.project(query, key, value), (heads, groups, groups))  # (b, h or g, n, d_k)
        if self.positions is not None:
            offset = 0 if cache is None else cache.length
            q, k = self.positions(q, offset=offset), self.positions(k, offset=offset)
        if cache is not None:
            k, v = cache.update(k, v)
        dropout = self.dropout if self.training else 0.0
        if need_weights:
            if is_causal:
                mask = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device).tril()[None, None]
            k, v = (x.repeat_interleave(heads // k.size(1), dim=1) for x in (k, v))  # a key for each head
            found, weights = scaled_dot_product_attention(q, k, v, mask, dropout=dropout)
        else:
            found = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, enable_gqa=k.size(1) < heads)
            weights = None
        return self.out_projection(merge_heads(found)), weights
