# Generated from chapters/11_decoding.md: edit the chapter, not this file, then run `make export`.


# chapters/11_decoding.md: A step, written out
"""Decoder steps: two ways to the hidden states of the newest tokens, through the model's modules or written out."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer_lib.cache import KeyValueCache
from transformer_lib.layers import DecoderLayer, EncoderLayer, FeedForward
from transformer_lib.masks import padding_mask
from transformer_lib.model import Decoder, Encoder, Transformer
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.positions import SinusoidalPositionalEncoding


# chapters/11_decoding.md: A step, written out
class Steps(Protocol):
    """Beginnings of translations, one a row. The rows of a sentence stand side by side, equally many for each."""

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows d_model"]:
        """Make each row longer by its token; give the hidden states that predict the next ones."""

    def project(self, hidden: Float[Tensor, "some d_model"]) -> Float[Tensor, "some vocabulary"]:
        """Give the logits, in a tensor that the caller may change and that the next call overwrites."""

    def select(self, rows: Int[Tensor, " new"], sentences: Int[Tensor, " fewer"] | None) -> None:
        """Make row i what row rows[i] was; keep only these of the sentences (None: all)."""


class ModuleSteps:
    """Steps of any model, through its own `decode`: with a cache, or all tokens anew.

    Args:
        model: the translator.
        source: token ids (batch, n).
        use_cache: False computes all earlier positions again at each step.
    """

    def __init__(self, model: Transformer, source: Int[Tensor, "batch n"], use_cache: bool) -> None:
        self.model = model
        self.tokens = source.new_empty(source.size(0), 0)  # (rows, length)
        self.memory = model.encode(source)  # (rows, n, d_model)
        self.memory_mask = padding_mask(source, model.config.pad_id)  # (rows, 1, 1, n)
        self.cache = KeyValueCache(model.config.num_decoder_layers) if use_cache else None

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows d_model"]:
        """Decode the new tokens, or without a cache all of them."""
        self.tokens = torch.cat([self.tokens, tokens[:, None]], dim=1)  # (rows, length + 1)
        new = self.tokens if self.cache is None else tokens[:, None]  # (rows, length + 1 or 1)
        hidden = self.model.decode(
            new, self.memory, memory_mask=self.memory_mask, is_causal=self.cache is None, cache=self.cache
        )  # (rows, length + 1 or 1, d_model)
        return hidden[:, -1]

    def project(self, hidden: Float[Tensor, "some d_model"]) -> Float[Tensor, "some vocabulary"]:
        """Give the model's logits."""
        return self.model.output_projection(hidden)

    def select(self, rows: Int[Tensor, " new"], sentences: Int[Tensor, " fewer"] | None) -> None:
        """Take these rows; their memory only where it changes, because the rows of a sentence share it."""
        changed = sentences is not None or rows.size(0) != self.tokens.size(0)
        self.tokens = self.tokens[rows]
        if self.cache is not None:
            self.cache.select(rows, memory=changed)
        if changed:
            self.memory, self.memory_mask = self.memory[rows], self.memory_mask[rows]


# chapters/11_decoding.md: A step, written out
_KNOWN = {
    Transformer, Encoder, Decoder, EncoderLayer, DecoderLayer, MultiHeadAttention, FeedForward,
    SinusoidalPositionalEncoding, nn.ModuleList, nn.Linear, nn.LayerNorm, nn.Embedding, nn.Dropout, nn.Identity,
}  # fmt: skip


def can_be_written_out(model: nn.Module) -> bool:
    """True if no part of the model was replaced or hooked, so that `WrittenOutSteps` computes what it computes."""
    known = all(
        type(part) in _KNOWN and not (part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part))
        for part in model.modules()
    )
    return known and "decode" not in vars(model) and not torch.is_autocast_enabled(next(model.parameters()).device.type)


