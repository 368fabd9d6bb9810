# Generated from chapters/14b_memory.md: edit it there and `make export`, or here and `make sync`.

"""The graders of the page on memory."""

import itertools

from transformer_lib.cost import attention_memory
from transformer_lib.exercises import Answer, Checks, close


def grade_14b_1(answer: Answer) -> Checks:
    """It fits, and one token more does not."""
    for d_model, num_heads in ((1, 1), (2, 1), (4, 2), (64, 8), (512, 8)):
        for fused, length in itertools.product((True, False), (1, 2, 3, 100, 4095)):
            fits = attention_memory(length, d_model, num_heads, fused=fused)
            path = "the fused kernel" if fused else "the readable formula"
            claim = f"{length} tokens need {fits} bytes with {path}"
            yield claim, close(answer(fits, d_model, num_heads, fused), length, 0)
            yield claim, close(answer(fits - 1, d_model, num_heads, fused), length - 1, 0)


def _peak(layers: int, between: int, inside: int, k: int) -> int:
    """The most memory at any time, by going through the backward pass."""
    segments = [range(start, min(start + k, layers)) for start in range(0, layers, k)]
    return max(between * len(segments) + (between + inside) * len(part) - between for part in segments)


def grade_14b_2(answer: Answer) -> Checks:
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
