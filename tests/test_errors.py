"""The errors that were classified by hand: drawn by the rule, of known translations, and quoted in parts only."""

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter

import errors as tool
import pytest
from test_record import FOLDER, ROOT, TEST, child, data, quoted, record, recorded, with_data

FILE, BLIND = (ROOT / "records" / f"{name}.json" for name in ("errors", "errors_of_recipes"))


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
        ((count, numbers),) = re.findall(rf"^{name} +(\d+):(.*)$", shown, re.MULTILINE)
        assert int(count) == counts[name]
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


def test_the_blind_sheet_has_sentences_in_the_order_drawn_and_each_training_once():
    sheet, classes = json.loads(BLIND.read_text(encoding="utf-8")), list(judged()["classes"])
    assert list(map(int, sheet["sentences"])) == tool.drawn(sheet["seed"], 1014)[: tool.ON_SHEET]
    orders = {tuple(tool.hidden_order(int(number), sheet["names"])) for number in sheet["sentences"]}
    assert len(orders) == 6  # all that three names have
    for number, cells in sheet["sentences"].items():
        assert len(cells) == len(sheet["names"])
        for cell in cells:
            assert cell["classes"] == [name for name in classes if name in cell["classes"]], number
        verdicts = {cell["ours"]: cell["classes"] for cell in cells}
        assert all(cell["classes"] == verdicts[cell["ours"]] for cell in cells), f"{number}: one text, two verdicts"


@recorded
@with_data
def test_a_sheet_has_what_each_training_says_in_the_hidden_order(tmp_path, monkeypatch):
    names = ["as it is", "R-Drop, alpha 5"]
    for run in ("as-it-is", "R-Drop,-alpha-5"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "log.jsonl").write_text('{"step": 3}\n{"step": 7}\n')
    monkeypatch.setattr(tool, "translations", lambda changed, run, val: [(run.name, i) for i in range(len(val.source))])
    sheet = tool.sheet(FOLDER, tmp_path, names)
    assert (sheet["steps"], len(sheet["sentences"])) == (7, tool.ON_SHEET)
    for number, cells in sheet["sentences"].items():
        shown = [name.replace(" ", "-") for name in tool.hidden_order(int(number), names)]
        assert cells == [{"ours": (run, int(number)), "classes": []} for run in shown]


def test_a_sheet_replaces_no_file(tmp_path):
    path = tmp_path / "sheet.json"
    path.write_text("verdicts")
    command = [sys.executable, ROOT / "experiments" / "errors.py", FOLDER, path, tmp_path, "as it is"]
    done = subprocess.run(command, capture_output=True, text=True, env=child())
    assert (done.returncode, path.read_text()) == (1, "verdicts")
    assert done.stderr == f"errors.py: {path} exists, and may hold verdicts; name a new file\n"
