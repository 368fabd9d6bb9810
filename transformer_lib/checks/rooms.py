# Generated from chapters/08c_gallery.md: edit the chapter, not this file, then run `make export`.

"""The gallery's list of rooms, and those whose bugs hide behind a right shape."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.checks.plain import Plain

__all__ = ["ROOMS", "Room", "room"]


@dataclass(frozen=True)
class Room:
    """A bug on show."""

    title: str
    factory: type[Plain]  # called with (source_vocab_size, target_vocab_size, pad_id)
    failing: frozenset[str]  # the properties that fail, of those that need no training
    hides: str  # behind a right "shape", a falling "loss", a "mode", "float32", or ordinary "sentences"


ROOMS: dict[str, Room] = {}


def room(slug: str, title: str, *failing: str, hides: str) -> Callable[[type[Plain]], type[Plain]]:
    """Enter a class into the gallery."""

    def enter(factory: type[Plain]) -> type[Plain]:
        ROOMS[slug] = Room(title, factory, frozenset(failing), hides)
        return factory

    return enter


@room(
    "causal", "A causal mask turned over",
    "causality", "present seen", "first token sees itself", "positions matter", hides="shape",
)  # fmt: skip
class Inverted(Plain):
    def target_mask(self, target: Tensor) -> Tensor:
        length = target.size(1)
        mask = torch.full((length, length), -math.inf, device=target.device).triu(1)  # 0: may be seen
        return ~(mask == 0) & self.source_mask(target)  # 0: is hidden


@room("future", "A causal mask one too wide", "causality", hides="shape")
class OneAhead(Plain):
    def target_mask(self, target: Tensor) -> Tensor:
        length = target.size(1)
        return torch.ones(length, length, device=target.device).tril(1).bool() & self.source_mask(target)


@room("unmasked", "No causal mask", "causality", hides="shape")
class Unmasked(Plain):
    def target_mask(self, target: Tensor) -> Tensor:
        return self.source_mask(target)


@room("off-by-one", "A token that does not see itself", "first token sees itself", hides="shape")
class NotItself(Plain):
    def target_mask(self, target: Tensor) -> Tensor:
        return super().target_mask(target).tril(-1)


@room(
    "blind", "A padding mask turned over",
    "source sensitivity", "source padding on the right", "source padding on the left", "positions matter",
    "gradient reaches everything", hides="shape",
)  # fmt: skip
class Blind(Plain):
    def source_mask(self, source: Tensor) -> Tensor:
        return (source == self.pad_id)[:, None, None, :]


@room(
    "source-padding", "A padding mask that is not handed on",
    "source padding on the right", "source padding on the left", hides="shape",
)  # fmt: skip
class NotHandedOn(Plain):
    def decoder_layer(self, layer: Any, x: Tensor, memory: Tensor, mask: Tensor, memory_mask: Tensor) -> Tensor:
        return super().decoder_layer(layer, x, memory, mask, torch.ones_like(memory_mask))


@room(
    "wrong-axis", "A mask on the queries, saved by -10000",
    "source padding on the right", "source padding on the left", hides="shape",
)  # fmt: skip
class WrongAxis(Plain):
    def encoder_layer(self, layer: Any, x: Tensor, mask: Tensor) -> Tensor:
        return super().encoder_layer(layer, x, mask.transpose(-2, -1))  # (b, 1, n, 1)

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, -10000.0).softmax(-1)


@room(
    "reshape", "Heads cut without a transpose",
    "causality", "source padding on the right", "target padding on the right",
    "source padding on the left", "target padding on the left", hides="shape",
)  # fmt: skip
class MixedTokens(Plain):
    def split(self, projection: nn.Module, x: Tensor) -> Tensor:
        return projection(x).reshape(x.size(0), self.heads, x.size(1), -1)


@room(
    "batch", "Sentences mixed by a reshape",
    "causality", "source padding on the right", "target padding on the right", "source padding on the left",
    "target padding on the left", "batch independence", "empty sentences", hides="shape",
)  # fmt: skip
class MixedSentences(Plain):
    def split(self, projection: nn.Module, x: Tensor) -> Tensor:
        return projection(x).reshape(self.heads, x.size(0), x.size(1), -1).transpose(0, 1)


@room("rank", "A mask of three dimensions", "batch independence", "empty sentences", hides="shape")
class ThreeDimensions(Plain):
    width, heads = 24, 3  # as many heads as most batches of the suite have sentences

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return super().weights(scores, mask[:, 0])


@room("repeat", "A mask repeated in the wrong order", "batch independence", "empty sentences", hides="shape")
class Repeated(Plain):
    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        flat = mask.expand(-1, 1, *scores.shape[2:]).repeat(self.heads, 1, 1, 1)  # not repeat_interleave
        return super().weights(scores, flat.reshape(scores.shape))


@room(
    "stale", "A sub-layer that reads its grandparent",
    "present seen", "positions matter", "gradient reaches everything", hides="shape",
)  # fmt: skip
class Stale(Plain):
    def decoder_layer(self, layer: Any, x: Tensor, memory: Tensor, mask: Tensor, memory_mask: Tensor) -> Tensor:
        y = self.add(layer["own"], x, self.attend(layer["own"], x, x, mask))
        y = self.add(layer["memory"], x, self.attend(layer["memory"], x, memory, memory_mask))  # wrong: x for y
        return self.add(layer["feed"], y, self.feed(layer["feed"], y))


@room(
    "dead", "A decoder that never asks",
    "source sensitivity", "positions matter", "gradient reaches everything", hides="shape",
)  # fmt: skip
class Dead(Plain):
    def decoder_layer(self, layer: Any, x: Tensor, memory: Tensor, mask: Tensor, memory_mask: Tensor) -> Tensor:
        return self.encoder_layer(layer, x, mask)


@room("positions", "No positions", "positions matter", hides="shape")
class NoPositions(Plain):
    def place(self, length: int) -> Tensor:
        return 0 * super().place(length)
