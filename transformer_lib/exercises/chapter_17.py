# Generated from chapters/17_multi30k.md and 2 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 17 and its pages in depth."""

import random
from fractions import Fraction
from statistics import pvariance, variance

import torch
from torch import Tensor

from transformer_lib.exercises.grading import Answer, claim, expect
from transformer_lib.exercises.grading import random as random_numbers


def grade_17_1(answer: Answer) -> None:
    """Small cases by hand, then sums over columns."""
    generator = random.Random(1)
    small = [(1, 2), (3, 10)], [(2, 2), (1, 10)]  # by sentences B is ahead; by sums A is
    cases: list[tuple[list[tuple[int, int]], list[tuple[int, int]], list[list[int]], float]] = [
        ([(1, 2)], [(0, 2)], [[0]], 1.0), ([(1, 2)], [(1, 2)], [[0]], 0.0), ([(0, 2)], [(1, 2)], [[0]], 0.0),
        ([(3, 10)], [(2, 4)], [[0]], 0.0),
        (*small, [[0, 1]], 1.0), (*small, [[0, 0, 1]], 0.0), (*small, [[0, 1], [0, 0, 1], [1, 1], [0, 0]], 0.5),
    ]  # fmt: skip
    a, b = ([(generator.randint(0, most), most) for most in generator.choices(range(5, 30), k=20)] for _ in "ab")
    draws = [generator.choices(range(20), k=20) for _ in range(50)]
    ahead = 0
    for draw in draws:
        (shared_a, all_a), (shared_b, all_b) = ([sum(system[k][n] for k in draw) for n in (0, 1)] for system in (a, b))
        ahead += shared_a * all_b > shared_b * all_a

    def mean(system: list[tuple[int, int]], draw: list[int]) -> Fraction:
        return sum((Fraction(*system[k]) for k in draw), Fraction(0)) / len(draw)

    cases.append((a, b, draws, ahead / 50))
    for a, b, draws, expected in cases:
        by_sentence = sum(mean(a, draw) > mean(b, draw) for draw in draws) / len(draws)
        known = {"this compares means of the sentences' scores; add the counts up first": by_sentence}
        expect("the proportion", answer(list(a), list(b), draws), expected, known)


def grade_17_2(answer: Answer) -> None:
    """By hand, then lists of different lengths, then by the definition."""
    generator = random.Random(3)
    cases: list[tuple[list[float], list[float], float, float]] = [
        ([2.0, 2.0], [2.0, 2.0], 0.0, 0.0), ([1.0, 3.0], [5.0, 5.0, 5.0], 3.0, 1.0),
        ([1.0, 3.0], [2.0, 4.0], 1.0, 2**0.5), ([1.0, 2.0, 3.0], [0.0, 4.0], 0.0, (1 / 3 + 4) ** 0.5),
    ]  # fmt: skip
    plain, changed = ([generator.gauss(1.6, 0.1) for _ in range(n)] for n in (5, 8))
    means = [sum(losses) / len(losses) for losses in (plain, changed)]
    squared = sum(variance(losses) / len(losses) for losses in (plain, changed))
    cases += [(plain, changed, means[1] - means[0], squared**0.5)]
    for first, second, difference, error in cases:
        found = answer(list(first), list(second))
        claim("it returns a pair", isinstance(found, tuple | list) and len(found) == 2)
        backwards = {"the sign is the other way round: changed minus plain": -difference}
        expect("the difference", found[0], difference, backwards)
        known = {
            "the variance divides by n - 1, not by n": (pvariance(first) / len(first) + pvariance(second) / len(second))
            ** 0.5,
            "the mean of plain is uncertain as well": (variance(second) / len(second)) ** 0.5,
            "this is the square of the standard error": error**2,
        }
        expect("the standard error", found[1], error, known)


def grade_17a_1(answer: Answer) -> None:
    """Against the definition, bin by bin."""
    generator = random.Random(0)
    cases: list[tuple[list[float], list[bool], int]] = [
        ([0.75], [True], 1), ([0.75, 0.75], [True, False], 1), ([0.5, 0.25], [True, True], 2), ([1.0], [False], 4),
        ([0.5, 0.4], [False, True], 2), ([1.0, 0.9], [False, True], 2),
        ([0.9, 0.9, 0.9, 0.9, 0.5], [True, True, False, True, True], 10),
    ]  # fmt: skip
    cases += [([generator.random() for _ in range(40)], [generator.random() < 0.6 for _ in range(40)], 8)]
    for confidence, right, bins in cases:
        expected, gaps = 0.0, []
        for place in range(bins):
            inside = [n for n, c in enumerate(confidence) if c * bins // 1 == place or (c == 1 and place == bins - 1)]
            if inside:
                gaps.append(abs(sum(right[n] - confidence[n] for n in inside)) / len(inside))
                expected += len(inside) / len(right) * gaps[-1]
        each = sum(abs(r - c) for r, c in zip(right, confidence)) / len(right)
        known = {
            "each guess is compared with its own outcome; compare the means of a bin": each,
            "every bin weighs the same; one with more guesses weighs more": sum(gaps) / len(gaps),
            "all guesses are in one bin": abs(sum(right) - sum(confidence)) / len(right),
        }
        expect("the calibration error", answer(list(confidence), list(right), bins), expected, known)


def grade_17c_1(answer: Answer) -> None:
    """A ratio of sums, from the corrupted run to the clean one, with whole pairs drawn."""

    def over(draws: list[list[int]], gained: Tensor, possible: Tensor) -> Tensor:
        drawn = torch.stack([gained[draw].sum() / possible[draw].sum() for draw in draws])
        return torch.stack([gained.sum() / possible.sum(), drawn.min(), drawn.max()])

    for pairs in (1, 2, 5):
        corrupted = random_numbers(pairs) - 5
        clean = corrupted + 1 + 9 * random_numbers(pairs, seed=1).abs()
        patched = corrupted + random_numbers(pairs, seed=2)
        draws = torch.randint(pairs, (4, pairs), generator=torch.Generator().manual_seed(pairs)).tolist()
        gained, possible = patched - corrupted, clean - corrupted
        right, ratios, from_clean = over(draws, gained, possible), gained / possible, clean - patched
        drawn = torch.stack([gained[draw].sum() for draw in draws]) / possible.sum()
        known = {
            "it should be a ratio of sums, not a mean of ratios": over(draws, ratios, torch.ones_like(ratios)),
            "it is measured from the clean run: at 0, the patch should change nothing": over(
                draws, from_clean, possible
            ),
            "the corrupted run's D is subtracted above and below": over(draws, patched, clean),
            "the corrupted run's D is subtracted below, too": over(draws, gained, clean),
            "the corrupted run's D is subtracted above, too": over(draws, patched, possible),
            "pairs are drawn below, too: both sums are of the same pairs": torch.stack(
                [right[0], drawn.min(), drawn.max()]
            ),
        }
        found = answer(clean.clone(), corrupted.clone(), patched.clone(), [list(draw) for draw in draws])
        expect("the effect and its two bounds", found, right, known)
