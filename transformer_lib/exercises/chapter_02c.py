# Generated from chapters/02c_meaning.md: edit it there and `make export`, or here and `make sync`.

"""The grader of chapter 02c."""

import torch
from torch import Tensor

from transformer_lib.exercises import Answer, Checks, close


def grade_02c_1(answer: Answer) -> Checks:
    """Other weights, as good as the first, one of them zero, with the same output."""
    generator = torch.Generator().manual_seed(0)
    cases = [torch.tensor([[1.0], [2.0], [4.0]]), torch.cartesian_prod(*[torch.tensor([1.0, -1.0])] * 2)]
    cases += [torch.randn(m, d_v, generator=generator) for m, d_v in ((5, 2), (6, 4), (12, 4))]
    for value in (case.double() for case in cases):
        weights = torch.rand(len(value), generator=generator, dtype=torch.float64) + 0.1
        weights = weights / weights.sum()
        other = answer(weights.clone(), value.clone())
        yield "there is one weight a key", isinstance(other, Tensor) and other.shape == weights.shape
        yield "no weight is negative", bool((other >= -1e-9).all())
        yield "the weights sum to one", close(other.double().sum(), 1.0)
        yield "the output is the same", close(other.double() @ value, weights @ value)
        yield "one key has no weight any more", bool((other.abs() < 1e-9).any())
