# Generated from chapters/08b_bucketing.md: edit it there and `make export`, or here and `make sync`.

"""The grader of the page on bucketing."""

import random
from collections import Counter

import torch

from transformer_lib.exercises import Answer, Checks


def grade_08b_1(answer: Answer) -> Checks:
    """A permutation, repeatable, of its own for each seed and epoch, and without a trace."""
    before, torchs = random.getstate(), torch.get_rng_state()
    try:
        for n in (0, 1, 2, 5, 40):
            order = answer(n, 0, 0)
            once = isinstance(order, list) and Counter(order) == Counter(range(n))
            yield "the order has each number from 0 to n - 1 once", once
            random.seed(n)
            state, states = random.getstate(), torch.manual_seed(n).get_state()
            yield "the order is the same again, after other numbers have been drawn", answer(n, 0, 0) == order
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
