"""What `make bench` writes down."""

import importlib
from types import SimpleNamespace

from small import ROOT


def test_a_ratio_is_taken_within_each_round_and_the_slow_round_of_everybody_changes_nothing(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    side_by_side = importlib.import_module("side_by_side")
    rounds = [{"ours": 1.0, "theirs": 2.0}, {"ours": 10.0, "theirs": 30.0}, {"ours": 1.0, "theirs": 40.0}]
    measured = [(name, SimpleNamespace(total=seconds)) for times in rounds for name, seconds in times.items()]
    runs = [SimpleNamespace(extra_info={"system": name, "facts": {"tokens": 7}}, stats=s) for name, s in measured]
    ours, theirs = side_by_side._rows(runs)
    assert ours == {"system": "ours", "median_seconds": 1.0, "ratio": 1.0, "rounds": 3, "tokens": 7}
    assert theirs == {"system": "theirs", "median_seconds": 30.0, "ratio": 3.0, "rounds": 3, "tokens": 7}
