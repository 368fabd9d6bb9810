# Generated from chapters/06_layers.md: edit it there and `make export`, or here and `make sync`.

"""Encoder and decoder layers: attention, a feed-forward network, residual connections and norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from transformer_lib.cache import KeysAndValues, LayerCache
from transformer_lib.multi_head import MultiHeadAttention

Tokens = Float[Tensor, "batch length d_model"]
Memory = Float[Tensor, "batch n d_model"]
Mask = Bool[Tensor, "#batch #heads #length #keys"]
MemoryMask = Bool[Tensor, "#batch #heads #length #n"]


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between them, for each token by itself (Vaswani et al. 2017, section 3.3).

    Args:
        d_model: width of the tokens.
        d_ff: width between the two maps.
        dropout: probability of dropping an inner channel while training; the paper has none here.
    """

    def __init__(self, d_model: int, d_ff: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)
        for linear in (self.linear1, self.linear2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tokens) -> Tokens:
        """Map (batch, length, d_model) to the same shape."""
        return self.linear2(self.dropout(self.linear1(x).relu()))


class _ResidualLayer(nn.Module):
    """What both kinds of layers share: self-attention, a feed-forward network, and how a sub-layer is added."""

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int, *,
        dropout: float = 0.1, attention_dropout: float = 0.0, norm_first: bool = False,
        attention: Callable[..., MultiHeadAttention] = MultiHeadAttention,
        feed_forward: Callable[[int, int], nn.Module] = FeedForward,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
    ) -> None:  # fmt: skip
        super().__init__()
        self.norm_first = norm_first
        self.dropout = nn.Dropout(dropout)
        self.feed_forward = feed_forward(d_model, d_ff)
        self.feed_forward_norm = norm(d_model)
        self.self_attention = attention(d_model, num_heads, dropout=attention_dropout)
        self.self_attention_norm = norm(d_model)

    def _add(self, x: Tokens, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tokens:
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))


class EncoderLayer(_ResidualLayer):
    """Self-attention, then a feed-forward network (Vaswani et al. 2017, section 3.1).

    Args:
        d_model: width of the tokens, a multiple of `num_heads`.
        num_heads: number of heads.
        d_ff: inner width of the feed-forward network.
        dropout: probability of dropping a channel of what a sub-layer adds, while training.
        attention_dropout: probability of dropping an attention weight, while training.
        norm_first: False = post-norm, as in the paper; True = pre-norm.
        attention: makes the attention, called as `MultiHeadAttention` is: attention(d_model, num_heads, dropout=…).
        feed_forward: makes the feed-forward network: feed_forward(d_model, d_ff).
        norm: makes a norm: norm(d_model).

    Raises:
        ValueError: `d_model` is not a positive multiple of `num_heads`.
    """

    def forward(
        self, x: Tokens, *, mask: Mask | None = None, is_causal: bool = False, cache: KeysAndValues | None = None
    ) -> Tokens:
        """Let the tokens attend to each other, then process each by itself.

        Args:
            x: (batch, length, d_model); with a cache, only the new tokens.
            mask: boolean, True = may attend, broadcastable to (batch, heads, length, length).
            is_causal: token i attends to 0 … i; instead of a mask.
            cache: keys and values of earlier tokens, when the layer is used as a decoder without a memory.

        Returns:
            (batch, length, d_model).
        """
        x = self._add(
            x,
            self.self_attention_norm,
            lambda y: self.self_attention(y, y, y, mask=mask, is_causal=is_causal, cache=cache)[0],  # not the weights
        )
        return self._add(x, self.feed_forward_norm, self.feed_forward)


class DecoderLayer(_ResidualLayer):
    """Masked self-attention, attention to the memory, a feed-forward network (Vaswani et al. 2017, section 3.1).

    The arguments are those of `EncoderLayer`; `cross_attention` makes the attention to the memory.
    """

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int, *, attention_dropout: float = 0.0,
        cross_attention: Callable[..., MultiHeadAttention] = MultiHeadAttention,
        norm: Callable[[int], nn.Module] = nn.LayerNorm, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(d_model, num_heads, d_ff, attention_dropout=attention_dropout, norm=norm, **options)
        self.cross_attention = cross_attention(d_model, num_heads, dropout=attention_dropout)
        self.cross_attention_norm = norm(d_model)

    def forward(
        self, x: Tokens, memory: Memory, *, mask: Mask | None = None, memory_mask: MemoryMask | None = None,
        is_causal: bool = False, cache: LayerCache | None = None,
    ) -> Tokens:  # fmt: skip
        """Let target tokens attend to earlier ones and to the memory.

        Args:
            x: (batch, target length, d_model); with a cache, only the new tokens.
            memory: (batch, source length, d_model), the encoder's output.
            mask: boolean, True = may attend, broadcastable to (batch, heads, target length, target length).
            memory_mask: boolean, broadcastable to (batch, heads, target length, source length).
            is_causal: target token i attends to 0 … i; instead of a mask.
            cache: keys and values of earlier steps.

        Returns:
            (batch, target length, d_model).
        """
        own, other = (None, None) if cache is None else (cache.self_attention, cache.cross_attention)
        if other is not None and other.length:
            memory = memory[:, :0]  # its keys and values are in the cache already
        x = self._add(
            x,
            self.self_attention_norm,
            lambda y: self.self_attention(y, y, y, mask=mask, is_causal=is_causal, cache=own)[0],
        )
        x = self._add(
            x,
            self.cross_attention_norm,
            lambda y: self.cross_attention(y, memory, memory, mask=memory_mask, cache=other)[0],
        )
        return self._add(x, self.feed_forward_norm, self.feed_forward)
