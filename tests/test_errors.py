"""The errors that were classified by hand: shown as counted, and quoted in parts only."""

import json

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
