"""The record of `make bench`: complete, of this project, and silent about the machine's names."""

import importlib
import json
import re
from types import SimpleNamespace

import pytest
from small import ROOT

RECORDS = sorted((ROOT / "records").glob("bench*.json"))


@pytest.fixture(params=RECORDS, ids=lambda path: path.stem)
def record(request):
    return json.loads(request.param.read_text(encoding="utf-8"))


def test_a_record_names_no_path_and_no_machine(record):
    text = json.dumps(record)
    assert not re.search(r"/(home|root|tmp|work|Users)\b|[A-Z]:\\\\", text)
    assert not re.search(r"hostname|node|user", text)


def test_a_ratio_is_taken_within_each_round_and_the_slow_round_of_everybody_changes_nothing(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    side_by_side = importlib.import_module("side_by_side")
    rounds = [{"ours": 1.0, "theirs": 2.0}, {"ours": 10.0, "theirs": 30.0}, {"ours": 1.0, "theirs": 40.0}]
    runs = [
        SimpleNamespace(extra_info={"system": system, "facts": {"tokens": 7}}, stats=SimpleNamespace(total=seconds))
        for times in rounds
        for system, seconds in times.items()
    ]
    ours, theirs = side_by_side._rows(runs)
    assert ours == {"system": "ours", "median_seconds": 1.0, "ratio": 1.0, "rounds": 3, "tokens": 7}
    assert theirs == {"system": "theirs", "median_seconds": 30.0, "ratio": 3.0, "rounds": 3, "tokens": 7}