def _linear(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Map (rows, in) to (rows, out)."""
    return partial(torch.mm, mat2=weight.t()) if bias is None else partial(torch.addmm, bias, mat2=weight.t())


def _bare(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """A linear map or a norm as a function: a module's call takes as long as a small product."""
    if isinstance(module, nn.Linear):
        return _linear(module.weight, module.bias)
    if isinstance(module, nn.LayerNorm):
        shape = module.normalized_shape
        return partial(torch.layer_norm, normalized_shape=shape, weight=module.weight, bias=module.bias, eps=module.eps)
    return module


class _WrittenOutLayer:
    """A decoder layer for one new token a row, which keeps the keys and values of the memory."""

    def __init__(
        self, layer: Any, memory: Float[Tensor, "sentences n d_model"], real: Bool[Tensor, "sentences n"]
    ) -> None:
        own, other, network = layer.self_attention, layer.memory_attention, layer.feed_forward
        self.heads, d_model = own.num_heads, own.d_model
        self.norm_first = layer.norm_first
        self.norms = [
            _bare(norm) for norm in (layer.self_attention_norm, layer.memory_attention_norm, layer.feed_forward_norm)
        ]
        self.own, self.own_out, self.other_out = map(
            _bare, (own.in_projection, own.out_projection, other.out_projection)
        )
        self.inner, self.outer = _bare(network.linear1), _bare(network.linear2)
        weight, bias = other.in_projection.weight, other.in_projection.bias
        self.query = _linear(weight[:d_model], None if bias is None else bias[:d_model])
        pairs = F.linear(
            memory, weight[d_model:], None if bias is None else bias[d_model:]
        )  # (sentences, n, 2 d_model)
        pairs = (pairs * real[..., None]).unflatten(-1, (2, self.heads, -1))  # (sentences, n, 2, heads, d_k)
        self.keys = pairs[:, :, 0].permute(0, 2, 3, 1).flatten(0, 1)  # (sentences * heads, d_k, n)
        self.values = pairs[:, :, 1].transpose(1, 2).flatten(0, 1)  # (sentences * heads, n, d_k)

    def step(self, x: Tensor, new: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        """Map (rows, d_model) to the same shape, and write this position's key and value.

        Args:
            x: (rows, d_model).
            new: where the new keys and values belong, (2, rows, heads, d_k).
            keys: those of all positions, `new` among them, (rows, heads, length, d_k).
            values: the same.
            bias: what is added to the scores of the memory, (sentences * heads, 1, n).
        """

        def look_back(x: Tensor) -> Tensor:
            projected = self.own(x).view(x.size(0), 3, self.heads, -1)  # (rows, 3, heads, d_k)
            new.copy_(projected[:, 1:].transpose(0, 1))
            return self.own_out(F.scaled_dot_product_attention(projected[:, 0, :, None], keys, values).flatten(1))

        def look_at_source(x: Tensor) -> Tensor:  # the rows of a sentence are the queries of one attention
            rows, d_model = x.shape
            split = -1, self.heads, rows * self.heads // self.keys.size(0), d_model // self.heads
            query = self.query(x).view(split[0], split[2], split[1], split[3]).transpose(1, 2).flatten(0, 1)
            scores = torch.baddbmm(bias, query, self.keys, alpha=split[3] ** -0.5)  # (sentences * heads, beams, n)
            look = torch.bmm(scores.softmax(-1), self.values).view(split)  # (sentences, heads, beams, d_k)
            return self.other_out(look.transpose(1, 2).reshape(rows, d_model))

        def think(x: Tensor) -> Tensor:
            return self.outer(self.inner(x).relu_())

        for sublayer, norm in zip((look_back, look_at_source, think), self.norms, strict=True):
            x = x + sublayer(norm(x)) if self.norm_first else norm(x + sublayer(x))
        return x

    def select(self, places: Int[Tensor, " places"]) -> None:
        """Keep the memory of these sentences and heads."""
        self.keys, self.values = self.keys[places], self.values[places]


# chapters/11_decoding.md: A step, written out
class WrittenOutSteps:
    """Steps of a `Transformer`, written out for one new token a row: the same sums in fewer operations.

    Args:
        model: a translator that `can_be_written_out`, in eval mode.
        source: token ids (sentences, n), padded on the right.
    """

    def __init__(self, model: Transformer, source: Int[Tensor, "sentences n"]) -> None:
        config = model.config
        missing = max(0, 16 - source.size(1))  # small products and softmaxes are fastest from a width of 16 on
        memory = F.pad(model.encode(source), (0, 0, 0, missing))  # (sentences, n, d_model)
        real = F.pad(source != config.pad_id, (0, missing))  # (sentences, n); a value that is not real is 0
        self.layers = [_WrittenOutLayer(layer, memory, real) for layer in model.decoder.layers]
        lowest = torch.finfo(memory.dtype).min / 2  # not -∞: a source of padding only has a look of 0, not NaN
        bias = torch.zeros_like(real, dtype=memory.dtype).masked_fill(~real, lowest)  # (sentences, n)
        self.bias = bias.repeat_interleave(config.num_heads, 0)[:, None]  # (sentences * heads, 1, n)
        self.embedding, self.scale = model.target_embedding.weight, math.sqrt(config.d_model)
        self.positions, self.norm = model.positions.table.to(memory.dtype), _bare(model.decoder.norm)
        # Keys and values of all layers, position first, so that a new one is written in place.
        self.shape = len(self.layers), 2, config.num_heads, config.d_model // config.num_heads
        self.pool, self.spare = memory.new_empty(0), memory.new_empty(0)
        self.store, self.length = self._room(64, source.size(0)), 0
        self.projection = model.output_projection.weight.t()  # (d_model, vocabulary)
        if source.is_cpu and source.size(0) > 1:  # this way round a product of a few dozen rows is a quarter faster
            self.projection = self.projection.contiguous()
        self.logits = memory.new_empty(0, self.projection.size(1))

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows d_model"]:
        """Push one token a row through the decoder."""
        position = self.length
        if position == self.store.size(0):
            old, self.store = self.store, self._room(2 * position, tokens.size(0))
            self.store[:position] = old
        self.length += 1
        x = torch.add(
            self.positions[position], F.embedding(tokens, self.embedding), alpha=self.scale
        )  # (rows, d_model)
        keys, values = self.store[: self.length].permute(2, 1, 3, 4, 0, 5)  # (layers, rows, heads, length, d_k)
        for number, (new, k, v) in enumerate(zip(self.store[position], keys.unbind(), values.unbind(), strict=True)):
            x = self.layers[number].step(x, new, k, v, self.bias)
        return self.norm(x)

    def _room(self, positions: int, rows: int) -> Float[Tensor, "{positions} layers 2 {rows} heads d_k"]:
        """Give room for keys and values, in one of two pieces of memory in turn: to get new memory costs time."""
        layers, two, heads, d_k = self.shape
        size = positions * layers * two * rows * heads * d_k
        self.pool, self.spare = self.spare if self.spare.numel() >= size else self.spare.new_empty(size), self.pool
        return self.pool[:size].view(positions, layers, two, rows, heads, d_k)

    def project(self, hidden: Float[Tensor, "some d_model"]) -> Float[Tensor, "some vocabulary"]:
        """Give the logits, in the same memory each time."""
        if self.logits.size(0) < hidden.size(0):
            self.logits = hidden.new_empty(hidden.size(0), self.projection.size(1))
        return torch.mm(hidden, self.projection, out=self.logits[: hidden.size(0)])

    def select(self, rows: Int[Tensor, " new"], sentences: Int[Tensor, " fewer"] | None) -> None:
        """Take these rows' keys and values; the memory of a sentence is shared by its rows."""
        store = self._room(self.store.size(0), rows.size(0))
        torch.index_select(self.store[: self.length], 3, rows, out=store[: self.length])
        self.store = store
        if sentences is not None:
            heads = torch.arange(store.size(4), device=rows.device)
            places = (sentences[:, None] * store.size(4) + heads).flatten()  # (sentences * heads)
            self.bias = self.bias[places]
            for layer in self.layers:
                layer.select(places)
