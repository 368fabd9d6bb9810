# Generated from chapters/14c_parallel.md: edit it there and `make export`, or here and `make sync`.

"""The graders of the page on several processors."""

import random

from transformer_lib.exercises import Answer, Checks, close


def grade_14c_1(answer: Answer) -> Checks:
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
