# Generated from chapters/C_evidence.md: edit it there and `make export`, or here and `make sync`.

"""What graders have in common: what is right, and which wrong answer was given."""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from itertools import permutations
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_lib.exercises import solved
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
        raise Wrong(f"{what}: the values are right, the type is wrong: got {kind_of(found)}, expected {kind_of(right)}")
    if isinstance(right, Tensor):
        if a_tensor(found, what).shape != right.shape:
            sizes = f"{what} should have shape {tuple(right.shape)}; it has {tuple(found.shape)}"
            raise Wrong(sizes + alike(found, right, tolerance))
        if right.dtype == torch.bool and found.dtype != torch.bool:
            raise Wrong(f"{what} should be boolean; its dtype is {found.dtype}")
        if right.dtype == torch.bool:
            count = f"{what}: {(found != right).sum()} of its {right.numel()} values are wrong"
            raise Wrong(count + alike(found, right, tolerance))
        error = (found.double() - right.double()).abs().max().item()
        rounded = found.dtype != right.dtype and (error < 1e-4 or found.dtype not in (torch.float32, torch.float64))
        kind = f", in {found.dtype} instead of {right.dtype}" if rounded else ""
        raise Wrong(f"{what}: wrong by up to {error:.2g}{kind}{alike(found, right, tolerance)}")
    if isinstance(found, list) and isinstance(right, list) and len(found) == len(right) > 10:
        found, right = next((a, b) for a, b in zip(found, right) if a != b)
    told = [f"{show(value):.80}" for value in (right, found)]
    if told[0] == told[1]:
        told = [f"{value!r:.80}" for value in (right, found)]
    types = "" if type(found) is type(right) else f"; expected {type(right).__name__}, got {type(found).__name__}"
    raise Wrong("{} should be {}; it is {}{}".format(what, *told, types))


def a_tensor(found: Any, what: str) -> Tensor:
    """A value; raises `Wrong` if it is no tensor."""
    if not isinstance(found, Tensor):
        missing = ": is a return missing?" if found is None else ""
        raise Wrong(f"{what} should be a tensor; it is of type {type(found).__name__}{missing}")
    return found


def alike(found: Tensor, right: Tensor, tolerance: float) -> str:
    """What a wrong tensor has in common with the right one, to be said after a sentence; "" if nothing is seen."""
    for axes in permutations(range(found.dim()), found.dim()):
        if same(found.permute(axes), right, tolerance):
            return f" (its axes are in another order: permute{axes} of it would be right)"
    if found.numel() == right.numel() and same(found.reshape(right.shape), right, tolerance):
        return " (its numbers are right, only the shape is not)"
    if found.shape != right.shape or not right.dim():
        return ""
    good = [i for i, (one, other) in enumerate(zip(found, right)) if same(one, other, tolerance)]
    if 2 * len(good) >= len(right):
        return f" (right at {good[:9]} of its first axis, {len(right)} long)"
    times = (found.double() * right).sum() / right.double().square().sum()
    told = right.dtype != torch.bool and abs(times - 1) > 1e-3 and same(found, times * right, tolerance)
    return f" (each number is {times:.3g} times what it should be)" * told


def same(found: Any, right: Any, tolerance: float = 1e-9) -> bool:
    """Whether a value is the right one, of its shape and kind; a tensor without axes is a number, a list a tuple."""
    found, right = (x.item() if isinstance(x, Tensor) and not x.shape else x for x in (found, right))
    if isinstance(right, Tensor):
        if not isinstance(found, Tensor) or found.shape != right.shape:
            return False
        if torch.bool in (found.dtype, right.dtype):
            return found.dtype == right.dtype and torch.equal(found, right)
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


@contextmanager
def says(sentence: str, *others: str) -> Iterator[None]:
    """What an error inside the block means ({} = the error), unless it has one of the others in its text."""
    try:
        yield
    except (RuntimeError, IndexError, ValueError) as error:
        if isinstance(error, NotImplementedError) or any(text in str(error) for text in others):
            raise
        raise Wrong(sentence.replace("{}", f"{one_line(error):.120}")) from error


