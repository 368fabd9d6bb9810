# Generated from chapters/01_recurrence.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 01."""

from transformer_lib.exercises import Answer, Checks, close


def grade_01_1(answer: Answer) -> Checks:
    """Distances by walking through the 2n steps."""
    for n in (1, 2, 3, 5, 20):
        for backwards in (False, True):
            order = list(range(n))
            read = order[::-1] if backwards else order
            happened = [("read", i) for i in read] + [("write", i) for i in order]
            expected = [happened.index(("write", i)) - happened.index(("read", i)) for i in order]
            found = answer(n, backwards)
            yield "there is one number for each token", isinstance(found, list) and len(found) == n
            yield "each number is the steps from reading to writing", close(found, expected)


def grade_01_2(answer: Answer) -> Checks:
    """Positions counted step by step."""
    for n in (1, 2, 3, 10, 128):
        for b in (1, 2, 5):
            new, again = 0, 0
            for step in range(1, n + 1):
                new, again = new + b, again + b * step
            yield "with earlier positions kept, each step processes the newest tokens", close(answer(n, b, True), new)
            yield "with nothing kept, each step processes all tokens so far", close(answer(n, b, False), again)
