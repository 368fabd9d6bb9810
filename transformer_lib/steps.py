# Generated from chapters/11_decoding.md: edit the chapter, not this file, then run `make export`.


# chapters/11_decoding.md: A step, written out
"""Decoder steps: the hidden states of the newest tokens, through the model's own modules."""

from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lib.cache import KeyValueCache
from transformer_lib.masks import padding_mask
from transformer_lib.model import Transformer


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
