# Generated from chapters/05d_kernels.md: edit it there and `make export`, or here and `make sync`.

"""The graders of page 05d."""

import torch
from torch import Tensor

from transformer_lib.exercises import Answer, Checks

_ROWS = ([[1]], [[1, 1]], [[1, 2]], [[1, 0]], [[1, 1, 2]], [[1, 2, 2, 3, 0, 0], [1, 1, 1, 1, 2, 2]])


def grade_05d_1(answer: Answer) -> Checks:
    """Each pair of query and key by itself."""
    for numbers in _ROWS:
        batch, length = len(numbers), len(numbers[0])
        mask = answer(torch.tensor(numbers))
        shaped = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == (batch, 1, length, length)
        yield "the mask is boolean, (batch, 1, length, length)", shaped
        for b, row in enumerate(numbers):
            for i in range(length):
                for j in range(length):
                    seen = bool(mask[b, 0, i, j])
                    yield "no query sees the future", not seen or j <= i
                    yield "no query sees a different sentence", not seen or row[i] == row[j]
                    yield "no query sees padding", not seen or row[j] != 0
                    wanted = j <= i and row[i] == row[j] != 0
                    yield "a real token sees itself and the past of its sentence", seen or not wanted


def grade_05d_2(answer: Answer) -> Checks:
    """Each token by itself: how many of its sentence stand before it."""
    for numbers in (*_ROWS, [[2, 2, 1, 1, 1]], [[3, 0, 7, 7]]):
        places = answer(torch.tensor(numbers))
        whole = isinstance(places, Tensor) and not places.is_floating_point() and places.dtype != torch.bool
        yield (
            "the places are integers, of the shape of the numbers",
            whole and places.shape == (len(numbers), len(numbers[0])),
        )
        for b, row in enumerate(numbers):
            for i, sentence in enumerate(row):
                wanted = row[:i].count(sentence) if sentence else 0
                yield "each sentence is numbered 0, 1, 2, …, and padding gets 0", int(places[b, i]) == wanted


def grade_05d_3(answer: Answer) -> Checks:
    """Each pair of query and key by itself, by what the two are."""
    for length, prefixes in ((1, [0]), (2, [0]), (2, [1]), (3, [2]), (3, [3]), (2, [0, 1, 2]), (5, [3, 0, 5, 1])):
        mask = answer(torch.tensor(prefixes), length)
        shape = (len(prefixes), 1, length, length)
        shaped = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == shape
        yield "the mask is boolean, (batch, 1, length, length)", shaped
        for b, prefix in enumerate(prefixes):
            yield "every token sees the whole prefix", bool(mask[b, 0, :, :prefix].all())
            yield "no token of the prefix sees beyond it", not mask[b, 0, :prefix, prefix:].any()
            behind = mask[b, 0, prefix:, prefix:]
            past = torch.ones_like(behind).tril()
            yield "behind the prefix, the past is seen and the future is not", torch.equal(behind, past)
