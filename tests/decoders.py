"""A decoder with a cache, as a tutorial would write it: right in several structures, and wrong in one thing each."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lib.checks import Adapted


class Decoder(nn.Module):
    """Pre-norm, learned positions; a cache is a dictionary with keys and values of each layer, and its length."""

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

    # the cache

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

    # generation

    def generate(self, tokens, steps, mask=None):
        mask, cache = torch.ones_like(tokens) if mask is None else mask, self.empty()
        logits = self(tokens, mask, self.counted(mask), cache)
        for _ in range(steps):
            new = logits[:, -1:].argmax(-1)
            tokens, mask = torch.cat([tokens, new], 1), torch.cat([mask, torch.ones_like(new)], 1)
            logits = self(new, mask, self.counted(mask)[:, -1:], cache)
        return tokens

    def beams(self, tokens, steps, width=3):
        rows, cache = len(tokens), self.empty()
        scores, new = self(tokens, cache=cache)[:, -1].log_softmax(-1).topk(width)
        parents = torch.arange(rows).repeat_interleave(width)
        for _ in range(steps - 1):
            tokens, cache = torch.cat([tokens[parents], new.view(-1, 1)], 1), self.follow(cache, parents)
            logits = self(tokens[:, -1:], cache=cache)
            scores, best = self.scored(scores, logits.log_softmax(-1).view(rows, width, -1)).flatten(1).topk(width)
            new = best % logits.size(2)
            parents = (torch.arange(rows)[:, None] * width + best // logits.size(2)).flatten()
        return torch.cat([tokens[parents], new.view(-1, 1)], 1)[::width], scores[:, 0]

    def follow(self, cache, parents):
        return self.reorder(cache, parents)

    def scored(self, scores, log_probs):
        return scores[..., None] + log_probs

    def counted(self, mask):
        return (mask.cumsum(1) - 1).clamp(min=0) + self.first


def call(model, tokens, mask=None, positions=None):
    return model(tokens, mask, positions)


def extend(model, tokens, cache=None, mask=None, positions=None):
    cache = model.empty() if cache is None else cache
    return model(tokens, mask, positions, cache), cache


def loss(model, tokens, labels, shift=1, ignored=-100, **how):
    logits, labels = model(tokens)[:, : tokens.size(1) - shift], labels[:, shift:]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten().clamp(min=ignored), ignore_index=ignored, **how)


def adapted(kind, call=call, **parts):
    """The factory of a decoder with all that `check` can try."""
    usual = {
        "extend": extend, "reorder": lambda model, cache, rows: model.reorder(cache, rows),
        "crop": lambda model, cache, length: model.crop(cache, length),
        "generate": lambda model, tokens, steps, mask=None: model.generate(tokens, steps, mask),
        "beams": lambda model, tokens, steps: model.beams(tokens, steps), "loss": loss,
    }  # fmt: skip
    return lambda vocab, pad: Adapted(kind(vocab, pad), call, **(usual | parts))


def kind(base=Decoder, **methods):
    return type("Kind", (base,), methods)


def rotary(model, x, positions, base=10000.0):
    d = x.size(-1)
    angles = positions[:, None, :, None] * base ** (-torch.arange(0, d, 2, device=x.device) / d)
    cosine, sine, (even, odd) = angles.cos().to(x), angles.sin().to(x), (x[..., 0::2], x[..., 1::2])
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).flatten(-2)


class Unplaced(Decoder):
    """No table of positions."""

    def __init__(self, vocab, pad):
        super().__init__(vocab, pad)
        del self.places

    def embed(self, tokens, positions):
        return self.table(tokens)


D, Rotary = Decoder, kind(Unplaced, turn=rotary)


def window(size):
    """Attention to the last so many tokens."""

    def allowed(m, past, n, mask, device):
        return D.allowed(m, past, n, mask, device).triu(past - size + 1)

    return allowed


def only(m, past, n, mask, device, keep=lambda row, column: row == column):
    """The usual mask where `keep` says so."""
    usual = D.allowed(m, past, n, mask, device)
    rows, columns = torch.arange(past, past + n, device=device)[:, None], torch.arange(past + n, device=device)
    return usual & keep(rows, columns)


class Preallocated(Decoder):
    """Keys and values are written into tensors of the full length."""

    def store(self, cache, number, k, v):
        if number not in cache["layers"]:
            cache["layers"][number] = tuple(x.new_zeros(*x.shape[:2], self.max_len, x.size(3)) for x in (k, v))
        end = cache["length"] + k.size(2)
        for kept, new in zip(cache["layers"][number], (k, v)):
            kept[:, :, cache["length"] : end] = new
        return tuple(kept[:, :, :end] for kept in cache["layers"][number])

    def crop(self, cache, length):
        return cache | {"length": length}


class Inside(Decoder):
    """The cache lies in the module."""

    def empty(self):
        self.kept = super().empty()
        return self.kept


def inside(model, tokens, cache=None):
    cache = model.empty() if cache is None else model.kept
    return model(tokens, None, None, cache), True


def alibi(m, q, k, positions):
    keys = torch.arange(k.size(2), device=q.device)
    slopes = 0.5 ** torch.arange(1.0, 5, device=q.device).to(q)[:, None, None]
    return D.scores(m, q, k, positions) + (keys - keys[-q.size(2) :, None]) * slopes


def kept(size):
    """Stores the last so many only; the mask is cut to what is there."""

    def store(m, cache, number, k, v):
        k, v = D.store(m, cache, number, k, v)
        cache["layers"][number] = k[:, :, -size:], v[:, :, -size:]
        return k, v

    return store


def with_sink(m, scores, allowed, used=True):
    """One key more, of a fixed score and without a value, so that a head may look nowhere."""
    total = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).logsumexp(-1, keepdim=True)
    return D.weights(m, scores, allowed) * ((total - 1).sigmoid() if used else 1)


def tied(vocab, pad, base=Decoder):
    model = base(vocab, pad)
    model.output.weight = model.table.weight
    return model


class OneMap(Decoder):
    """Keys and values of the groups come from one map, which is as wide as the model."""

    groups = 2

    def __init__(self, *sizes):
        super().__init__(*sizes)
        for layer in self.layers:
            layer["kv"] = nn.Linear(self.width, 2 * layer.pop("k").out_features)
            del layer["v"]

    def attend(self, layer, x, *rest):
        k, v = layer["kv"](x).chunk(2, dim=-1)
        return super().attend({**layer, "k": lambda _: k, "v": lambda _: v}, x, *rest)


def one_token_only(model, tokens, cache=None, mask=None, positions=None):
    if cache is not None and tokens.size(1) > 1:
        raise NotImplementedError("one token at a time")
    return extend(model, tokens, cache, mask, positions)


RIGHT = {
    "learned positions": adapted(Decoder),
    "rotary": adapted(Rotary),
    "grouped heads": adapted(kind(Rotary, groups=2)),
    "one group": adapted(kind(Rotary, groups=1)),
    "normed queries and keys": adapted(kind(Rotary, turn=lambda m, x, p: rotary(m, F.rms_norm(x, x.shape[-1:]), p))),
    "tied": adapted(tied),
    "sink": adapted(kind(Rotary, weights=with_sink)),
    "window": adapted(kind(Rotary, allowed=window(5))),
    "window in a ring": adapted(kind(Rotary, allowed=window(5), store=kept(4)), crop=None),
    "distances": adapted(kind(Unplaced, scores=alibi)),
    "positions from 2 on": adapted(kind(first=2)),
    "preallocated": adapted(Preallocated),
    "inside the module": adapted(Inside, extend=inside, one_cache=True, reorder=None, crop=None, generate=None,
                                 beams=None),
    "one token at a time": adapted(Decoder, extend=one_token_only),
    "no mask": lambda vocab, pad: Adapted(
        Decoder(vocab, pad), lambda model, tokens: model(tokens),
        extend=lambda model, tokens, cache=None: extend(model, tokens, cache)),
    "plain": Decoder,
}  # fmt: skip


def turned_again(m, cache, number, k, v):
    found = D.store(m, cache, number, k, v)
    cache["layers"][number] = rotary(m, found[0], torch.ones_like(found[0][0, :1, :, 0])), found[1]
    return found


def without_gain(m, layer, x, allowed, positions, cache, number):
    """As a step that normalises by hand: as long as the gain is one and the bias zero, nothing is wrong."""
    x = (x - layer["norm"].bias) / layer["norm"].weight if m.past(cache) else x
    return D.attend(m, layer, x, allowed, positions, cache, number)


def without_last(m, cache, number, k, v):
    found = D.store(m, cache, number, k, v)
    if k.size(2) > 1:
        cache["layers"][number] = tuple(x[:, :, :-1] for x in found)
        cache["length"] -= number == 1
    return found


def keys_only(m, cache, number, k, v):
    kept = cache["layers"].get(number)
    k, _ = D.store(m, cache, number, k, v)
    if kept is not None:
        v = v.expand_as(k) if v.size(2) == 1 else k
    return k, v


def generate(last=-1, mask_grows=True, counts=True, stale=False):
    """Greedy search with one mistake."""

    def generated(m, tokens, steps, mask=None):
        mask, cache = torch.ones_like(tokens) if mask is None else mask, m.empty()
        places = m.counted(mask) if counts else None
        logits = m(tokens, mask, places, cache)
        for step in range(steps):
            at = 0 if stale and step == 1 else max(last, -logits.size(1))
            new = logits[:, at][:, None].argmax(-1)
            tokens, mask = torch.cat([tokens, new], 1), torch.cat([mask, torch.ones_like(new) * mask_grows], 1)
            places = m.counted(mask)[:, -1:] if counts else None
            if stale and step == 0:
                continue
            logits = m(new, mask, places, cache)
        return tokens

    return generated


class Shared(Decoder):
    """The empty cache is one and the same dictionary."""

    def empty(self):
        self.kept = getattr(self, "kept", None) or super().empty()
        return self.kept


def seen(change, **methods):
    """The factory of a decoder whose mask is another function of the usual one, of old and new, mask and device."""
    return adapted(kind(allowed=lambda m, *given: change(partial(D.allowed, m), *given), **methods))


def numbered(change):
    return adapted(kind(numbers=lambda m, past, n, device: change(partial(D.numbers, m), past, n, device)))


def reordered(change):
    return adapted(kind(reorder=lambda m, cache, rows: m.changed(cache, lambda layer, i, x: change(layer, i, x, rows))))


def stored(change):
    return adapted(kind(store=lambda m, cache, number, k, v: D.store(m, cache, number, *change(k, v))))


def ones(rows, columns, device):
    return torch.ones(rows, columns, dtype=torch.bool, device=device)[None, None]


ONE, REORDERED, CROPPED = "cache one by one", "cache reordered", "cache cropped"
WRITES, BEAMS = "generated tokens are the most probable", "beams are as probable as they say"
LOSS = "its loss is the cross entropy of its logits"
WRONG = {  # the decoder, the property about its mistake, and what it says
    "positions begin anew": (numbered(lambda usual, past, n, device: usual(0, n, device)),
        ONE, "from token 2 of 40 on; the first module that differs is model.place"),
    "positions one too far": (numbered(lambda usual, past, n, device: usual(past + (past > 0), n, device)), ONE, ""),
    "positions end at 16": (numbered(lambda usual, *given: usual(*given).clamp(max=16)), "", ""),
    "rotary without offset": (adapted(kind(Rotary, turn=lambda m, x, p: rotary(m, x, p - p[:, :1]))), ONE, ""),
    "queries without offset": (adapted(kind(Rotary, turn=lambda m, x, p: rotary(m, x, p if p.size(1) > 1 else 0 * p))),
        ONE, ""),
    "chunks: mask without offset": (seen(lambda usual, past, n, mask, device: usual(past, n, mask, device) if n == 1
                                        else ones(n, past + n, device).tril()), "cache in chunks", ""),
    "chunks: no mask": (seen(lambda usual, past, n, mask, device: ones(1, past + n, device) if past
                            else usual(past, n, mask, device)), "cache in chunks", "in pieces of 4, 3, 1, 4"),
    "keeps twelve": (adapted(kind(store=kept(12))), ONE, ""),
    "a ring that is too small": (adapted(kind(Rotary, allowed=window(5), store=kept(3)), crop=None), ONE, ""),
    "no window with a cache": (adapted(kind(Rotary, allowed=lambda m, past, *given: (
        D.allowed if past else window(5))(m, past, *given))), ONE, ""),
    "no sink with a cache": (adapted(kind(Rotary, weights=lambda m, scores, allowed: with_sink(
        m, scores, allowed, used=scores.size(-1) == scores.size(-2)))), ONE, ""),
    "keys are turned again at each step": (adapted(kind(Rotary, store=turned_again)), ONE, ""),
    "no gain with a cache": (adapted(kind(attend=without_gain)), ONE, ""),
    "another scale with a cache": (adapted(kind(scores=lambda m, q, k, p: D.scores(m, q, k, p) * (
        1 if q.size(2) == k.size(2) else 0.9))), ONE, ""),
    "positions of the first row for all": (adapted(kind(embed=lambda m, tokens, p: D.embed(m, tokens, p[:1]))),
        "padding in front", ""),
    "the mask of the first row for all": (seen(lambda usual, past, n, mask, device: usual(
        past, n, None if mask is None else mask[:1], device)), "padding in front", ""),
    "the last of a prompt is not stored": (adapted(kind(Rotary, store=without_last)),
        "cache after a prefill", "from token 6 of 40 on"),
    "layers share a cache": (adapted(kind(store=lambda m, cache, number, k, v: D.store(m, cache, 0, k, v))), ONE, ""),
    "keys only": (adapted(kind(store=keys_only)), ONE, ""),
    "one cache for all": (adapted(Shared), "two caches in turns", ""),
    "reorders keys only": (reordered(lambda layer, i, x, rows: x if i else x[rows]), REORDERED, "rows 2, 0, 0"),
    "reorders one layer": (reordered(lambda layer, i, x, rows: x if layer else x[rows]), REORDERED, ""),
    "reorders heads": (reordered(lambda layer, i, x, rows: x[:, [2, 0, 0, 3]]), REORDERED, ""),
    "does not reorder": (reordered(lambda layer, i, x, rows: x), REORDERED, ""),
    "crops, and counts on": (adapted(kind(
        crop=lambda m, cache, length: D.crop(m, cache, length) | {"length": cache["length"]})), CROPPED, ""),
    "crops the end": (adapted(kind(crop=lambda m, cache, length: m.changed(
        cache, lambda layer, i, x: x[:, :, -length:]) | {"length": length})), CROPPED, ""),
    "crops to one more": (adapted(kind(Preallocated, crop=lambda m, cache, length: cache | {"length": length + 1})),
        CROPPED, ""),
    "the mask covers new tokens only": (seen(lambda usual, past, n, mask, device: usual(
        past, n, None if past else mask, device)), "cache with padding in front", ""),
    "the mask is not used": (seen(lambda usual, past, n, mask, device: usual(past, n, None, device)),
        "a mask hides what it should", "under the mask"),
    "the mask is inverted": (seen(lambda usual, past, n, mask, device: usual(
        past, n, None if mask is None else 1 - mask, device)), "a mask hides what it should", ""),
    "positions are not used": (adapted(kind(embed=lambda m, tokens, p: D.embed(  # but for a single token
        m, tokens, p if tokens.size(1) == 1 else torch.arange(tokens.size(1), device=tokens.device)))),
        "padding in front", ""),
    "scores by length": (adapted(kind(scores=lambda m, q, k, p: D.scores(m, q, k, p) / math.log(1 + k.size(2)))),
        "a prefix is enough", "the first module that differs is model.layers.0.o"),
    "rotary by length": (adapted(kind(Rotary, turn=lambda m, x, p: rotary(m, x, p, 100.0 + 50 * x.size(2)))),
        "a prefix is enough", ""),
    "holes": (adapted(kind(allowed=lambda m, *given: only(m, *given, keep=lambda i, j: (i - j) % 3 != 2))), "", ""),
    "forgets the first after twelve": (adapted(kind(
        depth=1, allowed=lambda m, *given: only(m, *given, keep=lambda i, j: (j > 0) | (i < 10)))),
        "the past is seen", "position 10 does not see position 0"),
    "half precision": (stored(lambda k, v: (k.half().to(k), v.half().to(v))), ONE, ""),
    "mean of the batch": (stored(lambda k, v: (k, v + 0.1 * v.mean(0, keepdim=True))), ONE, ""),
    "generates from the last but one": (adapted(kind(generate=generate(last=-2))), WRITES, ""),
    "generates from old logits": (adapted(kind(generate=generate(stale=True))), WRITES, ""),
    "generates with a mask that does not grow": (adapted(kind(generate=generate(mask_grows=False))), WRITES, "of 24"),
    "generates, and counts padding": (adapted(kind(generate=generate(counts=False))),
        "generated in a batch as alone", "[0, "),
    "tied, and generates from the last but one": (adapted(partial(tied, base=kind(generate=generate(last=-2)))),
        WRITES, ""),
    "counts in the module": (adapted(kind(
        past=lambda m, cache: 0 if cache is None or not cache["layers"] else m.counts,
        count=lambda m, cache, n: cache and setattr(m, "counts", cache["layers"][0][0].size(2)))),
        "two caches in turns", ""),
    "a mask on the CPU": (seen(lambda usual, past, n, mask, device: usual(past, n, mask, "cpu")),
        "buffers move along", ""),
    "beams go on from their neighbours": (adapted(kind(follow=lambda m, cache, parents: (
        cache if len(parents) == len(cache["layers"][0][0]) else m.reorder(cache, parents)))),
        BEAMS, "the log-probability of the answer"),
    "beams are scored by their last token": (adapted(kind(scored=lambda m, scores, log_probs: log_probs)),
        BEAMS, "the log-probability of the answer"),
    "labels are shifted twice": (adapted(D, loss=partial(loss, shift=2)), LOSS, "labels are shifted once too often"),
    "ignored labels are those of token 0": (adapted(D, loss=partial(loss, ignored=0)), LOSS, ""),
    "the loss is a sum": (adapted(D, loss=partial(loss, reduction="sum")), LOSS, "the loss is a sum"),
    "not causal": (seen(lambda usual, *given: usual(*given) | True), "causality", ""),
}  # fmt: skip


# --- the same, reading both ways: encoders ---------------------------------------------------------------------------


def whole(reach=64, keep=lambda back: back == back, hide=True):
    """Attention to all real tokens, not farther away than `reach`, where `keep` says so."""

    def allowed(m, past, n, mask, device):
        back = torch.arange(n, device=device)[:, None] - torch.arange(n, device=device)
        seen = (back.abs() <= reach) & keep(back)
        return seen[None, None] if mask is None or not hide else seen & mask.bool()[:, None, None]

    return allowed


def encoder(base=Decoder, shift=0, **methods):
    made = kind(base, **{"allowed": whole()} | methods)
    return lambda vocab, pad: Adapted(made(vocab, pad), call, loss=partial(loss, shift=shift))


RIGHT_ENCODERS = {
    "learned positions": encoder(), "rotary": encoder(Rotary), "window": encoder(Rotary, allowed=whole(3)),
}  # fmt: skip
WRONG_ENCODERS = {  # and the property that is about it
    "no positions": (encoder(Unplaced), "positions matter"),
    "one position for all": (encoder(embed=lambda m, tokens, p: D.embed(m, tokens, 0 * p)), "positions matter"),
    "only the past": (encoder(allowed=whole(keep=lambda back: back >= 0)), "source sensitivity"),
    "no token hears another": (encoder(allowed=whole(0)), "source sensitivity"),
    "holes": (encoder(depth=1, allowed=whole(keep=lambda back: back % 3 != 2)), "source sensitivity"),
    "the mask is not used": (encoder(allowed=whole(hide=False)), "a mask hides what it should"),
    "mean of the batch": (
        encoder(split=lambda m, x: D.split(m, x + 0.1 * x.mean(0, keepdim=True))), "batch independence"),
    "labels are those of the next token": (encoder(shift=1), LOSS),
}  # fmt: skip
