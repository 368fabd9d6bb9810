# Generated from chapters/00b_sources.md: edit it there and `make export`, or here and `make sync`.

"""What graders have in common: what is right, and which wrong answer was given."""

import math
import traceback
from collections.abc import Callable, Mapping
from numbers import Real
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_lib.checks.report import Report
from transformer_lib.files import one_line

Answer = Callable[..., Any]


class Wrong(Exception):
    """What is wrong with an answer, as a sentence about it."""


def claim(text: str, holds: object) -> None:
    """Raise `Wrong` unless a property, in words, holds."""
    if not holds:
        raise Wrong(f"it should hold that {text}")


def expect(what: str, found: Any, right: Any, wrong: Mapping[str, Any] = {}, tolerance: float = 1e-9) -> None:
    """Raise `Wrong` if a value is not the right one; if it is a wrong one that is known, with the sentence for that."""
    if same(found, right, tolerance):
        return
    for sentence, value in wrong.items():
        if same(found, value, tolerance) and not same(value, right, tolerance):
            raise Wrong(sentence)
    if type(found) is not type(right) and same(plain(found), plain(right), tolerance):
        kinds = f"got {kind_of(found)}, expected {kind_of(right)}"
        raise Wrong(f"{what}: the values are right, the type is wrong: {kinds}")
    if isinstance(right, Tensor):
        if not isinstance(found, Tensor):
            raise Wrong(f"{what} should be a tensor; it is of type {type(found).__name__}")
        if found.shape != right.shape:
            raise Wrong(f"{what} should have shape {tuple(right.shape)}; it has {tuple(found.shape)}")
        if right.dtype == torch.bool and found.dtype != torch.bool:
            raise Wrong(f"{what} should be boolean; its dtype is {found.dtype}")
        if right.dtype == torch.bool:
            raise Wrong(f"{what}: {(found != right).sum().item()} of its {right.numel()} values are wrong")
        error = (found.double() - right.double()).abs().max().item()
        rounded = found.dtype != right.dtype and (error < 1e-4 or not found.is_floating_point())
        kind = f", in {found.dtype} instead of {right.dtype}" if rounded else ""
        raise Wrong(f"{what}: wrong by up to {error:.2g}{kind}")
    if isinstance(found, list) and isinstance(right, list) and len(found) == len(right) > 10:
        found, right = next((a, b) for a, b in zip(found, right) if a != b)
    told = [f"{show(value):.80}" for value in (right, found)]
    if told[0] == told[1]:
        told = [f"{value!r:.80}" for value in (right, found)]
    types = "" if type(found) is type(right) else f"; expected {type(right).__name__}, got {type(found).__name__}"
    raise Wrong("{} should be {}; it is {}{}".format(what, *told, types))


def same(found: Any, right: Any, tolerance: float = 1e-9) -> bool:
    """Whether a value is the right one, of its shape and kind; a tensor without axes is a number, a list a tuple."""
    found, right = (x.item() if isinstance(x, Tensor) and not x.shape else x for x in (found, right))
    if isinstance(right, Tensor):
        if (
            not isinstance(found, Tensor)
            or found.shape != right.shape
            or (found.dtype == torch.bool) != (right.dtype == torch.bool)
        ):
            return False
        return torch.allclose(found.double(), right.double(), rtol=0, atol=tolerance, equal_nan=True)
    if isinstance(right, list | tuple):
        alike = isinstance(found, list) or (isinstance(found, tuple) and isinstance(right, tuple))
        return alike and len(found) == len(right) and all(same(*pair, tolerance) for pair in zip(found, right))
    if all(isinstance(x, int | float) and not isinstance(x, bool) for x in (found, right)):
        return math.isclose(found, right, rel_tol=0, abs_tol=tolerance) or (math.isnan(found) and math.isnan(right))
    return type(found) is type(right) and bool(found == right)


def plain(value: Any) -> Any:
    """Tensors, arrays and numbers of any type as Python's, and sequences as lists."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    return float(value) if isinstance(value, Real) else value


def kind_of(value: Any) -> str:
    """The type of a value, and of what it holds, in words."""
    if isinstance(value, list | tuple):
        inner = " and ".join(dict.fromkeys(map(kind_of, value)))
        return type(value).__name__ + (f" of {inner}" if inner else "")
    if isinstance(value, Tensor):
        return f"tensor of {str(value.dtype).removeprefix('torch.')}"
    return f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")


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


class Unfinished(Exception):
    """The next step of a part whose first steps are right, in words."""


class Gap(NamedTuple):
    """A part that the reader writes."""

    chapter: int
    name: str
    grader: Callable[[ModuleType], None]  # raises `Wrong`


GAPS: dict[str, Gap] = {}
RAW = {  # what an error of Python or PyTorch says, and what it comes from
    "before Module.__init__() call": "__init__ should begin with super().__init__()",
    "view size is not compatible": "view cannot join axes that a transpose has moved: use flatten or reshape",
    "tuple' object has no attribute": "a tuple stands where a tensor is needed: attention returns two, take the first",
    "must be Tensor, not tuple": "a tuple stands where a tensor is needed: attention returns two, take the first",
}


def gap(chapter: int, name: str) -> Callable[[Callable[[ModuleType], None]], Callable[[ModuleType], None]]:
    """Register the grader of a part."""

    def register(grader: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        GAPS[name] = Gap(chapter, name, grader)
        return grader

    return register


def in_words(error: BaseException, mine: ModuleType) -> str:
    """What an error that a part raised comes from, if that is known, and the line of the file that raised it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == mine.__file__]
    place = f" (line {lines[-1]})" if lines else ""
    known = [words for raw, words in RAW.items() if raw in str(error)]
    return known[0] + place if known else f"it raised {one_line(error)}{place}"


def random(*shape: int, seed: int = 0) -> Tensor:
    """Numbers in float64, the same each time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def first_fault(report: Report) -> None:
    """Raise `Wrong` with the first property that a report says is violated, unless it follows from another one."""
    if fault := next(iter(report.faults), None):
        raise Wrong(f"likely, {fault.cause} (seen: {fault.evidence})")


def filled(module: nn.Module, value: float) -> nn.Module:
    """A copy for evaluation in float64 whose matrices hold one value and whose vectors hold 0."""
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(value if parameter.dim() > 1 else 0.0)
    return module


def all_used(module: nn.Module, *inputs: Tensor) -> None:
    """Raise `Wrong` if a parameter has no effect on what a module returns."""
    module.train().double()(*inputs).sum().backward()
    if idle := [name for name, parameter in module.named_parameters() if parameter.grad is None]:
        raise Wrong(f"{idle[0]} is made, but forward never uses it")


def matrices(module: nn.Module) -> int:
    """How many numbers the matrices of a module hold."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.dim() > 1)


class Bigrams(nn.Module):
    """A model for graders: logits that depend on the last token and on how many there are."""

    def __init__(self, size: int, seed: int, scale: float = 1.0) -> None:
        super().__init__()
        table = scale * random(12, size, size, seed=seed)  # by length and last token
        table[..., 0] -= 20  # padding is never chosen, forbidden or not
        self.pad_id, self.table, self.offset = 0, nn.Parameter(table), nn.Parameter(torch.zeros(size).double())
        self.read: list[Tensor] = []

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (batch, m, V)."""
        self.read.append(target.clone())
        places = torch.arange(target.size(1)) % 12
        return self.table[places[None, :], target] + self.offset + 0 * source.sum()
