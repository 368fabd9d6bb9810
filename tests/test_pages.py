"""The pages that tools/pages.py makes: as their tables say, and every topic at a section that exists."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("book/bench.md", "book/equivalence.md", "book/topics.md", "book/gallery.md")
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


def test_pages_are_written_and_every_change_is_found(project):
    assert "book/topics.md differs from its table: run `python tools/pages.py`" in run(project, "--check")
    assert run(project) == run(project, "--check") == ""
    topics = (project / "book/topics.md").read_text(encoding="utf-8")
    assert "## Masks\n\n- {ref}`One convention <sec-masks-convention>`\n" in topics
    stored = json.loads((project / "records/equivalence.json").read_text(encoding="utf-8"))
    stored["components"]["attention"]["ours"]["float64 output"] = 1e-3
    (project / "records/equivalence.json").write_text(json.dumps(stored), encoding="utf-8")
    assert "book/equivalence.md differs" in run(project, "--check")


def test_the_page_of_the_library_lists_the_modules_of_the_chapters(project):
    (project / "transformer_lib").mkdir()
    for name in ("book/api.md", "transformer_lib/masks.py"):
        shutil.copy(ROOT / name, project / name)
    assert "book/api.md differs" in run(project, "--check")  # the other modules are not there
    assert run(project) == run(project, "--check") == ""
    text = (project / "book/api.md").read_text(encoding="utf-8")
    assert text.count("automodule::") == 2  # and the one that is described by hand
    assert "## masks\n\n`transformer_lib.masks`, written in {ref}`ch-masks`.\n" in text


def test_a_record_of_speed_is_shown_as_it_is_and_that_of_a_gpu_beside_it(project):
    assert run(project) == run(project, "--check") == ""
    stored = json.loads((project / "records/bench.json").read_text(encoding="utf-8"))
    stored["device"] = "A GPU"
    row = {
        "median_seconds": 0.0123,
        "ratio": 1.0,
        "target_tokens": 1230,
        "flops": 2e9,
        "ceiling_flops_per_second": 1e12,
    }
    stored["groups"] = [
        {"name": "steps", "threads": 2, "settings": {}, "rows": [row | {"system": "ours", "rounds": 5}]}
    ]
    (project / "records/bench-cuda.json").write_text(json.dumps(stored), encoding="utf-8")
    assert "book/bench.md differs" in run(project, "--check")
    assert run(project) == run(project, "--check") == ""
    before, _, page = (project / "book/bench.md").read_text(encoding="utf-8").partition("## A GPU\n")
    assert "## CPU" in before
    assert "| ours | 12.3 ms | 1.00 | 5 | 100,000 | 16.3% |" in page
    assert before.count("so no sentence ends") == before.count("### Decoding") > 0
    assert "so no sentence ends" not in page


def test_topics_without_a_section_and_topics_twice_are_found(project):
    with (project / "book/topics.tsv").open("a", encoding="utf-8") as table:
        table.write("1\tMasks at sea\t05\tsec-masks-at-sea\n2\tMemory\t12\tsec-cost-memory\n")
    complaints = run(project, "--check")
    assert "chapter 12 has no section (sec-cost-memory)= for topic 2, 'Memory'" in complaints
    assert "chapter 05 has no section (sec-masks-at-sea)= for topic 1, 'Masks at sea'" in complaints
    assert "topic 1 is there twice" in complaints


def test_mistakes_that_nobody_shows_mistakes_twice_and_empty_columns_are_found(project):
    assert run(project) == run(project, "--check") == ""
    page = (project / "book/gallery.md").read_text(encoding="utf-8")
    assert "| A mask | Blindness | 0.0 | influence | {ref}`sec-masks-wrong` |" in page
    with (project / "book/gallery.tsv").open("a", encoding="utf-8") as table:
        table.write("blind\ta mask\t\t0.0\troom-of-nobody\tinfluence\n")
    complaints = run(project, "--check")
    for complaint in ("blind is there twice", "no chapter has (room-of-nobody)=", "blind: a column is empty"):
        assert complaint in complaints
    assert "book/gallery.md differs" in complaints


def test_the_committed_pages_are_up_to_date():
    """`make check` says so too; here it is one of the unit tests."""
    code = "import pages; print([page.name for page, text in pages.pages().items() if page.read_text('utf-8') != text])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tools", capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
