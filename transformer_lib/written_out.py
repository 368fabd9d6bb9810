# Generated from chapters/11_decoding.md: edit the chapter, not this file, then run `make export`.


# chapters/11_decoding.md: A step, written out
"""The encoder, and the decoder for one new token a row, written out: the same sums in fewer operations."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.modules import module as hooks_of_all

from transformer_lib.model import Transformer, TransformerConfig


def can_be_written_out(model: nn.Module) -> bool:
    """True if no part of the model was replaced or hooked, so that `WrittenOutSteps` computes what it computes.

    Not seen: a class, as against one object of it, whose methods were replaced.
    """
    hooked = hooks_of_all._global_forward_hooks or hooks_of_all._global_forward_pre_hooks
    if type(model) is not Transformer or hooked or vars(model).keys() & {"encode", "decode"}:
        return False
    autocast = torch.is_autocast_enabled(next(model.parameters()).device.type)
    return not autocast and _parts(model) == _parts_as_built(model.config)


def _parts(model: nn.Module) -> list[tuple[Any, ...]]:
    """Of each part what is taken for granted below, and whether it was hooked or patched."""
    return [
        (type(part), vars(part).get("num_heads"), vars(part).get("max_norm"), part._parameters.get("bias") is None,
         bool(part._forward_hooks or part._forward_pre_hooks), "forward" in vars(part))
        for part in model.modules()
    ]  # fmt: skip


@lru_cache
def _parts_as_built(config: TransformerConfig) -> list[tuple[Any, ...]]:
    """Those of a new model, a narrow one. Nobody else's random numbers are used."""
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        return _parts(Transformer(replace(config, d_model=config.num_heads, d_ff=1, max_len=1)))


def _linear(module: Any, part: slice = slice(None)) -> Callable[[Tensor], Tensor]:
    """A linear map, or some of its outputs, as a function of (rows, in): a module's call costs as much as a product."""
    weight, bias = module.weight[part].t(), module.bias
    if bias is None:
        return lambda x: torch.mm(x, weight)
    bias = bias[part]
    return lambda x: torch.addmm(bias, x, weight)


def _norm(module: Any) -> Callable[[Tensor], Tensor]:
    """A norm as a function; the stack of a post-norm model ends with none."""
    if isinstance(module, nn.Identity):
        return lambda x: x
    shape, weight, bias, eps = module.normalized_shape, module.weight, module.bias, module.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps)


def _attend(
    query: Float[Tensor, "places queries d_k"],
    keys: Float[Tensor, "places n d_k"],
    values: Float[Tensor, "places n d_k"],
    bias: Float[Tensor, "places 1 n"],
) -> Float[Tensor, "places queries d_k"]:
    """Attention at many places, a place being a head of a sentence; the bias is very low where a key is not real."""
    scores = torch.baddbmm(bias, query, keys.mT, alpha=query.size(-1) ** -0.5)  # (places, queries, n)
    return torch.bmm(scores.softmax(dim=-1), values)


# chapters/11_decoding.md: A step, written out
class _Layer:
    """What layers of encoder and decoder share. Tokens come as rows: (rows, d_model)."""

    def __init__(self, layer: Any) -> None:
        own, network = layer.self_attention, layer.feed_forward
        self.norm_first, self.heads, self.d_k = layer.norm_first, own.num_heads, own.d_model // own.num_heads
        self.own, self.own_out = _linear(own.in_projection), _linear(own.out_projection)
        self.own_norm, self.last_norm = _norm(layer.self_attention_norm), _norm(layer.feed_forward_norm)
        self.inner, self.outer = _linear(network.linear1), _linear(network.linear2)

    def add(
        self, x: Tensor, norm: Callable[[Tensor], Tensor], sublayer: Callable[..., Tensor], *arguments: Any
    ) -> Tensor:
        """Add what a sub-layer says to x, with the norm on the one or the other side."""
        if self.norm_first:
            return x + sublayer(norm(x), *arguments)
        return norm(x + sublayer(x, *arguments))

    def think(self, x: Tensor) -> Tensor:
        """The feed-forward network."""
        return self.outer(self.inner(x).relu_())


class _EncoderLayer(_Layer):
    """A layer of the encoder."""

    def step(
        self, x: Float[Tensor, "rows d_model"], bias: Float[Tensor, "places 1 n"]
    ) -> Float[Tensor, "rows d_model"]:
        """Map all tokens of all sentences."""
        x = self.add(x, self.own_norm, self._look_around, bias)
        return self.add(x, self.last_norm, self.think)

    def _look_around(self, x: Tensor, bias: Tensor) -> Tensor:
        split = bias.size(0) // self.heads, -1, 3, self.heads, self.d_k
        projected = self.own(x).view(split).permute(2, 0, 3, 1, 4).flatten(1, 2)  # (3, places, length, d_k)
        pairs = F.pad(projected[1:], (0, 0, 0, bias.size(2) - projected.size(2)))  # (2, places, n, d_k)
        look = _attend(projected[0], pairs[0], pairs[1], bias).view(split[0], self.heads, -1, self.d_k)
        return self.own_out(look.transpose(1, 2).reshape(x.shape))


