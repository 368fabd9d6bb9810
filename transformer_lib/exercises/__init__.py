# Generated from chapters/00b_sources.md: edit it there and `make export`, or here and `make sync`.

"""Exercises that check themselves: a grader yields properties of an answer, small cases first."""

import io
import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import product
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
        from transformer_lib.exercises.own_file import of_chapter  # here, since it imports this package

        return _print(exercise, Verdict(of_chapter(int(exercise[:2]))))
    try:
        chapter = import_module(f"transformer_lib.exercises.chapter_{exercise.partition('-')[0]}")
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
    if verdict.text.startswith("failed") and verdict.result is not None:
        verdict.text += _wrong_type(grader, answer, verdict.result)
    return verdict


def _plain(value: Any, *kinds: type) -> Any:
    """Tensors, arrays and numbers of any type as Python's, sequences as these kinds, from the outside in."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple | range):
        kind, *inner = kinds or (list,)
        return kind(_plain(item, *inner) for item in value)
    if isinstance(value, dict):
        return {key: _plain(item, *kinds) for key, item in value.items()}
    return float(value) if hasattr(value, "numerator") and not isinstance(value, int) else value


def _tensor(value: Any, dtype: torch.dtype | None = None) -> Tensor:
    """The same values as a tensor; a ValueError if the dtype cannot hold them."""
    tensor = value if isinstance(value, Tensor) else torch.tensor(_plain(value))
    if not isinstance(value, Tensor) and tensor.is_floating_point():
        tensor = torch.tensor(_plain(value), dtype=torch.float64)
    changed = tensor if dtype is None else tensor.to(dtype)
    if not torch.equal(changed.double(), tensor.double()):
        raise ValueError
    return changed


def _number(value: Any, kind: type) -> Any:
    """The same number as an int, a float or a bool; a ValueError if that cannot hold it."""
    if kind(_plain(value)) != _plain(value):
        raise ValueError
    return kind(_plain(value))


CONVERSIONS: list[Callable[[Any], Any]] = [
    *(lambda value, kinds=kinds: _plain(value, *kinds) for kinds in product((list, tuple), repeat=3)),
    *(lambda value, dtype=dtype: _tensor(value, dtype) for dtype in (None, torch.bool, torch.long, torch.double)),
    *(lambda value, kind=kind: kind(map(_tensor, value)) for kind in (list, tuple)),
    *(lambda value, kind=kind: _number(value, kind) for kind in (int, float, bool)),
]


def kind_of(value: Any) -> str:
    """The type of a value, and of what it holds, in words."""
    if isinstance(value, list | tuple):
        inner = " and ".join(dict.fromkeys(map(kind_of, value)))
        return type(value).__name__ + (f" of {inner}" if inner else "")
    if isinstance(value, Tensor):
        return f"tensor of {str(value.dtype).removeprefix('torch.')}"
    return f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")


def _held(grader: Callable[[Answer], Checks], answer: Answer) -> tuple[int, bool]:
    """How many properties hold before the first that does not, and whether all do."""
    count = 0
    try:
        for _, holds in grader(answer):
            if not holds:
                return count, False
            count += 1
    except (Exception, SystemExit):
        return count, False
    return count, True


def _wrong_type(grader: Callable[[Answer], Checks], answer: Answer, result: Any) -> str:
    """Says so, if the answer gets further once its results are the same values of another type."""
    best, name, tried = (0, False), "", {kind_of(result)}
    with redirect_stdout(io.StringIO()):  # what the answer prints, it has printed
        for convert in [lambda value: value, *CONVERSIONS]:
            with suppress(Exception):  # there is no such conversion
                kind = kind_of(convert(result))
                if not name or kind not in tried:
                    tried.add(kind)
                    held = _held(grader, lambda *a, convert=convert, **o: convert(answer(*a, **o)))
                    best, name = max((best, name or kind), (held, kind), key=lambda both: both[0])
    if name == kind_of(result):
        return ""
    return f"; {'only ' * best[1]}the type is wrong: got {kind_of(result)}, expected {name}"


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
        comma = "," * (left == "(" and len(value) == 1)
        return left + ", ".join(show(item) for item in value) + comma + right
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
