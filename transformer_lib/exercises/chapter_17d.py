# Generated from chapters/17d_calibration.md: edit it there and `make export`, or here and `make sync`.

"""The grader of the page on calibration."""

import random

from transformer_lib.exercises import Answer, Checks, close


def grade_17d_1(answer: Answer) -> Checks:
    """Against the definition, bin by bin."""
    generator = random.Random(0)
    cases: list[tuple[list[float], list[bool], int]] = [
        ([0.75], [True], 1), ([0.75, 0.75], [True, False], 1), ([0.5, 0.25], [True, True], 2), ([1.0], [False], 4),
        ([0.5, 0.4], [False, True], 2), ([1.0, 0.9], [False, True], 2),
        ([0.9, 0.9, 0.9, 0.9, 0.5], [True, True, False, True, True], 10),
    ]  # fmt: skip
    cases += [([generator.random() for _ in range(40)], [generator.random() < 0.6 for _ in range(40)], 8)]
    for confidence, right, bins in cases:
        expected = 0.0
        for place in range(bins):
            inside = [n for n, c in enumerate(confidence) if c * bins // 1 == place or (c == 1 and place == bins - 1)]
            if inside:
                share = sum(right[n] for n in inside) / len(inside)
                mean = sum(confidence[n] for n in inside) / len(inside)
                expected += len(inside) / len(right) * abs(share - mean)
        yield f"the error is {expected:.4g}", close(answer(list(confidence), list(right), bins), expected, 1e-9)
