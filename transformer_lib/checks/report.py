# Generated from chapters/E_suite.md: edit it there and `make export`, or here and `make sync`.

"""A property of a model, what a check found, and how it is told."""

import html
import inspect
import itertools
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, TextIO

import torch

from transformer_lib.files import one_line, printable

# whether the property holds, or None for a note; the evidence; the cause that it shows, or what mends it
Outcome = tuple[bool | None, str] | tuple[bool | None, str, str]
Check = Callable[[Any], Outcome]
Place = tuple[str, int, str]  # file, line and function
ON_THE_MAIN_PAGE = frozenset(  # of the gallery; its other cases stand on a page in depth
    "causal future unmasked blind reshape batch stale dead eval dropout scale one-layer twins target-padding "
    "accumulation averaged".split()
)
MISSING = re.compile(r"the adapter has no (`\w+`)")
KEEPS = "a call keeps"  # from such a finding nothing follows
KEEPS_A_GRAPH = f"{KEEPS} tensors that have a graph"  # a finding that comes first
# properties whose failure shows in whatever module comes first
EVERYWHERE = {"attention chooses among keys", "deterministic in evaluation", "calls leave no trace"}


class NotApplicable(Exception):
    """A property has no meaning for this model; the message says why."""


@dataclass(frozen=True)
class Property:
    """A property, what is most likely wrong where it fails, and the gallery's case that shows it."""

    function: Check
    cause: str
    case: str
    needs: str = ""  # the kind of model that it is about, a word that its `has` knows; empty = any
    refusable: bool = False  # whether a model may refuse the inputs, such as padding alone, by an error of its own

    @property
    def name(self) -> str:
        """The function's name in words."""
        return self.function.__name__.replace("_", " ")


def register_property(
    properties: list[Property], cause: str, case: str = "", needs: str = "", refusable: bool = False
) -> Callable[[Check], Check]:
    """Enter the decorated function into a list of properties, with what a `Property` knows besides it."""

    def enter(function: Check) -> Check:
        properties.append(Property(function, cause, case, needs, refusable))
        return function

    return enter


@dataclass(frozen=True)
class Finding:
    """What one property says about a model: "pass", "fail", "note" or "not applicable", and why.

    A note is no fault in itself: it asks, or says what would be one in another use.
    """

    name: str
    verdict: str
    evidence: str
    cause: str = ""  # of a note, what mends it
    case: str = ""
    traceback: str = ""  # where the property raised, if it did
    follows_from: str = ""  # the failed property that this failure may follow from
    reproduction: str = ""  # a line of Python that shows it, with the inputs
    module: str = ""  # the first module whose output differs
    place: str = ""  # the file and line of the model's own code that called it
    pad_id: int | None = None  # the padding token that the model seems to be built for, if it is not the one asked for
    about_others: bool = False  # whether the property is about another kind of model, or of adapter

    def __str__(self) -> str:
        line = f"{self.verdict:<14} {self.name}: {self.evidence}"
        gallery = f" (gallery: {self.case})" if self.case else ""
        at = f"\n{'':<14} at: {self.place}" if self.place not in self.evidence else ""
        word = "likely" if self.verdict == "fail" else "mend"
        why = f"\n{'':<14} {word}: {self.cause}{gallery}" if self.cause else ""
        return line + (at + why if self.verdict in ("fail", "note") else "")

    @property
    def page(self) -> str:
        """The page of the book that shows such a bug, with the place on it; empty if there is none."""
        page = "13_gallery" if self.case in ON_THE_MAIN_PAGE else "13a_cases"
        return f"{page}.html#room-{self.case}" if self.case else ""


