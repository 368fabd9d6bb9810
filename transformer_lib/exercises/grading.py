# Generated from chapters/00b_sources.md: edit it there and `make export`, or here and `make sync`.

"""What the graders of the reader's own parts have in common: what is right, and which wrong answer was given."""

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_lib.checks.report import Report
from transformer_lib.exercises import solved
from transformer_lib.files import one_line


class Wrong(Exception):
    """What is wrong with an answer, as a sentence about it."""


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
    "Boolean value of Tensor with more than one": "and, or, not and if take one truth value: for masks use &, |, ~",
    "'function' object has no attribute": "it uses more of the model than model(source, tokens)",
    "selected index k out of range": "topk asks for more tokens than there are: min(beam_size, log_probs.size(-1))",
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


def same(found: Any, right: Any, tolerance: float) -> bool:
    """Whether a value is the right one: of its type, and a tensor of its shape and kind of numbers, too."""
    if isinstance(right, Tensor):
        if (
            not isinstance(found, Tensor)
            or found.shape != right.shape
            or (found.dtype == torch.bool) != (right.dtype == torch.bool)
        ):
            return False
        return torch.allclose(found.double(), right.double(), rtol=0, atol=tolerance, equal_nan=True)
    if isinstance(right, float):
        return isinstance(found, float | int) and abs(found - right) <= tolerance
    return bool(type(found) is type(right) and found == right)


def expect(what: str, found: Any, right: Any, wrong: Mapping[str, Any] = {}, tolerance: float = 1e-9) -> None:
    """Raise `Wrong` if a value is not the right one; if it is a wrong one that is known, with the sentence for that."""
    if same(found, right, tolerance):
        return
    for sentence, value in wrong.items():
        if same(found, value, tolerance) and not same(value, right, tolerance):
            raise Wrong(sentence)
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
    told = (f"{value:.4g}" if isinstance(value, float) else f"{value!r:.80}" for value in (right, found))
    types = "" if type(found) is type(right) else f"; expected {type(right).__name__}, got {type(found).__name__}"
    raise Wrong("{} should be {}; it is {}{}".format(what, *told, types))


def variant(name: str, old: str, new: str) -> Any:
    """A part of the solution, with one text in the place of another."""
    code, space = inspect.getsource(getattr(solved, name)), dict(vars(solved))
    if old not in code:
        raise ValueError(f"the solution's {name} should contain {old}")
    exec(code.replace(old, new), space)
    return space[name]


Cases = Callable[[Any], Iterator[tuple[str, Any]]]  # of a function: the names and values of what it gives


def gives(function: Any, cases: Cases, found: list[tuple[str, Any]], raised: Exception | None) -> bool:
    """Whether a function gives these values, and then this error, if any."""
    rest = iter(found)
    try:
        for _, value in cases(function):
            have = next(rest, None)
            if have is None or not same(have[1], value, 1e-9):
                return False
    except Exception as error:
        return next(rest, None) is None and repr(error) == repr(raised)
    return raised is None


def mistakes() -> list[list[str]]:
    """Known mistakes: the part, a text of the solution, the text that makes the mistake, and a sentence about it."""
    rows = Path(__file__).with_name("mistakes.tsv").read_text("utf-8").splitlines()[1:]
    return [row.replace("\\n", "\n").split("\t") for row in rows]


def as_solved(mine: ModuleType, name: str, cases: Cases, step: str = "") -> None:
    """Raise `Wrong` unless a function of the reader's gives what the solution's gives.

    The sentence is that of the first known mistake with which the solution gives all that the reader's function gives,
    or the same error. step: how the sentence begins.
    """
    found: list[tuple[str, Any]] = []
    raised = None
    try:
        found.extend(cases(getattr(mine, name)))  # up to an error
    except (NotImplementedError, Wrong):
        raise
    except Exception as error:
        raised = error
    right = list(cases(getattr(solved, name)))
    if raised is None and gives(getattr(solved, name), cases, found, None):
        return
    for part, old, new, sentence in mistakes():
        if part == name and gives(variant(name, old, new), cases, found, raised):
            raise Wrong(step + sentence)
    if raised is not None:
        raise raised
    for (what, have), (_, value) in zip(found, right):
        if isinstance(have, list) and have and have != value and have[: len(value) or 1] == value[: len(have)]:
            raise Wrong(f"{step}{what} ends after {len(have)} tokens; it should end after {len(value)}")
        expect(step + what, have, value)


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


def no_plain_list(model: nn.Module) -> None:
    """Raise `Wrong` if modules stand in a list or tuple, where their parameters are not found."""
    for name, value in ((name, value) for module in model.modules() for name, value in vars(module).items()):
        if isinstance(value, list | tuple) and any(isinstance(each, nn.Module) for each in value):
            raise Wrong(f"{name} is a plain list, which hides its layers from the optimiser: use nn.ModuleList")


def matrices(module: nn.Module) -> int:
    """How many numbers the matrices of a module hold."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.dim() > 1)


class Bigrams(nn.Module):
    """A model for graders: logits that depend on the last token and on how many there are, up to `limit`."""

    def __init__(self, seed: int, scale: float, source: Tensor, limit: int, beyond: str) -> None:
        super().__init__()
        self.table = nn.Parameter(scale * random(12, 7, 7, seed=seed))
        self.offset = nn.Parameter(torch.zeros(7).double())
        self.source, self.limit, self.beyond = source.clone(), limit, beyond
        self.modes: list[bool] = []

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (batch, m, 7); `Wrong` if it is given anything but the source and tokens that begin with 5."""
        self.modes += [self.training] * len(target)
        if target.device != source.device:
            raise Wrong("what it gives the model is not on the device of the source: torch.tensor(…, device=…)")
        if not len(target):
            raise Wrong("the model is called with no hypothesis at all: stop when none is live")
        if len(self.modes) > 200:
            raise Wrong("the search keeps more and more hypotheses: only the beam_size best candidates go on")
        if target.dim() != 2:
            raise Wrong(f"the model is given a target of shape {tuple(target.shape)}; it takes (batch, length)")
        if len(source) not in (1, len(target)):
            raise Wrong(f"the model is given {len(source)} sources and {len(target)} targets: cut tokens, [:, :-1]")
        if target.shape[1:] == self.source.shape[1:] and (target == self.source).all():
            raise Wrong("source and target are the wrong way round: model(source, target)")
        if source.shape[1:] != self.source.shape[1:] or (source != self.source).any():
            raise Wrong("the model is not given the whole source as it is")
        if (target[:, :1] != 5).any() or not target.size(1):
            raise Wrong(f"the model reads {target[0].tolist()}; it should read bos_id, 5, and all tokens that follow")
        if target.size(1) > self.limit:
            raise Wrong(self.beyond)
        places = torch.arange(target.size(1)) % 12
        return self.table[places, target] + 100 * self.offset
