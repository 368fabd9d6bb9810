"""Right answers, written in another style than the solutions: einsum, loops, other names, post-norm."""

import math

import torch
from torch import einsum, nn


def attention(queries, keys, values, allowed=None):
    s = einsum("...id,...jd->...ij", queries, keys) * queries.shape[-1] ** -0.5
    if allowed is not None:
        s = torch.where(allowed, s, torch.tensor(-math.inf, dtype=s.dtype))
    w = s.softmax(-1).nan_to_num(0.0)
    return einsum("...ij,...jd->...id", w, values), w


def split_heads(tensor, n):
    return torch.stack(tensor.chunk(n, dim=-1), dim=1)


def merge_heads(tensor):
    return torch.cat(list(tensor.unbind(1)), dim=-1)


class MultiHeadAttention(nn.Module):
    def __init__(self, width, n):
        super().__init__()
        self.W = nn.Parameter(torch.randn(3, n, width, width // n) / math.sqrt(width))
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, a, b, c, mask=None):
        q, k, v = (einsum("btd,hdk->bhtk", x, w) for x, w in zip((a, b, c), self.W))
        return self.out(merge_heads(attention(q, k, v, mask)[0]))


def sinusoidal_table(length, d_model):
    rows = []
    for p in range(length):
        row = []
        for i in range(d_model // 2):
            angle = p / 10000 ** (2 * i / d_model)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor(rows)


def padding_mask(tokens, pad_id):
    return tokens.ne(pad_id).unsqueeze(1).unsqueeze(1)


def causal_mask(length):
    places = torch.arange(length)
    return (places[None, :] <= places[:, None])[None, None]


class LayerNorm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.b, self.g = nn.Parameter(torch.zeros(d_model)), nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.g + self.b


class FeedForward(nn.Sequential):
    def __init__(self, d_model, d_ff):
        super().__init__(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))


class EncoderLayer(nn.Module):  # post-norm
    def __init__(self, d_model, num_heads, d_ff, dropout=0.1):
        super().__init__()
        self.mha, self.ff = MultiHeadAttention(d_model, num_heads), FeedForward(d_model, d_ff)
        self.drop = nn.Dropout(dropout)
        self.norms = nn.ModuleList([LayerNorm(d_model), LayerNorm(d_model)])

    def forward(self, x, mask=None):
        x = self.norms[0](x + self.drop(self.mha(x, x, x, mask)))
        return self.norms[1](x + self.drop(self.ff(x)))


class DecoderLayer(nn.Module):  # post-norm
    def __init__(self, d_model, num_heads, d_ff, dropout=0.1):
        super().__init__()
        self.mha, self.cross = MultiHeadAttention(d_model, num_heads), MultiHeadAttention(d_model, num_heads)
        self.ff, self.drop = FeedForward(d_model, d_ff), nn.Dropout(dropout)
        self.norms = nn.ModuleList([LayerNorm(d_model) for _ in range(3)])

    def forward(self, x, memory, mask=None, memory_mask=None):
        x = self.norms[0](x + self.drop(self.mha(x, x, x, mask)))
        x = self.norms[1](x + self.drop(self.cross(x, memory, memory, memory_mask)))
        return self.norms[2](x + self.drop(self.ff(x)))


class Transformer(nn.Module):
    def __init__(
        self, source_vocab_size, target_vocab_size, pad_id, d_model=128, num_heads=4, d_ff=256, num_layers=4,
        dropout=0.1,
    ):  # fmt: skip
        super().__init__()
        self.pad, self.d = pad_id, d_model
        self.src, self.tgt = nn.Embedding(source_vocab_size, d_model), nn.Embedding(target_vocab_size, d_model)
        self.enc = nn.ModuleList([EncoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers)])
        self.dec = nn.ModuleList([DecoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers)])
        for table in (self.src, self.tgt):
            table.weight.data.normal_(0, d_model**-0.5)
        self.register_buffer("table", sinusoidal_table(512, d_model), persistent=False)
        self.out, self.drop = nn.Linear(d_model, target_vocab_size), nn.Dropout(dropout)

    def forward(self, source, target):
        mask = padding_mask(source, self.pad)
        sides = (self.src, source), (self.tgt, target)
        x, y = (self.drop(embed(t) * self.d**0.5 + self.table[: t.size(1)]) for embed, t in sides)
        for layer in self.enc:
            x = layer(x, mask)
        own = causal_mask(target.size(1)).to(target.device) & padding_mask(target, self.pad)
        for layer in self.dec:
            y = layer(y, x, own, mask)
        return self.out(y)


def make_batch(pairs, pad_id):
    def rectangle(rows):
        full = torch.full((len(rows), max(map(len, rows))), pad_id)
        for i, row in enumerate(rows):
            full[i, : len(row)] = torch.tensor(row)
        return full

    return rectangle([a for a, _ in pairs]), rectangle([b for _, b in pairs])


def batches_by_length(pairs, budget):
    rest, made = sorted(pairs, key=lambda p: (max(map(len, p)), -len(p[0]))), []
    while rest:
        count = max(k for k in range(1, len(rest) + 1) if k * max(map(len, rest[k - 1])) <= budget)
        made, rest = [*made, tuple(rest[:count])], rest[count:]
    return made


def label_smoothed_loss(scores, gold, pad_id, smoothing=0.1):
    return nn.functional.cross_entropy(scores.transpose(1, 2), gold, ignore_index=pad_id, label_smoothing=smoothing)


def learning_rate(step, peak, warmup):
    return peak * step / warmup if step < warmup else peak * (warmup / step) ** 0.5


def training_step(model, optimizer, source, target, pad_id, rate):
    for g in optimizer.param_groups:
        g.update(lr=rate)
    optimizer.zero_grad(set_to_none=False)
    loss = label_smoothed_loss(model(source, target[:, :-1]), target[:, 1:], pad_id)
    loss.backward()
    optimizer.step()
    return loss.detach().tolist()


@torch.no_grad()
def greedy(model, source, bos_id, eos_id, max_length):
    sentence = torch.tensor([[bos_id]], device=source.device)
    for _ in range(max_length):
        sentence = torch.cat([sentence, model(source, sentence)[:, -1:].argmax(-1)], dim=1)
        if sentence[0, -1] == eos_id:
            return sentence[0, 1:-1].tolist()
    return sentence[0, 1:].tolist()


@torch.no_grad()
def beam_search(model, source, bos_id, eos_id, max_length, beam_size=5, length_penalty=1.0):
    beams = [(0.0, [bos_id], False)]
    for _ in range(max_length):
        done = [beam for beam in beams if beam[2]]
        new = []
        for total, tokens, over in beams:
            if not over:
                logs = model(source, torch.tensor([tokens], device=source.device))[0, -1].double().log_softmax(-1)
                new += [(total + logs[i].item(), [*tokens, i], i == eos_id) for i in range(len(logs))]
        beams = done + sorted(new, key=lambda beam: -beam[0])[: beam_size - len(done)]
    over = [beam for beam in beams if beam[2]] or beams
    total, tokens, ended = max(over, key=lambda beam: beam[0] / (len(beam[1]) - 1) ** length_penalty)
    return tokens[1:-1] if ended else tokens[1:]
