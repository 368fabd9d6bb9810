"""A Sphinx extension: the numbers that a page written by hand shows as {{ name }}, each out of a record or counted."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from address import ROOT
from page_numbers import number_of

if TYPE_CHECKING:  # the package is built without Sphinx
    from sphinx.application import Sphinx
    from sphinx.config import Config


def time_of(page: str) -> int:
    """How many minutes a page says that it takes; 0 if it does not say."""
    text = (ROOT / "chapters" / f"{page.removeprefix('book/')}.md").read_text(encoding="utf-8")
    said = re.search(r"^(?:- )?\*\*Time\*\*: (\d+) minutes", text, re.MULTILINE)
    return int(said[1]) if said else 0


def in_depth() -> list[str]:
    """The pages in depth."""
    names = (f"book/{path.stem}" for path in (ROOT / "chapters").glob("*.md"))
    return [name for name in names if len(number_of(name)) == 2]


def halves(minutes: int) -> int:
    """A time to read in half hours, of which two make a whole one from ten hours on."""
    return 2 * ((minutes + 30) // 60) if minutes >= 585 else (minutes + 15) // 30


def hours(halves: int) -> str:
    """So many half hours, as pages write them."""
    return f"{halves // 2}{'½' * (halves % 2)} {'hour' if halves == 2 else 'hours'}"


def times() -> dict[str, str]:
    """What pages say that they take: each chapter, each part, and the pages in depth; sums are of what parts show."""
    from theme import parts

    shown: dict[str, int] = {}  # half hours of each part
    minutes: dict[int, int] = {}
    for caption, pages in parts():
        said = {number_of(page)[0]: time_of(page) for page in pages}
        shown[f"hours_{caption.lower().replace(' ', '_')}"] = halves(sum(said.values()))
        minutes |= {number: time for number, time in said.items() if isinstance(number, int)}  # not the handbook
    shown["hours_translator"] = shown["hours_build"] + shown["hours_train_and_translate"]
    names = ("translator", "trust", "further", "real_sentences")  # page 0 is no chapter
    shown["hours"] = sum(shown[f"hours_{name}"] for name in names)
    shown["hours_in_depth"] = halves(sum(time_of(page) for page in in_depth()))
    return {f"minutes_{n}": str(time) for n, time in minutes.items()} | {n: hours(time) for n, time in shown.items()}


def glued(notebook: Path) -> dict[str, Any]:
    """What the cells of a notebook have for its own sentences, by name."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return {
        output["metadata"]["scrapbook"]["name"]: ast.literal_eval("".join(*output["data"].values()))
        for output in outputs
        if "scrapbook" in output.get("metadata", {})
    }


def widget(notebook: Path, name: str) -> str:
    """A widget among the outputs of a notebook, as what a page written by hand can hold."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = (
        "".join(output.get("data", {}).get("text/html", "")) for cell in cells for output in cell.get("outputs", [])
    )
    (found,) = (text for text in outputs if f'id="widget-{name}"' in text)
    return f"```{{raw}} html\n{found}\n```"


def numbers() -> dict[str, str]:
    """All of them, by name."""
    zoo = glued(ROOT / "book" / "F_adapters.ipynb")
    counted = {"pages_in_depth": str(len(in_depth()))}
    counted |= {f"zoo_{name}": str(zoo[f"F-zoo-{name}"]) for name in ("built", "true")}
    counted |= {"public": str(zoo["F-public"]), "public_true": str(zoo["F-public-true"])}
    return times() | counted


def substitute(app: Sphinx, config: Config) -> None:
    """Hand them to MyST, and a widget of chapter 9 for the front page, which says in its own words what it shows."""
    learning = re.sub(r"<p>It reads[^<]*</p>", "", widget(ROOT / "book" / "09_training.ipynb", "learning"))
    config.myst_substitutions = {**config.myst_substitutions, **numbers(), "learning": learning}


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect it; called by Sphinx."""
    app.connect("config-inited", substitute)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
