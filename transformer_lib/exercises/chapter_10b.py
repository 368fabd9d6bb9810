# Generated from chapters/10b_stopping.md: edit it there and `make export`, or here and `make sync`.

"""Graders of the exercises on when a search may stop."""

import math

import torch

from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.teaching import Chances, by_last_word, every_sentence


def grade_10b_1(answer: Answer) -> Checks:
    """Against every length that the live hypothesis may end with."""
    for length, max_length in ((1, 2), (2, 3), (2, 10), (5, 6), (5, 40)):
        for alpha in (0.0, 0.5, 1.0, 2.0):
            for live in (-1.0, -4.0, -20.0):
                reach = max(live / end**alpha for end in range(length + 1, max_length + 1))
                cases = [(reach + 0.01, True), (reach - 0.01, False)]
                if alpha == 0:  # the divisor is exactly 1, and so equal is equal
                    cases.append((reach, True))
                for finished, safe in cases:
                    claim = f"it is {'safe' if safe else 'not safe yet'}: the live one can reach {reach:.4g}"
                    yield claim, bool(answer(finished, live, length, alpha, max_length) == safe)


def _hidden(words: tuple[str, ...]) -> dict[str, float]:
    """'A C C end' is the best, and twenty beginnings of three words are better than 'A C C'."""
    rows = {
        (): (0.10, 0.45, 0.449, 0.001), ("A",): (0.04, 0.03, 0.92, 0.01), ("A", "C"): (0.35, 0.33, 0.31, 0.01),
        ("A", "C", "C"): (0.01, 0.01, 0.01, 0.97),
    }  # fmt: skip
    return dict(zip(("A", "B", "C", "end"), rows.get(tuple(words), (0.34, 0.33, 0.32, 0.01))))


def grade_10b_2(answer: Answer) -> Checks:
    """Against all sentences of at most six tokens, and with a count of the questions."""
    generator = torch.Generator().manual_seed(5)
    models: list[Chances] = []
    for number in range(12):
        spread = 1.0 + number % 3
        rows = (spread * torch.randn(4, 4, generator=generator, dtype=torch.float64)).softmax(-1).tolist()
        models.append(
            by_last_word(
                {last: dict(zip(("A", "B", "C", "end"), row)) for last, row in zip(("start", "A", "B", "C"), rows)}
            )
        )
    for chances in (*models, _hidden):
        asked: set[tuple[str, ...]] = set()

        def next_log_probs(
            words: tuple[str, ...], chances: Chances = chances, asked: set[tuple[str, ...]] = asked
        ) -> dict[str, float]:
            """The logarithms, and a note of the question."""
            asked.add(tuple(words))
            return {word: math.log(p) for word, p in chances(words).items()}

        (best, words), *_ = every_sentence(chances, 6)
        found = answer(next_log_probs, 6)
        pair = isinstance(found, tuple | list) and len(found) == 2
        yield f"the best is {' '.join((*words, 'end'))}", pair and found[1] == words
        yield f"its log-probability is {math.log(best):.4f}", pair and close(found[0], math.log(best))
        yield f"fewer than 73 of the 364 beginnings are looked at, not {len(asked)}", len(asked) < 73