@dataclass(frozen=True, repr=False)
class Report:
    """What the properties say about a model; prints as text, and shows in a notebook with all but the faults folded."""

    findings: tuple[Finding, ...]

    @property
    def failed(self) -> list[str]:
        """The names of the properties that do not hold."""
        return [finding.name for finding in self.findings if finding.verdict == "fail"]

    @property
    def holds(self) -> bool:
        """True if no property fails."""
        return not self.failed

    @property
    def summary(self) -> str:
        """How many pass, fail, and do not apply; and how many notes there are, if any."""
        verdicts = [finding.verdict for finding in self.findings]
        counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in ("pass", "fail", "not applicable")]
        notes = verdicts.count("note")
        return ", ".join(counts + [f"{notes} note{'s' * (notes > 1)}"] * (notes > 0))

    @property
    def faults(self) -> dict[Finding, str]:
        """Each failure that follows from no other, with the names of those that may follow from it."""
        alone = [finding for finding in self.findings if finding.verdict == "fail" and not finding.follows_from]
        alone.sort(key=lambda finding: not finding.evidence.startswith(KEEPS_A_GRAPH))
        return {f: ", ".join(other.name for other in self.findings if other.follows_from == f.name) for f in alone}

    @property
    def fault_lines(self) -> list[str]:
        """The faults as text, and behind them the notes."""
        after = f"\n{'':<14} may follow from it: "
        notes = [str(finding) for finding in self.findings if finding.verdict == "note"]
        return [f"{fault}{after + names if names else ''}" for fault, names in self.faults.items()] + notes

    def __repr__(self) -> str:
        """Faults and notes, what passes with a question, in a few lines what does not apply, and the summary."""
        asked = [str(f) for f in self.findings if f.verdict == "pass" and f.evidence.endswith("?")]
        skipped = {f.name: f.evidence for f in self.findings if f.verdict == "not applicable"}
        missing = dict.fromkeys(match[1] for why in skipped.values() if (match := MISSING.match(why)))
        lines = [f"the adapter has no {', '.join(missing)}"] if missing else []
        others = [f"{name}: {why}" for name, why in skipped.items() if not MISSING.match(why)]
        lines += others if len(others) < 4 else [*others[:2], ", ".join(o.partition(":")[0] for o in others[2:])]
        told = [f"{'not applicable':<14} {line}" for line in lines]
        return printable("\n".join([*self.fault_lines, *asked, *told, self.summary]))

    def to_json(self) -> str:
        """A JSON object: "schema" (1), "holds", "summary", and "findings" with a Finding's fields and its page."""
        findings = [asdict(finding) | {"page": finding.page} for finding in self.findings]
        return json.dumps({"schema": 1, "holds": self.holds, "summary": self.summary, "findings": findings}, indent=1)

    def _repr_html_(self) -> str:
        """Faults as blocks, the rest folded; styles stand in the elements, because a notebook keeps no others."""
        blocks, rows = "", ""
        notes = {finding: "" for finding in self.findings if finding.verdict == "note"}
        for fault, after in (self.faults | notes).items():
            told = fault.name, fault.evidence, fault.place, fault.cause, after
            name, evidence, place, cause, names = map(html.escape, told)
            gallery = f' (gallery: <a href="{fault.page}">{fault.case}</a>)' if fault.page else ""
            lines = [f"<strong>{fault.verdict.upper()}: {name}</strong>", evidence]
            lines += [f"<em>At:</em> {place}"] if place not in evidence else []
            lines += [f"<em>{'Mend' if fault in notes else 'Likely cause'}:</em> {cause}{gallery}"] if cause else []
            lines += [f"<em>May follow from it:</em> {names}"] if names else []
            colour = "#888" if fault in notes else "#c23b4e"
            style = f"margin: 1em 0; border-left: 4px solid {colour}; padding-left: 0.8em; overflow-wrap: anywhere"
            blocks += f'<div style="{style}">{"<br>".join(lines)}</div>'
        rest = [finding for finding in self.findings if finding.verdict in ("pass", "not applicable")]
        for finding in rest:
            verdict = "" if finding.verdict == "pass" else f"<em>{finding.verdict}:</em> "
            style = "border-top: 1px solid #8888; padding: 0.25em 0.8em 0.25em 0; text-align: left; vertical-align: top"
            name = f'<th scope="row" style="{style}; width: 30%">{html.escape(finding.name)}</th>'
            evidence = f"{verdict}{html.escape(finding.evidence)}"
            rows += f'<tr>{name}<td style="{style}; overflow-wrap: anywhere">{evidence}</td></tr>'
        folded = f'<details><summary style="padding: 0.25em 0">Show what does not fail ({len(rest)})</summary>'
        folded += f'<table style="margin: 0; width: 100%"><tbody>{rows}</tbody></table></details>'
        return f"<p><strong>{self.summary}</strong></p>{blocks}{folded if rest else ''}"


