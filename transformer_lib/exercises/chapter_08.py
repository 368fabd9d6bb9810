# Generated from chapters/08_data.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 08."""

import random
from fractions import Fraction

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
        yield "the list holds the usable pairs, in their order", found[0] == wanted
        empty = sum(0 in sizes for sizes in shape)
        yield "what is missing is counted", found[1] == {"empty": empty, "too long": len(shape) - empty - len(wanted)}
