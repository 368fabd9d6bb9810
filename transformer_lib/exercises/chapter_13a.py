# Generated from chapters/13a_cases.md: edit it there and `make export`, or here and `make sync`.

"""The grader of the page on mutation."""

from transformer_lib.exercises import Answer, Checks
from transformer_lib.teaching import MUTANTS, RIGHT


def grade_13a_1(answer: Answer) -> Checks:
    """Right functions first, then each mutant."""
    for kind, attention in RIGHT.items():
        yield f"an attention {kind} is trusted", answer(attention) is True
    for mistake, attention in MUTANTS.items():
        yield f"an attention that {mistake} is not trusted", answer(attention) is False
