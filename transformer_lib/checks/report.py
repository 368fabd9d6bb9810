# Generated from chapters/E_suite.md: edit it there and `make export`, or here and `make sync`.

"""A property of a model, what a check found, and how it is told."""

import html
import inspect
import json
import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

import torch

from transformer_lib.files import one_line, printable

Outcome = tuple[bool, str] | tuple[bool, str, str]  # whether the property holds, the evidence, a cause that it shows
Check = Callable[[Any], Outcome]
ON_THE_MAIN_PAGE = frozenset(  # of the gallery; its other cases stand on a page in depth
    "causal future unmasked blind reshape batch stale dead eval dropout scale one-layer twins target-padding "
    "accumulation averaged".split()
)
KEEPS_A_GRAPH = "a call keeps tensors that have a graph"  # a finding that comes first, and from which nothing follows


class NotApplicable(Exception):
    """A property has no meaning for this model; the message says why."""


@dataclass(frozen=True)
class Property:
    """A property, what is most likely wrong where it fails, and the gallery's case that shows it."""

    function: Check
    cause: str
    case: str
    needs: str = ""  # the kind of model that it is about
    refusable: bool = False  # whether its inputs are so special that a model may refuse them

    @property
    def name(self) -> str:
        """The function's name in words."""
        return self.function.__name__.replace("_", " ")


def register_property(
    properties: list[Property], cause: str, case: str = "", needs: str = "", refusable: bool = False
) -> Callable[[Check], Check]:
    """Enter the decorated function into a list of properties.

    Args:
        properties: the list.
        cause: what is most likely wrong where the property fails.
        case: the gallery's short name for such a bug.
        needs: the kind of model that it is about, a word that its `has` knows; empty = any.
        refusable: a model may refuse the inputs, such as padding alone, by an error of its own.
    """

    def enter(function: Check) -> Check:
        properties.append(Property(function, cause, case, needs, refusable))
        return function

    return enter


@dataclass(frozen=True)
class Finding:
    """What one property says about a model: "pass", "fail" or "not applicable", and why."""

    name: str
    verdict: str
    evidence: str
    cause: str = ""
    case: str = ""
    traceback: str = ""  # where the property raised, if it did
    follows_from: str = ""  # the failed property that this failure may follow from
    reproduction: str = ""  # seed, sizes and inputs with which it failed

    def __str__(self) -> str:
        line = f"{self.verdict:<14} {self.name}: {self.evidence}"
        gallery = f" (gallery: {self.case})" if self.case else ""
        again = f"\n{'':<14} again: {self.reproduction}" if self.reproduction else ""
        likely = f"\n{'':<14} likely: {self.cause}{gallery}" if self.cause else ""
        return line + (f"{likely}{again}" if self.verdict == "fail" else "")

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
        """How many pass, fail, and do not apply."""
        verdicts = [finding.verdict for finding in self.findings]
        return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("pass", "fail", "not applicable"))

    @property
    def faults(self) -> dict[Finding, str]:
        """Each failure that follows from no other, with the names of those that may follow from it."""
        alone = [finding for finding in self.findings if finding.verdict == "fail" and not finding.follows_from]
        alone.sort(key=lambda finding: not finding.evidence.startswith(KEEPS_A_GRAPH))
        return {f: ", ".join(other.name for other in self.findings if other.follows_from == f.name) for f in alone}

    @property
    def fault_lines(self) -> list[str]:
        """The faults as text."""
        after = f"\n{'':<14} may follow from it: "
        return [f"{fault}{after + names if names else ''}" for fault, names in self.faults.items()]

    def __repr__(self) -> str:
        rest = [str(finding) for finding in self.findings if finding.verdict != "fail"]
        return "\n".join([*self.fault_lines, *rest, self.summary])

    def to_json(self) -> str:
        """A JSON object: "schema" (1), "holds", "summary", and "findings" with a Finding's fields and its page."""
        findings = [asdict(finding) | {"page": finding.page} for finding in self.findings]
        return json.dumps({"schema": 1, "holds": self.holds, "summary": self.summary, "findings": findings}, indent=1)

    def to_junit(self) -> str:
        """The findings as a JUnit test suite in XML, one test case for each property."""
        verdicts = [finding.verdict for finding in self.findings]
        counts = {"failures": verdicts.count("fail"), "skipped": verdicts.count("not applicable")}
        attributes = {name: str(count) for name, count in ({"tests": len(verdicts)} | counts).items()}
        suite = ElementTree.Element("testsuite", {"name": "check", **attributes})
        for finding in self.findings:
            case = ElementTree.SubElement(suite, "testcase", {"classname": "check", "name": finding.name})
            if finding.verdict != "pass":
                kind = "failure" if finding.verdict == "fail" else "skipped"
                element = ElementTree.SubElement(case, kind, {"message": printable(finding.evidence)})
                element.text = printable(finding.traceback or finding.cause)
        return ElementTree.tostring(suite, encoding="unicode")

    def _repr_html_(self) -> str:
        """Faults as blocks, the rest folded; styles stand in the elements, because a notebook keeps no others."""
        blocks, rows = "", ""
        for fault, after in self.faults.items():
            name, evidence, cause, names = map(html.escape, (fault.name, fault.evidence, fault.cause, after))
            gallery = f' (gallery: <a href="{fault.page}">{fault.case}</a>)' if fault.page else ""
            lines = [f"<strong>FAIL: {name}</strong>", evidence]
            lines += [f"<em>Likely cause:</em> {cause}{gallery}"] if cause else []
            lines += [f"<em>May follow from it:</em> {names}"] if names else []
            style = "margin: 1em 0; border-left: 4px solid #c23b4e; padding-left: 0.8em; overflow-wrap: anywhere"
            blocks += f'<div style="{style}">{"<br>".join(lines)}</div>'
        rest = [finding for finding in self.findings if finding.verdict != "fail"]
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
    """Try properties on what is under test, one after the other.

    Args:
        thing: what is under test.
        properties: the properties.
        on_finding: called with each finding as soon as it is there.
        follows: by the name of a property those, separated by commas, whose failure may be why it fails.
        on_start: called with the name of each property before it is tried.
    """
    found = []
    for entry in properties:
        on_start(thing.words(entry.name))
        thing.start()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # a model that draws numbers gets the same ones each time
            found.append(_finding(thing, entry))
        on_finding(found[-1])
    follows = {thing.words(name): thing.words(others) for name, others in follows.items()}
    failed = [finding.name for finding in found if finding.verdict == "fail"]
    told = [f.name for f in found if not f.traceback and not f.evidence.startswith(KEEPS_A_GRAPH)]  # by a comparison
    roots = {name for name in failed if name in told}
    parents = {name: next((p for p in follows.get(name, "").split(", ") if p in roots), "") for name in failed}

    def root(name: str) -> str:
        return root(parents[name]) if parents.get(name) else name

    return Report(tuple(replace(f, follows_from=root(f.name) if parents.get(f.name) else "") for f in found))


