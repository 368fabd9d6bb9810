# Generated from chapters/00b_rounding.md: edit it there and `make export`, or here and `make sync`.

"""The grader of the page on rounding."""

import torch

from transformer_lib.exercises import Answer, Checks, close


def grade_00b_1(answer: Answer) -> Checks:
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
