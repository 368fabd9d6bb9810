# Generated from chapters/10b_stopping.md: edit it there and `make export`, or here and `make sync`.

"""Graders of the exercises on when a search may stop."""

from transformer_lib.exercises import Answer, Checks


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
