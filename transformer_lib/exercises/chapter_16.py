# Generated from chapters/16_limits.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 16."""

from itertools import product

import torch

from transformer_lib.exercises import Answer, Checks, close


def grade_16_1(answer: Answer) -> Checks:
    """Some scores within the bound reach it, and no random ones exceed it."""
    generator = torch.Generator().manual_seed(0)
    for n, bound in ((1, 0.0), (1, 2.0), (2, 0.0), (2, 1.0), (3, 0.5), (10, 2.0), (1000, 1.0), (1000, 8.0)):
        best = torch.full((n,), -bound, dtype=torch.float64)
        best[0] = bound
        largest = answer(n, bound)
        yield "some scores within the bound reach it", close(largest, best.softmax(dim=0)[0].item(), 1e-9)
        scores = (2 * torch.rand(100, n, generator=generator, dtype=torch.float64) - 1) * bound
        yield "no scores within the bound exceed it", bool((scores.softmax(dim=1) <= largest + 1e-9).all())


def _least_squares(examples: list[tuple[tuple[int, ...], tuple[float, ...]]]) -> float:
    """The same error by a solver: one unknown answer for each token beside each collection of tokens."""
    rows = [(token, tuple(sorted(inputs))) for inputs, _ in examples for token in inputs]
    unknowns = sorted(set(rows))
    design = torch.tensor([[float(row == unknown) for unknown in unknowns] for row in rows], dtype=torch.float64)
    wanted = torch.tensor([[t] for _, targets in examples for t in targets], dtype=torch.float64)
    return (design @ torch.linalg.lstsq(design, wanted).solution - wanted).square().sum().item()


def grade_16_2(answer: Answer) -> Checks:
    """Tasks by hand, then all strings of three bits, then random tasks against a solver for least squares."""
    yield "one sentence without repetition costs nothing", close(answer([((0, 1), (5, 7))]), 0.0, 1e-9)
    yield "equal tokens of one sentence get one answer", close(answer([((0, 0), (0, 1))]), 0.5, 1e-9)
    pair = [((0, 1), (0, 0)), ((1, 0), (1, 1))]
    yield "the first of two tokens costs 1", close(answer(pair), 1.0, 1e-9)
    yield "the other tokens of a sentence count", close(answer([((0, 1), (0, 0)), ((0, 2), (1, 1))]), 0.0, 1e-9)
    yield "a copy of the input costs nothing", close(answer([((0, 1), (0, 1)), ((1, 0), (1, 0))]), 0.0, 1e-9)
    yield "it is a sum over all examples, not a mean", close(answer(3 * pair), 3.0, 1e-9)
    strings = list(product((0, 1), repeat=3))
    for task in (lambda bits: bits[::-1], lambda bits: (sum(bits) % 2,) * 3, lambda bits: (bits[-1],) * 3):
        examples = [(bits, task(bits)) for bits in strings]
        yield "it is the smallest error", close(answer(list(examples)), _least_squares(examples), 1e-9)
    generator = torch.Generator().manual_seed(0)
    for n in (2, 3, 4):
        inputs = torch.randint(3, (12, n), generator=generator).tolist()
        targets = torch.randn(12, n, generator=generator, dtype=torch.float64).tolist()
        examples = [(tuple(i), tuple(t)) for i, t in zip(inputs, targets)]
        yield "it is the smallest error", close(answer(list(examples)), _least_squares(examples), 1e-9)
