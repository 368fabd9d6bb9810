# Generated from chapters/00a_evidence.md: edit it there and `make export`, or here and `make sync`.

"""The graders of the page on evidence."""

import torch
from torch import Tensor

from transformer_lib.exercises import Answer, Checks, close


def grade_00a_1(answer: Answer) -> Checks:
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
                close(answer(lambda x, function=function: function(x.detach()), x), point.grad, 1e-6),
            )
            yield "the point itself is not changed", torch.equal(x, point_before)


def grade_00a_2(answer: Answer) -> Checks:
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


def grade_00a_3(answer: Answer) -> Checks:
    """The bound holds, and it is the formula's."""
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
        formula = (len(x) - 1) * unit * x.double().abs().sum().item()
        yield "the bound is the formula's", close(bound, formula, 1e-6 * formula)  # it may be computed in float32
        yield f"the error of the sum, {error:.3g}, is not above the bound", error <= formula
