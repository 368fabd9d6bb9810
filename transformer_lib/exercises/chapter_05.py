# Generated from chapters/05_masks.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 05."""

import torch
from torch import Tensor

from transformer_lib.exercises import Answer, Checks


def grade_05_2(answer: Answer) -> Checks:
    """Each pair of query and key by itself."""
    for length in (1, 2, 3, 5):
        for width in range(1, length + 1):
            mask = answer(length, width)
            wanted = torch.zeros(1, 1, length, length, dtype=torch.bool)
            shaped = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == wanted.shape
            yield "the mask is boolean, (1, 1, length, length)", shaped
            for i in range(length):
                for j in range(length):
                    wanted[0, 0, i, j] = i - width < j <= i
            yield "query i sees the keys i - width + 1 … i, and no others", torch.equal(mask, wanted)
