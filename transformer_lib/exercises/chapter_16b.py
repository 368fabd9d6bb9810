# Generated from chapters/16b_adam.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 16b."""

import math
from itertools import pairwise

import torch

from transformer_lib.exercises import Answer, Checks, close


def grade_16b_1(answer: Answer) -> Checks:
    """Against one step of Adam, against the largest so far, and against PyTorch's AMSGrad."""
    for gradients, beta2 in (
        ([1.0], 0.0), ([2.0], 0.5), ([1.0, 1.0], 0.5), ([1.0, 2.0], 0.5), ([2.0, 0.0], 0.5), ([3.0, -1.0, -1.0], 0.1),
        ([3.0, -1.0, -1.0] * 5, 0.9), ([0.5, 0.0, 4.0, -1.0, 0.0, 4.0], 0.99),
    ):  # fmt: skip
        v, means = 0.0, []
        for gradient in gradients:
            v = beta2 * v + (1 - beta2) * gradient**2
            means.append(v)
        found = answer(list(gradients), beta2)
        a_list = isinstance(found, list) and len(found) == len(gradients)
        yield "it is a list with one number for each step", a_list
        yield "the first is that of Adam", close(found[0], means[0], 1e-12)
        yield "they never shrink", all(bool(later >= earlier) for earlier, later in pairwise(found))
        yield "each is the largest mean so far", close(found, [max(means[: t + 1]) for t in range(len(means))], 1e-12)


def grade_16b_2(answer: Answer) -> Checks:
    """Exact growth first, then points off the line, against a solver for least squares."""
    for years, counts, months in (
        ([2000, 2001], [1.0, 2.0], 12.0),
        ([2000, 2001], [1.0, 4.0], 6.0),
        ([2000, 2002], [1e20, 2e20], 24.0),
        ([2000, 2001, 2002], [1.0, 8.0, 64.0], 4.0),
    ):
        yield f"the line doubles every {months:.0f} months", close(answer(years, counts), months, 1e-9)
    for years, counts in (
        ([2000, 2001, 2002], [1.0, 1.0, 4.0]),
        ([2000, 2001, 2002, 2003], [1.0, 16.0, 2.0, 16.0]),
        ([2012, 2017, 2017, 2020, 2024], [4.7e17, 3.3e18, 2.3e19, 3.1e23, 3.8e25]),
    ):
        x = torch.tensor([[year - years[0], 1.0] for year in years], dtype=torch.float64)
        y = torch.tensor([[math.log2(count)] for count in counts], dtype=torch.float64)
        slope = torch.linalg.lstsq(x, y).solution[0, 0].item()
        yield "every point counts in the fit", close(answer(years, counts), 12 / slope, 1e-6)
