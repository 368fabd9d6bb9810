"""The way from chapters to modules and notebooks: each kind of drift must be found, with the command that mends it."""

import base64
import importlib.util
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
CHAPTER = '''---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
exports: transformer_lib/adding.py
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
import json
from pathlib import Path

import matplotlib.pyplot as plt

from transformer_lib.adding import add

numbers = json.loads(Path("numbers.json").read_text(encoding="utf-8"))
print("sum:", add(*numbers))
```

```{code-cell} ipython3
plt.plot(numbers)
plt.show()
```
'''


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A small project with the real tools: one chapter, the module that it writes, and its notebook."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("book/conftest.py", "book/matplotlibrc", "pyproject.toml"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "book/numbers.json").write_text("[2, 3]")
    (folder / "chapters").mkdir()
    (folder / "chapters/01_adding.md").write_text(CHAPTER)
    run(folder, "export.py")
    run(folder, "execute.py")
    assert run(folder, "check.py") == ""
    return folder


@pytest.fixture
def project(template, tmp_path):
    """A copy of the template, to be spoilt."""
    return Path(shutil.copytree(template, tmp_path / "project"))


def python(project, *command):
    """What a command of Python said; its code is that of the project."""
    environment = os.environ | {"PYTHONPATH": str(project)}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, cwd=project, env=environment
    )


def run(project, tool, *arguments):
    """What a tool says, or its complaints, each empty when there is nothing to say."""
    done = python(project, project / "tools" / tool, *arguments)
    assert (done.returncode == 0) == (done.stderr == ""), done.stderr
    return done.stderr if tool == "check.py" or done.returncode else done.stdout


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def change_notebook(project, change, cell=1):
    """Change the code cell of this number in the stored notebook."""
    path = project / "book/01_adding.ipynb"
    notebook = nbformat.read(path, as_version=4)
    change([each for each in notebook.cells if each.cell_type == "code"][cell])
    nbformat.write(notebook, path)


# --- modules ------------------------------------------------------------------------------------------------------


def test_hand_edit_of_a_module_is_found(project):
    edit(project / "transformer_lib/adding.py", "a + b", "a * b")
    assert "transformer_lib/adding.py differs from its chapter" in run(project, "check.py")
    assert "make export" in run(project, "export.py", "--check")


def test_stale_module_is_found_and_mended(project):
    edit(project / "chapters/01_adding.md", "a + b", "b + a")
    assert "make export" in run(project, "export.py", "--check")
    assert run(project, "export.py") == "wrote transformer_lib/adding.py\n"
    assert run(project, "export.py", "--check") == ""


def test_missing_and_orphan_modules_are_found(project):
    (project / "transformer_lib/adding.py").rename(project / "transformer_lib/addition.py")
    complaints = run(project, "check.py")
    assert "transformer_lib/adding.py is missing" in complaints
    assert "transformer_lib/addition.py is written by no chapter" in complaints


def test_export_names_chapter_and_section(project):
    text = (project / "transformer_lib/adding.py").read_text(encoding="utf-8")
    assert text.startswith("# Generated from chapters/01_adding.md")
    assert text.count("# chapters/01_adding.md: The question\n") == 1


def test_unknown_export_tag_is_refused(project):
    edit(project / "chapters/01_adding.md", ":tags: [export]", ":tags: [export-nowhere]")
    assert "export-nowhere" in run(project, "export.py")


def test_code_that_cannot_be_formatted_is_named(project):
    edit(project / "chapters/01_adding.md", "    return a + b", "    return a +")
    assert "transformer_lib/adding.py" in run(project, "export.py")


# --- what makes a notebook stale ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("chapters/01_adding.md", "Two numbers have", "Every two numbers have"),
        ("chapters/01_adding.md", "# not their product", "# never their product"),
        ("chapters/01_adding.md", "Return the sum", "Return exactly the sum"),
        ("chapters/01_adding.md", ":tags: [export]", ":tags: [export, hide-input]"),
    ],
    ids=["prose", "comment", "docstring", "tag"],
)
def test_changed_words_are_put_around_the_stored_outputs(project, file, old, new):
    edit(project / file, old, new)
    run(project, "export.py")
    assert "book/01_adding.ipynb has other cells" in run(project, "check.py")
    change_notebook(project, lambda cell: cell.outputs[0].update(text="kept\n"))
    assert run(project, "execute.py") == "renewing 01_adding.md\n"
    assert run(project, "check.py") == ""
    notebook = nbformat.read(project / "book/01_adding.ipynb", as_version=4)
    assert new in "".join(str(cell) for cell in notebook.cells) or "hide-input" in new
    assert "kept" in str(notebook.cells)  # nothing was run
    assert run(project, "execute.py") == ""


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("chapters/01_adding.md", "print(", "print('the ', "),
        ("chapters/01_adding.md", "return a + b", "return b + a"),
        ("book/numbers.json", "3", "4"),
        ("book/matplotlibrc", "font.size: 10", "font.size: 11"),
    ],
    ids=["code", "imported module", "data", "style of pictures"],
)
def test_a_changed_cause_runs_the_chapter_again(project, file, old, new):
    edit(project / file, old, new)
    run(project, "export.py")
    assert "python tools/execute.py chapters/01_adding.md" in run(project, "check.py")
    assert run(project, "execute.py") == "executing 01_adding.md\n"
    assert run(project, "check.py") == ""


