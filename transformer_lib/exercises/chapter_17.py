# Generated from chapters/17_multi30k.md: edit it there and `make export`, or here and `make sync`.

"""The graders of the chapter on real sentences."""

import random

from transformer_lib.exercises import Answer, Checks, close


def grade_17_1(answer: Answer) -> Checks:
    """Small cases by hand, then sums over columns."""
    generator = random.Random(1)
    small = [(1, 2), (3, 10)], [(2, 2), (1, 10)]  # by sentences B is ahead; by sums A is
    cases: list[tuple[list[tuple[int, int]], list[tuple[int, int]], list[list[int]], float]] = [
        ([(1, 2)], [(0, 2)], [[0]], 1.0), ([(1, 2)], [(1, 2)], [[0]], 0.0), ([(0, 2)], [(1, 2)], [[0]], 0.0),
        ([(3, 10)], [(2, 4)], [[0]], 0.0),
        (*small, [[0, 1]], 1.0), (*small, [[0, 0, 1]], 0.0), (*small, [[0, 1], [0, 0, 1], [1, 1], [0, 0]], 0.5),
    ]  # fmt: skip
    for a, b, draws, expected in cases:
        yield f"the proportion is {expected}", close(answer(list(a), list(b), draws), expected, 1e-9)
    a, b = ([(generator.randint(0, most), most) for most in generator.choices(range(5, 30), k=20)] for _ in "ab")
    draws = [generator.choices(range(20), k=20) for _ in range(50)]
    ahead = 0
    for draw in draws:
        (shared_a, all_a), (shared_b, all_b) = ([sum(system[k][n] for k in draw) for n in (0, 1)] for system in (a, b))
        ahead += shared_a * all_b > shared_b * all_a
    yield f"the proportion is {ahead / 50}", close(answer(a, b, draws), ahead / 50, 1e-9)


def grade_17_2(answer: Answer) -> Checks:
    """By hand, then lists of different lengths, then by the definition."""
    generator = random.Random(3)
    cases: list[tuple[list[float], list[float], float, float]] = [
        ([1.0, 3.0], [2.0, 4.0], 1.0, 2**0.5),
        ([2.0, 2.0], [2.0, 2.0], 0.0, 0.0),
        ([1.0, 3.0], [5.0, 5.0, 5.0], 3.0, 1.0),
        ([1.0, 2.0, 3.0], [0.0, 4.0], 0.0, (1 / 3 + 4) ** 0.5),
    ]
    plain, changed = ([generator.gauss(1.6, 0.1) for _ in range(n)] for n in (5, 8))
    means = [sum(losses) / len(losses) for losses in (plain, changed)]
    squared = sum(
        sum((loss - mean) ** 2 for loss in losses) / (len(losses) - 1) / len(losses)
        for losses, mean in zip((plain, changed), means)
    )
    cases += [(plain, changed, means[1] - means[0], squared**0.5)]
    for first, second, difference, error in cases:
        pair = difference, error
        holds = close(answer(list(first), list(second)), pair, 1e-9)
        yield f"the difference is {difference:.4g} and its standard error {error:.4g}", holds
