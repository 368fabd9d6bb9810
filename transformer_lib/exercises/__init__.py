# Generated from chapters/C_evidence.md: edit it there and `make export`, or here and `make sync`.

"""Exercises that check themselves: a grader calls an answer and raises `Wrong` at what is wrong, small cases first."""

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from transformer_lib.exercises.grading import Answer, Wrong, show

_ONE_PART = {  # the others without an answer have a chapter's
    "09-1": "label_smoothed_loss", "09-3": "learning_rate", "09-4": "training_step",
    "10-1": "greedy", "10-3": "beam_search",
}  # fmt: skip


@dataclass
class Verdict:
    """How an answer fares, and the last call of it: for one that failed, the failing case."""

    text: str = "passed"
    args: tuple[Any, ...] = ()  # as the answer left them
    options: dict[str, Any] = field(default_factory=dict)
    result: Any = None  # what the answer returned; None if it raised

    def _ipython_display_(self) -> None:
        """Show nothing below a cell that ends with `grade(…)`, which has printed the verdict."""


def grade(exercise: str, answer: Answer | None = None) -> Verdict:
    """Print how an answer fares: 'not attempted', 'passed', or the first thing that is wrong, with the case.

    Args:
        exercise: chapter and number, such as "02-2" or "2-2".
        answer: your function. While it returns `NotImplemented`, it counts as not attempted. The first exercises of
            the chapters 2 to 10, and 9.3, 9.4 and 10.3, have none: their parts are read from `my_transformer.py` here.

    Returns:
        The verdict in words and, in `args`, `options` and `result`, the last call of your function.
    """
    exercise = re.sub(r"^(?=\d\D)", "0", exercise)
    if answer is None and (re.fullmatch(r"(0[2-9]|10)-1", exercise) or exercise in _ONE_PART):
        own_file = import_module("transformer_lib.exercises.own_file")  # by name: else each grader belongs to each page
        return _print(exercise, Verdict(own_file.of_chapter(int(exercise[:2]), _ONE_PART.get(exercise))))
    try:
        chapter = import_module(f"transformer_lib.exercises.chapter_{exercise[:2]}".rstrip("-"))
        grader = getattr(chapter, "grade_" + exercise.replace("-", "_"))
    except (ImportError, AttributeError):
        verdict = Verdict("there is no such exercise")
    else:
        verdict = _verdict(grader, answer)
    return _print(exercise, verdict)


def try_parts(sentence: str | None = None, **options: Any) -> Any:
    """Translate with your parts in the translator that comes with the course; see `trying.try_parts`."""
    from transformer_lib.exercises import trying  # here, since few pages need it

    return trying.try_parts(sentence, **options)


def _print(exercise: str, verdict: Verdict) -> Verdict:
    line = f"{exercise}: {verdict.text}"
    print(textwrap.fill(line, 110, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))
    return verdict


class NotAttempted(Exception):
    """An answer is still as the page gives it."""


def _verdict(grader: Callable[[Answer], None], answer: Any) -> Verdict:
    verdict, case = Verdict(), "before it was called"

    def attempt(*args: Any, **options: Any) -> Any:
        nonlocal case
        given = ", ".join(
            [show(value) for value in args] + [f"{name}={show(value)}" for name, value in options.items()]
        )
        case = f"called with ({given}), it raised"
        verdict.args, verdict.options, verdict.result = args, options, None
        result = verdict.result = answer(*args, **options)
        if result is NotImplemented:
            raise NotAttempted
        case = f"called with ({given}), it returned {show(result)}"
        return result

    try:
        grader(attempt)
    except NotAttempted:
        verdict.text = "not attempted"
    except Wrong as wrong:  # what was found, the case says
        verdict.text = f"failed: {str(wrong).removesuffix(f'; it is {show(verdict.result)}')}; {case}"
    except (Exception, SystemExit) as error:
        verdict.text = f"failed: {case}; {type(error).__name__}: {' '.join(str(error).split())}"
    return verdict
