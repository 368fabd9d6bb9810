# Generated from chapters/00b_sources.md: edit it there and `make export`, or here and `make sync`.

"""Exercises that check themselves: a grader yields properties of an answer, small cases first."""

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

Answer = Callable[..., Any]
Checks = Iterator[tuple[str, bool]]  # a property in words, and whether the answer has it


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
    """Print how an answer fares: 'not attempted', 'passed', or the first property that it lacks, with the case.

    Args:
        exercise: chapter and number, such as "02-2" or "2-2".
        answer: your function. While it returns `NotImplemented`, it counts as not attempted. The first exercises of
            the chapters 2 to 10 have none: their parts are read from `my_transformer.py` in this folder.

    Returns:
        The verdict in words and, in `args`, `options` and `result`, the last call of your function.
    """
    exercise = re.sub(r"^(?=\d\D)", "0", exercise)
    if answer is None and re.fullmatch(r"(0[2-9]|10)-1", exercise):
        return _print(
            exercise, Verdict(import_module("transformer_lib.exercises.own_file").of_chapter(int(exercise[:2])))
        )
    try:
        chapter = import_module(f"transformer_lib.exercises.chapter_{exercise.partition('-')[0]}")
        grader = getattr(chapter, "grade_" + exercise.replace("-", "_"))
    except (ImportError, AttributeError):
        verdict = Verdict("there is no such exercise")
    else:
        verdict = _verdict(grader, answer)
    return _print(exercise, verdict)


def _print(exercise: str, verdict: Verdict) -> Verdict:
    line = f"{exercise}: {verdict.text}"
    print(textwrap.fill(line, 110, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))
    return verdict


class _NotAttempted(Exception):
    pass


def _verdict(grader: Callable[[Answer], Checks], answer: Any) -> Verdict:
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
            raise _NotAttempted
        case = f"called with ({given}), it returned {show(result)}"
        return result

    try:
        for claim, holds in grader(attempt):
            if not holds:
                verdict.text = f"failed: it should hold that {claim}; {case}"
                break
    except _NotAttempted:
        verdict.text = "not attempted"
    except (Exception, SystemExit) as error:
        verdict.text = f"failed: {case}; {type(error).__name__}: {' '.join(str(error).split())}"
    return verdict


def show(value: Any) -> str:
    """A value in one short line."""
    if isinstance(value, Tensor):
        if value.numel() > 12:
            return f"a tensor of shape {tuple(value.shape)}"
        return show(value.tolist())
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        left, right = "[]" if isinstance(value, list) else "()"
        return left + ", ".join(show(item) for item in value) + right
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__.replace("<lambda>", "a function")
    text, _, more = repr(value).partition("\n")
    text += "…)" if more else ""  # a module's text has many lines
    return text if len(text) <= 60 else text[:57] + "…"


def close(answer: Any, expected: Any, tolerance: float = 1e-6) -> bool:
    """True if the answer has the shape and, within the tolerance, the values of what was expected."""
    if isinstance(expected, tuple | list):
        same_length = isinstance(answer, tuple | list) and len(answer) == len(expected)
        return same_length and all(close(a, e, tolerance) for a, e in zip(answer, expected))
    if not isinstance(answer, Tensor | float | int):
        return False
    have, want = (
        torch.tensor(x, dtype=torch.float64) if type(x) is float else torch.as_tensor(x) for x in (answer, expected)
    )
    if have.shape != want.shape or (have.dtype == torch.bool) != (want.dtype == torch.bool):
        return False
    return bool(torch.allclose(have.double(), want.double(), rtol=0, atol=tolerance, equal_nan=True))
