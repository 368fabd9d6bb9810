# Generated from chapters/00a_evidence.md: edit it there and `make export`, or here and `make sync`.

"""The grader of the page on evidence."""

import torch

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