class _DecoderLayer(_Layer):
    """A layer of the decoder, for one new token a row, which keeps the keys and values of the memory."""

    def __init__(
        self,
        layer: Any,
        memory: Float[Tensor, "tokens d_model"],
        bias: Float[Tensor, "places 1 n"],
        empty: Bool[Tensor, " sentences"],
    ) -> None:
        super().__init__(layer)
        other = layer.memory_attention
        self.query, pair = (
            _linear(other.in_projection, part) for part in (slice(other.d_model), slice(other.d_model, None))
        )
        self.other_out, self.other_norm = _linear(other.out_projection), _norm(layer.memory_attention_norm)
        split = bias.size(0) // self.heads, -1, 2, self.heads, self.d_k
        pairs = pair(memory).view(split).permute(2, 0, 3, 1, 4)  # (2, sentences, heads, length, d_k)
        pairs = F.pad(pairs, (0, 0, 0, bias.size(2) - pairs.size(3)))  # (2, sentences, heads, n, d_k)
        pairs[1].masked_fill_(empty[:, None, None, None], 0)  # a sentence without a real token says nothing
        self.keys, self.values = pairs.flatten(1, 2)  # (places, n, d_k)

    def step(
        self,
        x: Float[Tensor, "rows d_model"],
        new: Float[Tensor, "2 rows heads d_k"],
        keys: Float[Tensor, "rows heads length d_k"],
        values: Float[Tensor, "rows heads length d_k"],
        bias: Float[Tensor, "places 1 n"],
    ) -> Float[Tensor, "rows d_model"]:
        """Map the newest tokens; `new` is where their keys and values belong, the last ones of `keys` and `values`."""
        x = self.add(x, self.own_norm, self._look_back, new, keys, values)
        x = self.add(x, self.other_norm, self._look_at_source, bias)
        return self.add(x, self.last_norm, self.think)

    def _look_back(self, x: Tensor, new: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        projected = self.own(x).view(-1, 3, self.heads, self.d_k)  # (rows, 3, heads, d_k)
        new.copy_(projected[:, 1:].transpose(0, 1))
        return self.own_out(F.scaled_dot_product_attention(projected[:, 0, :, None], keys, values).flatten(1))

    def _look_at_source(self, x: Tensor, bias: Tensor) -> Tensor:
        """The rows of a sentence are the queries of one attention."""
        sentences = bias.size(0) // self.heads
        query = self.query(x).view(sentences, -1, self.heads, self.d_k).transpose(1, 2).flatten(0, 1)
        look = _attend(query, self.keys, self.values, bias).view(sentences, self.heads, -1, self.d_k)
        return self.other_out(look.transpose(1, 2).reshape(x.shape))


# chapters/11_decoding.md: A step, written out
class WrittenOutSteps:
    """Steps of a `Transformer` that `can_be_written_out`, as in `ModuleSteps` with a cache.

    Args:
        model: the translator, in eval mode.
        source: token ids (sentences, length), padded on the right.
    """

    def __init__(self, model: Transformer, source: Int[Tensor, "sentences length"]) -> None:
        config = model.config
        self.heads, self.scale = config.num_heads, math.sqrt(config.d_model)
        self.embedding, self.positions = model.target_embedding.weight, model.positions
        real = F.pad(source != config.pad_id, (0, max(0, 16 - source.size(1))))  # (sentences, n), n at least 16
        lowest = torch.finfo(self.embedding.dtype).min / 2
        bias = torch.zeros_like(real, dtype=self.embedding.dtype).masked_fill(~real, lowest)  # (sentences, n)
        self.bias = bias.repeat_interleave(self.heads, 0)[:, None]  # (places, 1, n); places = sentences * heads
        memory = model._embed(source, model.source_embedding).flatten(0, 1)  # (sentences * length, d_model)
        for layer in model.encoder.layers:
            memory = _EncoderLayer(layer).step(memory, self.bias)
        memory, self.norm = _norm(model.encoder.norm)(memory), _norm(model.decoder.norm)
        empty = ~real.any(dim=1)  # (sentences,)
        self.layers = [_DecoderLayer(layer, memory, self.bias, empty) for layer in model.decoder.layers]
        # The keys and values of all layers, position first, so that new ones are written in place.
        self.shape = len(self.layers), 2, self.heads, config.d_model // self.heads
        self.block, self.spare = memory.new_empty(0), memory.new_empty(0)
        self.store, self.length = self._room(64, source.size(0)), 0
        self.projection = model.output_projection.weight.t()  # (d_model, vocabulary)
        if source.is_cpu and source.size(0) > 1:  # products with some dozen rows are faster this way round
            self.projection = self.projection.contiguous()
        self.logits = memory.new_empty(0, self.projection.size(1))

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows d_model"]:
        """Push one token a row through the decoder."""
        position = self.length
        if position == self.store.size(0):
            old, self.store = self.store, self._room(2 * position, tokens.size(0))
            self.store[:position] = old
        self.length += 1
        place = self.positions.rows(position, position + 1)  # (1, d_model)
        x = torch.add(place, F.embedding(tokens, self.embedding), alpha=self.scale)  # (rows, d_model)
        keys, values = (
            self.store[: self.length].permute(2, 1, 3, 4, 0, 5).unbind()
        )  # (layers, rows, heads, length, d_k)
        pairs = zip(self.store[position].unbind(), keys.unbind(), values.unbind(), strict=True)
        for layer, (new, k, v) in zip(self.layers, pairs, strict=True):
            x = layer.step(x, new, k, v, self.bias)
        return self.norm(x)

    def _room(self, positions: int, rows: int) -> Float[Tensor, "{positions} layers 2 {rows} heads d_k"]:
        """Give room for keys and values, in one of two blocks in turn: to get new memory costs time."""
        layers, two, heads, d_k = self.shape
        size = positions * layers * two * rows * heads * d_k
        self.block, self.spare = self.spare if self.spare.numel() >= size else self.spare.new_empty(size), self.block
        return self.block[:size].view(positions, layers, two, rows, heads, d_k)

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
            places = (sentences[:, None] * self.heads + torch.arange(self.heads, device=rows.device)).flatten()
            self.bias = self.bias[places]
            for layer in self.layers:
                layer.keys, layer.values = layer.keys[places], layer.values[places]
