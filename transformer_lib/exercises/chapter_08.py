# Generated from chapters/08_data.md and 3 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 08 and its pages in depth."""

import random
from collections import Counter
from fractions import Fraction
from statistics import fmean, pstdev, stdev, variance

import torch

from transformer_lib.exercises.grading import Answer, claim, expect


def grade_08_2(answer: Answer) -> None:
    """One cell at a time, with fractions."""
    for batches in ([[1]], [[2, 2]], [[1, 2]], [[3, 4, 9]], [[1, 2], [5, 5]], [[1, 9], [1]], [[4, 4, 1], [2], [7, 3]]):
        shares, cells = [], []
        for batch in batches:
            real = [column < length for length in batch for column in range(max(batch))]
            shares.append(float(1 - Fraction(sum(real), len(real))))
            cells += real
        share = float(1 - Fraction(sum(cells), len(cells)))
        known = {
            "this is the mean of the batches' shares; large batches have more cells": sum(shares) / len(shares),
            "this is the share of the real tokens": 1 - share,
            "this is the padding divided by the tokens, not by all cells": share / (1 - share),
        }
        expect("the share of padding", answer(batches), share, known)


def _glued(pieces: list[str], left: str, right: str) -> list[str]:
    """One merge, from left to right."""
    if len(pieces) < 2:
        return pieces
    if pieces[0] == left and pieces[1] == right:
        return [left + right, *_glued(pieces[2:], left, right)]
    return [pieces[0], *_glued(pieces[1:], left, right)]


def grade_08a_1(answer: Answer) -> None:
    """Short words first; then merges that overlap, and merges whose order matters."""
    lists = [[], [("a", "b")], [("a", "a")], [("b", "c"), ("a", "b")], [("a", "b"), ("ab", "c"), ("c", "ab")]]
    words = ["", "a", "ab", "ba", "aaa", "aaaa", "abc", "abcab", "cabcabba"]
    for merges in lists:
        for word in words:
            wanted, backwards = list(word), list(word)
            for pair, last in zip(merges, merges[::-1]):
                wanted, backwards = _glued(wanted, *pair), _glued(backwards, *last)
            expect("the list of pieces", answer(word, merges), wanted, {"the last merge is applied first": backwards})


def grade_08b_1(answer: Answer) -> None:
    """A permutation, repeatable, of its own for each seed and epoch, and without a trace."""
    before, torchs = random.getstate(), torch.get_rng_state()
    try:
        for n in (0, 1, 2, 5, 40):
            order = answer(n, 0, 0)
            expect("the order, sorted,", sorted(order) if isinstance(order, list) else order, list(range(n)))
            random.seed(n)
            state, states = random.getstate(), torch.manual_seed(n).get_state()
            claim("the order is the same again, after other numbers have been drawn", answer(n, 0, 0) == order)
            untouched = random.getstate() == state and torch.equal(torch.get_rng_state(), states)
            claim("the program's own random numbers are where they were", untouched)
        orders: dict[tuple[int, ...], tuple[int, int]] = {}
        for seed, epoch in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 12), (11, 2), (2, 3), (3, 2), (0, 100), (0, 1000)):
            other = orders.setdefault(tuple(answer(12, seed, epoch)), (seed, epoch))
            apart = f"seed and epoch {seed}, {epoch} have another order than {other[0]}, {other[1]}"
            claim(apart, other == (seed, epoch))
        places = Counter(answer(4, seed, 0)[0] for seed in range(200))
        claim("each batch may come first", min(places[index] for index in range(4)) > 20)
    finally:
        random.setstate(before)
        torch.set_rng_state(torchs)


def grade_08c_1(answer: Answer) -> None:
    """A gain, a loss and nothing, where seeds differ by more than the change does."""
    cases = (
        ([44.0, 39.5, 47.5], [42.0, 38.0, 44.5], 4.303),
        ([31.0, 36.5, 28.5, 33.0], [31.5, 38.0, 29.0, 33.5], 3.182),
        ([40.0, 43.0, 41.0, 45.5, 39.0, 42.0], [41.0, 42.5, 42.0, 45.0, 38.0, 42.5], 2.571),
    )
    for changed, control, t in cases:
        gains = [a - b for a, b in zip(changed, control)]
        mean, n = fmean(gains), len(gains)

        def around(half: float, mean: float = mean, t: float = t) -> list[float]:
            """The two ends."""
            return [mean - t * half, mean + t * half]

        known = {
            "the scores of a seed are a pair: first the differences, then their standard deviation": around(
                ((variance(changed) + variance(control)) / n) ** 0.5
            ),
            "stdev divides by n - 1, as a sample needs it; this is pstdev": around(pstdev(gains) / n**0.5),
            "a mean of n varies less than one of them: divide by the root of n": around(stdev(gains)),
            "a gain is the changed score minus the control's": around(stdev(gains) / n**0.5, -mean),
        }
        expect("the list of two ends", answer(list(changed), list(control), t), around(stdev(gains) / n**0.5), known)


def grade_08c_2(answer: Answer) -> None:
    """A pair stays if at least `drop` pairs gain less."""
    own = [3.0, 9.5, 2.0, 6.0, 4.0, 7.0]
    for other in ([5.5, 14.0, 2.25, 6.5, 7.0, 8.0], [4.0, 9.0, 6.0, 9.0, 4.5, 12.0]):
        gains = [b - a for a, b in zip(own, other)]
        for drop in (2, 0, 1, 5, 6):

            def without(values: list[float], drop: int = drop) -> list[int]:
                """Those that have `drop` smaller values."""
                return [n for n, value in enumerate(values) if sum(less < value for less in values) >= drop]

            right = without(gains)
            known: dict[str, list[int]] = {
                f"no pair stays, with drop = {drop}": [],
                "the loss alone decides; what counts is how much it rises": without([-loss for loss in own]),
                "those that gain most are dropped": without([-gain for gain in gains]),
                "the numbers are in the order of the gains, not in that of the corpus": sorted(
                    right, key=lambda n: gains[n]
                ),
                "these are the pairs that are dropped": [n for n in range(len(own)) if n not in right],
            }
            expect("the list of numbers", answer(list(own), list(other), drop), right, known)
