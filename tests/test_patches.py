"""Each silent bug of the gallery, applied to the library itself, makes a test fail: by what it asserts, not by a crash.

patches.tsv has one line a bug: its name, the module, the old text and the new one, and the test that must fail.
A name without spaces is one of the gallery; the others are more bugs of that kind.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TABLE = (ROOT / "tests" / "patches.tsv").read_text(encoding="utf-8").splitlines()[1:]
PATCHES = {line.split("\t")[0]: [cell.replace(r"\n", "\n") for cell in line.split("\t")[1:]] for line in TABLE}
NO_COUNTERPART = {  # of the gallery: nothing in the library could be spoilt like that, because …
    "mask-inverted-trained": "the patch is `causal`; here it is trained",
    "feed-forward-words": "it is wrong in words only",
    "heads-width": "it crashes at any call",
    "heads-attribute": "it crashes at any call",
    "heads-loop": "a loop over the heads is as right as a reshape",
    "heads-save": "it is wrong in words only",
    "weights-named": "it is wrong in words only",
    "step-zero": "it crashes at the first step",
    "cost-square": "it is wrong in words only",
    "memory-square": "it is wrong in words only",
    "path-one": "it is wrong in words only",
    "universal": "it is wrong in words only",
    "residual-solves": "it is wrong in words only",
    "adam-converges": "it is wrong in words only",
    "pseudo-code": "it is wrong in words only",
}


def gallery():
    """The rooms of chapter 08, and the rows of the table that lead to no room."""
    chapters = "".join(path.read_text("utf-8") for path in sorted((ROOT / "chapters").glob("08*.md")))
    rooms = re.findall(r"^\(room-([\w-]+)\)=$", chapters, re.MULTILINE)
    rows = [row.split("\t") for row in (ROOT / "book" / "gallery.tsv").read_text("utf-8").splitlines()[1:]]
    return {*rooms, *(slug for slug, *_, label, _ in rows if not label.startswith("room-"))}


def test_every_bug_of_the_gallery_is_here_or_has_no_counterpart():
    assert len(PATCHES) == len(TABLE)
    assert not PATCHES.keys() & NO_COUNTERPART.keys()
    assert {name for name in PATCHES if " " not in name} | NO_COUNTERPART.keys() == gallery()


@pytest.mark.parametrize("bug", PATCHES)
def test_what_is_patched_is_there_once(bug):
    module, old, new, test = PATCHES[bug]
    assert (ROOT / "transformer_lib" / f"{module}.py").read_text(encoding="utf-8").count(old) == 1
    assert old != new
    file, function = test.split("::")
    assert f"\ndef {function}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("bug", PATCHES)
def test_the_bug_is_found(bug, tmp_path):
    module, old, new, test = PATCHES[bug]
    for folder in ("transformer_lib", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = tmp_path / "transformer_lib" / f"{module}.py"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    options = ["-x", "-p", "no:cacheprovider", "--hypothesis-profile=no-shrinking"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"tests/{test}"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout  # 0: all passed; 2 and more: the tests did not run
    assert re.search(r"^E .*(AssertionError|assert |DID NOT RAISE|TypeCheckError)", done.stdout, re.M), done.stdout


def test_the_score_is_high_and_each_survivor_has_its_reason():
    """Of `make mutation`, which changes seven modules everywhere: at least 95 % of what is no equivalent is noticed."""
    record = json.loads((ROOT / "book" / "mutation.json").read_text(encoding="utf-8"))["modules"]
    rows = [row.split("\t") for row in (ROOT / "tests" / "survivors.tsv").read_text("utf-8").splitlines()[1:]]
    assert set(record) >= {"attention", "multi_head", "masks", "positions", "layers", "model", "decoding"}
    for module, numbers in record.items():
        assert numbers["score"] == round(numbers["killed"] / (numbers["mutants"] - numbers["equivalent"]), 4) >= 0.95
        assert numbers["equivalent"] == sum(row[0] == module for row in rows)
    assert all(len(reason) > 10 for _, _, reason in rows)
