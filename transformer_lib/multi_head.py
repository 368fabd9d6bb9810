# Generated from chapters/03_multi_head.md: edit it there and `make export`, or here and `make sync`.

"""Multi-head attention: several attentions on the same tokens, as one reshape."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from transformer_lib.attention import check_mask, scaled_dot_product_attention
from transformer_lib.cache import KeysAndValues


class MultiHeadAttention(nn.Module):
    """Attention with several heads (Vaswani et al. 2017, section 3.2.2), for self-, cross- and masked attention.

    Args:
        d_model: width of the tokens, a multiple of `num_heads`.
        num_heads: number of heads; each is d_k = d_model / num_heads wide.
        dropout: probability of dropping an attention weight while training.
        bias: whether the four projections have biases.
        num_groups: number of key and value heads, each shared by as many query heads (Ainslie et al. 2023, section
            2.2); None = one for each query head. A cache holds (batch, groups, length, d_k).
        positions: called as positions(x, offset=…) with the queries and with the keys (batch, heads, length, d_k) of
            self-attention, `offset` being the position of the first one; None = no positions.

    Raises:
        ValueError: `d_model` is not a positive multiple of `num_heads`, or `num_heads` not one of `num_groups`.
    """

    def __init__(
        self, d_model: int, num_heads: int, *, dropout: float = 0.0, bias: bool = True,
        num_groups: int | None = None, positions: Callable[..., Tensor] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        num_groups = num_heads if num_groups is None else num_groups
        if d_model < 1 or num_heads < 1 or d_model % num_heads:
            raise ValueError(f"d_model must be a positive multiple of num_heads; got {d_model} and {num_heads}")
        if num_groups < 1 or num_heads % num_groups:
            raise ValueError(f"num_heads must be a positive multiple of num_groups; got {num_heads} and {num_groups}")
        self.d_model, self.num_heads, self.num_groups, self.dropout = d_model, num_heads, num_groups, dropout
        self.d_k, self.positions = d_model // num_heads, positions
        self.widths = [heads * self.d_k for heads in (num_heads, num_groups, num_groups)]  # of queries, keys, values
        self.in_projection = nn.Linear(d_model, sum(self.widths), bias=bias)  # rows: queries, keys, values
        self.out_projection = nn.Linear(d_model, d_model, bias=bias)
        for weight in (*self.in_projection.weight.split(self.widths), self.out_projection.weight):
            nn.init.xavier_uniform_(weight)
        if bias:
            nn.init.zeros_(self.in_projection.bias)
            nn.init.zeros_(self.out_projection.bias)

    def forward(
        self,
        query: Float[Tensor, "batch n d_model"],
        key: Float[Tensor, "batch m d_model"],
        value: Float[Tensor, "batch m d_model"],
        *,
        mask: Bool[Tensor, "#batch #heads #n #keys"] | None = None,
        is_causal: bool = False,
        cache: KeysAndValues | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "batch n d_model"], Float[Tensor, "batch heads n keys"] | None]:
        """Attend from `query` to `key` and `value`.

        Args:
            query: (batch, query length, d_model).
            key: (batch, key length, d_model).
            value: (batch, key length, d_model).
            mask: boolean, True = may attend, broadcastable to (batch, heads, query length, key length), four
                dimensions. A query that may attend to nothing gets zeros before the output projection.
            is_causal: query i may attend to keys 0 … i; instead of a mask.
            cache: keys and values of earlier calls; the new ones are added, unless it is static and filled.
            need_weights: also return the weights, by the readable formula instead of the fused kernel.

        Returns:
            The output (batch, query length, d_model), and the weights (batch, heads, query length, key length) or None.

        Raises:
            TypeError: the mask is not boolean.
            ValueError: key and value differ in length, the mask does not fit, `is_causal` comes with a mask, a cache
                or two different lengths, or an attention with positions gets other keys than queries.
        """
        if is_causal and (mask is not None or cache is not None):
            raise ValueError("is_causal=True goes neither with a mask nor with a cache: put causality into the mask")
        if self.positions is not None and not (key is query or torch.equal(key, query)):
            raise ValueError("positions are for self-attention: expected equal queries and keys; got others")
        if cache is not None and cache.static and cache.key is not None and cache.value is not None:
            (q,), k, v = self._heads(query, 0, 1), cache.key, cache.value
        else:  # q, k and v are (b, h or g, n or m, d_k)
            if query is key and key is value:
                q, k, v = self._heads(query, 0, 3)
            elif key is value:
                (q,), (k, v) = self._heads(query, 0, 1), self._heads(key, 1, 3)
            else:
                (q,), (k,), (v,) = self._heads(query, 0, 1), self._heads(key, 1, 2), self._heads(value, 2, 3)
            if self.positions is not None:
                offset = 0 if cache is None or cache.key is None else cache.key.size(2)
                q, k = self.positions(q, offset=offset), self.positions(k, offset=offset)
            if cache is not None:
                k, v = cache.update(k, v)  # those in the cache come first
        if k.size(2) != v.size(2):  # a fused kernel may not notice
            raise ValueError(f"keys and values come in pairs; got {k.size(2)} keys and {v.size(2)} values")
        shape = (q.size(0), self.num_heads, q.size(2), k.size(2))  # (b, h, n, m)
        if is_causal and shape[2] != shape[3]:
            raise ValueError(f"is_causal=True needs as many queries as keys; got {shape[2]} and {shape[3]}")
        if mask is not None:
            check_mask(mask, shape)
        heads, weights = self._attend(q, k, v, mask, is_causal, need_weights)  # (b, h, n, d_k), (b, h, n, m)
        return self.out_projection(heads.transpose(1, 2).flatten(2)), weights  # (b, n, h, d_k) -> (b, n, d_model)

    def _heads(
        self, x: Float[Tensor, "batch length d_model"], start: int, stop: int
    ) -> list[Float[Tensor, "batch _ length d_k"]]:
        """Project x by the blocks start … stop of the input projection, and cut each block into heads."""
        if (start, stop) == (0, 3):
            x = self.in_projection(x)
        else:
            rows = slice(sum(self.widths[:start]), sum(self.widths[:stop]))
            bias = None if self.in_projection.bias is None else self.in_projection.bias[rows]
            x = F.linear(x, self.in_projection.weight[rows], bias)
        blocks = x.split_with_sizes(self.widths[start:stop], dim=-1)  # (b, n, width) each
        return [block.unflatten(-1, (-1, self.d_k)).transpose(1, 2) for block in blocks]  # (b, h or g, n, d_k) each

    def _attend(
        self,
        q: Float[Tensor, "batch heads n d_k"],
        k: Float[Tensor, "batch groups m d_k"],
        v: Float[Tensor, "batch groups m d_k"],
        mask: Bool[Tensor, "#batch #heads #n #m"] | None,
        is_causal: bool,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "batch heads n d_k"], Float[Tensor, "batch heads n m"] | None]:
        """What the heads find, and their weights if they are asked for."""
        dropout, sharing = self.dropout if self.training else 0.0, q.size(1) // k.size(1)  # heads for each group
        if not need_weights:
            heads = F.scaled_dot_product_attention(
                q, k, v, mask, dropout_p=dropout, is_causal=is_causal, enable_gqa=sharing > 1
            )
            return heads, None
        if is_causal:
            mask = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device).tril()[None, None]
        if sharing > 1:  # the formula has a key for each head
            k, v = (x.repeat_interleave(sharing, dim=1) for x in (k, v))  # (b, h, m, d_k)
        return scaled_dot_product_attention(q, k, v, mask, dropout=dropout)
