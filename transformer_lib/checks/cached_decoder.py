# Generated from chapters/13a_cases.md: edit it there and `make export`, or here and `make sync`.

"""A small decoder with a cache, and right: the page on caches spoils it, a few lines at a time."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.checks.subject import Adapted

__all__ = ["CachedDecoder", "adapted"]
Cache = dict[int, Tensor]  # by the layer's number its keys and values, (2, b, h, tokens so far, d_k)


class CachedDecoder(nn.Module):
    """Two pre-norm layers with learned positions. A token sees itself and the seven tokens before it.

    Args:
        vocab_size: number of tokens.
    """

    width, heads, depth, window, max_len = 32, 4, 2, 8, 64

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(vocab_size, self.width), nn.Embedding(self.max_len, self.width)
        self.layers = nn.ModuleList(nn.ModuleDict({
            "norm": nn.LayerNorm(self.width), "qkv": nn.Linear(self.width, 3 * self.width),
            "o": nn.Linear(self.width, self.width), "norm2": nn.LayerNorm(self.width),
            "up": nn.Linear(self.width, 2 * self.width), "down": nn.Linear(2 * self.width, self.width),
        }) for _ in range(self.depth))  # fmt: skip
        self.norm, self.output = nn.LayerNorm(self.width), nn.Linear(self.width, vocab_size, bias=False)

    def forward(
        self, tokens: Tensor, cache: Cache | None = None, mask: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """Score the next token after each of these, and enter their keys and values into the cache.

        Args:
            tokens: (b, n); with a cache, the new ones only.
            cache: of the tokens before them; {} is empty, and with None nothing is kept.
            mask: (b, all tokens, those in the cache included), 1 = real, 0 = padding; None = all are real.
            positions: of the new tokens, (b, n) or (1, n); None = counted from the first token on.

        Returns:
            Logits (b, n, vocab_size).

        Raises:
            IndexError: a position is not below `max_len`.
        """
        past, n = self.past(cache), tokens.size(1)
        if positions is None:
            positions = torch.arange(past, past + n, device=tokens.device)[None]
        x, allowed = self.table(tokens) + self.places(positions), self.allowed(tokens, cache, mask)
        layer: Any  # a dictionary of modules
        for number, layer in enumerate(self.layers):
            x = x + self.attend(layer, layer["norm"](x), allowed, cache, number)
            x = x + layer["down"](layer["up"](layer["norm2"](x)).relu())
        return self.output(self.norm(x))

    def past(self, cache: Cache | None) -> int:
        """How many tokens the cache holds."""
        return cache[0].size(-2) if cache else 0

    def allowed(self, tokens: Tensor, cache: Cache | None, mask: Tensor | None) -> Tensor:
        """True = may be seen, (b or 1, 1, n, all tokens)."""
        past, n = self.past(cache), tokens.size(1)
        seen = tokens.new_ones(n, past + n, dtype=torch.bool).tril(past)
        seen = seen.triu(past - self.window + 1)
        return seen[None, None] if mask is None else seen & mask.bool()[:, None, None]

    def attend(self, layer: Any, x: Tensor, allowed: Tensor, cache: Cache | None, number: int) -> Tensor:
        """Attention of the new tokens (b, n, width) to all."""
        q, k, v = layer["qkv"](x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (b, h, n, d_k) each
        if cache is not None:
            if number in cache:
                k, v = torch.cat([cache[number], torch.stack([k, v])], dim=-2)
            cache[number] = torch.stack([k, v])
        return layer["o"](F.scaled_dot_product_attention(q, k, v, attn_mask=allowed).transpose(1, 2).flatten(2))

    def reorder(self, cache: Cache, rows: Tensor) -> Cache:
        """The cache of these rows of the batch."""
        return {number: kv[:, rows] for number, kv in cache.items()}

    def crop(self, cache: Cache, length: int) -> Cache:
        """The cache of so many tokens, the first ones."""
        return {number: kv[..., :length, :] for number, kv in cache.items()}

    def generate(self, tokens: Tensor, steps: int, mask: Tensor | None = None) -> Tensor:
        """Append the most probable tokens, so many: (b, n + steps). Padding stands in front, where the mask is 0."""
        mask = torch.ones_like(tokens) if mask is None else mask
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        new, cache = tokens, Cache()
        for _ in range(steps):
            new = self(new, cache, mask, positions)[:, -1:].argmax(dim=-1)
            positions = positions[:, -1:] + 1
            tokens, mask = torch.cat([tokens, new], dim=1), F.pad(mask, (0, 1), value=1)
        return tokens


def adapted(model: CachedDecoder) -> Adapted:
    """The decoder with all of it that `check` can try."""

    def call(
        model: CachedDecoder, tokens: Tensor, mask: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:
        return model(tokens, None, mask, positions)

    def extend(
        model: CachedDecoder, tokens: Tensor, cache: Cache | None = None, mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, Cache]:  # fmt: skip
        cache = {} if cache is None else cache
        return model(tokens, cache, mask, positions), cache

    kind = type(model)
    return Adapted(model, call, extend=extend, reorder=kind.reorder, crop=kind.crop, generate=kind.generate)
