"""The way from chapters to modules and notebooks: each kind of drift must be found, with the command that mends it."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import check
import execute
import export
import lock
import nbformat
import pages
import pytest
import reach
import sync
from small import ROOT

CHAPTER = '''---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {display_name: Python 3, language: python, name: python3}
exports: [transformer_lib/adding.py]
public: [add]
reads: [book/numbers.json]
---

# Adding
## The question
Two numbers have a sum.

```{code-cell} ipython3
:tags: [export]
def add(a, b):
    """Return the sum of two numbers."""
    return a + b  # not their product
```

```{code-cell} ipython3
import json, os
from transformer_lib.adding import add
assert not os.environ["TRANSFORMER_LIB_DATA"]
numbers = json.load(open("numbers.json"))
print("sum:", add(*numbers))
```

```{code-cell} ipython3
import matplotlib.pyplot as plt
plt.plot(numbers)
plt.show()
```
'''
MODULE, NOTEBOOK, SOURCE = "transformer_lib/adding.py", "book/01_adding.ipynb", "chapters/01_adding.md"


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A small project with the real tools: one chapter, the module that it writes, and its notebook."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("tools", "tests", "book", "chapters"):
        (folder / name).mkdir()
    for name in (*ROOT.glob("tools/*.py"), "tests/skips.py", "book/conftest.py", "book/matplotlibrc", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / (ROOT / name).relative_to(ROOT))
    (folder / "book/numbers.json").write_text("[2, 3]")
    (folder / SOURCE).write_text(CHAPTER)
    assert run(folder, "tools/export.py").endswith("wrote transformer_lib/adding.py\n")
    assert run(folder, "tools/execute.py") == "executing 01_adding.md\n"
    return folder


@pytest.fixture
def project(template, tmp_path, monkeypatch):
    """A copy of the template, to be spoilt, on which the tools' functions work."""
    folder = Path(shutil.copytree(template, tmp_path / "project"))
    for tool in (export, execute, sync):
        monkeypatch.setattr(tool, "ROOT", folder)
    monkeypatch.setattr(pages, "problems", list)  # it has no pages with tables
    assert check.problems() == []
    reach._module.cache_clear()
    reach._leads_to.cache_clear()
    return folder


def run(project, *command):
    """What a command of Python says in a project, or its complaints."""
    environment = os.environ | {"PYTHONPATH": str(project), "TRANSFORMER_LIB_DATA": str(ROOT)}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=project, env=environment)
    return done.stdout if done.returncode == 0 or "pytest" in command else done.stderr


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def change_cell(project, number, **values):
    """Change a code cell of the stored notebook: 0 sets figures up, 1 is exported, 2 prints, 3 draws."""
    notebook = nbformat.read(project / NOTEBOOK, as_version=4)
    cell = [each for each in notebook.cells if each.cell_type == "code"][number]
    for key, value in values.items():
        {"text": cell.outputs[0], "rtol": cell.metadata}.get(key, cell)[key] = value
    nbformat.write(notebook, project / NOTEBOOK)


DRIFT = {
    "module edited": (lambda at: edit(at / MODULE, "a + b", "a * b"), f"{MODULE} differs .* `make sync`"),
    "cell not formatted": (lambda at: edit(at / SOURCE, "a + b", "a+b"), "not as ruff formats it, from `def add"),
    "module renamed": (lambda at: (at / MODULE).rename(at / "transformer_lib/x.py"), "missing(?s:.*)x.py is written"),
    "code": (lambda at: edit(at / SOURCE, "print(", "print(1, "), f"execute.py {SOURCE}"),
    "imported module": (lambda at: edit(at / MODULE, "a + b", "b + a"), "older .* chapter imports"),
    "data": (lambda at: edit(at / "book/numbers.json", "3", "4"), f"execute.py {SOURCE}"),
    "style": (lambda at: edit(at / "book/matplotlibrc", "font.size: 10", "font.size: 11"), f"execute.py {SOURCE}"),
    "not run": (lambda at: change_cell(at, 2, execution_count=None), "not run in order"),
    "output altered": (lambda at: change_cell(at, 2, text="sum: 6\n"), "altered or deleted"),
    "cell altered": (lambda at: change_cell(at, 2, source="print(5)"), "other cells"),
    "notebook renamed": (lambda at: (at / NOTEBOOK).rename(at / "book/x.ipynb"), "missing(?s:.*)x.ipynb belongs to no"),
}


@pytest.mark.parametrize(("old", "new", "reached"), [
    ("more", "rest", False),  # a name that only the function knows
    ("total, more", "whole, more", True),  # but now another one is returned
    ("return total + STEP", "return more + STEP", True),  # two names of a function stay two
    ("OTHER = 1", "OTHER = 2", False), ("STEP = 1", "STEP = 2", True),  # by way of _helper
    ("entries.append", "entries.remove", True),  # a decorator of ours runs when the module is loaded
    ("def entered(): return 1", "def entered(): return 2", True),
])  # fmt: skip
def test_a_page_follows_the_definitions_that_it_reaches(tmp_path, old, new, reached):
    code = """
from functools import cache
STEP = 1
OTHER = 1
entries = []
def enter(function): entries.append(function)
@enter
def entered(): return 1
@cache
def not_used(): return OTHER
def _helper(a, b):
    total, more = a + b, b
    return total + STEP
def add(a, b): return _helper(a, b)
"""
    (tmp_path / "transformer_lib").mkdir()
    module = tmp_path / "transformer_lib/adding.py"

    def fingerprint(text):
        module.write_text(text)
        reach._module.cache_clear()
        reach._leads_to.cache_clear()
        return reach.reached(tmp_path, [ast.parse("from transformer_lib.adding import add")])

    changed = code.replace(old, new)
    assert changed != code
    assert (fingerprint(changed) != fingerprint(code)) == reached


