# Generated from chapters/07_model.md and 2 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 07 and its pages in depth."""

import math
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lib.exercises.grading import Answer, Wrong, expect, random, same
from transformer_lib.model import Transformer, TransformerConfig


def made_around_the_stacks(mine: ModuleType, model: nn.Module) -> None:
    """Step 1: what `__init__` makes besides the layers, for d_model 8 and vocabularies of 90 and 110 tokens."""
    layers = [each for each in model.modules() if isinstance(each, (mine.EncoderLayer, mine.DecoderLayer))]
    rest = {*model.modules()} - {part for layer in layers for part in layer.modules()}
    shapes = [sorted(p.shape) for each in rest for p in each.parameters(recurse=False) if p.dim() == 2]
    x, see_all = random(1, 3, 8, seed=0), torch.ones(1, 1, 1, 3, dtype=torch.bool)
    y = mine.EncoderLayer(8, 2, 12, 0.0).double()(x, see_all)
    post_norm = same(F.layer_norm(y, (8,)), y, 1e-3)  # then last norms may be left out
    norms = sum(isinstance(each, (mine.LayerNorm, nn.LayerNorm)) for each in rest)
    tables = [each.weight for each in rest if isinstance(each, nn.Embedding)]
    small = [0.8 < w.std().item() * 8**0.5 < 1.2 and abs(w.mean().item()) < 0.1 for w in tables]
    made = {
        "an embedding of (source_vocab_size, d_model)": [8, 90] in shapes,
        "a target embedding and an output projection, both for target_vocab_size": shapes.count([8, 110]) == 2,
        "two last norms, one per stack": norms == 2 or (post_norm and norms == 0),
        "an nn.Dropout(dropout) besides those in the layers": any(isinstance(each, nn.Dropout) for each in rest),
        "embeddings that begin with mean 0 and standard deviation 1 / sqrt(d_model)": all(small),
    }
    for what, there in made.items():
        if not there:
            raise Wrong(f"step 1: __init__ should make {what}")


def grade_07a_1(answer: Answer) -> None:
    """Within 2 % of what is measured on a table; its sampling error is below 0.5 %."""
    for V, d in ((200, 200), (50, 400), (1000, 64), (20_000, 16)):
        table = torch.empty(V, d, dtype=torch.float64)
        nn.init.xavier_uniform_(table, generator=torch.Generator().manual_seed(0))
        measured = (table * d**0.5).square().mean().sqrt().item()
        known = {
            "this is the bound of the uniform numbers; their root mean square is smaller": math.sqrt(6 * d / (V + d)),
            "the model's factor, the root of d, is forgotten": math.sqrt(2 / (V + d)),
            "this is the mean square; its root is missing": 2 * d / (V + d),
        }
        expect("the root mean square", answer(V, d), measured, known, 0.02 * measured)


def grade_07a_2(answer: Answer) -> None:
    """Against the model itself, on a device that holds shapes only."""
    for words, (d_model, d_ff), depths in (
        ((1, 1), (1, 1), (1, 1)), ((5, 7), (4, 6), (1, 2)), ((90, 99), (64, 9), (6, 3)),
    ):  # fmt: skip
        for tie in ("none", "target"):
            for norm_first in (False, True):
                config = TransformerConfig(
                    *words, pad_id=0, d_model=d_model, num_heads=1, d_ff=d_ff, num_encoder_layers=depths[0],
                    num_decoder_layers=depths[1], tie_embeddings=tie, norm_first=norm_first,
                )  # fmt: skip
                with torch.device("meta"):
                    sizes = [(parameter.dim(), parameter.numel()) for parameter in Transformer(config).parameters()]
                total, vectors = sum(n for _, n in sizes), sum(n for axes, n in sizes if axes == 1)
                known = {
                    "biases and norms are not counted": total - vectors,
                    "a pre-norm stack has one norm more, at its end": total - 4 * d_model * norm_first,
                    "the target table and the output projection are two tables, unless they are tied": total
                    - words[1] * d_model * (tie == "none"),
                }
                count = answer(*words, d_model, d_ff, *depths, tie, norm_first)
                expect("the number of parameters", count, total, known)


def grade_07b_1(answer: Answer) -> None:
    """The best scores reach it, and random ones do not go below it."""
    label = torch.tensor([0])
    for V, low, high in ((2, 0.0, 1.0), (2, -1.0, 1.0), (1, 0.0, 1.0), (10, 0.0, 5.0), (1000, -3.0, 3.0)):
        best = torch.full((1, V), low, dtype=torch.float64)
        best[0, 0] = high
        known = {
            "scores within bounds leave some probability to other tokens: the loss is above 0": 0.0,
            "of V tokens, V - 1 are wrong": math.log1p(V * math.exp(low - high)),
            "this is the loss where all scores are equal": math.log(V),
        }
        expect("the least loss", answer(V, low, high), F.cross_entropy(best, label), known, 1e-5)
