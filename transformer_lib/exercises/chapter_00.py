# Generated from chapters/00_preface.md and 1 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 00 and its pages in depth."""

import torch
from torch import Tensor

from transformer_lib.exercises.grading import Answer, claim, expect


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


def grade_C_1(answer: Answer) -> None:
    """Against autograd, on functions with curvature."""
    for d in (1, 2, 3):
        x = torch.linspace(0.5, 1.5, d, dtype=torch.float64)
        for name, function in {
            "the sum of k x_k": lambda x: (x * torch.arange(1, len(x) + 1)).sum(),
            "the sum of x²": lambda x: x.square().sum(),
            "the sum of sin x": lambda x: x.sin().sum(),
            "the logarithm of the sum of exp x": lambda x: x.logsumexp(dim=0),
        }.items():
            point, before = x.clone().requires_grad_(), x.clone()
            (gradient,) = torch.autograd.grad(function(point), point)
            found = answer(lambda x, function=function: function(x.detach()), x)
            wrong = {"a step in both directions is 2h long, not h": 2 * gradient}
            expect(f"the gradient of {name} at {before.tolist()}, to 1e-6", found, gradient, wrong, 1e-6)
            claim("the point itself is not changed", torch.equal(x, before))


def grade_C_2(answer: Answer) -> None:
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

    honest = {"PyTorch's softmax": lambda scores: scores.softmax(dim=1), "a softmax written out": stable}
    for name, function in {
        **honest,
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
    }.items():  # no name gives the function away
        expect(f"the answer for {name}", answer(lambda scores, call=function: call(scores)), name in honest)


def grade_C_3(answer: Answer) -> None:
    """The formula, also where numbers cancel."""
    generator = torch.Generator().manual_seed(0)
    for x in (
        torch.tensor([3.0]),
        torch.tensor([1.0, 1.0]),
        torch.tensor([1.0, -1.0]),
        torch.tensor([1.0, 2**-24, -1.0]),
        *(torch.randn(n, generator=generator) * 100 for n in (4, 8, 1000)),
    ):
        unit, sizes = torch.finfo(torch.float32).eps / 2, x.double().abs().sum().item()
        bound = (len(x) - 1) * unit * sizes
        wrong = {
            "the bound has the sum of the sizes, not the size of the sum": bound / sizes * abs(x.double().sum().item()),
            "the unit roundoff is half of eps": 2 * bound,
            "n numbers take n - 1 additions": len(x) * unit * sizes,
        }
        expect("the bound", answer(x), bound, wrong, 1e-6 * bound)  # it may be computed in float32
