# Generated from chapters/03_multi_head.md: edit it there and `make export`, or here and `make sync`.

"""Multi-head attention: several attentions on the same tokens, as one reshape."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from transformer_lib.attention import check_mask, scaled_dot_product_attention
from transformer_lib.cache import KeysAndValues
from transformer_lib.masks import causal_mask

Tokens = Float[Tensor, "batch length d_model"]
Heads = Float[Tensor, "batch heads length d_k"]
Queries = Float[Tensor, "batch n_q d_model"]
Keys = Float[Tensor, "batch n_k d_model"]  # and values
QueryHeads = Float[Tensor, "batch heads n_q d_k"]
NewHeads = Float[Tensor, "batch groups n_k d_k"]  # keys and values; a group may serve several heads
KeyHeads = Float[Tensor, "batch groups n_all d_k"]  # with those of a cache
Mask = Bool[Tensor, "#batch #heads #n_q #n_all"]
Weights = Float[Tensor, "batch heads n_q n_all"]


def check_arguments(
    query: Queries, key: Keys, value: Keys, num_heads: int, mask: Mask | None, is_causal: bool,
    cache: KeysAndValues | None,
) -> None:  # fmt: skip
    """Refuse arguments of `MultiHeadAttention.forward` that do not fit together.

    Raises:
        TypeError: the mask is not boolean.
        ValueError: key and value differ in length, the mask does not fit, or `is_causal` comes with a mask, a cache or
            two different lengths.
    """
    queries, keys, values = query.size(1), key.size(1), value.size(1)
    if is_causal and (mask is not None or cache is not None):
        raise ValueError("is_causal=True goes neither with a mask nor with a cache: put causality into the mask")
    if keys != values:  # a fused kernel may not notice
        raise ValueError(f"keys and values come in pairs; got {keys} keys and {values} values")
    if is_causal and queries != keys:
        raise ValueError(f"is_causal=True needs as many queries as keys; got {queries} and {keys}")
    if mask is not None:
        check_mask(mask, (query.size(0), num_heads, queries, keys + (0 if cache is None else cache.length)))


def split_heads(x: Tokens, num_heads: int) -> Heads:
    """Cut the vector of each token into heads, and move the heads next to the batch."""
    return x.unflatten(2, (num_heads, -1)).transpose(1, 2)  # (b, n, d_model) -> (b, n, h, d_k) -> (b, h, n, d_k)


def merge_heads(x: Heads) -> Tokens:
    """Put what the heads found side by side again."""
    return x.transpose(1, 2).flatten(2)  # (b, h, n, d_k) -> (b, n, h, d_k) -> (b, n, d_model)


class MultiHeadAttention(nn.Module):
    """Attention with several heads (Vaswani et al. 2017, section 3.2.2), for self-, cross- and masked attention.

    Args:
        d_model: width of the tokens, a multiple of `num_heads`.
        num_heads: number of heads; each is d_k = d_model / num_heads wide.
        dropout: probability of dropping an attention weight while training.
        bias: whether the four projections have biases.

    Raises:
        ValueError: `d_model` is not a positive multiple of `num_heads`.
    """

    def __init__(self, d_model: int, num_heads: int, *, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        if d_model < 1 or num_heads < 1 or d_model % num_heads:
            raise ValueError(f"d_model must be a positive multiple of num_heads; got {d_model} and {num_heads}")
        self.d_model, self.num_heads, self.d_k, self.dropout = d_model, num_heads, d_model // num_heads, dropout
        self.widths = [d_model, d_model, d_model]  # the rows of in_projection: for queries, for keys, for values
        self.in_projection = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.out_projection = nn.Linear(d_model, d_model, bias=bias)
        for weight in (*self.in_projection.weight.split(self.widths), self.out_projection.weight):
            nn.init.xavier_uniform_(weight)
        if bias:
            nn.init.zeros_(self.in_projection.bias)
            nn.init.zeros_(self.out_projection.bias)

    def project(self, query: Queries, key: Keys, value: Keys) -> tuple[Float[Tensor, "batch _ _"], ...]:
        """Make the queries, keys and values of all heads, each (batch, length, width)."""
        if query is key and key is value:  # self-attention: one product makes all three
            return self.in_projection(query).split(self.widths, dim=-1)
        weights = self.in_projection.weight.split(self.widths)
        biases = [None] * 3 if self.in_projection.bias is None else self.in_projection.bias.split(self.widths)
        if not key.size(1):  # there are none, or all are in a cache already
            q = F.linear(query, weights[0], biases[0])
            return q, *(q.new_empty(*x.shape[:2], width) for x, width in zip((key, value), self.widths[1:]))
        return tuple(F.linear(x, W, b) for x, W, b in zip((query, key, value), weights, biases))

    def forward(
        self, query: Queries, key: Keys, value: Keys, *, mask: Mask | None = None, is_causal: bool = False,
        cache: KeysAndValues | None = None, need_weights: bool = False,
    ) -> tuple[Queries, Weights | None]:  # fmt: skip
        """Attend from `query` to `key` and `value`.

        Args:
            query: (batch, query length, d_model).
            key: (batch, key length, d_model).
            value: (batch, key length, d_model).
            mask: boolean, True = may attend, broadcastable to (batch, heads, query length, key length), four
                dimensions. A query that may attend to nothing gets zeros before the output projection.
            is_causal: query i may attend to the keys up to i; instead of a mask.
            cache: keys and values of earlier calls; the new ones are added.
            need_weights: also return the weights, by the readable formula instead of the fused kernel.

        Returns:
            The output (batch, query length, d_model), and the weights (batch, heads, query length, key length) or None.

        Raises:
            TypeError: the mask is not boolean.
            ValueError: the arguments do not fit together (`check_arguments`).
        """
        check_arguments(query, key, value, self.num_heads, mask, is_causal, cache)
        q, k, v = self._heads(query, key, value, 0 if cache is None else cache.length)
        if cache is not None:
            k, v = cache.update(k, v)  # those of earlier calls come first
        found, weights = self._attend(q, k, v, mask, is_causal, need_weights)
        return self.out_projection(merge_heads(found)), weights

    def _heads(self, query: Queries, key: Keys, value: Keys, offset: int) -> tuple[QueryHeads, NewHeads, NewHeads]:
        """The queries, keys and values of each head; `offset` is the position of the first one."""
        q, k, v = (split_heads(x, self.num_heads) for x in self.project(query, key, value))
        return q, k, v

    def _attend(
        self, q: QueryHeads, k: KeyHeads, v: KeyHeads, mask: Mask | None, is_causal: bool, need_weights: bool
    ) -> tuple[QueryHeads, Weights | None]:
        """What each head finds, and the weights if they are needed."""
        dropout = self.dropout if self.training else 0.0
        if not need_weights:  # the same in one fused operation
            return F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal), None
        if is_causal:
            mask = causal_mask(q.size(2), device=q.device)
        return scaled_dot_product_attention(q, k, v, mask, dropout=dropout)
