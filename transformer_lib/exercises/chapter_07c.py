# Generated from chapters/07c_probability.md: edit it there and `make export`, or here and `make sync`.

"""The grader of page 07c."""

import torch
import torch.nn.functional as F

from transformer_lib.exercises import Answer, Checks, close


def grade_07c_1(answer: Answer) -> Checks:
    """The best scores reach it, and random ones do not go below it."""
    generator = torch.Generator().manual_seed(0)
    label = torch.tensor([0])
    for vocab_size, low, high in ((2, 0.0, 1.0), (2, -1.0, 1.0), (1, 0.0, 1.0), (10, 0.0, 5.0), (1000, -3.0, 3.0)):
        best = torch.full((1, vocab_size), low, dtype=torch.float64)
        best[0, 0] = high
        least = answer(vocab_size, low, high)
        yield "some scores within the bounds reach it", close(least, F.cross_entropy(best, label).item(), 1e-5)
        scores = torch.rand(50, vocab_size, generator=generator, dtype=torch.float64) * (high - low) + low
        losses = F.cross_entropy(scores, label.expand(50), reduction="none")
        yield "no scores within the bounds go below it", bool((losses >= least - 1e-5).all())
