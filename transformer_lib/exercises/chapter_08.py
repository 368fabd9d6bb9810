# Generated from chapters/08_data.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 08."""

import random
from collections import Counter
from fractions import Fraction

import torch

from transformer_lib.exercises import Answer, Checks, close


def grade_08_2(answer: Answer) -> Checks:
    """One cell at a time, with fractions."""
    for batches in ([[1]], [[2, 2]], [[1, 2]], [[3, 4, 9]], [[1, 2], [5, 5]], [[1, 9], [1]], [[4, 4, 1], [2], [7, 3]]):
        real = [column < length for batch in batches for length in batch for column in range(max(batch))]
        claim = "the answer is the number of padding cells divided by the number of all cells"
        yield claim, close(answer(batches), float(1 - Fraction(sum(real), len(real))))


def grade_08_3(answer: Answer) -> Checks:
    """One pair, then two, then many; each pair is known by its tokens."""
    rng = random.Random(4)
    shapes = [
        [(1, 1)],
        [(0, 1)],
        [(1, 0)],
        [(3, 1)],
        [(1, 3)],
        [(0, 3)],
        [(2, 2), (1, 1)],
        [(0, 1), (1, 1)],
        [(3, 1), (1, 1)],
    ]
    shapes += [[(1, 1), (1, 0), (0, 1), (1, 2)], [(rng.randint(0, 3), rng.randint(0, 3)) for _ in range(40)]]
    for shape in shapes:
        sources = [[number] * size for number, (size, _) in enumerate(shape, start=3)]
        targets = [[number] * size for number, (_, size) in enumerate(shape, start=3)]
        found = answer(sources, targets, 2)
        formed = (
            isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], list) and isinstance(found[1], dict)
        )
        yield "the answer is (a list, a dictionary)", formed
        wanted = [pair for pair in zip(sources, targets) if pair[0] and pair[1] and max(map(len, pair)) <= 2]
        yield "source and target of a pair stay together", all(len({*s, *t}) == 1 for s, t in found[0])
        yield "the usable pairs, in their order", found[0] == wanted
        empty = sum(0 in sizes for sizes in shape)
        yield "what is missing is counted", found[1] == {"empty": empty, "too long": len(shape) - empty - len(wanted)}


def _fewest_cells(lengths: list[int], budget: int) -> tuple[int, int]:
    """Cells and batches of sorting by length."""
    cells, batches, rows = 0, 0, 0
    ordered = sorted(lengths)
    for place, length in enumerate(ordered):
        rows += 1
        if place + 1 == len(ordered) or (rows + 1) * ordered[place + 1] > budget:
            cells, batches, rows = cells + rows * length, batches + 1, 0
    return cells, batches


def grade_08_4(answer: Answer) -> Checks:
    """Few sentences first; each batch by itself, then all together."""
    rng = random.Random(5)
    cases = [
        ([1], 1),
        ([2, 2], 4),
        ([1, 2], 3),
        ([3, 1], 4),
        ([1, 4, 1], 4),
        ([5, 1, 5, 1], 10),
        ([2, 3, 4, 3, 2], 9),
        ([], 4),
    ]
    cases += [([rng.randint(1, 12) for _ in range(60)], budget) for budget in (12, 24, 100, 1000)]
    for lengths, budget in cases:
        found = answer(lengths, budget)
        formed = isinstance(found, list) and all(isinstance(batch, list) and batch for batch in found)
        yield "the answer is a list of lists, none of them empty", formed
        yield (
            "every index stands in one batch",
            sorted(index for batch in found for index in batch) == list(range(len(lengths))),
        )
        sizes = [len(batch) * max(lengths[index] for index in batch) for batch in found]
        yield "rows times the longest are within the budget", all(size <= budget for size in sizes)
        cells, batches = _fewest_cells(lengths, budget)
        yield "there is no more padding than when sorted", sum(sizes) <= cells
        yield "there are no more batches than needed in that order", len(found) <= batches


def grade_08_5(answer: Answer) -> Checks:
    """A permutation, repeatable, of its own for each seed and epoch, and without a trace."""
    before, torchs = random.getstate(), torch.get_rng_state()
    try:
        for n in (0, 1, 2, 5, 40):
            order = answer(n, 0, 0)
            yield "each number from 0 to n - 1 once", isinstance(order, list) and Counter(order) == Counter(range(n))
            random.seed(n)
            state, states = random.getstate(), torch.manual_seed(n).get_state()
            yield "the same order again, after other numbers have been drawn", answer(n, 0, 0) == order
            untouched = random.getstate() == state and torch.equal(torch.get_rng_state(), states)
            yield "the program's own random numbers are where they were", untouched
        orders: dict[tuple[int, ...], tuple[int, int]] = {}
        for seed, epoch in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 12), (11, 2), (2, 3), (3, 2), (0, 100), (0, 1000)):
            other = orders.setdefault(tuple(answer(12, seed, epoch)), (seed, epoch))
            yield (
                f"seed and epoch {seed}, {epoch} have another order than {other[0]}, {other[1]}",
                other == (seed, epoch),
            )
        places = Counter(answer(4, seed, 0)[0] for seed in range(200))
        yield "each batch may come first", min(places[index] for index in range(4)) > 20
    finally:
        random.setstate(before)
        torch.set_rng_state(torchs)
