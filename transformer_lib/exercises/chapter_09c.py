# Generated from chapters/09c_devices.md: edit it there and `make export`, or here and `make sync`.

"""The grader of the page on several devices."""

import math

import torch

from transformer_lib.exercises import Answer, Checks, close


def grade_09c_1(answer: Answer) -> Checks:
    """Tokens with gradients of their own, dealt out to processes."""
    generator = torch.Generator().manual_seed(0)
    for counts in ([1], [1, 1], [1, 3], [2, 0], [0, 4, 1], [5, 2, 7, 1]):
        tokens = torch.randn(sum(counts), 2, generator=generator, dtype=torch.float64)  # a gradient for each token
        gradients = [part.mean(dim=0) for part in tokens.split(counts)]
        result = answer([gradient.clone() for gradient in gradients], list(counts))
        yield "the answer is the mean over all tokens", close(result, tokens.mean(dim=0), 1e-12)
    broken = torch.full((2,), math.nan, dtype=torch.float64)
    result = answer([torch.ones(2, dtype=torch.float64), broken.clone()], [1, 3])
    yield "what is not a number shows, if it comes from tokens", close(result, broken)
