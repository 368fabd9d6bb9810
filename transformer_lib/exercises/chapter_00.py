# Generated from chapters/00_preface.md: edit the chapter, not this file, then run `make export`.


# chapters/00_preface.md: Exercises that grade themselves
"""The graders of chapter 00."""

import torch
from torch import Tensor

from transformer_lib.exercises import Answer, Checks, close


def grade_00_0(answer: Answer) -> Checks:
    """Twice the number."""
    for number in range(5):
        yield "the answer is twice the number", close(answer(number), 2 * number)


# chapters/00_preface.md: Exercises
def grade_00_1(answer: Answer) -> Checks:
    """The mean over the first dimension."""
    for n, d in ((1, 1), (2, 2), (1, 3), (3, 1), (3, 2)):
        x = torch.arange(n * d, dtype=torch.float64).reshape(n, d) ** 2
        total = sum(x[i] for i in range(n))
        yield f"the answer times {n} is the sum of the tokens", close(answer(x), total / n, 1e-12)


# chapters/00_preface.md: Exercises
def grade_00_2(answer: Answer) -> Checks:
    """The check accepts two right functions and refuses six wrong ones."""

    def stable(scores: Tensor) -> Tensor:
        shifted = (scores - scores.amax(dim=1, keepdim=True)).exp()
        return shifted / shifted.sum(dim=1, keepdim=True)

    def columns(scores: Tensor) -> Tensor:
        return scores.softmax(dim=0)

    def uniform(scores: Tensor) -> Tensor:
        return torch.full_like(scores, 1 / scores.size(1))

    def linear(scores: Tensor) -> Tensor:
        positive = scores - scores.amin(dim=1, keepdim=True) + 1
        return positive / positive.sum(dim=1, keepdim=True)

    def sharper(scores: Tensor) -> Tensor:
        return (2 * scores).softmax(dim=1)

    def not_normalised(scores: Tensor) -> Tensor:
        return (scores - scores.amax(dim=1, keepdim=True)).exp()

    def overflowing(scores: Tensor) -> Tensor:
        return scores.exp() / scores.exp().sum(dim=1, keepdim=True)

    yield "PyTorch's softmax is accepted", answer(lambda scores: scores.softmax(dim=1)) is True
    yield "a softmax written out is accepted", answer(stable) is True
    for wrong, name in (
        (columns, "a softmax along columns"),
        (uniform, "uniform weights"),
        (linear, "weights that grow with the score, but not exponentially"),
        (sharper, "a softmax of twice the scores"),
        (not_normalised, "weights that do not sum to one"),
        (overflowing, "a softmax that overflows at large scores"),
    ):
        yield f"{name} is refused", answer(wrong) is False


# chapters/00_preface.md: Exercises
def grade_00_3(answer: Answer) -> Checks:
    """The bound of Higham, section 4.2: it holds, and it is not larger than the formula."""
    generator = torch.Generator().manual_seed(0)
    unit = torch.finfo(torch.float32).eps / 2
    for x in (
        torch.tensor([3.0]),
        torch.tensor([1.0, 1.0]),
        torch.tensor([1.0, -1.0]),
        torch.tensor([1.0, 2**-24, -1.0]),
        *(torch.randn(n, generator=generator) * 100 for n in (4, 8, 1000)),
    ):
        total = torch.zeros(())
        for number in x:
            total = total + number
        error, bound = abs(total.item() - x.double().sum().item()), answer(x)
        yield f"the bound is a number not below the error of the sum, {error:.3g}", bool(bound * (1 + 1e-9) >= error)
        yield (
            "the bound is the formula's",
            close(bound, (len(x) - 1) * unit * x.double().abs().sum().item(), 1e-9 * unit),
        )


# chapters/00_preface.md: Exercises
def grade_00_4(answer: Answer) -> Checks:
    """Against autograd, on functions with curvature."""
    for d in (1, 2, 3):
        x = torch.linspace(0.5, 1.5, d, dtype=torch.float64)
        functions = {
            "the sum of k x_k": lambda x: (x * torch.arange(1, len(x) + 1)).sum(),
            "the sum of x²": lambda x: x.square().sum(),
            "the sum of sin x": lambda x: x.sin().sum(),
            "the logarithm of the sum of exp x": lambda x: x.logsumexp(dim=0),
        }
        for name, function in functions.items():
            point = x.clone().requires_grad_()
            function(point).backward()
            point_before = x.clone()
            yield (
                f"the gradient of {name} at {point_before.tolist()} is right to 1e-6",
                close(answer(function, x), point.grad, 1e-6),
            )
            yield "the point itself is not changed", torch.equal(x, point_before)
