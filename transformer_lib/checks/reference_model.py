# Generated from chapters/13_gallery.md: edit it there and `make export`, or here and `make sync`.

"""A small Transformer as a tutorial would write it, and right: one method for each thing that can go wrong."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.positions import sinusoidal_table

__all__ = ["ReferenceModel"]


class ReferenceModel(nn.Module):
    """A post-norm encoder and decoder in one class; the cases of the gallery each spoil one method.

    Args:
        source_vocab_size: number of source tokens.
        target_vocab_size: number of target tokens.
        pad_id: the padding token.
    """

    width, heads, inner, depth, max_len = 16, 4, 32, 2, 32
    positions: Tensor

    def __init__(self, source_vocab_size: int, target_vocab_size: int, pad_id: int) -> None:
        super().__init__()
        self.pad_id, self.dropout = pad_id, nn.Dropout(0.1)
        self.source_table = nn.Embedding(source_vocab_size, self.width)
        self.target_table = nn.Embedding(target_vocab_size, self.width)
        self.output = nn.Linear(self.width, target_vocab_size)
        self.encoder = self.stack("self", "feed")
        self.decoder = self.stack("self", "cross", "feed")
        self.keep(sinusoidal_table(self.max_len, self.width).float())
        self.reset()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """(b, n) and (b, m) tokens to (b, m, V) logits."""
        memory_mask, mask = self.source_mask(source), self.target_mask(target)
        x, y = self.embed(source, self.source_table), self.embed(target, self.target_table)
        for layer in self.encoder:
            x = self.encoder_layer(layer, x, memory_mask)
        for layer in self.decoder:
            y = self.decoder_layer(layer, y, x, mask, memory_mask)
        return self.output(y)

    # what is built

    def stack(self, *parts: str) -> nn.ModuleList:
        """`depth` layers, each made anew."""
        return nn.ModuleList(self.layer(parts) for _ in range(self.depth))

    def layer(self, parts: tuple[str, ...]) -> nn.ModuleDict:
        """One layer: the weights and the norm of each of its parts."""
        layer = nn.ModuleDict()
        for part in parts:
            maps: dict[str, nn.Module]
            if part == "feed":
                maps = {"up": nn.Linear(self.width, self.inner), "down": nn.Linear(self.inner, self.width)}
            else:
                maps = {**self.projections(), "o": nn.Linear(self.width, self.width)}
            layer[part] = nn.ModuleDict({**maps, "norm": nn.LayerNorm(self.width)})
        return layer

    def projections(self) -> dict[str, nn.Module]:
        """The maps to queries, keys and values of all heads."""
        return {name: nn.Linear(self.width, self.width) for name in "qkv"}

    def keep(self, table: Tensor) -> None:
        """Positions move with the model, and are not stored: they are the same in every model."""
        self.register_buffer("positions", table, persistent=False)

    def reset(self) -> None:
        """Matrices by Xavier's rule; the tables such that √width times them has a mean square of 1."""
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        for table in (self.source_table, self.target_table):
            nn.init.normal_(table.weight, std=self.width**-0.5)

    # what is computed

    def source_mask(self, source: Tensor) -> Tensor:
        """True = may be seen: real tokens, (b, 1, 1, n)."""
        return (source != self.pad_id)[:, None, None, :]

    def target_mask(self, target: Tensor) -> Tensor:
        """True = may be seen: real tokens, up to the query's own, (b, 1, m, m)."""
        causal = torch.ones(target.size(1), target.size(1), dtype=torch.bool, device=target.device).tril()
        return causal & (target != self.pad_id)[:, None, None, :]

    def embed(self, tokens: Tensor, table: Callable[[Tensor], Tensor]) -> Tensor:
        """√width times the table's rows, plus positions: (b, n, width)."""
        return self.drop(table(tokens) * math.sqrt(self.width) + self.place(tokens.size(1)))

    def place(self, length: int) -> Tensor:
        """The positions of so many tokens, (length, width)."""
        if length > self.max_len:
            raise ValueError(f"{length} tokens, but max_len is {self.max_len}")
        return self.positions[:length]

    def drop(self, x: Tensor) -> Tensor:
        """Dropout."""
        return self.dropout(x)

    def encoder_layer(self, layer: Any, x: Tensor, mask: Tensor) -> Tensor:
        """Attention to each other, then the feed-forward network."""
        x = self.add(layer["self"], x, self.attend(layer["self"], x, x, mask))
        return self.add(layer["feed"], x, self.feed(layer["feed"], x))

    def decoder_layer(self, layer: Any, x: Tensor, memory: Tensor, mask: Tensor, memory_mask: Tensor) -> Tensor:
        """Attention to what came before, then to the memory, then the feed-forward network."""
        x = self.add(layer["self"], x, self.attend(layer["self"], x, x, mask))
        x = self.add(layer["cross"], x, self.attend(layer["cross"], x, memory, memory_mask))
        return self.add(layer["feed"], x, self.feed(layer["feed"], x))

    def add(self, part: Any, x: Tensor, y: Tensor) -> Tensor:
        """Residual connection, then norm."""
        return part["norm"](x + self.drop(y))

    def feed(self, part: Any, x: Tensor) -> Tensor:
        """The feed-forward network."""
        return part["down"](part["up"](x).relu())

    def attend(self, part: Any, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Attention from x to the memory."""
        q, k, v = (self.split(part[name], y) for name, y in (("q", x), ("k", memory), ("v", memory)))
        return part["o"](self.join(self.weights(self.scores(q, k), mask) @ v))

    def split(self, projection: nn.Module, x: Tensor) -> Tensor:
        """Project, and cut into heads: (b, n, width) -> (b, h, n, d_k)."""
        return projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def join(self, x: Tensor) -> Tensor:
        """(b, h, n, d_k) -> (b, n, width)."""
        return x.transpose(1, 2).flatten(2)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """Scaled products of queries and keys, (b, h, n, m)."""
        return q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Softmax over what may be seen; zeros where nothing may."""
        return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) * mask
