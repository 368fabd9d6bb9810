# Generated from chapters/08_checks.md: edit the chapter, not this file, then run `make export`.

"""A property of a model, what a check found, and how it is told."""

import html
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from transformer_lib.serialization import one_line

Outcome = tuple[bool, str]  # whether the property holds, and the evidence
Check = Callable[[Any], Outcome]


class NotApplicable(Exception):
    """A property has no meaning for this model; the message says why."""


@dataclass(frozen=True)
class Property:
    """A property, what is most likely wrong where it fails, and the gallery's room that shows it."""

    function: Check
    cause: str
    room: str

    @property
    def name(self) -> str:
        """The function's name in words."""
        return self.function.__name__.replace("_", " ")


def holds_for(properties: list[Property], cause: str, room: str) -> Callable[[Check], Check]:
    """Enter the decorated function into a list of properties.

    Args:
        properties: the list.
        cause: what is most likely wrong where the property fails.
        room: the gallery's short name for such a bug.
    """

    def enter(function: Check) -> Check:
        properties.append(Property(function, cause, room))
        return function

    return enter


@dataclass(frozen=True)
class Finding:
    """What one property says about a model: "pass", "fail" or "not applicable", and why."""

    name: str
    verdict: str
    evidence: str
    cause: str = ""
    room: str = ""


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
        lines = []
        for finding in self.findings:
            lines.append(f"{finding.verdict:<14} {finding.name}: {finding.evidence}")
            if finding.verdict == "fail":
                room = f" (gallery: {finding.room})" if finding.room else ""
                lines.append(f"{'':<14} likely: {finding.cause}{room}")
        return "\n".join([*lines, self.summary])

    def to_json(self) -> str:
        """The findings as a JSON object with "holds" and "findings"."""
        return json.dumps({"holds": self.holds, "findings": [asdict(finding) for finding in self.findings]}, indent=1)

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{text}</th>' for text in ("property", "verdict", "evidence", "likely cause"))
        rows = []
        for finding in self.findings:
            verdict = "<strong>FAIL</strong>" if finding.verdict == "fail" else finding.verdict
            cause = html.escape(finding.cause) + (f" (gallery: {finding.room})" if finding.room else "")
            cells = (html.escape(finding.name), verdict, html.escape(finding.evidence), cause)
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        return f"{table}<p>{self.summary}</p>"


def examine(subject: Any, properties: Iterable[Property]) -> Report:
    """Try properties on a subject, one after the other."""
    return Report(tuple(_find(subject, entry) for entry in properties))


def _find(subject: Any, entry: Property) -> Finding:
    try:
        holds, evidence = entry.function(subject)
    except NotApplicable as reason:
        return Finding(entry.name, "not applicable", str(reason))
    except Exception as error:
        holds, evidence = False, f"it raised {one_line(error)}"
    if holds:
        return Finding(entry.name, "pass", evidence)
    return Finding(entry.name, "fail", evidence, entry.cause, entry.room)
