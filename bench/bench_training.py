"""One step of training: forward, backward, clipping, optimiser.

Everybody gets the same sizes, the same dropout in the same places, tied embeddings, label smoothing, clipping and fused
AdamW. What differs is the model's code, the loss, and the batches: ours hold sentences of similar length. A batch has
128 pairs; the batches timed are spread evenly over an epoch of all pairs.
"""

import functools
import math
import random
import time
from collections.abc import Iterable
from itertools import islice

import pytest
import torch
import torch.nn.functional as F
from side_by_side import interleaved
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torch_model import torch_stacks

from transformer_lib.data import Batch, Tokenizer, encode_pairs, load_multi30k, token_batches
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.positions import SinusoidalPositionalEncoding
from transformer_lib.precision import chosen_dtype, mixed_precision
from transformer_lib.recipes import preset_for
from transformer_lib.training.config import TrainingConfig, adamw
from transformer_lib.training.loss import real_targets
from transformer_lib.training.train_step import LossModule, train_step

PAIRS, BATCHES, VOCABULARY, WIDTH, HEADS, INNER, LAYERS, DROPOUT, SMOOTHING = 128, 8, 10_000, 128, 4, 256, 4, 0.1, 0.1
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def encoded() -> tuple[Tokenizer, list[tuple[list[int], list[int]]]]:
    """The training pairs of Multi30k as tokens, and what made them."""
    corpus = load_multi30k("train")
    tokenizer = Tokenizer.train(corpus.source + corpus.target, vocab_size=VOCABULARY)
    return tokenizer, encode_pairs(corpus, tokenizer, max_len=256)[0]


def batches(*, bucketed: bool) -> tuple[Tokenizer, list[Batch]]:
    """Some batches out of an epoch: of sentences of similar length, or of sentences in any order."""
    tokenizer, pairs = encoded()
    random.Random(0).shuffle(pairs)
    if bucketed:
        pairs.sort(key=lambda pair: (max(map(len, pair)), len(pair[1]), len(pair[0])))  # as token_batches does
    groups = [pairs[start : start + PAIRS] for start in range(0, len(pairs) - PAIRS, PAIRS)]
    every = len(groups) // BATCHES
    chosen = groups[every // 2 :: every][:BATCHES]
    return tokenizer, there(next(token_batches(group, 10**9)) for group in chosen)


def there(some: Iterable[Batch]) -> list[Batch]:
    """Batches on the device, and the seed set for what comes next."""
    torch.manual_seed(0)
    return [Batch(*(side.to(DEVICE) for side in batch)) for batch in some]


def config(vocabulary: int, pad: int) -> TransformerConfig:
    """The sizes of everybody's model."""
    return TransformerConfig(
        vocabulary, vocabulary, pad, d_model=WIDTH, num_heads=HEADS, d_ff=INNER, num_encoder_layers=LAYERS,
        num_decoder_layers=LAYERS, dropout=DROPOUT, tie_embeddings="all",
    )  # fmt: skip


def ours():
    tokenizer, ready = batches(bucketed=True)
    return trained(config(tokenizer.vocab_size, tokenizer.pad_id), tokenizer, ready)


def small():
    """The preset `small` and its batches: what the page on counting predicts for three GPUs."""
    (tokenizer, pairs), preset = encoded(), preset_for("small", DEVICE)
    ready = there(islice(token_batches(pairs, preset["training"]["batch_tokens"], seed=0), BATCHES))
    size = tokenizer.vocab_size
    return trained(TransformerConfig(size, size, tokenizer.pad_id, **preset["model"]), tokenizer, ready)


def trained(sizes: TransformerConfig, tokenizer: Tokenizer, ready: list[Batch]):
    """Steps of our training."""
    model = Transformer(sizes).to(DEVICE).train()
    training = TrainingConfig(steps=1, label_smoothing=SMOOTHING)
    loss, optimizer = LossModule(model, label_smoothing=SMOOTHING), adamw(model, training)

    def step(batch: Batch) -> None:
        result = train_step(loss, [batch], real_targets(batch.target, tokenizer.pad_id), optimizer, training, 1)
        result.tolist()  # waits for a GPU, as the others do

    return steps(step, ready, tokenizer.pad_id)


def steps(step, ready: list[Batch], pad: int):
    """A run: a step for each batch. It tells the tokens, and on a GPU the FLOPs and the GPU's ceiling."""
    facts: dict = {"target_tokens": sum(real_targets(batch.target, pad) for batch in ready)}
    if DEVICE.type == "cuda":
        with FlopCounterMode(display=False) as counter:
            for batch in ready:
                step(batch)
        facts |= {"flops": counter.get_total_flops(), "ceiling_flops_per_second": ceiling()}

    def run() -> dict:
        for batch in ready:
            step(batch)
        return facts

    return run


def ceiling(size: int = 8192) -> float:
    """The FLOPs a second of a product of two large matrices, in what the GPU is fast at: no model can have more."""
    a, b = torch.randn(2, size, size, device=DEVICE, dtype=chosen_dtype(DEVICE))
    times = []
    for _ in range(10):
        start = time.perf_counter()
        (a @ b)[0, 0].item()  # waits for the product
        times.append(time.perf_counter() - start)
    return 2 * size**3 / min(times)


class TorchTransformer(nn.Module):
    """What one writes with PyTorch's own Transformer: embeddings, positions, `nn.Transformer`, a projection."""

    def __init__(self, vocabulary: int, pad: int):
        super().__init__()
        self.pad, self.scale = pad, math.sqrt(WIDTH)
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.positions = SinusoidalPositionalEncoding(WIDTH, 256)
        self.dropout = nn.Dropout(DROPOUT)
        self.transformer = torch_stacks(config(vocabulary, pad))
        self.projection = nn.Linear(WIDTH, vocabulary, bias=False)
        self.projection.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, std=WIDTH**-0.5)

    def forward(self, source, target):
        causal = torch.ones(target.size(1), target.size(1), dtype=torch.bool, device=target.device).triu(1)
        source_padding, target_padding = source == self.pad, target == self.pad
        hidden = self.transformer(
            self.dropout(self.positions(self.embedding(source) * self.scale)),
            self.dropout(self.positions(self.embedding(target) * self.scale)),
            tgt_mask=causal, src_key_padding_mask=source_padding, tgt_key_padding_mask=target_padding,
            memory_key_padding_mask=source_padding,
        )  # fmt: skip
        return self.projection(hidden)


