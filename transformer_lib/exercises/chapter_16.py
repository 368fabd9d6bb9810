# Generated from chapters/16_limits.md and 2 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 16 and its pages in depth."""

from itertools import pairwise, product

import torch

from transformer_lib.exercises.grading import Answer, claim, same


def grade_16_1(answer: Answer) -> None:
    """Some scores within the bound reach it, and no random ones exceed it."""
    generator = torch.Generator().manual_seed(0)
    for n, bound in ((1, 0.0), (1, 2.0), (2, 0.0), (2, 1.0), (3, 0.5), (10, 2.0), (1000, 1.0), (1000, 8.0)):
        best = torch.full((n,), -bound, dtype=torch.float64)
        best[0] = bound
        largest = answer(n, bound)
        claim("some scores within the bound reach it", same(largest, best.softmax(dim=0)[0].item(), 1e-9))
        scores = (2 * torch.rand(100, n, generator=generator, dtype=torch.float64) - 1) * bound
        claim("no scores within the bound exceed it", bool((scores.softmax(dim=1) <= largest + 1e-9).all()))


def _least_squares(examples: list[tuple[tuple[int, ...], tuple[float, ...]]]) -> float:
    """The same error by a solver: one unknown answer for each token beside each collection of tokens."""
    rows = [(token, tuple(sorted(inputs))) for inputs, _ in examples for token in inputs]
    unknowns = sorted(set(rows))
    design = torch.tensor([[float(row == unknown) for unknown in unknowns] for row in rows], dtype=torch.float64)
    wanted = torch.tensor([[t] for _, targets in examples for t in targets], dtype=torch.float64)
    return (design @ torch.linalg.lstsq(design, wanted).solution - wanted).square().sum().item()


def grade_16_2(answer: Answer) -> None:
    """Tasks by hand, then all strings of three bits, then random tasks against a solver for least squares."""
    claim("one sentence without repetition costs nothing", same(answer([((0, 1), (5, 7))]), 0.0, 1e-9))
    claim("equal tokens of one sentence get one answer", same(answer([((0, 0), (0, 1))]), 0.5, 1e-9))
    pair = [((0, 1), (0, 0)), ((1, 0), (1, 1))]
    claim("the first of two tokens costs 1", same(answer(pair), 1.0, 1e-9))
    claim("the other tokens of a sentence count", same(answer([((0, 1), (0, 0)), ((0, 2), (1, 1))]), 0.0, 1e-9))
    claim("a copy of the input costs nothing", same(answer([((0, 1), (0, 1)), ((1, 0), (1, 0))]), 0.0, 1e-9))
    claim("it is a sum over all examples, not a mean", same(answer(3 * pair), 3.0, 1e-9))
    strings = list(product((0, 1), repeat=3))
    for task in (lambda bits: bits[::-1], lambda bits: (sum(bits) % 2,) * 3, lambda bits: (bits[-1],) * 3):
        examples = [(bits, task(bits)) for bits in strings]
        claim("it is the smallest error", same(answer(list(examples)), _least_squares(examples), 1e-9))
    generator = torch.Generator().manual_seed(0)
    for n in (2, 3, 4):
        inputs = torch.randint(3, (12, n), generator=generator).tolist()
        targets = torch.randn(12, n, generator=generator, dtype=torch.float64).tolist()
        examples = [(tuple(i), tuple(t)) for i, t in zip(inputs, targets)]
        claim("it is the smallest error", same(answer(list(examples)), _least_squares(examples), 1e-9))


def grade_16b_1(answer: Answer) -> None:
    """Against one step of Adam, against the largest so far, and against PyTorch's AMSGrad."""
    for gradients, beta2 in (
        ([1.0], 0.0), ([2.0], 0.5), ([1.0, 1.0], 0.5), ([1.0, 2.0], 0.5), ([2.0, 0.0], 0.5), ([3.0, -1.0, -1.0], 0.1),
        ([3.0, -1.0, -1.0] * 5, 0.9), ([0.5, 0.0, 4.0, -1.0, 0.0, 4.0], 0.99),
    ):  # fmt: skip
        v, means = 0.0, []
        for gradient in gradients:
            v = beta2 * v + (1 - beta2) * gradient**2
            means.append(v)
        found = answer(list(gradients), beta2)
        a_list = isinstance(found, list) and len(found) == len(gradients)
        claim("it is a list with one number for each step", a_list)
        claim("the first is that of Adam", same(found[0], means[0], 1e-12))
        claim("they never shrink", all(bool(later >= earlier) for earlier, later in pairwise(found)))
        claim("each is the largest mean so far", same(found, [max(means[: t + 1]) for t in range(len(means))], 1e-12))


def grade_16c_1(answer: Answer) -> None:
    """Token by token, in a loop, on sentences whose padding is right, wrong and random."""
    generator = torch.Generator().manual_seed(0)
    cases = [([[1, 0], [1, 0]], [1, 2], 1), ([[1, 1, 0], [1, 0, 1], [0, 1, 1]], [2, 3, 3], 2)]
    cases.append(([[1, 1, 0, 1], [1, 0, 0, 1], [1, 1, 1, 0], [0, 0, 1, 0]], [1, 2, 3, 4], 2))
    for b, n, trained in ((8, 6, 3), (20, 12, 7)):
        lengths = torch.randint(1, n + 1, (b,), generator=generator)
        lengths[0], lengths[1] = 1, n
        cases.append((torch.randint(2, (b, n), generator=generator).tolist(), lengths.tolist(), trained))
    for rows, sizes, trained in cases:
        counted: list[list[int]] = [[], [], []]
        for row, size in zip(rows, sizes):
            for position, correct in enumerate(row[:size]):
                counted[0 if size <= trained else 1 if position < trained else 2].append(correct)
        short, old, new = (sum(numbers) / len(numbers) for numbers in counted)
        found = answer(torch.tensor(rows, dtype=torch.bool), torch.tensor(sizes), trained)
        claim("it is three numbers", isinstance(found, tuple | list) and len(found) == 3)
        claim("the first is about the short sentences", same(found[0], short, 1e-6))
        claim("the second is about trained positions of longer ones", same(found[1], old, 1e-6))
        claim("the third is about the positions beyond", same(found[2], new, 1e-6))
