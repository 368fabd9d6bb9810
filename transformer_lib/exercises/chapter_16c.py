# Generated from chapters/16c_length.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 16c."""

import torch

from transformer_lib.exercises import Answer, Checks, close


def grade_16c_1(answer: Answer) -> Checks:
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
        yield "it is three numbers", isinstance(found, tuple | list) and len(found) == 3
        yield "the first is about the short sentences", close(found[0], short, 1e-6)
        yield "the second is about trained positions of longer ones", close(found[1], old, 1e-6)
        yield "the third is about the positions beyond", close(found[2], new, 1e-6)
