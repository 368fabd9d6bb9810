# Generated from chapters/16b_adam.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 16b."""

from itertools import pairwise

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