_SUITE = Path(inspect.getfile(one_line)).with_name("checks")
_TORCH, _PYTHON = Path(torch.__file__).parent, Path(os.__file__).parent
_EXAMPLES = {"reference_model.py", "bugs.py", "cached_decoder.py"}  # models that stand beside the suite


def raised_at(error: BaseException) -> str:
    """Where a model raised, as ", at", file and line: the innermost place outside of torch, Python and the suite."""

    def own(path: Path) -> bool:
        python = _PYTHON in path.parents and "site-packages" not in path.parts
        suite = path.parent == _SUITE and path.name not in _EXAMPLES
        return not (suite or python or _TORCH in path.parents or path.name.startswith("<frozen"))

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if own(Path(frame.filename))]
    if not frames:
        return ""
    path, line = Path(frames[-1].filename), frames[-1].lineno
    if not path.is_file():
        return f", at line {line} of code without a file, in {frames[-1].name}"
    return f", at {path.relative_to(Path.cwd()) if Path.cwd() in path.parents else Path(*path.parts[-2:])}:{line}"


def is_refusal(error: BaseException) -> bool:
    """Whether a line that begins with `raise` or `assert` raised it, outside torch, such as for a length."""
    *_, last = traceback.extract_tb(error.__traceback__)
    said = (last.line or "").startswith(("raise", "assert"))
    return (said or isinstance(error, AssertionError | NotImplementedError)) and _TORCH not in Path(
        last.filename
    ).parents


def _finding(thing: Any, entry: Property) -> Finding:
    causes, name = [entry.cause], thing.words(entry.name)
    try:
        holds, evidence, *shown = entry.function(thing)
        causes = [*shown, *causes]
    except NotApplicable as reason:
        return Finding(name, "not applicable", printable(thing.words(str(reason))))
    except Exception as error:
        words = one_line(error) + raised_at(error)
        if entry.refusable and is_refusal(error):
            return Finding(name, "not applicable", f"the model refuses what this needs: {words}")
        told = printable(traceback.format_exc())
        return Finding(name, "fail", f"it raised {words}", traceback=told, reproduction=thing.reproduction())
    evidence, cause = printable(thing.words(evidence)), thing.words(causes[0])
    if holds:
        return Finding(name, "pass", evidence)
    evidence += thing.located
    return Finding(name, "fail", evidence, cause, entry.case, reproduction=thing.reproduction())
