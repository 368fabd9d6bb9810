"""The plain notebooks: no MyST is left in them, and they run in an empty folder."""

import importlib.util
import os
import re
import shutil
from contextlib import nullcontext

import execute
import nbformat
import notebooks
import pytest
from nbclient import NotebookClient

MARKDOWN, CODE = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of all notebooks."""
    folder = tmp_path_factory.mktemp("notebooks")
    notebooks.main(folder)
    return folder


@pytest.fixture
def convert(tmp_path, monkeypatch):
    """Store cells as the notebook of a chapter and write it out: the sources of its cells but the first."""
    monkeypatch.setattr(notebooks.address, "repository", str)

    def convert(*cells):
        path = tmp_path / "02_attention.ipynb"
        metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)
        return [cell.source for cell in notebooks.Page(path).notebook().cells[1:]]

    return convert


def test_no_myst_is_left(written):
    found = sorted(written.glob("*.ipynb"))
    assert [path.stem for path in found] == [path.stem for path in sorted(execute.ROOT.glob("book/*.ipynb"))]
    assert {*QUICK} <= {path.stem for path in found}
    for path in found:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
        assert not re.search(r"\{[\w:]+\}`|^[`:]{3,}\{|^\([\w-]+\)=$|\0", text, re.MULTILINE), path.name
        assert not re.search(r"myst_nb|\bglue\(|Path\(\"\w+\.json\"", code), path.name
        assert text.count("<details>") == text.count("</details>")
        assert path.stem != "05_masks" or re.search("<summary>Solution</summary>\n\n[^<]+```python\n", text)
        assert "$$" not in re.sub(r"\$\$.+?\$\$", "", text, flags=re.DOTALL), path.name


def test_text(convert):
    (said,) = convert(
        MARKDOWN(
            "(sec-x)=\n## Title\n```{math}\n:label: eq-attention\na \\\\\nb\n```\n"
            "```{admonition} Pitfalls\n:class: warning\n- {term}`padding <pad>`\n```\n"
            "```{dropdown} Hint 1\nSee {eq}`eq-attention`, {numref}`fig-attention-mechanism`.\n```\n"
            "```sh\nmake {x}`y`\n```"
        )
    )
    number, figure = (notebooks.targets()[name][1] for name in ("eq-attention", "fig-attention-mechanism"))
    assert said == (
        f"## Title\n\n$$\n\\begin{{aligned}}\na \\\\\nb\n\\end{{aligned}} \\tag{{{number}}}\n$$\n\n"
        "> **Pitfalls**\n>\n> - padding\n\n"
        f"<details>\n<summary>Hint 1</summary>\n\nSee ({number}), Fig. {figure}.\n\n</details>\n\n"
        "```sh\nmake {x}`y`\n```"
    )


def test_bookkeeping_goes_and_its_numbers_stay(convert):
    glued = {"scrapbook": {"name": "share", "mime_prefix": "x"}}
    output = nbformat.v4.new_output("display_data", {"text/plain": "0.256"}, metadata=glued)
    source = 'from myst_nb import glue\nshare = 0.256\nfor x in "ab":\n    glue(x, 1)\nglue("share",\n     share)'
    assert convert(
        CODE("import os\nUNUSED = os.name", metadata={"tags": ["remove-cell"]}),
        CODE("USED = 1", metadata={"tags": ["remove-cell"]}),
        CODE(source, outputs=[output]),
        CODE("print(USED)"),
        MARKDOWN("{glue:text}`share:.1f`"),
    ) == ["USED = 1", "share = 0.256", "print(USED)", "0.3"]


def test_what_the_page_folds_is_folded_in_jupyter_and_in_colab():
    cells = notebooks.Page(execute.ROOT / "book" / "14_cost.ipynb").notebook().cells
    for title, hidden in (("Checked", {"source_hidden"}), ("Open the answers", {"source_hidden", "outputs_hidden"})):
        folded = [cell.metadata for cell in cells if cell.source.startswith(f"# @title {title}")]
        assert folded
        assert all((data["cellView"], data["jupyter"]) == ("form", dict.fromkeys(hidden, True)) for data in folded)


def test_references_are_links_once_there_is_a_repository(convert, monkeypatch):
    assert convert(MARKDOWN("{ref}`ch-masks`")) == ["page 5, *Masks: how do we say what must not be seen?*"]
    monkeypatch.setattr(notebooks.address, "repository", lambda: "https://github.com/You/a-book")
    assert convert(MARKDOWN("{ref}`ch-masks`")) == [
        "[*Masks: how do we say what must not be seen?*](https://you.github.io/a-book/book/05_masks.html#ch-masks)"
    ]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with what an installation has of this repository: the package, with the records in it."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(execute.ROOT / "transformer_lib", folder / "transformer_lib")
    shutil.copytree(execute.ROOT / "records", folder / "transformer_lib/records")
    return folder


QUICK = "04_positions tour".split()  # seconds each, and they draw; `make test-long` runs all
EVERY = sorted({path.stem for path in execute.ROOT.glob("book/*.ipynb")} - {"17d_recipes"})  # see test_one_click


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.long) for n in EVERY])
def test_runs_in_an_empty_folder(written, installed, tmp_path, name):
    """With nothing but the package: no other file of the repository, no style of the book's, no data."""
    notebook = nbformat.read(written / f"{name}.ipynb", as_version=4)
    (folder := tmp_path / "empty").mkdir()
    client = NotebookClient(
        notebook, timeout=None, startup_timeout=execute.PATIENCE, iopub_timeout=execute.PATIENCE,
        resources={"metadata": {"path": folder}}, extra_arguments=["--log-level=ERROR"],
    )  # fmt: skip
    client.execute(env=os.environ | {"PYTHONPATH": str(installed), "TRANSFORMER_LIB_DATA": ""})
    assert not list(folder.iterdir())


def test_every_link_that_start_writes_leads_to_a_notebook_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks.address, "repository", str)
    notebooks.for_start(tmp_path)
    cells = [cell for path in tmp_path.glob("*.ipynb") for cell in nbformat.read(path, as_version=4).cells]
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    targets = re.findall(r"\]\((?!https?:|attachment:)([^)\s]+\.\w+)\)", text)
    assert [target for target in targets if not (tmp_path / target).is_file()] == []
    assert len(targets) >= 90


@pytest.mark.parametrize("gone", ["transformer_lib", "matplotlib", ""])
def test_the_first_cell_says_or_installs_what_is_missing_and_nothing_else(monkeypatch, gone):
    for repository in ("", "https://github.com/You/a-book"):
        monkeypatch.setattr(notebooks.address, "repository", lambda repository=repository: repository)
        first = notebooks.opening([CODE("import matplotlib\nevaluate_bleu(said, right, papers='de')")]).source
        code, installed = re.sub(r"%pip install --quiet (.+)", r"installed.append('\1')", first), []
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == gone else name)
        with pytest.raises(SystemExit) if gone else nullcontext():
            exec(code, {"installed": installed})
        course = [f'"tested-transformer @ git+{repository}"'] * bool(repository)
        assert installed == {"": [], "transformer_lib": course}.get(gone, [gone])