class Unfinished(Exception):
    """The next step of a part whose first steps are right, in words."""


class Gap(NamedTuple):
    """A part that the reader writes."""

    chapter: int
    name: str
    grader: Callable[[ModuleType], None]  # raises `Wrong`


GAPS: dict[str, Gap] = {}
DETACHED = "no gradient comes through: is there a detach, or a no_grad?"


def gap(chapter: int, name: str) -> Callable[[Callable[[ModuleType], None]], Callable[[ModuleType], None]]:
    """Register the grader of a part; a notebook shows graders, and those of the package judge."""

    def register(grader: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        if grader.__module__ != "__main__":
            GAPS[name] = Gap(chapter, name, grader)
        return grader

    return register


@cache
def source_of(name: str) -> str:
    """The text of a part of the solution."""
    return inspect.getsource(getattr(solved, name))


def changed(name: str, *changes: Sequence[str]) -> Any:
    """A part of the solution, each time with one text in the place of another; an earlier change may have taken it.

    Raises:
        ValueError: the solution has no such text.
    """
    code, space = source_of(name), dict(vars(solved))
    for old, new, *_ in changes:
        if old not in source_of(name):
            raise ValueError(f"the solution of {name} has no {old!r}")
        code = code.replace(old, new)
    exec(code, space)
    return space[name]


@cache
def rows(table: str) -> list[list[str]]:
    """The rows of a table."""
    lines = Path(__file__).parent.joinpath(table).read_text("utf-8").splitlines()[1:]
    return [line.replace("\\n", "\n").split("\t") for line in lines]


@cache
def by_part(table: str) -> dict[str, list[list[str]]]:
    """Of each part, the rows of a table: a text of the solution, the text in its place, and what is said of it.

    Raises:
        ValueError: the solution has no such text.
    """
    found: dict[str, list[list[str]]] = {}
    for name, *change in rows(table):
        if change[0] not in source_of(name):
            raise ValueError(f"{table}: the solution of {name} has no {change[0]!r}")
        found.setdefault(name, []).append(change)
    return found


Cases = Callable[[Any], Iterator[tuple[str, Any]]]  # of a function: the names and values of what it gives


def case(what: str, *given: Any, place: int | None = None) -> Cases:
    """What a part gives for copies of these, or what stands at one place of that."""
    return lambda part: iter([(what, found if place is None else found[place]) for found in [part(*deepcopy(given))]])


ROUGH = 1e-6  # a tolerance: a root or a factor may be a float32
ASKED: dict[str, list[str]] = {}  # what the variant of the file that is graded asks of parts


def wanted(name: str, *mistakes: Sequence[str]) -> Any:
    """A part of the solution in the variant that is asked, perhaps with a mistake."""
    return changed(name, *([ASKED[name]] if name in ASKED else []), *mistakes)


def gives(function: Any, cases: Cases, found: list[tuple[str, Any]], raised: Exception | None, near: float) -> bool:
    """Whether a function gives these values, and then this error, if any."""
    rest = iter(found)
    try:
        for _, value in cases(function):
            have = next(rest, None)
            if have is None or not same(have[1], value, near):
                return False
    except Exception as error:
        return next(rest, None) is None and repr(error) == repr(raised)
    return raised is None


def as_solved(
    mine: ModuleType, name: str, cases: Cases, step: str = "", tolerance: float = 1e-9,
    seen: Callable[[Tensor, Tensor], Mapping[str, object]] = lambda found, right: {},
) -> None:  # fmt: skip
    """Raise `Wrong` unless a part of the reader's gives what the solution's gives, in the variant that the file names.

    The sentence is that of the first known mistake with which the solution gives all that the reader's part gives, or
    the same error. step: how the sentence begins. seen: of a wrong tensor and the right one, of one shape, sentences
    that are in no table, and whether they hold.
    """
    right = wanted(name)
    found: list[tuple[str, Any]] = []
    raised = None
    try:
        found.extend(cases(getattr(mine, name)))  # up to an error
    except (NotImplementedError, Wrong):
        raise
    except Exception as error:
        raised = error
    if gives(right, cases, found, raised, tolerance):
        return
    if name in ASKED and gives(getattr(solved, name), cases, found, raised, tolerance):
        raise Wrong(f"{step}this is the usual {name}")
    for *change, sentence in by_part("mistakes.tsv").get(name, ()):
        if gives(wanted(name, change), cases, found, raised, tolerance):
            raise Wrong(step + sentence)
    if raised is not None:
        raise raised
    for (what, have), (_, value) in zip(found, cases(right)):
        tensors = isinstance(have, Tensor) and isinstance(value, Tensor) and have.shape == value.shape
        other = tensors and not same(have, value, tolerance)
        told = {step + sentence: have for sentence, holds in (seen(have, value) if other else {}).items() if holds}
        expect(step + what, have, value, told, tolerance)


def in_sizes(mine: ModuleType, name: str, inputs: Mapping[str, tuple[Any, ...]]) -> None:
    """A part that is right for the usual sizes must be so for others; each has a name, such as "one token"."""

    def cases(part: Any) -> Iterator[tuple[str, Any]]:
        for what, given in inputs.items():
            with says(f"right for other sizes; for {what} it raises {{}}"):
                found = part(*deepcopy(given))
            for which, value in zip(("output", "weights"), found) if isinstance(found, tuple) else [("result", found)]:
                yield f"right for other sizes; for {what}, the {which}", value

    as_solved(mine, name, cases, "", ROUGH)


def defaults(part: Any, right: Any) -> None:
    """Raise `Wrong` if what may be left out is another number than on the page, or may not be left out."""
    if isinstance(right, type):
        for each in ("__init__", "forward") if isinstance(part, type) and issubclass(part, nn.Module) else ():
            defaults(getattr(part, each), getattr(right, each))
        return
    for own, page in zip(*([*inspect.signature(each).parameters.values()] for each in (part, right))):
        if own.kind in (own.VAR_POSITIONAL, own.VAR_KEYWORD) or page.default in (page.empty, own.default):
            continue
        if own.default is own.empty or isinstance(own.default, int | float):
            given = "has no default" if own.default is own.empty else f"is {own.default} where it is left out"
            raise Wrong(f"{own.name} {given}; the first line of {right.__qualname__} has {page.name}={page.default}")


def random(*shape: int, seed: int = 0) -> Tensor:
    """Numbers in float64, the same each time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def first_fault(report: Any) -> None:
    """Raise `Wrong` with the first property that a report of `check` names, unless it follows from another one."""
    if fault := next(iter(report.faults), None):
        raise Wrong(f"likely, {fault.cause} (seen: {fault.evidence})" if fault.cause else fault.evidence)


def filled(module: nn.Module, value: float) -> nn.Module:
    """A copy for evaluation in float64 whose matrices hold one value and whose vectors hold 0."""
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(value if is_matrix(parameter) else 0.0)
    return module


def behaves(part: Callable[..., Any], **inputs: Any) -> None:
    """What every part must do, whatever it computes.

    It returns something, the same twice and in training as in evaluation; its inputs stay as they are, and have an
    effect, as have its parameters; and the gradient is that of the answer.
    """
    module = part if isinstance(part, nn.Module) else nn.Module()
    tensors = {name: x.clone() for name, x in inputs.items() if isinstance(x, Tensor)}
    known = {name: x.requires_grad_() for name, x in tensors.items() if x.is_floating_point()}
    given = [tensors.get(name, x) for name, x in inputs.items()]

    def answer(*given: Any, training: bool = False, by: Callable[..., Any] = part) -> Any:
        module.train(training)
        found = by(*given)
        return found[0] if isinstance(found, tuple | list) else found

    copies = {name: x.clone() if isinstance(x, Tensor) else x for name, x in inputs.items()}
    others = [random(*x.shape, seed=9) if name in known else x for name, x in copies.items()]
    twin = deepcopy(module.eval() if part is module else part)
    with torch.no_grad():
        answer(*others)  # what is kept of this call shows in the next one
        again = answer(*copies.values(), by=twin)
    found = answer(*given)
    with torch.no_grad():
        answer(*(used := deepcopy(others)))
        for old, x in zip(used, copies.values()):
            if isinstance(x, Tensor):
                old.copy_(x)
        refilled = answer(*used)  # the same tensors with other numbers
    trained = answer(*given, training=True)
    spoilt = [n for n, x in tensors.items() if not (inputs[n].equal(x) and inputs[n].equal(copies[n]))]
    if spoilt:
        raise Wrong(f"it changes {spoilt[0]}, which belongs to the caller, in place: make a new tensor")
    a_tensor(found, "what it returns")
    if not (same(found.detach(), again.detach(), 1e-12) and same(found.detach(), refilled.detach(), 1e-12)):
        raise Wrong("two calls with the same numbers give two answers: is something drawn, made or kept in the call?")
    if not same(found.detach(), trained.detach(), 1e-12):
        raise Wrong("in training it gives another answer than in evaluation: is there a dropout? It has no place here")
    if not known:
        return
    if not found.requires_grad:
        raise Wrong(DETACHED)
    kinds = {x.dtype for x in known.values()}
    if found.dtype not in kinds:
        raise Wrong(f"its inputs are of {kinds.pop()}, what it returns is of {found.dtype}: leave that as it is")
    known |= dict(module.named_parameters())
    weights = random(*found.shape)
    gradients = torch.autograd.grad((found * weights).sum(), [*known.values()], allow_unused=True)
    for name, gradient in zip(known, gradients):
        if gradient is None and name in inputs:
            idle = same(answer(*[new if x is known[name] else x for x, new in zip(given, others)]), found, 1e-12)
            raise Wrong(f"{name} has no effect on the answer" if idle else f"{DETACHED} (nothing reaches {name})")
        if gradient is None:
            raise Wrong(f"{name} is made, but forward never uses it")
        if gradient.isnan().any():
            raise Wrong(f"the answer is right, but the gradient of {name} is NaN: is an inf hidden afterwards?")

    def at(step: float) -> float:
        """The answer a step on the way to the other inputs."""
        moved = [x + step * y if name in known else x for name, x, y in zip(inputs, given, others)]
        return (answer(*moved) * weights).sum().item()

    ways = [y for name, y in zip(inputs, others) if name in known]
    told = sum((gradient * y).sum().item() for gradient, y in zip(gradients, ways))
    if not same((at(1e-4) - at(-1e-4)) / 2e-4, told, 1e-2 * (1 + abs(told))):  # it may be computed in float32
        raise Wrong("the answer is right, but not its gradient: is there a detach, .item(), or something that rounds?")


def shared(modules: Iterable[Any]) -> bool:
    """Whether several of these modules have a parameter in common, or one of them stands here twice."""
    every = [parameter for module in modules for parameter in module.parameters()]
    return len({*every}) < len(every)


def no_plain_list(model: nn.Module) -> None:
    """Raise `Wrong` if modules stand in a list, tuple or dict, where their parameters are not found."""
    for name, value in ((name, value) for module in model.modules() for name, value in vars(module).items()):
        inside = value.values() if isinstance(value, dict) and name != "_modules" else value
        if isinstance(value, list | tuple | dict) and any(isinstance(each, nn.Module) for each in inside):
            kind = ("list", "ModuleList") if isinstance(value, list | tuple) else ("dict", "ModuleDict")
            raise Wrong(f"{name} is a plain {kind[0]}, which hides its layers from the optimiser: use nn.{kind[1]}")


def built(kind: Callable[..., nn.Module], *sizes: int, **named: Any) -> Any:
    """A new module in float64, none of whose parts is hidden."""
    torch.manual_seed(1)
    module = kind(*sizes, **named)
    if not isinstance(module, nn.Module):
        raise Wrong(f"it should be an nn.Module: class {kind.__name__}(nn.Module)")
    no_plain_list(module)
    return module.double()


def started(kind: Callable[..., nn.Module], sizes: Sequence[int], *inputs: Tensor) -> None:
    """Call a new module; `Unfinished` if its matrices are as large as the solution's and forward is not written."""
    layer, name = built(kind, *sizes), kind.__name__
    try:
        a_tensor(layer(*deepcopy(inputs)), "what forward returns")
    except NotImplementedError as error:
        if str(error).endswith(f": write {name}") and matrices(layer) == matrices(getattr(solved, name)(*sizes)):
            raise Unfinished("forward (__init__ is right)") from None
        raise


def is_matrix(parameter: Tensor) -> bool:
    """Whether a parameter of a new module is no bias; several biases, stacked, have axes too, and begin as zeros."""
    return parameter.dim() > 1 and bool(parameter.any())


def matrices(module: nn.Module) -> int:
    """How many numbers the matrices of a new module hold."""
    return sum(parameter.numel() for parameter in module.parameters() if is_matrix(parameter))


def past(count: int) -> Tensor:
    """A mask for four sentences of four queries: each sees itself, and some of what stands before it."""
    some = torch.rand(4, 1, 4, count, generator=torch.Generator().manual_seed(0)) < 0.6
    return some.tril() | torch.eye(4, count).bool()


@torch.no_grad()
def alone(layer: nn.Module, inputs: list[Tensor], masks: list[Tensor]) -> None:
    """The first of four sentences, cut to their first tokens, must give what they give with what they may not see."""
    whole = layer(*inputs, *(kept := [mask.clone() for mask in masks]))
    if not all(torch.equal(*pair) for pair in zip(kept, masks)):
        raise Wrong("it changes a mask, which belongs to the caller, in place: make a new one")
    shorter = ((4, 1), (1, 1), (3, 2)) if masks[0].size(2) > 1 else ()
    for batch, n in ((1, 4), (3, 4), *shorter):
        told = f"the first {batch} of 4 sentences, cut to the first {n} of 4 tokens"
        cut = [mask.expand(4, 1, 4, -1)[:batch, :, :n, :n].clone() for mask in masks]
        with says(f"{told}, raise {{}}; with the others it runs"):
            found = layer(*(x[:batch, :n] for x in inputs), *cut)
        told += ", should give what they give among the others, which they do not see: their answer"
        expect(told, found, whole[:batch, :n], {}, ROUGH)


class Bigrams(nn.Module):
    """A model for graders: logits that depend on the last token and on how many there are, up to `limit`."""

    def __init__(self, seed: int, scale: float, source: Tensor, limit: int, beyond: str) -> None:
        super().__init__()
        self.table = nn.Parameter(scale * random(12, 7, 7, seed=seed))
        self.offset = nn.Parameter(torch.zeros(7).double())
        self.source, self.limit, self.beyond = source.clone(), limit, beyond
        self.first = "it should read bos_id (here 5) and all tokens that follow"
        self.modes: list[bool] = []

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (batch, m, 7); `Wrong` if it is given anything but the source and tokens that begin with 5."""
        self.modes += [self.training] * len(target)
        if target.device != source.device:
            raise Wrong("what it gives the model is not on the device of the source: torch.tensor(…, device=…)")
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
            raise Wrong(f"the model reads {target[0].tolist()}; {self.first}")
        if target.max() > 6:
            raise Wrong(f"token {target.max()} is chosen, of 7: does the argmax run over all positions? Take [0, -1]")
        if target.size(1) > self.limit:
            raise Wrong(self.beyond)
        places = torch.arange(target.size(1)) % 12
        return self.table[places, target] + 100 * self.offset