def test_a_data_file_that_is_not_there_is_named(project):
    edit(project / "chapters/01_adding.md", "book/numbers.json", "book/figures.json")
    assert "`reads:` names book/figures.json" in run(project, "check.py")


def test_a_chapter_that_fails_keeps_its_notebook_and_the_others_run(project):
    shutil.copy(project / "chapters/01_adding.md", project / "chapters/02_adding.md")
    for name, old, new in (("01", "print(", "fail("), ("02", "transformer_lib/adding.py", "transformer_lib/more.py")):
        edit(project / f"chapters/{name}_adding.md", old, new)
    before = (project / "book/01_adding.ipynb").read_bytes()
    assert "name 'fail' is not defined" in run(project, "execute.py")
    assert (project / "book/01_adding.ipynb").read_bytes() == before
    assert (project / "book/02_adding.ipynb").exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda cell: cell.update(execution_count=None), "not run in order"),
        (lambda cell: cell.update(outputs=[]), "altered or deleted"),
        (lambda cell: cell.outputs[0].update(text="something else"), "altered or deleted"),
        (lambda cell: cell.update(source=cell.source + "\n1"), "other cells"),
        (lambda cell: cell.metadata.update(tags=["nbval-skip"]), "other cells"),
    ],
    ids=["not run", "output deleted", "output altered", "source altered", "tag added"],
)
def test_tampered_notebook_is_found(project, change, complaint):
    change_notebook(project, change)
    assert complaint in run(project, "check.py")


def test_missing_and_orphan_notebooks_are_found(project):
    (project / "book/01_adding.ipynb").rename(project / "book/55_adding.ipynb")
    complaints = run(project, "check.py")
    assert "book/01_adding.ipynb is missing" in complaints
    assert "book/55_adding.ipynb belongs to no chapter" in complaints


def test_a_second_run_gives_the_same_notebook_byte_for_byte(project):
    before = (project / "book/01_adding.ipynb").read_bytes()
    assert run(project, "execute.py", "--all") == "executing 01_adding.md\n"
    assert (project / "book/01_adding.ipynb").read_bytes() == before


# --- what nbval compares ------------------------------------------------------------------------------------------


def nbval(project):
    """What nbval says of the notebook; empty if it passes."""
    done = python(project, *"-m pytest -q --nbval --nbval-current-env -p no:cacheprovider book".split())
    return "" if done.returncode == 0 else done.stdout


def test_nbval_compares_text_numbers_and_pictures(project):
    assert nbval(project) == ""
    change_notebook(project, lambda cell: cell.outputs[0].update(text="sum: 5.001\n"))
    assert "Cell outputs differ" in nbval(project)
    change_notebook(project, lambda cell: cell.metadata.update(rtol="1e-3"))
    assert nbval(project) == ""
    change_notebook(project, lambda cell: cell.metadata.update(rtol=1e-4))
    assert "Cell outputs differ" in nbval(project)
    change_notebook(project, lambda cell: cell.outputs[0].update(text="sum: 5\n"))
    change_notebook(project, lambda cell: cell.outputs[-1].data.update({"image/png": drawn([3, 2])}), cell=2)
    assert "Cell outputs differ" in nbval(project)


def drawn(*curves):
    """A small chart as PNG in base64."""
    import matplotlib.pyplot as plt

    with plt.rc_context(fname=ROOT / "book/matplotlibrc"):
        figure, axes = plt.subplots()
        for curve in curves:
            axes.plot(curve)
        file = io.BytesIO()
        figure.savefig(file, format="png", bbox_inches="tight")
        plt.close(figure)
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.parametrize(
    ("curves", "alike"),
    [
        ([[0, 3, 4, 3]], True),
        ([[0, 3, 4, 3.01]], True),  # no eye sees that
        ([[0, 3, 4, 3], [1, 1, 1, 1]], False),  # one curve more
        ([[0, 3, 4, 2]], False),  # it goes elsewhere
        ([[0, 3, 40, 3]], False),  # another axis
    ],
    ids=["same", "a hair off", "one curve more", "another curve", "another axis"],
)
def test_pictures_are_compared_by_how_they_look(curves, alike):
    spec = importlib.util.spec_from_file_location("nbval_conftest", ROOT / "book/conftest.py")
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    assert (conftest.unlike(drawn([0, 3, 4, 3]), drawn(*curves)) is None) == alike


def test_an_unknown_machine_is_named(project):
    done = python(project, project / "tools/elsewhere.py", "avx2", "abacus")
    assert done.returncode == 1
    assert done.stderr.startswith("unknown: abacus; expected some of native, avx2,")
