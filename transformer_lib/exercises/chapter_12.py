# Generated from chapters/12_cost.md: edit the chapter, not this file, then run `make export`.

"""The graders of chapter 12."""

import itertools
import random

import torch

from transformer_lib.cost import Product, attention_memory
from transformer_lib.exercises import Answer, Checks, close


def grade_12_1(answer: Answer) -> Checks:
    """Against a list of all multiplications and of all numbers."""
    for rows, inner, columns, itemsize in ((1, 1, 1, 4), (1, 2, 1, 4), (2, 1, 3, 4), (3, 4, 12, 4), (64, 64, 64, 2)):
        product = Product(1, rows, inner, columns)
        expected = product.flops / (itemsize * product.numbers)
        words = f"{product.flops} FLOPs, {itemsize * product.numbers} bytes"
        yield f"it is {words}", close(answer(rows, inner, columns, itemsize), expected, 1e-9)


def grade_12_2(answer: Answer) -> Checks:
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
            yield "no batch is large enough", batch is None
        else:
            yield f"it is {expected}", close(batch, expected, 0)


def grade_12_3(answer: Answer) -> Checks:
    """It fits, and one token more does not."""
    for d_model, num_heads in ((1, 1), (2, 1), (4, 2), (64, 8), (512, 8)):
        for fused, length in itertools.product((True, False), (1, 2, 3, 100, 4095)):
            fits = attention_memory(length, d_model, num_heads, fused=fused)
            path = "fused" if fused else "readable"
            claim = f"{length} tokens need {fits} bytes on the {path} path"
            yield claim, close(answer(fits, d_model, num_heads, fused), length, 0)
            yield claim, close(answer(fits - 1, d_model, num_heads, fused), length - 1, 0)


def _peak(layers: int, between: int, inside: int, k: int) -> int:
    """The most memory at any time, by going through the backward pass."""
    segments = [range(start, min(start + k, layers)) for start in range(0, layers, k)]
    return max(between * len(segments) + (between + inside) * len(part) - between for part in segments)


def grade_12_4(answer: Answer) -> Checks:
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
        yield f"segments of {best} need the least, {peaks[best]}", close(answer(layers, between, inside), best, 0)


def grade_12_5(answer: Answer) -> Checks:
    """The mask is drawn and counted."""
    for n, w in ((1, 1), (2, 1), (2, 2), (3, 2), (2, 3), (5, 3), (40, 7), (7, 40)):
        mask = torch.ones(n, n, dtype=torch.bool).tril().triu(1 - w)
        yield f"the mask has {int(mask.sum())} entries", close(answer(n, w), int(mask.sum()), 0)


def grade_12_6(answer: Answer) -> Checks:
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
        yield f"the last stage finishes after {free[-1]}", close(answer(list(seconds), parts), free[-1], 1e-9)
