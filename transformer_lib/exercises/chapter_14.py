# Generated from chapters/14_cost.md and 2 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 14 and its pages in depth."""

import itertools
import math
import random

from transformer_lib.cost import Product, attention_memory
from transformer_lib.exercises.grading import Answer, expect


def grade_14_1(answer: Answer) -> None:
    """Ten times what is needed is at most nine times the memory, and with one pair more it is not."""
    for parameters, per_pair, length, batch in (
        (10, 7, 3, 2),
        (1, 1, 1, 1),
        (1000, 90, 25, 40),
        (10**8, 10**5, 25, 999),
    ):
        fixed, each = 16 * parameters, 4 * per_pair * length
        needed = fixed + batch * each
        least = -(-10 * needed // 9)  # the smallest memory of which 90 % are enough
        for memory, expected in ((least, batch), (least - 1, batch - 1), (fixed, 0)):
            ninety = 9 * memory // 10
            known = {
                "90 % of the memory are for the training, not all of it": max((memory - fixed) // each, 0),
                "gradients and Adam's two means need their place, too": max((ninety - 4 * parameters) // each, 0),
                "`length` tokens a side are `length` pairs, not twice that": max((ninety - fixed) // (2 * each), 0),
                "each pair of sentences has `length` pairs of tokens": max((ninety - fixed) // (4 * per_pair), 0),
                "a number in float32 has four bytes": max((ninety - fixed) // (per_pair * length), 0),
                "a batch is not negative: 0 if none fits": (ninety - fixed) // each,
            }
            expect("the largest batch", answer(parameters, per_pair, length, memory), expected, known)


def grade_14_2(answer: Answer) -> None:
    """Each case has the name that one mistake leads to; the last two have no GPU on which a text fits."""
    cases = (
        ("a step reads the caches, too", "C",
         8, 6, ((60, 8, 4), (180, 1, 7), (150, 6, 7), (30, 4, 4)), "A"),
        ("a step writes a token of each text: divide by the texts", "C",
         34, 3, ((70, 6, 8), (100, 2, 7), (60, 9, 7), (100, 9, 5)), "D"),
        ("the cheapest hour need not give the cheapest token", "D",
         19, 9, ((170, 6, 5), (120, 3, 7), (140, 9, 6), (150, 3, 3)), "C"),
        ("the fastest GPU need not give the cheapest token", "B",
         39, 11, ((110, 2, 5), (120, 5, 8), (110, 3, 8), (160, 3, 1)), "D"),
        ("a step reads the weights once for all texts, and each text's cache", "D",
         47, 2, ((100, 6, 8), (190, 2, 1), (60, 2, 1), (80, 7, 3)), "B"),
        ("90 % of the memory are for weights and caches, not all of it", "D",
         59, 12, ((80, 6, 3), (80, 9, 8), (90, 5, 6), (90, 8, 5)), "A"),
        ("leave out a GPU on which no text fits", "D",
         35, 2, ((190, 4, 1), (70, 7, 5), (60, 7, 3), (30, 3, 8)), "A"),
        ("leave out a GPU on which no text fits", "A", 35, 2, ((30, 3, 8),), None),
        ("leave out a GPU on which no text fits", "A", 8, 2, ((10, 3, 8),), None),
    )  # fmt: skip
    for sentence, wrong, weights, cache, gpus, right in cases:
        found = answer(weights, cache, dict(zip("ABCD", gpus)))
        expect("the GPU of the cheapest token", found, right, {sentence: wrong})


def grade_14b_1(answer: Answer) -> None:
    """It fits, and one token more does not."""
    for d_model, num_heads in ((1, 1), (2, 1), (4, 2), (64, 8), (512, 8)):
        for fused, length in itertools.product((True, False), (1, 2, 3, 100, 4095)):
            fits = attention_memory(length, d_model, num_heads, fused=fused)
            path = "the fused kernel" if fused else "the readable formula"
            for budget, most in ((fits, length), (fits - 1, length - 1)):
                found = answer(budget, d_model, num_heads, fused)
                expect(f"the most tokens for {budget} bytes with {path}", found, most)


def _peak(layers: int, between: int, inside: int, k: int) -> int:
    """The most memory at any time, by going through the backward pass."""
    segments = [range(start, min(start + k, layers)) for start in range(0, layers, k)]
    return max(between * len(segments) + (between + inside) * len(part) - between for part in segments)


def grade_14b_2(answer: Answer) -> None:
    """Every segment length is tried."""
    for layers, between, inside in (
        (1, 1, 1), (2, 1, 0), (2, 1, 1), (4, 4, 0), (6, 1, 0), (9, 1, 0), (6, 1, 13), (16, 3, 1), (96, 1, 13),
    ):  # fmt: skip
        peaks = {k: _peak(layers, between, inside, k) for k in range(1, layers + 1)}
        best = min(peaks, key=lambda k: peaks[k])
        largest = max(k for k in peaks if peaks[k] == peaks[best])
        known = {
            "the root of the number of layers is right only if inputs are all that is kept": math.isqrt(layers),
            "this is the largest of the best: of equal ones take the smallest": largest,
        }
        expect(f"the best segment (its peak is {peaks[best]})", answer(layers, between, inside), best, known)


def grade_14b_3(answer: Answer) -> None:
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
        known = {
            "the slowest stage sets the pace, not the last one": sum(seconds) + (parts - 1) * seconds[-1],
            "micro-batches overlap: a stage begins the next one at once": sum(seconds) * parts,
            "the first micro-batch passes all stages before the pace is set": parts * max(seconds),
        }
        expect("the time at which the last stage finishes", answer(list(seconds), parts), free[-1], known)


def grade_14c_1(answer: Answer) -> None:
    """Every batch is tried."""
    for d, c, itemsize, peak, bandwidth in (
        (1, 1, 4, 1, 10), (4, 4, 4, 1, 2), (8, 16, 2, 3, 1), (64, 64, 4, 10, 1), (2, 2, 4, 9, 1), (4, 4, 4, 1, 1),
        (512, 2048, 4, 13, 1),
    ):  # fmt: skip
        products = (Product(1, batch, d, c) for batch in range(1, 5000))
        fits = (p.rows for p in products if p.flops * bandwidth >= itemsize * p.numbers * peak)
        expected = next(fits, None)
        by_weights = -(-itemsize * peak // (2 * bandwidth))
        known = {
            "only the traffic of the weights is counted; tokens are read and written, too": by_weights,
            "no batch is large enough: None": 0,
        }
        expect("the smallest batch", answer(d, c, itemsize, peak, bandwidth), expected, known)
