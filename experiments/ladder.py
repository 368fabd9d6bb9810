"""The Transformer twice more, as plainly as it can be written: with loops over single tokens, and with Einstein sums.

Both follow the formulas of chapters 02 to 07 and share no line with the library. `p` holds parameters by the names that
the library's modules give them. A mask is boolean, True = may attend, (batch, 1 or heads, query length, key length).
"""

import math

import torch


def part(p, prefix):
    """The parameters of one part, without its prefix."""
    return {name.removeprefix(prefix + "."): value for name, value in p.items() if name.startswith(prefix + ".")}


class Formula:
    """How the parts are put together; how each is computed, the two classes below say."""

    def __init__(self, heads, norm_first=False):
        self.heads, self.norm_first = heads, norm_first

    def sublayer(self, p, name, x, function):
        norm = part(p, f"{name}_norm")
        if self.norm_first:
            return x + function(part(p, name), self.norm(norm, x))
        return self.norm(norm, x + function(part(p, name), x))

    def feed_forward(self, p, x):
        return self.linear(part(p, "linear2"), self.linear(part(p, "linear1"), x).relu())

    def residual_feed_forward(self, p, x):
        return self.sublayer(p, "feed_forward", x, self.feed_forward)

    def encoder_layer(self, p, x, mask):
        x = self.sublayer(p, "self_attention", x, lambda q, y: self.multi_head(q, y, y, y, mask))
        return self.residual_feed_forward(p, x)

    def decoder_layer(self, p, x, memory, mask, memory_mask):
        x = self.sublayer(p, "self_attention", x, lambda q, y: self.multi_head(q, y, y, y, mask))
        x = self.sublayer(
            p, "cross_attention", x, lambda q, y: self.multi_head(q, y, memory, memory, memory_mask)
        )  # fmt: skip
        return self.residual_feed_forward(p, x)

    def stack(self, p, layer, x, *rest):
        number = 0
        while q := part(p, f"layers.{number}"):
            x = layer(q, x, *rest)
            number += 1
        return self.norm(part(p, "norm"), x) if self.norm_first else x

    def encoder(self, p, x, mask):
        return self.stack(p, self.encoder_layer, x, mask)

    def decoder(self, p, x, memory, mask, memory_mask):
        return self.stack(p, self.decoder_layer, x, memory, mask, memory_mask)

    def transformer(self, p, source, target, source_mask, target_mask):
        memory = self.encoder(part(p, "encoder"), self.embed(p, "source", source), source_mask)
        hidden = self.decoder(part(p, "decoder"), self.embed(p, "target", target), memory, target_mask, source_mask)
        return self.linear(part(p, "output_projection"), hidden)

    def embed(self, p, side, tokens):
        table = p[f"{side}_embedding.weight"]
        vectors = self.look_up(table, tokens) * math.sqrt(table.size(1))
        return vectors + self.positions(tokens.size(1), table.size(1)).to(table.dtype)


class Loop(Formula):
    """One sentence, one head, one query and one key at a time; the only sums are dot products."""

    def attention(self, query, key, value, mask):
        if query.dim() > 2:
            masks = [None] * len(query) if mask is None else mask
            return torch.stack([self.attention(*tensors) for tensors in zip(query, key, value, masks, strict=True)])
        rows = []
        for i, q in enumerate(query):
            powers = {j: (q @ k / math.sqrt(len(q))).exp() for j, k in enumerate(key) if mask is None or mask[i, j]}
            total = sum(powers.values())
            rows.append(sum((power / total * value[j] for j, power in powers.items()), start=value.new_zeros(())))
        return torch.stack([row.expand(value.size(-1)) for row in rows])

    def multi_head(self, p, query, key, value, mask):
        batch, n, width = query.shape
        each = width // self.heads
        if mask is not None:
            mask = mask.expand(batch, self.heads, n, key.size(1))
        sentences = []
        for b in range(batch):
            columns = []
            for h in range(self.heads):
                q, k, v = (
                    self.linear({"weight": weight, "bias": bias}, x[b])
                    for x, weight, bias in zip(
                        (query, key, value),
                        (weight[h * each : (h + 1) * each] for weight in p["in_projection.weight"].chunk(3)),
                        (bias[h * each : (h + 1) * each] for bias in p["in_projection.bias"].chunk(3)),
                    )
                )
                columns.append(self.attention(q, k, v, None if mask is None else mask[b, h]))
            sentences.append(self.linear(part(p, "out_projection"), torch.cat(columns, dim=-1)))
        return torch.stack(sentences)

    def linear(self, p, x):
        if x.dim() > 1:
            return torch.stack([self.linear(p, token) for token in x])
        outputs = torch.stack([row @ x for row in p["weight"]])
        return outputs + p["bias"] if "bias" in p else outputs

    def norm(self, p, x):
        if x.dim() > 1:
            return torch.stack([self.norm(p, token) for token in x])
        centred = x - sum(x) / len(x)
        variance = centred @ centred / len(x)
        return centred / (variance + 1e-5).sqrt() * p["weight"] + p["bias"]

    def look_up(self, table, tokens):
        return torch.stack([torch.stack([table[number] for number in sentence.tolist()]) for sentence in tokens])

    def positions(self, length, width):
        table = torch.empty(length, width, dtype=torch.float64)
        for position in range(length):
            for channel in range(width):
                angle = position / 10000 ** (2 * (channel // 2) / width)
                table[position, channel] = math.cos(angle) if channel % 2 else math.sin(angle)
        return table


class Einsum(Formula):
    """Whole tensors at once: each sum over an index is an Einstein sum."""

    def attention(self, query, key, value, mask):
        scores = torch.einsum("...nk,...mk->...nm", query, key) / math.sqrt(query.size(-1))
        powers = (scores - scores.amax(dim=-1, keepdim=True)).exp()
        if mask is not None:
            powers = powers * mask
        total = torch.einsum("...nm->...n", powers)[..., None]
        return torch.einsum("...nm,...mv->...nv", powers / torch.where(total == 0, 1, total), value)

    def multi_head(self, p, query, key, value, mask):
        weights, biases = (p[f"in_projection.{kind}"].unflatten(0, (3, self.heads, -1)) for kind in ("weight", "bias"))
        q, k, v = (
            torch.einsum("bnd,hkd->bhnk", x, weight) + bias[:, None]
            for x, weight, bias in zip((query, key, value), weights, biases)
        )
        output = p["out_projection.weight"].unflatten(1, (self.heads, -1))  # (d_model, h, d_k)
        return torch.einsum("bhnk,ohk->bno", self.attention(q, k, v, mask), output) + p["out_projection.bias"]

    def linear(self, p, x):
        output = torch.einsum("...i,oi->...o", x, p["weight"])
        return output + p["bias"] if "bias" in p else output

    def norm(self, p, x):
        width = x.size(-1)
        centred = x - torch.einsum("...d->...", x)[..., None] / width
        variance = torch.einsum("...d,...d->...", centred, centred)[..., None] / width
        return centred / (variance + 1e-5).sqrt() * p["weight"] + p["bias"]

    def look_up(self, table, tokens):
        one_hot = torch.nn.functional.one_hot(tokens, len(table)).to(table.dtype)
        return torch.einsum("bnv,vd->bnd", one_hot, table)

    def positions(self, length, width):
        pairs = torch.arange(width, dtype=torch.float64) // 2
        speed = torch.exp(-2 * pairs / width * math.log(10000))
        angle = torch.einsum("p,c->pc", torch.arange(length, dtype=torch.float64), speed)
        return torch.where(torch.arange(width) % 2 == 0, angle.sin(), angle.cos())
