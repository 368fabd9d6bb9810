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


def hours(minutes: int) -> str:
    """A time to read, in whole hours from ten on and in half hours below."""
    halves = (minutes + 15) // 30
    return str((minutes + 30) // 60) if halves >= 20 else f"{halves // 2}{'½' * (halves % 2)}"


def times() -> dict[str, str]:
    """What pages say that they take: all chapters, those up to the translator, each part, and all pages in depth."""
    from theme import parts

    found: dict[str, str] = {}
    minutes: dict[int, int] = {}
    for caption, pages in parts():
        said = {number_of(page)[0]: time_of(page) for page in pages}
        found[f"hours_{caption.lower().replace(' ', '_')}"] = hours(sum(said.values()))
        minutes |= {number: time for number, time in said.items() if isinstance(number, int)}  # not the handbook
    found |= {f"minutes_{number}": str(time) for number, time in minutes.items()}
    translator = sum(time for number, time in minutes.items() if 1 <= number <= 11)
    depth = sum(time_of(page) for page in in_depth())
    return found | {
        "hours": hours(sum(minutes.values())),
        "hours_translator": hours(translator),
        "hours_in_depth": hours(depth),
    }


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


def scores(record: dict[str, Any], analysis: dict[str, Any]) -> dict[str, str]:
    """What the record of the shipped translator says."""
    return {
        "bleu": f"{record['scores']['test_2016_flickr']['cased']['bleu']:.1f}",
        "papers": f"{record['scores']['test_2016_flickr']['papers']['bleu']:.1f}",
        "test_sentences": f"{len(analysis['statistics']['beam']['length']):,}",
        "beam_size": str(record["decoding"]["beam_size"]),
        "parameters": f"{record['parameters'] / 1e6:.1f}",
        "training_pairs": f"{record['training_pairs']:,}",
        "minutes": f"{record['seconds'] / 60:,.0f}",
        "device": record["device"],
    }


def numbers() -> dict[str, str]:
    """All of them, by name."""
    run = ROOT / "records" / "multi30k-en-de"
    record, analysis = (json.loads((run / f"{name}.json").read_text("utf-8")) for name in ("record", "analysis"))
    mistakes = (ROOT / "book" / "gallery.tsv").read_text(encoding="utf-8").splitlines()[1:]
    half = glued(ROOT / "book" / "17_multi30k.ipynb")["17-half"]
    zoo = glued(ROOT / "book" / "F_adapters.ipynb")
    counted = {"mistakes": str(len(mistakes)), "pages_in_depth": str(len(in_depth()))}
    counted |= {f"zoo_{name}": str(zoo[f"F-zoo-{name}"]) for name in ("built", "true")}
    counted |= {"public": str(zoo["F-public"]), "public_true": str(zoo["F-public-true"])}
    return scores(record, analysis) | {"bleu_half": half} | times() | counted


def substitute(app: Sphinx, config: Config) -> None:
    """Hand them to MyST, and a widget of chapter 9 for the front page."""
    learning = widget(ROOT / "book" / "09_training.ipynb", "learning")
    config.myst_substitutions = {**config.myst_substitutions, **numbers(), "learning": learning}


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect it; called by Sphinx."""
    app.connect("config-inited", substitute)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
