# Generated from chapters/01a_gates.md: edit it there and `make export`, or here and `make sync`.

"""The grader of the page on gates."""

import math

from transformer_lib.exercises import Answer, Checks, close


def grade_01a_1(answer: Answer) -> Checks:
    """The state is let decay, step by step."""
    for k in (1, 2, 3, 10, 100):
        bias = answer(k)
        known = isinstance(bias, int | float) and not isinstance(bias, bool) and math.isfinite(bias)
        yield "the bias is a finite number", known
        state = 1.0
        for _ in range(k):
            state = state / (1 + math.exp(-min(max(bias, -50), 50)))
        yield f"after {k} step{'s' if k > 1 else ''} half of the state is left", close(state, 0.5)
