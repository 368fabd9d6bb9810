"""The pages that tools/pages.py makes: as their tables say, and every topic at a section that exists."""

import importlib
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from small import ROOT

PAGES = ("book/bench.md", "book/equivalence.md", "book/gallery.md")
MISTAKES = "slug\twhat\tsymptom\tnumber\tlabel\tcaught\nblind\ta mask\tblindness\t0.0\tsec-masks-wrong\tinfluence\n"
TOPICS = "id\ttopic\tchapter\tlabel\n1\tOne convention\t05\tsec-masks-convention\n"


@pytest.fixture
def project(tmp_path):
    """The tools, one chapter and two tables."""
    records = ("records/bench.json", "records/equivalence.json")
    for name in ("tools/export.py", "tools/lock.py", "tools/pages.py", "chapters/05_masks.md", *records, *PAGES):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "book/topics.tsv").write_text(TOPICS, encoding="utf-8")
    (tmp_path / "book/gallery.tsv").write_text(MISTAKES, encoding="utf-8")
    return tmp_path


def run(project, *arguments):
    """What the tool complains of; empty when there is nothing."""
    command = [sys.executable, project / "tools/pages.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (done.stderr == ""), done.stderr
    return done.stderr


def test_pages_are_written_and_every_row_without_a_section_or_a_column_is_found(project):
    assert "book/gallery.md differs from its table: run `python tools/pages.py`" in run(project, "--check")
    assert run(project) == run(project, "--check") == ""
    page = (project / "book/gallery.md").read_text(encoding="utf-8")
    assert "| A mask | Blindness | 0.0 | influence | {ref}`sec-masks-wrong` |" in page
    for name, row in {
        "gallery": "blind\ta mask\t\t0.0\troom-of-nobody\tinfluence\n",
        "topics": "1\tMasks at sea\t05\tsec-masks-at-sea\n",
    }.items():
        with (project / f"book/{name}.tsv").open("a", encoding="utf-8") as table:
            table.write(row)
    complaints = run(project, "--check")
    for complaint in (
        "blind is there twice", "no chapter has (room-of-nobody)=", "blind: a column is empty",
        "topic 1 is there twice", "chapter 05 has no section (sec-masks-at-sea)= for topic 1, 'Masks at sea'",
    ):  # fmt: skip
        assert complaint in complaints


def test_the_record_of_a_gpu_is_shown_beside_that_of_the_cpu(project):
    stored = json.loads((project / "records/bench.json").read_text(encoding="utf-8"))
    row = {"system": "ours", "median_seconds": 0.0123, "ratio": 1.0, "rounds": 5, "target_tokens": 1230}
    row |= {"flops": 2e9, "ceiling_flops_per_second": 1e12}
    stored |= {"device": "A GPU", "groups": [{"name": "steps", "threads": 2, "settings": {}, "rows": [row]}]}
    (project / "records/bench-cuda.json").write_text(json.dumps(stored), encoding="utf-8")
    assert "book/bench.md differs" in run(project, "--check")
    assert run(project) == run(project, "--check") == ""
    before, _, page = (project / "book/bench.md").read_text(encoding="utf-8").partition("## A GPU\n")
    assert "## CPU" in before
    assert "| ours | 12.3 ms | 1.00 | 5 | 100,000 | 16.3% |" in page


def test_a_ratio_is_taken_within_each_round_and_the_slow_round_of_everybody_changes_nothing(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    side_by_side = importlib.import_module("side_by_side")
    rounds = [{"ours": 1.0, "theirs": 2.0}, {"ours": 10.0, "theirs": 30.0}, {"ours": 1.0, "theirs": 40.0}]
    measured = [(name, SimpleNamespace(total=seconds)) for times in rounds for name, seconds in times.items()]
    runs = [SimpleNamespace(extra_info={"system": name, "facts": {"tokens": 7}}, stats=s) for name, s in measured]
    ours, theirs = side_by_side._rows(runs)
    assert ours == {"system": "ours", "median_seconds": 1.0, "ratio": 1.0, "rounds": 3, "tokens": 7}
    assert theirs == {"system": "theirs", "median_seconds": 30.0, "ratio": 3.0, "rounds": 3, "tokens": 7}