def theirs(model: nn.Module, logits, ready: list[Batch], pad: int):
    """The usual step: logits everywhere, a loss that ignores padding."""
    model.to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01, fused=True)

    def step(batch: Batch) -> float:
        with mixed_precision(DEVICE):
            scores = logits(batch.source, batch.target[:, :-1]).flatten(0, 1)
            loss = F.cross_entropy(scores, batch.target[:, 1:].flatten(), ignore_index=pad, label_smoothing=SMOOTHING)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return steps(step, ready, pad)


def torch_transformer(*, bucketed: bool):
    tokenizer, ready = batches(bucketed=bucketed)
    model = TorchTransformer(tokenizer.vocab_size, tokenizer.pad_id)
    return theirs(model, model, ready, tokenizer.pad_id)


def marian():
    transformers = pytest.importorskip("transformers")
    tokenizer, ready = batches(bucketed=True)
    size, pad = tokenizer.vocab_size, tokenizer.pad_id
    model = transformers.MarianMTModel(transformers.MarianConfig(
        vocab_size=size, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=INNER, decoder_ffn_dim=INNER, dropout=DROPOUT,
        attention_dropout=0.0, activation_dropout=0.0, activation_function="relu", scale_embedding=True,
        max_position_embeddings=256, pad_token_id=pad, eos_token_id=tokenizer.eos_id, forced_eos_token_id=None,
        decoder_start_token_id=tokenizer.bos_id,
    ))  # fmt: skip

    def logits(source, target):
        mask = (source != pad).long()
        return model(input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False).logits

    return theirs(model, logits, ready, pad)


test_training_step = interleaved(
    "training step",
    {
        "transformer_lib": ours,
        "nn.Transformer, unsorted batches": functools.partial(torch_transformer, bucketed=False),
        "nn.Transformer, our batches": functools.partial(torch_transformer, bucketed=True),
        "Hugging Face Marian, our batches": marian,
    },
    rounds=5, threads=2, pairs=PAIRS, batches=BATCHES, vocabulary=VOCABULARY, d_model=WIDTH, heads=HEADS, d_ff=INNER,
    layers=f"{LAYERS} + {LAYERS}", dropout=DROPOUT, corpus="Multi30k",
)  # fmt: skip

if DEVICE.type == "cuda":
    test_step_of_small = interleaved("training step of small", {"ours": small}, rounds=5, threads=2, batches=BATCHES)
