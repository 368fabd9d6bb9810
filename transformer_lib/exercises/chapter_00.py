# Generated from chapters/00_preface.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 00."""

import torch

from transformer_lib.exercises import Answer, Checks, close


def grade_00_0(answer: Answer) -> Checks:
    """Twice the number."""
    for number in range(5):
        yield "the answer is twice the number", close(answer(number), 2 * number)


def grade_00_1(answer: Answer) -> Checks:
    """The mean over the first dimension."""
    for n, d in ((1, 1), (2, 2), (1, 3), (3, 1), (3, 2)):
        x = torch.arange(n * d, dtype=torch.float64).reshape(n, d) ** 2
        total = sum(x[i] for i in range(n))
        yield f"the answer times {n} is the sum of the tokens", close(answer(x), total / n, 1e-12)
