# Generated from chapters/D_search.md: edit it there and `make export`, or here and `make sync`.

"""A key-value cache: what a decoder has projected so far, so that it need not be projected again."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(eq=False)
class KeysAndValues:
    """The keys and values that one attention has projected so far, `length` of each: (rows, heads, length, d_k)."""

    key: Float[Tensor, "rows heads length d_k"] | None = None
    value: Float[Tensor, "rows heads length d_k"] | None = None
    length: int = 0

    def update(
        self, key: Float[Tensor, "rows heads new d_k"], value: Float[Tensor, "rows heads new d_k"]
    ) -> tuple[Float[Tensor, "rows heads all d_k"], Float[Tensor, "rows heads all d_k"]]:
        """Append those of new positions, each (rows, heads, new, d_k), and return all."""
        if self.key is None or self.value is None:
            self.key, self.value = key, value
        elif key.size(2):
            self.key = torch.cat([self.key, key], dim=2)  # (rows, heads, length + new, d_k)
            self.value = torch.cat([self.value, value], dim=2)  # (rows, heads, length + new, d_k)
        self.length = self.key.size(2)
        return self.key, self.value


class LayerCache(NamedTuple):
    """The two caches of one decoder layer."""

    self_attention: KeysAndValues
    cross_attention: KeysAndValues


class KeyValueCache:
    """The keys and values of a decoder; hand it to each `Transformer.decode`, with only the new token.

    Args:
        num_layers: how many layers the decoder has.

    Raises:
        ValueError: num_layers is less than 1.
    """

    def __init__(self, num_layers: int) -> None:
        if num_layers < 1:
            raise ValueError(f"a cache needs at least one decoder layer; got num_layers={num_layers}")
        self.layers = [LayerCache(KeysAndValues(), KeysAndValues()) for _ in range(num_layers)]

    @property
    def length(self) -> int:
        """How many target positions are stored; the next token stands at this position, counted from 0."""
        return self.layers[0].self_attention.length

    def select(self, rows: Int[Tensor, " rows"], *, memory: bool = True) -> None:
        """Make row i of the cache what row rows[i] was: leave rows out, repeat them, change their order.

        Args:
            rows: row numbers, whole numbers (new number of rows,).
            memory: False leaves the memory's keys and values alone: right, and no copy, when each row still
                belongs to the same sentence as before.
        """
        for part in (part for layer in self.layers for part in (layer if memory else layer[:1])):
            for name, stored in vars(part).items():
                if isinstance(stored, Tensor):
                    setattr(part, name, stored.index_select(0, rows))