def examine(
    thing: Any,
    properties: Iterable[Property],
    on_finding: Callable[[Finding], object] = lambda finding: None,
    follows: Mapping[str, str] = MappingProxyType({}),
    on_start: Callable[[str], object] = lambda name: None,
) -> Report:
    """Try properties on what is under test, one after the other; the functions are those of `check_transformer`.

    `follows` has by the name of a property those, separated by commas, whose failure may be why it fails.
    """
    found = []
    for entry in properties:
        on_start(thing.words(entry.name))
        thing.start()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)  # a model that draws numbers gets the same ones each time
            found.append(_finding(thing, entry))
        on_finding(found[-1])
    reshaped = {f.place: f.cause for f in found if f.case == "reshape" and "transpose" in f.cause}
    found = [replace(f, cause=reshaped[f.place], case="reshape") if f.place in reshaped else f for f in found]
    parents_of: dict[str, str] = {}  # where there is one side, those of the source and of the target
    for name, others in follows.items():
        name = thing.words(name)
        parents_of[name] = f"{parents_of.get(name, '')}, {thing.words(others)}"
    failed = {finding.name: finding for finding in found if finding.verdict == "fail"}

    def parent(finding: Finding) -> str:
        """The failure that may be why: of the same place and cause, or of the same module or line if it knows one."""
        if finding.verdict != "fail":
            return ""
        said = finding.evidence if finding.traceback and not finding.place else ""  # then the same error tells it
        alike = (f for f in failed.values() if f.place == finding.place and said in ("", f.evidence))
        same = [f for f in alike if finding.traceback or f.cause == finding.cause != ""]
        same.sort(key=lambda f: bool(f.traceback))  # one that says more than that it raised
        if same and same[0] is not finding:
            return same[0].name
        for name in () if finding.traceback else parents_of.get(finding.name, "").split(", "):
            if (other := failed.get(name)) and not (other.traceback or other.evidence.startswith(KEEPS)):
                shared = finding.module == other.module or finding.place == other.place != ""  # all layers share a line
                if not finding.module or shared or name in EVERYWHERE:
                    return name
        return ""

    parents = {finding.name: parent(finding) for finding in found}

    def root(name: str) -> str:
        for _ in parents:
            name = parents[name] or name
        return name

    return Report(tuple(replace(f, follows_from=root(f.name) if parents[f.name] else "") for f in found))


_SUITE = Path(inspect.getfile(one_line)).with_name("checks")
_TORCH, _PYTHON = Path(torch.__file__).parent, Path(os.__file__).parent
_EXAMPLES = {"reference_model.py", "bugs.py", "cached_decoder.py"}  # models that stand beside the suite


@cache
def _whose(file: str) -> str:
    """Whose code a file is: "torch", "suite", "python", "installed", or "own"."""
    path = Path(file)
    if _TORCH in path.parents:
        return "torch"
    if path.parent == _SUITE and path.name not in _EXAMPLES:
        return "suite"
    if {"site-packages", "dist-packages"} & {*path.parts}:
        return "installed"
    return "python" if _PYTHON in path.parents or path.name.startswith("<frozen") else "own"


def _own_place(calls: Iterable[Place]) -> Place | None:
    """The model's own code among calls, from the inside to the outside; that of an installed package if it has none.

    An adapter is not the own code of a model that comes with a package.
    """
    installed: Place | None = None
    inner = ""
    for call, (caller, *_) in itertools.pairwise(itertools.chain(calls, [("", 0, "")])):
        kind = _whose(call[0])
        if kind == "own" and not (installed and inner == "torch" and _whose(caller) == "suite"):
            return call
        installed, inner = installed or (call if kind == "installed" else None), kind
    return installed


