"""The errors that were classified by hand: shown as counted, and quoted in parts only."""

import json
import re
from collections import Counter

import pytest
from test_record import ROOT, TEST, data, quoted, with_data

FILE = ROOT / "records" / "errors.json"


def judged():
    return json.loads(FILE.read_text(encoding="utf-8"))


def test_every_error_has_a_class_and_a_note():
    classes = judged()["classes"]
    for number, row in judged()["sentences"].items():
        assert row["classes"] == [name for name in classes if name in row["classes"]], number
        assert set(row["reference"]) <= set(classes), number
        assert bool(row.get("note")) == bool(row["classes"] or row.get("borderline")), number


def test_the_page_shows_the_counts_of_the_file():
    page = ROOT / "book" / "17f_errors.ipynb"
    if not page.exists():
        pytest.skip("the page has not been executed")
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    shown = "".join("".join(output.get("text", [])) for cell in cells for output in cell.get("outputs", []))
    rows = judged()["sentences"]
    counts = Counter(name for row in rows.values() for name in row["classes"])
    assert f"{len(rows)} sentences read, 50 with an error, {len(rows) - 50} without" in shown
    for name in judged()["classes"]:
        ((count, numbers),) = re.findall(rf"^{name} +(\d+):(.*)$", shown, re.MULTILINE)
        assert int(count) == counts[name]
        assert numbers.split() == [number for number, row in rows.items() if name in row["classes"]]


@with_data
def test_at_most_ten_sentences_are_quoted_and_none_of_them_whole():
    rows = judged()["sentences"]
    source = data(TEST).source
    parts = {number: row["english"] for number, row in rows.items() if "english" in row}
    assert len(parts) <= 10
    for number, part in parts.items():
        assert all(piece in source[int(number)] for piece in part.split(" … "))
        assert len(part.split()) < 0.7 * len(source[int(number)].split())
    page = (ROOT / "chapters" / "17f_errors.md").read_text(encoding="utf-8")
    assert quoted(page + FILE.read_text(encoding="utf-8"), set(source)) == set()
