# Generated from chapters/13a_cases.md: edit it there and `make export`, or here and `make sync`.

"""The gallery of silent bugs: each case is the reference model with one bug, and names the properties that notice."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.checks.reference_model import ReferenceModel

__all__ = ["CASES", "Case", "case"]


@dataclass(frozen=True)
class Case:
    """A bug on show."""

    title: str
    factory: type[ReferenceModel]  # called with (source_vocab_size, target_vocab_size, pad_id)
    hides: str  # behind a right "shape", a falling "loss", a "mode", "float32", or ordinary "sentences"
    failing: frozenset[str]  # the properties that fail or note something, of those that need no training


CASES: dict[str, Case] = {}


def case(
    slug: str, title: str, hides: str, failing: str = ""
) -> Callable[[type[ReferenceModel]], type[ReferenceModel]]:
    """Enter a class into the gallery; the failing properties are separated by commas."""

    def enter(factory: type[ReferenceModel]) -> type[ReferenceModel]:
        CASES[slug] = Case(title, factory, hides, frozenset(filter(None, failing.split(", "))))
        return factory

    return enter


@case("causal", "An inverted causal mask", "shape",
      "causality, present seen, a prefix is enough, first token sees itself, the past is seen")  # fmt: skip
class Inverted(ReferenceModel):
    def target_mask(self, target: Tensor) -> Tensor:
        length = target.size(1)
        mask = torch.full((length, length), -math.inf, device=target.device).triu(1)  # 0: may be seen
        return ~(mask == 0) & self.source_mask(target)  # 0: is hidden


@case("future", "A causal mask one too wide", "shape", "causality, a prefix is enough")
class OneAhead(ReferenceModel):
    def target_mask(self, target: Tensor) -> Tensor:
        length = target.size(1)
        return torch.ones(length, length, device=target.device).tril(1).bool() & self.source_mask(target)


@case("unmasked", "No causal mask", "shape", "causality, a prefix is enough")
class Unmasked(ReferenceModel):
    def target_mask(self, target: Tensor) -> Tensor:
        return self.source_mask(target)


@case("off-by-one", "A token that does not see itself", "shape", "first token sees itself")
class NotItself(ReferenceModel):
    def target_mask(self, target: Tensor) -> Tensor:
        return super().target_mask(target).tril(-1)


@case("blind", "An inverted padding mask", "shape",
      "source sensitivity, tokens are told apart, source padding on the right, source padding on the left, "
      "positions matter, gradient reaches everything")  # fmt: skip
class Blind(ReferenceModel):
    def source_mask(self, source: Tensor) -> Tensor:
        return (source == self.pad_id)[:, None, None, :]


@case("source-padding", "A padding mask that is not handed on", "shape",
      "source padding on the right, source padding on the left")  # fmt: skip
class NotHandedOn(ReferenceModel):
    def decoder_layer(self, layer: Any, x: Tensor, memory: Tensor, mask: Tensor, memory_mask: Tensor) -> Tensor:
        return super().decoder_layer(layer, x, memory, mask, torch.ones_like(memory_mask))


@case("wrong-axis", "A mask on the queries, saved by -10000", "shape",
      "source padding on the right, source padding on the left")  # fmt: skip
class WrongAxis(ReferenceModel):
    def encoder_layer(self, layer: Any, x: Tensor, mask: Tensor) -> Tensor:
        return super().encoder_layer(layer, x, mask.transpose(-2, -1))  # (b, 1, n, 1)

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, -10000.0).softmax(-1)


@case("reshape", "Heads cut without a transpose", "shape",
      "causality, source padding on the right, target padding on the right, source padding on the left, target "
      "padding on the left, a prefix is enough")  # fmt: skip
class MixedTokens(ReferenceModel):
    def split(self, projection: nn.Module, x: Tensor) -> Tensor:
        return projection(x).reshape(x.size(0), self.heads, x.size(1), -1)


@case("batch", "Sentences mixed by a reshape", "shape",
      "causality, source padding on the right, target padding on the right, source padding on the left, target "
      "padding on the left, batch independence, empty sentences, a prefix is enough")  # fmt: skip
class MixedSentences(ReferenceModel):
    def split(self, projection: nn.Module, x: Tensor) -> Tensor:
        return projection(x).reshape(self.heads, x.size(0), x.size(1), -1).transpose(0, 1)


@case("rank", "A mask of three dimensions", "shape",
      "memory is whole, tokens are told apart, batch independence, sizes and padding are those asked for, empty "
      "sentences, gradient reaches everything, a prefix is enough, the past is seen")  # fmt: skip
class ThreeDimensions(ReferenceModel):
    width, heads = 24, 3  # as many heads as most batches of the suite have sentences

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return super().weights(scores, mask[:, 0])


@case("repeat", "A mask repeated in the wrong order", "shape", "batch independence, empty sentences")
class Repeated(ReferenceModel):
    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        flat = mask.expand(-1, 1, *scores.shape[2:]).repeat(self.heads, 1, 1, 1)  # not repeat_interleave
        return super().weights(scores, flat.reshape(scores.shape))


@case("stale", "A sub-layer that reads its grandparent", "shape",
      "present seen, gradient reaches everything, the past is seen")  # fmt: skip
class Stale(ReferenceModel):
    def decoder_layer(self, layer: Any, x: Tensor, memory: Tensor, mask: Tensor, memory_mask: Tensor) -> Tensor:
        y = self.add(layer["self"], x, self.attend(layer["self"], x, x, mask))
        y = self.add(layer["cross"], x, self.attend(layer["cross"], x, memory, memory_mask))  # wrong: x for y
        return self.add(layer["feed"], y, self.feed(layer["feed"], y))


@case("dead", "A decoder that never asks", "shape",
      "source sensitivity, tokens are told apart, positions matter, gradient reaches everything")  # fmt: skip
class Dead(ReferenceModel):
    def decoder_layer(self, layer: Any, x: Tensor, memory: Tensor, mask: Tensor, memory_mask: Tensor) -> Tensor:
        return self.encoder_layer(layer, x, mask)


@case("positions", "No positions", "shape", "positions matter")
class NoPositions(ReferenceModel):
    def place(self, length: int) -> Tensor:
        return 0 * super().place(length)


@case("slices", "Heads that share one small map", "loss", "heads attend separately")
class Slices(ReferenceModel):
    def projections(self) -> dict[str, nn.Module]:
        return {name: nn.Linear(self.width // self.heads, self.width // self.heads) for name in "qkv"}

    def split(self, projection: nn.Module, x: Tensor) -> Tensor:
        return projection(x.unflatten(-1, (self.heads, -1))).transpose(1, 2)


@case("scale", "Scores divided by √width", "loss")
class WrongScale(ReferenceModel):
    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) / math.sqrt(self.width)


@case("doubled", "The embedding added twice", "loss")
class Doubled(ReferenceModel):
    def embed(self, tokens: Tensor, table: Callable[[Tensor], Tensor]) -> Tensor:
        return super().embed(tokens, table) + table(tokens) * math.sqrt(self.width)


@case("overwritten", "A start that is overwritten", "loss")
class Overwritten(ReferenceModel):
    def reset(self) -> None:
        super().reset()
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)


@case("one-layer", "One layer, N times", "loss")
class OneLayer(ReferenceModel):
    def stack(self, *parts: str) -> nn.ModuleList:
        return nn.ModuleList([self.layer(parts)] * self.depth)


@case("twins", "Copies that start alike", "loss")
class Twins(ReferenceModel):
    def stack(self, *parts: str) -> nn.ModuleList:
        layer = self.layer(parts)
        return nn.ModuleList(copy.deepcopy(layer) for _ in range(self.depth))


@case("softmax", "Probabilities instead of logits", "loss", "logits not probabilities")
class Probabilities(ReferenceModel):
    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return super().forward(source, target).softmax(-1)


@case("dropout-place", "Dropout after the norm", "mode")
class AfterTheNorm(ReferenceModel):
    def add(self, part: Any, x: Tensor, y: Tensor) -> Tensor:
        return self.drop(part["norm"](x + y))


@case("eval", "Dropout that never stops", "mode",
      "causality, source padding on the right, target padding on the right, source padding on the left, target "
      "padding on the left, batch independence, deterministic in evaluation, empty sentences, gradient reaches "
      "everything, gradient is the derivative, every dtype, state dict is complete, a prefix is enough")  # fmt: skip
class NeverStops(ReferenceModel):
    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout.p)


@case("dropout", "Dropout that never starts", "mode", "dropout in training")
class NeverStarts(ReferenceModel):
    def drop(self, x: Tensor) -> Tensor:
        return x


@case("half", "-1e9 for minus infinity", "float32", "every dtype")
class Billion(ReferenceModel):
    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, -1e9).softmax(-1)


@case("buffer", "A table that stays behind", "float32", "every dtype, buffers move along")
class StaysBehind(ReferenceModel):
    def keep(self, table: Tensor) -> None:
        self.positions = table


@case("state", "A table that is not stored", "float32", "state dict is complete")
class NotStored(ReferenceModel):
    def keep(self, table: Tensor) -> None:
        self.register_buffer("positions", torch.randn(table.shape), persistent=False)


@case("target-padding", "A target without a padding mask", "sentences")
class NoTargetPadding(ReferenceModel):
    def target_mask(self, target: Tensor) -> Tensor:
        length = target.size(1)
        return torch.ones(1, 1, length, length, dtype=torch.bool, device=target.device).tril()


@case("empty-row", "A row with nothing to see", "sentences", "target padding on the left, empty sentences")
class EmptyRow(ReferenceModel):
    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, -math.inf).softmax(-1)


@case("too-long", "A sentence that is cut", "sentences", "too long raises")
class Cut(ReferenceModel):
    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return super().forward(source[:, : self.max_len], target)
