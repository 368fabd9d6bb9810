"""The errors that were classified by hand: drawn by the rule, of known translations, and quoted in parts only."""

import hashlib
import json
import re
from collections import Counter

import errors as tool
import pytest
from test_record import FOLDER, ROOT, TEST, data, quoted, record, recorded, with_data

FILE = ROOT / "records" / "errors.json"


def judged():
    return json.loads(FILE.read_text(encoding="utf-8"))


def test_the_sentences_are_the_first_of_a_random_order_up_to_the_fiftieth_error():
    rows = judged()["sentences"]
    assert list(map(int, rows)) == tool.drawn(judged()["seed"])[: len(rows)]
    assert sorted(tool.drawn(0)) == list(range(1000))
    faulty = [number for number, row in rows.items() if row["classes"]]
    assert len(faulty) == 50
    assert faulty[-1] == list(rows)[-1]


def test_every_error_has_a_class_and_a_note():
    classes = judged()["classes"]
    for number, row in judged()["sentences"].items():
        assert row["classes"] == [name for name in classes if name in row["classes"]], number
        assert set(row["reference"]) <= set(classes), number
        assert bool(row.get("note")) == bool(row["classes"] or row.get("borderline")), number


@recorded
def test_the_verdicts_say_of_which_translations_they_are():
    """Of the record's, or of earlier ones; then the page says so."""
    said, rows = judged(), judged()["sentences"]
    text = (FOLDER / f"{TEST}.{record()['target']}").read_bytes()
    current = said["translations"] == hashlib.sha256(text).hexdigest()
    assert current == (said["weights"] == record()["files"]["model.safetensors"])
    if current:
        lines = text.decode().splitlines()
        assert [row["ours"] for row in rows.values()] == [lines[int(number)] for number in rows]


def test_the_page_shows_the_counts_of_the_file():
    page = ROOT / "book" / "17i_errors.ipynb"
    if not page.exists():
        pytest.skip("the page has not been executed")
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    shown = "".join("".join(output.get("text", [])) for cell in cells for output in cell.get("outputs", []))
    rows = judged()["sentences"]
    counts = Counter(name for row in rows.values() for name in row["classes"])
    assert f"{len(rows)} sentences read, 50 with an error, {len(rows) - 50} without" in shown
    for name in judged()["classes"]:
        assert re.findall(rf"^{name} +(\d+)$", shown, re.MULTILINE) == [str(counts[name])]
        (numbers,) = re.findall(rf"^{name}:(.*)$", shown, re.MULTILINE)
        assert numbers.split() == [number for number, row in rows.items() if name in row["classes"]]


@recorded
@with_data
def test_at_most_ten_sentences_are_quoted_and_none_of_them_whole():
    rows = judged()["sentences"]
    source = data(TEST).source
    parts = {number: row["english"] for number, row in rows.items() if "english" in row}
    assert len(parts) <= 10
    for number, part in parts.items():
        assert all(piece in source[int(number)] for piece in part.split(" … "))
        assert len(part.split()) < 0.7 * len(source[int(number)].split())
    page = (ROOT / "chapters" / "17i_errors.md").read_text(encoding="utf-8")
    assert quoted(page + FILE.read_text(encoding="utf-8"), set(source)) == set()


@recorded
@with_data
def test_what_can_be_counted_is_counted_again():
    rows, now = judged()["sentences"], (FOLDER / f"{TEST}.{record()['target']}").read_text(encoding="utf-8")
    of_record = {number: row for number, row in rows.items() if row["ours"] == now.splitlines()[int(number)]}
    bare = {number: {"ours": row["ours"]} for number, row in of_record.items()}
    for number, row in tool.counted(FOLDER, bare).items():
        assert row == {name: rows[number][name] for name in ("ours", "words", "rarest", "counts")}
    first = next(iter(rows))
    with pytest.raises(ValueError, match=f"{first}.*another sentence"):
        tool.counted(FOLDER, {first: {"ours": "another sentence"}})
