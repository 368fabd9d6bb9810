"""A third style, of what has matrices: joined matrices, bare parameters, own names, other orders; pre-norm."""

# ruff: noqa: F821  # the other parts are the solution's, written below this by a test

import torch
import torch.nn.functional as F
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = num_heads
        self.wo = nn.Linear(d_model, d_model)
        self.kvq = nn.Parameter(torch.randn(d_model, 3 * d_model) * d_model**-0.5)
        self.bias = nn.Parameter(torch.zeros(3 * d_model))

    def forward(self, query, key, value, mask=None):
        (wk, wv, wq), (bk, bv, bq) = self.kvq.chunk(3, dim=1), self.bias.chunk(3)
        q, k, v = (split_heads(x @ w + b, self.heads) for x, w, b in ((query, wq, bq), (key, wk, bk), (value, wv, bv)))
        return self.wo(merge_heads(attention(q, k, v, mask)[0]))


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.down, self.up = nn.Parameter(torch.randn(d_ff, d_model)), nn.Parameter(torch.randn(d_model, d_ff))
        self.b2, self.b1 = nn.Parameter(torch.zeros(d_model)), nn.Parameter(torch.zeros(d_ff))

    def forward(self, x):
        return F.relu(x @ self.up + self.b1) @ self.down + self.b2


class Residual(nn.Module):
    def __init__(self, d_model, dropout, part):
        super().__init__()
        self.norm, self.drop, self.part = LayerNorm(d_model), nn.Dropout(dropout), part

    def forward(self, x, *rest):
        y = self.norm(x)
        return x + self.drop(self.part(y, *(y if r is None else r for r in rest[:2]), *rest[2:]))


class EncoderLayer(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, dropout=0.1):
        super().__init__()
        self.last = Residual(d_model, dropout, FeedForward(d_model, d_ff))
        self.first = Residual(d_model, dropout, MultiHeadAttention(d_model, num_heads))

    def forward(self, x, mask=None):
        return self.last(self.first(x, None, None, mask))


class DecoderLayer(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, dropout=0.1):
        super().__init__()
        self.cross = Residual(d_model, dropout, MultiHeadAttention(d_model, num_heads))
        self.last = Residual(d_model, dropout, FeedForward(d_model, d_ff))
        self.first = Residual(d_model, dropout, MultiHeadAttention(d_model, num_heads))

    def forward(self, x, memory, mask=None, memory_mask=None):
        return self.last(self.cross(self.first(x, None, None, mask), memory, memory, memory_mask))


class Transformer(nn.Module):
    def __init__(
        self, source_vocab_size, target_vocab_size, pad_id, d_model=128, num_heads=4, d_ff=256, num_layers=4,
        dropout=0.1,
    ):  # fmt: skip
        super().__init__()
        self.pad = pad_id
        self.words = nn.Parameter(torch.randn(d_model, target_vocab_size) * d_model**-0.5)  # out
        self.decoder_norm, self.encoder_norm = LayerNorm(d_model), LayerNorm(d_model)
        self.decoder = nn.ModuleList(DecoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers))
        self.encoder = nn.ModuleList(EncoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers))
        self.tgt, self.src = nn.Embedding(target_vocab_size, d_model), nn.Embedding(source_vocab_size, d_model)
        for table in (self.src.weight, self.tgt.weight):
            nn.init.normal_(table, std=1 / d_model**0.5)
        self.register_buffer("table", sinusoidal_table(200, d_model), persistent=False)
        self.drop = nn.Dropout(dropout)

    def forward(self, source, target):
        mask = padding_mask(source, self.pad)
        own = padding_mask(target, self.pad) & causal_mask(target.size(1)).to(target.device)
        sides = ((self.src, source), (self.tgt, target))
        x, y = (self.drop(e(t) * e.embedding_dim**0.5 + self.table[: t.size(1)].to(e.weight)) for e, t in sides)
        for layer in self.encoder:
            x = layer(x, mask)
        x = self.encoder_norm(x)
        for layer in self.decoder:
            y = layer(y, x, own, mask)
        return self.decoder_norm(y) @ self.words
