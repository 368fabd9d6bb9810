# Generated from chapters/08_data.md and 3 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 08 and its pages in depth."""

import random
from collections import Counter
from fractions import Fraction

import torch

from transformer_lib.exercises.grading import Answer, claim, same


def grade_08_2(answer: Answer) -> None:
    """One cell at a time, with fractions."""
    for batches in ([[1]], [[2, 2]], [[1, 2]], [[3, 4, 9]], [[1, 2], [5, 5]], [[1, 9], [1]], [[4, 4, 1], [2], [7, 3]]):
        real = [column < length for batch in batches for length in batch for column in range(max(batch))]
        text = "the answer is the number of padding cells divided by the number of all cells"
        claim(text, same(answer(batches), float(1 - Fraction(sum(real), len(real))), 1e-6))


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
            wanted = list(word)
            for left, right in merges:
                wanted = _glued(wanted, left, right)
            pieces = answer(word, merges)
            strings = isinstance(pieces, list) and all(isinstance(piece, str) for piece in pieces)
            claim("put together, the pieces are the word", strings and "".join(pieces) == word)
            claim("every merge is applied in turn, from left to right", pieces == wanted)


def grade_08b_1(answer: Answer) -> None:
    """A permutation, repeatable, of its own for each seed and epoch, and without a trace."""
    before, torchs = random.getstate(), torch.get_rng_state()
    try:
        for n in (0, 1, 2, 5, 40):
            order = answer(n, 0, 0)
            once = isinstance(order, list) and Counter(order) == Counter(range(n))
            claim("the order has each number from 0 to n - 1 once", once)
            random.seed(n)
            state, states = random.getstate(), torch.manual_seed(n).get_state()
            claim("the order is the same again, after other numbers have been drawn", answer(n, 0, 0) == order)
            untouched = random.getstate() == state and torch.equal(torch.get_rng_state(), states)
            claim("the program's own random numbers are where they were", untouched)
        orders: dict[tuple[int, ...], tuple[int, int]] = {}
        for seed, epoch in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 12), (11, 2), (2, 3), (3, 2), (0, 100), (0, 1000)):
            other = orders.setdefault(tuple(answer(12, seed, epoch)), (seed, epoch))
            claim(
                f"seed and epoch {seed}, {epoch} have another order than {other[0]}, {other[1]}",
                other == (seed, epoch),
            )
        places = Counter(answer(4, seed, 0)[0] for seed in range(200))
        claim("each batch may come first", min(places[index] for index in range(4)) > 20)
    finally:
        random.setstate(before)
        torch.set_rng_state(torchs)


def grade_08c_1(answer: Answer) -> None:
    """Ends of lines of all kinds; characters that look like ends and are none."""
    cases: list[tuple[str, list[str]]] = [
        ("", []), ("a", ["a"]), ("a\n", ["a"]), ("\n", [""]), ("a\n\n", ["a", ""]), ("\na", ["", "a"]),
        ("a\r\nb\r\n", ["a", "b"]), ("a\r", ["a"]), ("a\r\r\n", ["a\r"]), ("a\rb", ["a\rb"]), ("\r\n\r\n", ["", ""]),
        ("\ufeffa\nb", ["a", "b"]), ("a\n\ufeffb", ["a", "\ufeffb"]), (" a \n\tb\n", [" a ", "\tb"]),
        ("größer\n", ["größer"]),
    ]  # fmt: skip
    cases += [(f"a{odd}b\n{odd}\n", [f"a{odd}b", odd]) for odd in "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\xa0\0"]
    for text, wanted in cases:
        claim(f"the lines are {wanted!r}", answer(text.encode()) == wanted)