@pytest.mark.parametrize("drift", DRIFT)
def test_drift_is_found(project, drift):
    spoil, complaint = DRIFT[drift]
    spoil(project)
    assert re.search(complaint, "\n".join(check.problems()))


def test_an_edit_in_a_module_travels_into_its_chapter(project, capsys):
    def synced():
        assert sync.main() == ""
        return capsys.readouterr().out, (project / SOURCE).read_text(encoding="utf-8")

    assert synced()[0] == "nothing to carry\n"
    edit(project / MODULE, "    return a + b  # not their product\n", EDITED)
    edit(project / MODULE, "def add", "import math\n\n\ndef add")
    assert export.main([]).startswith(f"{MODULE} was edited: run `make sync`")
    said, chapter = synced()
    assert said == f"{MODULE}: import math, add, twice, LIMIT -> {SOURCE}:15\n"
    assert f'import math\n\n\ndef add(a, b):\n    """Return the sum of two numbers."""\n{EDITED}```\n' in chapter
    assert export.problems() == []
    edit(project / MODULE, "import math\n\n\n", "")
    edit(project / MODULE, ", math.inf", "")
    assert "import math" not in synced()[1]


EDITED = """\
    # A comment that came in the module.
    return a + min(b, math.inf)


def twice(a):  # after its neighbour
    return add(a, a)


LIMIT = 3
"""


def test_two_edits_of_one_module_are_refused(project):
    edit(project / MODULE, "a + b", "b + a")
    edit(project / SOURCE, "their product", "the product")
    kept = (project / MODULE).read_bytes(), (project / SOURCE).read_bytes()
    refusal = "both changed since the last export: undo one of the two, then try again"
    assert sync.main() == f"{MODULE} and {SOURCE} {refusal}"
    assert ((project / MODULE).read_bytes(), (project / SOURCE).read_bytes()) == kept


def test_a_page_with_the_same_outputs_keeps_its_notebook(project):
    """What it reads has changed, so it is run, and only its line in the lock is another."""
    edit(project / "book/numbers.json", "[2, 3]", "[2,3]")
    before, lines = (project / NOTEBOOK).stat().st_mtime_ns, lock.read(project)
    assert run(project, "tools/execute.py") == "executing 01_adding.md\n"
    assert (project / NOTEBOOK).stat().st_mtime_ns == before
    assert {name for name, value in lock.read(project).items() if lines[name] != value} == {NOTEBOOK}


@pytest.mark.parametrize("old", ["have a sum", "not their product", "of two numbers", "export]"])
def test_changed_words_are_put_around_the_stored_outputs(project, old, capsys):
    change_cell(project, 2, text="kept\n")
    edit(project / SOURCE, old, "changed, " + old)
    assert f"{NOTEBOOK} has other cells" in "\n".join(check.problems())
    for said in ("renewing 01_adding.md\n", ""):  # nothing is run, and the second time nothing is left to do
        assert execute.main([]) == ""
        assert capsys.readouterr().out == said
    text = (project / NOTEBOOK).read_text(encoding="utf-8")
    assert [word in text for word in ("changed", "kept")] == [True, True]


def test_a_chapter_is_run_byte_for_byte_alike_and_one_that_fails_keeps_its_notebook(project):
    shutil.copy(project / SOURCE, project / "chapters/02_adding.md")
    edit(project / "chapters/02_adding.md", MODULE, "transformer_lib/more.py")
    first, second = project / NOTEBOOK, project / "book/02_adding.ipynb"
    before = first.read_bytes()
    assert run(project, "tools/execute.py", "--all").count("executing") == 2
    assert first.read_bytes() == second.read_bytes().replace(b"02_adding", b"01_adding") == before
    assert (b"image/svg+xml" in before, b"image/png" in before) == (True, False)
    edit(project / SOURCE, "print(", "fail(")
    second.unlink()
    assert "name 'fail' is not defined" in run(project, "tools/execute.py")
    assert (first.read_bytes() == before, second.exists()) == (True, True)


def test_nbval_compares_text_numbers_and_drawings(project):
    nbval = "-m pytest -v -p no:cacheprovider book".split()
    change_cell(project, 2, text="sum: 5.001\n", rtol="1e-3")
    assert "4 passed" in run(project, *nbval)
    change_cell(project, 2, rtol=1e-4)
    edit(project / NOTEBOOK, ">2.0<", ">two<")  # a label of the drawing
    assert re.search("(?s)'2.0' instead of 'two'.*2 failed, 2 passed", run(project, *nbval))
