# Generated from chapters/08_checks.md: edit the chapter, not this file, then run `make export`.


# chapters/08_checks.md: The library: a model under test
"""A property of a model, what a check found, and how it is told."""

import html
import json
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from transformer_lib.files import one_line

Outcome = tuple[bool, str]  # whether the property holds, and the evidence
Check = Callable[[Any], Outcome]


class NotApplicable(Exception):
    """A property has no meaning for this model; the message says why."""


@dataclass(frozen=True)
class Property:
    """A property, what is most likely wrong where it fails, and the gallery's case that shows it."""

    function: Check
    cause: str
    case: str

    @property
    def name(self) -> str:
        """The function's name in words."""
        return self.function.__name__.replace("_", " ")


def register_property(properties: list[Property], cause: str, case: str = "") -> Callable[[Check], Check]:
    """Enter the decorated function into a list of properties.

    Args:
        properties: the list.
        cause: what is most likely wrong where the property fails.
        case: the gallery's short name for such a bug.
    """

    def enter(function: Check) -> Check:
        properties.append(Property(function, cause, case))
        return function

    return enter


# chapters/08_checks.md: The report
@dataclass(frozen=True)
class Finding:
    """What one property says about a model: "pass", "fail" or "not applicable", and why."""

    name: str
    verdict: str
    evidence: str
    cause: str = ""
    case: str = ""
    traceback: str = ""  # where the property raised, if it did

    def __str__(self) -> str:
        line = f"{self.verdict:<14} {self.name}: {self.evidence}"
        gallery = f" (gallery: {self.case})" if self.case else ""
        return line + (f"\n{'':<14} likely: {self.cause}{gallery}" if self.verdict == "fail" else "")


@dataclass(frozen=True, repr=False)
class Report:
    """What the properties say about a model; prints as text, and shows as a table in a notebook."""

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

    def __repr__(self) -> str:
        return "\n".join([*map(str, self.findings), self.summary])

    def to_json(self) -> str:
        """The findings as a JSON object with "holds" and "findings"."""
        return json.dumps({"holds": self.holds, "findings": [asdict(finding) for finding in self.findings]}, indent=1)

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{text}</th>' for text in ("property", "verdict", "evidence", "likely cause"))
        rows = ""
        for finding in self.findings:
            cause = finding.cause + (f" (gallery: {finding.case})" if finding.case else "")
            cells = [html.escape(text) for text in (finding.name, finding.verdict, finding.evidence, cause)]
            cells[1] = "<strong>FAIL</strong>" if finding.verdict == "fail" else cells[1]
            rows += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><p>{self.summary}</p>"


def examine(
    thing: Any, properties: Iterable[Property], on_finding: Callable[[Finding], object] | None = None
) -> Report:
    """Try properties on what is under test, one after the other; `on_finding` hears of each at once."""
    findings = []
    for entry in properties:
        findings.append(_finding(thing, entry))
        if on_finding is not None:
            on_finding(findings[-1])
    return Report(tuple(findings))


def _finding(thing: Any, entry: Property) -> Finding:
    where = ""
    try:
        holds, evidence = entry.function(thing)
    except NotApplicable as reason:
        return Finding(entry.name, "not applicable", str(reason))
    except Exception as error:
        holds, evidence, where = False, f"it raised {one_line(error)}", traceback.format_exc()
    return (
        Finding(entry.name, "pass", evidence)
        if holds
        else Finding(entry.name, "fail", evidence, entry.cause, entry.case, where)
    )
