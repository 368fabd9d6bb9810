"""A right decoder with a cache, as a tutorial would write it; the lines of decoders.tsv change its text.

Pre-norm, learned positions; a cache is a dictionary with keys and values of each layer, and its length.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lib.checks import Adapted


class Decoder(nn.Module):
    width, heads, groups, depth, max_len, first = 16, 4, 4, 2, 64, 0

    def __init__(self, vocab, pad):
        super().__init__()
        self.pad, inner = pad, self.width // self.heads * self.groups
        self.table, self.places = nn.Embedding(vocab, self.width), nn.Embedding(self.max_len + 4, self.width)
        self.layers = nn.ModuleList(nn.ModuleDict({
            "norm": nn.LayerNorm(self.width), "q": nn.Linear(self.width, self.width), "k": nn.Linear(self.width, inner),
            "v": nn.Linear(self.width, inner), "o": nn.Linear(self.width, self.width),
            "norm2": nn.LayerNorm(self.width), "up": nn.Linear(self.width, 32), "down": nn.Linear(32, self.width),
        }) for _ in range(self.depth))  # fmt: skip
        self.norm, self.output = nn.LayerNorm(self.width), nn.Linear(self.width, vocab)

    def forward(self, tokens, mask=None, positions=None, cache=None):
        past, n = self.past(cache), tokens.size(1)
        if past + n > self.max_len:
            raise ValueError(f"{past + n} tokens, but max_len is {self.max_len}")
        if positions is None:
            positions = self.numbers(past, n, tokens.device)
        x, allowed = self.embed(tokens, positions), self.allowed(past, n, mask, tokens.device)
        for number, layer in enumerate(self.layers):
            x = x + self.attend(layer, layer["norm"](x), allowed, positions, cache, number)
            x = x + layer["down"](layer["up"](layer["norm2"](x)).relu())
        self.count(cache, n)
        return self.output(self.norm(x))

    def numbers(self, past, n, device):
        return torch.arange(past, past + n, device=device)[None] + self.first

    def embed(self, tokens, positions):
        return self.table(tokens) + self.places(positions)

    def allowed(self, past, n, mask, device):
        """True = may be seen, (b or 1, 1, new, all)."""
        causal = torch.ones(n, past + n, dtype=torch.bool, device=device).tril(past)[None, None]
        return causal if mask is None else causal & mask.bool()[:, None, None]

    def attend(self, layer, x, allowed, positions, cache, number):
        q, k, v = (self.split(layer[name](x)) for name in "qkv")
        q, k = self.turn(q, positions), self.turn(k, positions)
        if cache is not None:
            k, v = self.store(cache, number, k, v)
        k, v = (y.repeat_interleave(self.heads // self.groups, dim=1) for y in (k, v))
        weights = self.weights(self.scores(q, k, positions), allowed[..., -k.size(2) :])
        return layer["o"]((weights @ v).transpose(1, 2).flatten(2))

    def split(self, x):
        return x.unflatten(-1, (-1, self.width // self.heads)).transpose(1, 2)

    def turn(self, x, positions):
        return x

    def scores(self, q, k, positions):
        return q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))

    def weights(self, scores, allowed):
        return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1) * allowed

    def empty(self):
        return {"length": 0, "layers": {}}

    def past(self, cache):
        return 0 if cache is None else cache["length"]

    def count(self, cache, n):
        if cache is not None:
            cache["length"] += n

    def store(self, cache, number, k, v):
        if number in cache["layers"]:
            k, v = (torch.cat(both, dim=2) for both in zip(cache["layers"][number], (k, v)))
        cache["layers"][number] = k, v
        return k, v

    def changed(self, cache, change):
        """The cache with another tensor for each (b, h, n, d)."""
        layers = {
            number: tuple(change(number, i, x) for i, x in enumerate(kv)) for number, kv in cache["layers"].items()
        }
        return cache | {"layers": layers}

    def reorder(self, cache, rows):
        return self.changed(cache, lambda number, i, x: x[rows])

    def crop(self, cache, length):
        return self.changed(cache, lambda number, i, x: x[:, :, :length]) | {"length": length}

    def generate(self, tokens, steps, mask=None):
        mask, cache = torch.ones_like(tokens) if mask is None else mask, self.empty()
        logits = self(tokens, mask, self.counted(mask), cache)
        for _ in range(steps):
            new = logits[:, -1:].argmax(-1)
            tokens, mask = torch.cat([tokens, new], 1), torch.cat([mask, torch.ones_like(new)], 1)
            logits = self(new, mask, self.counted(mask)[:, -1:], cache)
        return tokens

    def counted(self, mask):
        return (mask.cumsum(1) - 1).clamp(min=0) + self.first

    def beams(self, tokens, steps, width=3):
        rows, cache = len(tokens), self.empty()
        scores, new = self(tokens, cache=cache)[:, -1].log_softmax(-1).topk(width)
        parents = torch.arange(rows).repeat_interleave(width)
        for _ in range(steps - 1):
            tokens, cache = torch.cat([tokens[parents], new.view(-1, 1)], 1), self.reorder(cache, parents)
            log_p = self(tokens[:, -1:], cache=cache).log_softmax(-1).view(rows, width, -1)
            scores, best = (scores[..., None] + log_p).flatten(1).topk(width)
            new = best % log_p.size(2)
            parents = (torch.arange(rows)[:, None] * width + best // log_p.size(2)).flatten()
        return torch.cat([tokens[parents], new.view(-1, 1)], 1)[::width], scores[:, 0]


def rotary(x, positions, base=10000.0):
    d = x.size(-1)
    angles = positions[:, None, :, None] * base ** (-torch.arange(0, d, 2, device=x.device) / d)
    cosine, sine, (even, odd) = angles.cos().to(x), angles.sin().to(x), (x[..., 0::2], x[..., 1::2])
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).flatten(-2)


def call(model, tokens, mask=None, positions=None):
    return model(tokens, mask, positions)


def extend(model, tokens, cache=None, mask=None, positions=None):
    cache = model.empty() if cache is None else cache
    return model(tokens, mask, positions, cache), cache


def loss(model, tokens, labels, shift=1, ignored=-100, **how):
    logits, labels = model(tokens)[:, : tokens.size(1) - shift], labels[:, shift:]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten().clamp(min=ignored), ignore_index=ignored, **how)


OWN = {
    "extend": extend,
    "reorder": lambda model, cache, rows: model.reorder(cache, rows),
    "crop": lambda model, cache, length: model.crop(cache, length),
    "generate": lambda model, tokens, steps, mask=None: model.generate(tokens, steps, mask),
    "beams": lambda model, tokens, steps: model.beams(tokens, steps),
    "loss": loss,
}


def build(vocab, pad, own="extend reorder crop generate beams loss", **more):
    """A decoder with all that `check` can try."""
    return Adapted(Decoder(vocab, pad), call, **{name: OWN[name] for name in own.split()}, **more)
