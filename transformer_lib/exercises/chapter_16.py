# Generated from chapters/16_limits.md and 1 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 16 and its pages in depth."""

import math

import torch

from transformer_lib.exercises.grading import Answer, claim, expect


def grade_16_1(answer: Answer) -> None:
    """By the best scores within the bound."""
    for n, bound in ((1, 0.0), (3, 0.5), (1, 2.0), (2, 0.0), (2, 1.0), (10, 2.0), (1000, 1.0), (1000, 8.0)):
        best = torch.full((n,), -bound, dtype=torch.float64)
        best[0] = bound
        known = {
            "this bound is not reached; for short sentences it is above 1": math.exp(2 * bound) / n,
            "the other scores can go down to -B, not only to 0": math.exp(bound) / (math.exp(bound) + n - 1),
            "n - 1 other keys have the score -B, not n": 1 / (1 + n * math.exp(-2 * bound)),
        }
        expect("the largest weight", answer(n, bound), best.softmax(dim=0)[0].item(), known, 1e-6)  # float32, too


def grade_16_2(answer: Answer) -> None:
    """Below and above the numbers of tokens from which two dtypes lose proportions."""
    for n in (1, 4, 256, 258, 300, 1000, 3000):
        for dtype in (torch.bfloat16, torch.float16):
            counts = torch.arange(n + 1)
            known = {
                "round the proportions, not the counts": len((counts.to(dtype) / n).unique()),
                "no two are equal: were they rounded, and are numbers counted, not tensors": n + 1,
                "k runs from 0 to n, both included": len((counts[1:] / n).to(dtype).unique()),
            }
            right = len((counts / n).to(dtype).unique())
            expect("how many different numbers are left", answer(n, dtype), right, known)


def grade_16a_1(answer: Answer) -> None:
    """Against one step of Adam, against the largest so far, and against PyTorch's AMSGrad."""
    for gradients, beta2 in (
        ([1.0], 0.0), ([2.0], 0.5), ([1.0, 1.0], 0.5), ([1.0, 2.0], 0.5), ([2.0, 0.0], 0.5), ([3.0, -1.0, -1.0], 0.1),
        ([3.0, -1.0, -1.0] * 5, 0.9), ([0.5, 0.0, 4.0, -1.0, 0.0, 4.0], 0.99),
    ):  # fmt: skip
        v, means = 0.0, []
        for gradient in gradients:
            v = beta2 * v + (1 - beta2) * gradient**2
            means.append(v)
        squares = [gradient**2 for gradient in gradients]
        largest, of_squares = ([max(values[: t + 1]) for t in range(len(values))] for values in (means, squares))
        known = {
            "this is Adam's own v, which shrinks again": means,
            "this is the largest squared gradient; take the largest mean": of_squares,
            "this is the root already": [v**0.5 for v in largest],
        }
        expect("the list of numbers", answer(list(gradients), beta2), largest, known, 1e-12)


def grade_16a_2(answer: Answer) -> None:
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
        padded: list[list[int]] = [[], [], []]
        for row, size in zip(rows, sizes):
            for position, correct in enumerate(row):
                place = 0 if size <= trained else 1 if position < trained else 2
                padded[place].append(correct)
                if position < size:
                    counted[place].append(correct)
        right, with_padding = ([sum(numbers) / len(numbers) for numbers in part] for part in (counted, padded))
        found = answer(torch.tensor(rows, dtype=torch.bool), torch.tensor(sizes), trained)
        claim("it is three numbers", isinstance(found, tuple | list) and len(found) == 3)
        parts = "in short sentences", "at trained positions of longer sentences", "at positions beyond"
        for place, part in enumerate(parts):
            expect(f"what is right {part}", found[place], right[place], {"padding counts": with_padding[place]}, 1e-6)
