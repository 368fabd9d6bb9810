# Generated from chapters/04c_shift.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 04c."""

import torch
from torch import Tensor

from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.positions import sinusoidal_table


def grade_04c_1(answer: Answer) -> Checks:
    """The signed number of positions between two rows."""
    for d_model in (4, 6, 64):
        table = sinusoidal_table(400, d_model)
        for distance in (0, 1, 2, 3, 4, 7, 44, 100):
            for p in (0, 1, 150, 299):
                for shift in (distance, -distance):
                    if 0 <= p + shift:
                        found = answer(table[p], table[p + shift])
                        direction = "after" if shift > 0 else "before" if shift else "at"
                        yield f"row {p + shift} is {abs(shift)} positions {direction} row {p}", close(found, shift, 0)


def grade_04c_2(answer: Answer) -> Checks:
    """Every position has its largest score at the position `back` places before it."""
    for d_model, length in ((4, 8), (4, 2000), (8, 200), (64, 2000)):
        rows = sinusoidal_table(length, d_model)
        for back in (0, 1, 3, 7):
            found = answer(back, d_model)
            yield "the answer is a square matrix", isinstance(found, Tensor) and found.shape == (d_model, d_model)
            scores = rows @ found.double() @ rows.T  # (length, length)
            yield "no score is NaN or infinite", bool(scores.isfinite().all())
            best = scores[back:].topk(2, dim=1)
            there = torch.equal(best.indices[:, 0], torch.arange(length - back))
            clearly = bool((best.values[:, 0] > best.values[:, 1]).all())
            yield f"positions {back} to {length - 1} have their largest score {back} back", there and clearly
