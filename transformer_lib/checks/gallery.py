# Generated from chapters/08c_gallery.md: edit the chapter, not this file, then run `make export`.

"""The gallery of silent bugs: each room is `Plain` with one thing spoilt, and names the properties that notice."""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.checks.plain import Plain
from transformer_lib.checks.rooms import ROOMS, Room, room

__all__ = ["ROOMS", "Room"]


@room("slices", "Heads that share one small map", hides="loss")
class Slices(Plain):
    def projections(self) -> dict[str, nn.Module]:
        return {name: nn.Linear(self.width // self.heads, self.width // self.heads) for name in "qkv"}

    def split(self, projection: nn.Module, x: Tensor) -> Tensor:
        return projection(x.unflatten(-1, (self.heads, -1))).transpose(1, 2)


@room("scale", "Scores divided by √width", hides="loss")
class WrongScale(Plain):
    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) / math.sqrt(self.width)


@room("doubled", "The embedding added twice", hides="loss")
class Doubled(Plain):
    def embed(self, tokens: Tensor, table: Callable[[Tensor], Tensor]) -> Tensor:
        return super().embed(tokens, table) + table(tokens) * math.sqrt(self.width)


@room("overwritten", "A start that is overwritten", hides="loss")
class Overwritten(Plain):
    def reset(self) -> None:
        super().reset()
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)


@room("one-layer", "One layer, N times", "parameters shared on purpose", hides="loss")
class OneLayer(Plain):
    def stack(self, *parts: str) -> nn.ModuleList:
        return nn.ModuleList([self.layer(parts)] * self.depth)


@room("twins", "Copies that start alike", hides="loss")
class Twins(Plain):
    def stack(self, *parts: str) -> nn.ModuleList:
        layer = self.layer(parts)
        return nn.ModuleList(copy.deepcopy(layer) for _ in range(self.depth))


@room("softmax", "Probabilities instead of logits", "logits not probabilities", hides="loss")
class Probabilities(Plain):
    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return super().forward(source, target).softmax(-1)


@room("dropout-place", "Dropout after the norm", hides="mode")
class AfterTheNorm(Plain):
    def add(self, part: Any, x: Tensor, y: Tensor) -> Tensor:
        return self.drop(part["norm"](x + y))


@room(
    "eval", "Dropout that never stops",
    "causality", "source padding on the right", "target padding on the right", "source padding on the left",
    "target padding on the left", "batch independence", "deterministic in evaluation", "empty sentences",
    "every dtype", "state dict is complete", hides="mode",
)  # fmt: skip
class NeverStops(Plain):
    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout.p)


@room("dropout", "Dropout that never starts", "dropout in training", hides="mode")
class NeverStarts(Plain):
    def drop(self, x: Tensor) -> Tensor:
        return x


@room("half", "-1e9 for minus infinity", "every dtype", hides="float32")
class Billion(Plain):
    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, -1e9).softmax(-1)


@room("buffer", "A table that stays behind", "every dtype", "buffers move along", hides="float32")
class StaysBehind(Plain):
    def keep(self, table: Tensor) -> None:
        self.positions = table


@room("state", "A table that is not stored", "state dict is complete", hides="float32")
class NotStored(Plain):
    def keep(self, table: Tensor) -> None:
        self.register_buffer("positions", torch.randn(table.shape), persistent=False)


@room("target-padding", "A target without a padding mask", "target padding on the left", hides="sentences")
class NoTargetPadding(Plain):
    def target_mask(self, target: Tensor) -> Tensor:
        length = target.size(1)
        return torch.ones(1, 1, length, length, dtype=torch.bool, device=target.device).tril()


@room("empty-row", "A row with nothing to see", "target padding on the left", "empty sentences", hides="sentences")
class EmptyRow(Plain):
    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, -math.inf).softmax(-1)


@room("too-long", "A sentence that is cut", "too long raises", hides="sentences")
class Cut(Plain):
    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return super().forward(source[:, : self.max_len], target)
