# Generated from chapters/14_cost.md and 2 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 14 and its pages in depth."""

import itertools
import random

import torch

from transformer_lib.cost import Product, attention_memory
from transformer_lib.exercises.grading import Answer, claim, same


def grade_14_1(answer: Answer) -> None:
    """Every batch is tried."""
    for d, c, itemsize, peak, bandwidth in (
        (1, 1, 4, 1, 10), (4, 4, 4, 1, 2), (8, 16, 2, 3, 1), (64, 64, 4, 10, 1), (2, 2, 4, 9, 1), (4, 4, 4, 1, 1),
        (512, 2048, 4, 13, 1),
    ):  # fmt: skip
        products = (Product(1, batch, d, c) for batch in range(1, 5000))
        fits = (p.rows for p in products if p.flops * bandwidth >= itemsize * p.numbers * peak)
        expected = next(fits, None)
        batch = answer(d, c, itemsize, peak, bandwidth)
        if expected is None:
            claim("no batch is large enough", batch is None)
        else:
            claim(f"it is {expected}", same(batch, expected, 0))


def grade_14_2(answer: Answer) -> None:
    """The mask is drawn and counted."""
    for n, w in ((1, 1), (2, 1), (2, 2), (3, 2), (2, 3), (5, 3), (40, 7), (7, 40)):
        mask = torch.ones(n, n, dtype=torch.bool).tril().triu(1 - w)
        claim(f"the mask has {int(mask.sum())} entries", same(answer(n, w), int(mask.sum()), 0))


def grade_14b_1(answer: Answer) -> None:
    """It fits, and one token more does not."""
    for d_model, num_heads in ((1, 1), (2, 1), (4, 2), (64, 8), (512, 8)):
        for fused, length in itertools.product((True, False), (1, 2, 3, 100, 4095)):
            fits = attention_memory(length, d_model, num_heads, fused=fused)
            path = "the fused kernel" if fused else "the readable formula"
            text = f"{length} tokens need {fits} bytes with {path}"
            claim(text, same(answer(fits, d_model, num_heads, fused), length, 0))
            claim(text, same(answer(fits - 1, d_model, num_heads, fused), length - 1, 0))


def _peak(layers: int, between: int, inside: int, k: int) -> int:
    """The most memory at any time, by going through the backward pass."""
    segments = [range(start, min(start + k, layers)) for start in range(0, layers, k)]
    return max(between * len(segments) + (between + inside) * len(part) - between for part in segments)


def grade_14b_2(answer: Answer) -> None:
    """Every segment length is tried."""
    for layers, between, inside in (
        (1, 1, 1),
        (2, 1, 0),
        (2, 1, 1),
        (4, 4, 0),
        (6, 1, 0),
        (9, 1, 0),
        (6, 1, 13),
        (16, 3, 1),
        (96, 1, 13),
    ):
        peaks = {k: _peak(layers, between, inside, k) for k in range(1, layers + 1)}
        best = min(peaks, key=lambda k: peaks[k])
        claim(f"segments of {best} need the least, {peaks[best]}", same(answer(layers, between, inside), best, 0))


def grade_14c_1(answer: Answer) -> None:
    """Against a simulation."""
    generator = random.Random(0)
    cases = [([1], 1), ([1, 1], 1), ([1, 1], 2), ([2, 1], 2), ([1, 2], 3), ([1, 3, 1], 4)]
    cases += [([generator.randint(1, 9) for _ in range(stages)], 7) for stages in (2, 4, 8)]
    for seconds, parts in cases:
        free = [0] * len(seconds)
        for _ in range(parts):
            arrives = 0
            for stage, duration in enumerate(seconds):
                free[stage] = arrives = max(arrives, free[stage]) + duration
        claim(f"the last stage finishes after {free[-1]}", same(answer(list(seconds), parts), free[-1], 1e-9))
