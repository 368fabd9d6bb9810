# Generated from chapters/00_preface.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 00."""

import torch
from torch import Tensor

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


def grade_00_2(answer: Answer) -> Checks:
    """The check accepts two right functions and refuses ten wrong ones."""

    def stable(scores: Tensor) -> Tensor:
        shifted = (scores - scores.amax(dim=1, keepdim=True)).exp()
        return shifted / shifted.sum(dim=1, keepdim=True)

    def linear(scores: Tensor) -> Tensor:
        positive = scores - scores.amin(dim=1, keepdim=True) + 1
        return positive / positive.sum(dim=1, keepdim=True)

    def square_only(scores: Tensor) -> Tensor:
        return scores.softmax(dim=1 if scores.size(0) == scores.size(1) else 0)

    def first_row_only(scores: Tensor) -> Tensor:
        return torch.cat([scores[:1].softmax(dim=1), (2 * scores[1:]).softmax(dim=1)])

    def accepts(function: Answer) -> object:
        return answer(lambda scores: function(scores))  # so that no name gives it away

    yield "the check accepts PyTorch's softmax", close(accepts(lambda scores: scores.softmax(dim=1)), True)
    yield "the check accepts a softmax written out", close(accepts(stable), True)
    for name, wrong in {
        "a softmax along columns": lambda scores: scores.softmax(dim=0),
        "a softmax over all entries": lambda scores: scores.flatten().softmax(dim=0).reshape(scores.shape),
        "weights that are all equal": lambda scores: torch.full_like(scores, 1 / scores.size(1)),
        "weights that grow with the score, but not exponentially": linear,
        "a softmax of twice the scores": lambda scores: (2 * scores).softmax(dim=1),
        "weights that do not sum to one": lambda scores: (scores - scores.amax(dim=1, keepdim=True)).exp(),
        "a softmax that overflows at large scores": lambda scores: scores.exp() / scores.exp().sum(dim=1, keepdim=True),
        "a softmax that is right for square matrices only": square_only,
        "a softmax that is right in the first row only": first_row_only,
        "a softmax of the first row, and no other row": lambda scores: scores[:1].softmax(dim=1),
    }.items():
        yield f"the check refuses {name}", close(accepts(wrong), False)