def in_words(file: str, line: int, function: str) -> str:
    """A place in words, the path as seen from here."""
    path = Path(file)
    if not path.is_file():
        named = file.startswith("the solution")  # a part of the course's in the place of a missing one
        where = file if named else "a notebook cell" if "ipykernel" in file else "code without a file"
        return f"line {line} of {where}, in {function}"
    return f"{path.relative_to(Path.cwd()) if Path.cwd() in path.parents else Path(*path.parts[-2:])}:{line}"


def raised_place(error: BaseException) -> Place | None:
    """Where a model raised: the innermost place of its own code."""
    frames = traceback.extract_tb(error.__traceback__)
    return _own_place((frame.filename, frame.lineno or 0, frame.name) for frame in reversed(frames))


def raised_at(error: BaseException) -> str:
    """The same in words, as ", at", file and line."""
    place = raised_place(error)
    return f", at {in_words(*place)}" if place else ""


@contextmanager
def if_it_runs() -> Iterator[None]:
    """Inside the block, an error of the model that the suite builds or calls ends an experiment: it shows nothing.

    It may refuse a size, or a cache of so many rows. What the suite itself raises is no answer of the model's.
    """
    try:
        yield
    except NotApplicable:
        pass
    except Exception as error:
        its = {"build", "run", "call", "logits", "gradients", "extended"}  # where the suite builds or calls it
        calls = traceback.extract_tb(error.__traceback__)
        if not any(at.name in its and Path(at.filename) == _SUITE / "subject.py" for at in calls):
            raise


def called_at(frame: FrameType | None) -> Place | None:
    """The file, line and function of the innermost of these calls that is the model's own code."""
    return _own_place((at.f_code.co_filename, line, at.f_code.co_name) for at, line in traceback.walk_stack(frame))


class _Once:
    """A stream that writes no line twice, because a suite builds and calls a model many times."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.line, self.seen = stream, "", set[str]()

    def write(self, text: str) -> int:
        """Write the lines that are new, each when it ends."""
        *lines, self.line = re.split(r"(?<=[\n\r])", self.line + text)
        for line in lines:
            if (words := re.sub(r"\d+[-:.,\d]*[-:.,]\d+", "", line).strip()) not in self.seen:  # not the time of a log
                self.seen.add(words)
                self.stream.write(line)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def shown_once() -> Iterator[None]:
    """Inside the block what a model prints is shown once."""
    out, err = _Once(sys.stdout), _Once(sys.stderr)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            yield
    finally:
        for each in (out, err):
            each.stream.write(each.line if each.line not in each.seen else "")


def is_refusal(error: BaseException) -> bool:
    """Whether a line that begins with `raise` or `assert` raised it, outside torch, such as for a length."""
    *_, last = traceback.extract_tb(error.__traceback__)
    said = (last.line or "").startswith(("raise", "assert"))
    said = said or isinstance(error, AssertionError | NotImplementedError)
    return said and _TORCH not in Path(last.filename).parents


def _finding(thing: Any, entry: Property) -> Finding:
    name = thing.words(entry.name)
    try:
        holds, evidence, *shown = entry.function(thing)
    except NotApplicable as reason:
        return Finding(name, "not applicable", printable(thing.words(str(reason))))
    except Exception as error:
        words = one_line(error) + raised_at(error)
        if entry.refusable and is_refusal(error):
            return Finding(name, "not applicable", f"the model refuses what this needs: {words}")
        told, at = printable(traceback.format_exc()), raised_place(error)
        return Finding(
            name, "fail", f"it raised {words}", traceback=told, reproduction=thing.reproduction(entry.name),
            place=in_words(*at) if at else "",
        )  # fmt: skip
    evidence, causes = printable(thing.words(evidence)), [*filter(None, [*shown, thing.shown])] or shown
    if holds:
        return Finding(name, "pass", evidence)
    if holds is None:
        return Finding(name, "note", evidence, "".join(shown), entry.case if shown else "")
    case = entry.case if not causes else "reshape" if "transpose" in causes[0] else ""
    return Finding(
        name, "fail", evidence + thing.located, thing.words([*causes, entry.cause][0]), case,
        reproduction=thing.reproduction(entry.name), module=thing.where, place=in_words(*thing.at) if thing.at else "",
        pad_id=thing.better_pad_id,
    )  # fmt: skip
