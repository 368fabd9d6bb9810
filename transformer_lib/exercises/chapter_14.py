# Generated from chapters/14_cost.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 14."""

import torch

from transformer_lib.cost import Product
from transformer_lib.exercises import Answer, Checks, close


def grade_14_1(answer: Answer) -> Checks:
    """Every batch is tried."""
    for d, c, itemsize, peak, bandwidth in (
        (1, 1, 4, 1, 10), (4, 4, 4, 1, 2), (8, 16, 2, 3, 1), (64, 64, 4, 10, 1), (2, 2, 4, 9, 1), (4, 4, 4, 1, 1),
        (512, 2048, 4, 13, 1),
    ):  # fmt: skip
        products = (Product(1, batch, d, c) for batch in range(1, 5000))
        fits = (p.rows for p in products if p.flops * bandwidth >= itemsize * p.numbers * peak)
        expected = next(fits, None)
        batch = answer(d, c, itemsize, peak, bandwidth)
        if expected is None:
            yield "no batch is large enough", batch is None
        else:
            yield f"it is {expected}", close(batch, expected, 0)


def grade_14_2(answer: Answer) -> Checks:
    """The mask is drawn and counted."""
    for n, w in ((1, 1), (2, 1), (2, 2), (3, 2), (2, 3), (5, 3), (40, 7), (7, 40)):
        mask = torch.ones(n, n, dtype=torch.bool).tril().triu(1 - w)
        yield f"the mask has {int(mask.sum())} entries", close(answer(n, w), int(mask.sum()), 0)
