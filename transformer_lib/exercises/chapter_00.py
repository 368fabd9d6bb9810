# Generated from chapters/00_preface.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 00 and its pages in depth."""

import torch

from transformer_lib.exercises.grading import Answer, expect


def grade_00_0(answer: Answer) -> None:
    """Twice the number."""
    for number in range(5):
        expect("the answer", answer(number), 2 * number, {"this is the square, not twice the number": number**2})


def grade_00_1(answer: Answer) -> None:
    """The mean over the first dimension."""
    for n, d in ((1, 1), (2, 2), (1, 3), (3, 1), (3, 2)):
        x = torch.arange(n * d, dtype=torch.float64).reshape(n, d) ** 2
        total = sum(x[i] for i in range(n))
        wrong = {
            "this is the mean of each token over its channels": x.mean(dim=1),
            "this is the sum of the tokens, not yet divided by n": total,
            "this is the mean over both dimensions": x.mean(),
        }
        expect("the mean", answer(x), total / n, wrong, 1e-12)
