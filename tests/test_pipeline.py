"""The way from chapters to modules and notebooks: each kind of drift must be found, with the command that mends it."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
CHAPTER = "05_masks"


@pytest.fixture
def project(tmp_path):
    """A copy of what the tools read, with one chapter and the modules that it writes."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    for folder, names in {"chapters": [f"{CHAPTER}.md"], "book": [f"{CHAPTER}.ipynb", "matplotlibrc"]}.items():
        (tmp_path / folder).mkdir()
        for name in names:
            shutil.copy(ROOT / folder / name, tmp_path / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    run(tmp_path, "export.py")
    notebook = tmp_path / "book" / f"{CHAPTER}.ipynb"
    refresh(notebook, tmp_path)
    assert run(tmp_path, "check.py") == ""
    return tmp_path


def run(project, tool, *arguments):
    """The tool's complaints, empty when there are none."""
    done = subprocess.run(
        [sys.executable, project / "tools" / tool, *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (done.stderr == ""), done.stderr
    return done.stderr


def refresh(path, project):
    """Give the notebook the fingerprint of the modules as they are in the copy."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1] + '/tools')\n"
        "import execute, export, nbformat\n"
        "chapter = export.chapters()[0]; path = execute.notebook_path(chapter)\n"
        "notebook = nbformat.read(path, 4)\n"
        "notebook.metadata['fingerprints'] = dict(\n"
        "    inputs=execute.inputs(chapter), outputs=execute.outputs(notebook))\n"
        "nbformat.write(notebook, path)"
    )
    subprocess.run([sys.executable, "-c", code, project], check=True)


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def edit_notebook(path, change):
    notebook = nbformat.read(path, as_version=4)
    change(next(cell for cell in notebook.cells if cell.cell_type == "code" and cell.get("outputs")))
    nbformat.write(notebook, path)


def test_hand_edit_of_a_module_is_found(project):
    edit(project / "transformer_lib/masks.py", "tril()", "triu()")
    assert "transformer_lib/masks.py differs from its chapter" in run(project, "check.py")
    assert "make export" in run(project, "export.py", "--check")


def test_stale_module_is_found_and_mended(project):
    edit(project / f"chapters/{CHAPTER}.md", "Let every query attend", "Let each query attend")
    assert "make export" in run(project, "export.py", "--check")
    assert run(project, "export.py") == ""
    assert run(project, "export.py", "--check") == ""


def test_missing_and_orphan_modules_are_found(project):
    (project / "transformer_lib/masks.py").rename(project / "transformer_lib/mask.py")
    complaints = run(project, "check.py")
    assert "transformer_lib/masks.py is missing" in complaints
    assert "transformer_lib/mask.py is written by no chapter" in complaints


def test_changed_chapter_makes_its_notebook_stale(project):
    edit(project / f"chapters/{CHAPTER}.md", "## The question", "## A question")
    assert run(project, "export.py") == ""
    assert f"python tools/execute.py chapters/{CHAPTER}.md" in run(project, "check.py")


def test_changed_module_makes_the_notebook_stale(project):
    edit(project / f"chapters/{CHAPTER}.md", "    device: where the mask is made.", "    device: where it is made.")
    run(project, "export.py")
    notebook = project / f"book/{CHAPTER}.ipynb"
    edit(notebook, "    device: where the mask is made.", "    device: where it is made.")
    assert "other cells" in run(project, "check.py") or "older than the modules" in run(project, "check.py")


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
    edit_notebook(project / f"book/{CHAPTER}.ipynb", change)
    assert complaint in run(project, "check.py")


def test_missing_and_orphan_notebooks_are_found(project):
    (project / f"book/{CHAPTER}.ipynb").rename(project / "book/55_masks.ipynb")
    complaints = run(project, "check.py")
    assert f"book/{CHAPTER}.ipynb is missing" in complaints
    assert "book/55_masks.ipynb belongs to no chapter" in complaints


def test_export_names_chapter_and_section(project):
    text = (project / "transformer_lib/masks.py").read_text(encoding="utf-8")
    assert text.startswith(f"# Generated from chapters/{CHAPTER}.md")
    assert text.count(f"# chapters/{CHAPTER}.md: The exported code\n") == 2  # one for each exported cell


def test_unknown_export_tag_is_refused(project):
    edit(project / f"chapters/{CHAPTER}.md", ":tags: [export]", ":tags: [export-nowhere]")
    assert "export-nowhere" in run(project, "export.py")


def test_execution_gives_the_same_notebook_again(project):
    """Byte for byte, pictures included, and the same as the one in the project but for the modules' fingerprint."""
    path, stored = project / f"book/{CHAPTER}.ipynb", ROOT / f"book/{CHAPTER}.ipynb"
    chapter = str(project / f"chapters/{CHAPTER}.md")
    code = f"import sys; sys.argv = ['execute.py', {chapter!r}]; sys.path.insert(0, {str(project / 'tools')!r})\n"
    code += "import runpy; runpy.run_path(sys.path[0] + '/execute.py', run_name='__main__')"
    environment = {"PYTHONPATH": str(ROOT), "PATH": str(Path(sys.executable).parent), "HOME": str(project)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True)
    ours, theirs = (nbformat.read(notebook, as_version=4) for notebook in (path, stored))
    assert [cell.get("outputs") for cell in ours.cells] == [cell.get("outputs") for cell in theirs.cells]


def test_nbval_fails_when_a_stored_number_is_altered(tmp_path):
    """The comparison that `make notebooks` relies on."""
    nbval = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", "-p", "no:cacheprovider"]
    cell = nbformat.v4.new_code_cell("print(6 * 7)", execution_count=1)
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="42\n")]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    for text, passes in (("42\n", True), ("43\n", False)):
        cell.outputs[0].text = text
        nbformat.write(notebook, tmp_path / "one.ipynb")
        done = subprocess.run([*nbval, "one.ipynb"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == passes, done.stdout
