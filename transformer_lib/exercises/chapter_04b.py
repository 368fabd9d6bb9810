# Generated from chapters/04b_table.md: edit it there and `make export`, or here and `make sync`.

"""The grader of chapter 04b."""

import math

import torch

from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.positions import sinusoidal_table


def grade_04b_1(answer: Answer) -> Checks:
    """The smallest distance of two rows, compared with all pairs."""
    for length in (2, 3, 6, 7, 8, 45, 300):
        for d_model in (2, 4, 8, 64):
            table = sinusoidal_table(length, d_model)
            distances = torch.cdist(table, table, compute_mode="donot_use_mm_for_euclid_dist")
            expected = distances.fill_diagonal_(math.inf).min().item()
            yield "it is the smallest distance of two rows", close(answer(length, d_model), expected, 1e-9)
    table = sinusoidal_table(100_000, 4)
    expected = (table[1:] - table[0]).norm(dim=1).min().item()
    yield "it is the smallest distance among 100,000 rows", close(answer(100_000, 4), expected, 1e-9)
