"""Run chapters and store them, with their outputs, as book/NAME.ipynb.

python tools/execute.py                   bring every notebook up to date
python tools/execute.py --all             run every chapter
python tools/execute.py chapters/NN.md …  run these chapters

Outputs follow from the chapter's code, from the definitions of our package that it reaches, and from the files that
its front matter names (`reads:`, patterns from the repository's root). A chapter is run when one of these has changed.
What else has changed (prose, comments, docstrings, captions) is put around the stored outputs. On one machine, the
same chapter gives the same notebook byte for byte; a notebook that would not change is left as it is. What they follow
from, and the outputs themselves, have fingerprints in book/outputs.lock.
"""

import ast
import hashlib
import importlib.util
import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from threading import Lock

import lock
import nbformat
from export import ROOT, chapters, digest, read
from reach import code_of, reached

OLD_PROCESSOR = {
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
}
ALONE = {
    "PYTHONHASHSEED": "0",
    "PYTHONSTARTUP": str(ROOT / "tools" / "startup.py"),
    "TRANSFORMER_LIB_DATA": "",  # a page that uses data which this machine happens to have would differ elsewhere
    "XDG_CACHE_HOME": str(ROOT / "_build" / "cache"),
    "https_proxy": "http://127.0.0.1:9",  # nobody listens there: nor may it differ where there is a network
}
REPRODUCIBLE = OLD_PROCESSOR | ALONE
CLOCK = re.compile(r"\d+:\d\d<\d+:\d\d, +\S+/s|[\d,]+ tokens/s|\d+ min left")  # what a progress bar reads from it
ONE_PARSES = Lock()  # Python 3.11 counts the depth of a syntax tree for all threads at once
PATIENCE = 600  # seconds that a busy machine may need to start a kernel, or to hand over an output
FIGURES = """\
# Figures are vector graphics; book/matplotlibrc says how they look.
%config InlineBackend.figure_formats = ["svg"]
%config InlineBackend.print_figure_kwargs = {"metadata": dict.fromkeys(["Creator", "Date", "Format", "Type"])}"""


def notebook_path(chapter: Path) -> Path:
    """Where a chapter's executed notebook lies."""
    return ROOT / "book" / f"{chapter.stem}.ipynb"


def read_chapter(chapter: Path) -> nbformat.NotebookNode:
    """The chapter as a notebook without outputs, each cell with an id made from its source; if it draws, as SVG."""
    notebook = deepcopy(read(chapter))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if any("matplotlib" in cell.source for cell in code):
        first = nbformat.v4.new_code_cell(FIGURES, metadata={"tags": ["remove-cell"]})
        notebook.cells.insert(notebook.cells.index(code[0]), first)
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        seen[cell.source] = seen.get(cell.source, 0) + 1
        cell.id = digest(f"{seen[cell.source]}\n{cell.source}")[:12]
    notebook.metadata["generated"] = f"by tools/execute.py from chapters/{chapter.name}: edit the chapter"
    return notebook


def inputs(chapter: Path) -> str:
    """A fingerprint of all that a chapter's outputs follow from: its code, its imports, the files that it reads."""
    notebook = read(chapter)
    cells = [code_of(cell.source) for cell in notebook.cells if cell.cell_type == "code"]
    parts = [ast.dump(cell) for cell in cells]
    parts += reached(ROOT, cells)
    style = []
    if "matplotlib" in "".join(parts):
        parts.append(FIGURES)
        style = ["book/matplotlibrc"]
    for pattern in [*style, *notebook.metadata.get("reads", [])]:
        files = sorted(ROOT.glob(pattern))
        if not files:
            sys.exit(f"chapters/{chapter.name}: `reads:` names {pattern}, but there is no such file")
        parts += [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return digest("\n".join(parts))


def outputs(notebook: nbformat.NotebookNode) -> str:
    """A fingerprint of all stored outputs, pictures included."""
    return digest(json.dumps([cell.get("outputs", []) for cell in notebook.cells], sort_keys=True))


def execute(chapter: Path) -> str:
    """Run one chapter and store its notebook; return what went wrong, empty if nothing did."""
    from nbclient import NotebookClient  # here, because the package is built without it
    from nbclient.exceptions import CellExecutionError

    print("executing", chapter.name, flush=True)
    notebook = read_chapter(chapter)
    client = NotebookClient(
        notebook, timeout=None, startup_timeout=PATIENCE, iopub_timeout=PATIENCE, kernel_name="python3",
        record_timing=False, coalesce_streams=True, extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": ROOT / "book"}},
    )  # fmt: skip
    try:
        client.execute(env=os.environ | REPRODUCIBLE)
    except CellExecutionError as error:
        return f"{chapter.name}: {error}"
    if notebook_path(chapter).exists():
        keep_times(notebook, nbformat.read(notebook_path(chapter), as_version=4))
    _store(chapter, notebook)
    with ONE_PARSES:
        lock.update(ROOT, {line(chapter): f"{inputs(chapter)} {outputs(notebook)}"})
    return ""


def keep_times(notebook: nbformat.NotebookNode, stored: nbformat.NotebookNode) -> None:
    """Where nothing but the times of a progress bar differs, keep the outputs that are stored."""
    for new, old in zip(notebook.cells, stored.cells):
        one, other = (CLOCK.sub("", json.dumps(cell.get("outputs"), sort_keys=True)) for cell in (new, old))
        if new.cell_type == "code" and one == other:
            new.outputs = old.outputs


def _store(chapter: Path, notebook: nbformat.NotebookNode) -> None:
    notebook.metadata = {key: notebook.metadata[key] for key in ("kernelspec", "generated")}
    path, text = notebook_path(chapter), nbformat.writes(notebook) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.with_suffix(".part").write_text(text, encoding="utf-8")
        path.with_suffix(".part").replace(path)


def line(chapter: Path) -> str:
    """The name of a chapter's line in the lock."""
    return f"book/{chapter.stem}.ipynb"


def fingerprints(chapter: Path) -> list[str]:
    """What the lock says of a chapter: of what its outputs followed when it was last run, and of the outputs."""
    return lock.read(ROOT).get(line(chapter), "- -").split()


def stale(chapter: Path) -> bool:
    """True if something that a chapter's outputs follow from changed since its notebook was stored."""
    return not notebook_path(chapter).exists() or fingerprints(chapter)[0] != inputs(chapter)


def renew(chapter: Path) -> None:
    """Put the chapter's present words around the outputs of its notebook, whose code is the same."""
    stored, notebook = nbformat.read(notebook_path(chapter), as_version=4), read_chapter(chapter)
    cells = [[cell for cell in each.cells if cell.cell_type == "code"] for each in (stored, notebook)]
    for old, new in zip(*cells, strict=True):
        new.outputs, new.execution_count = old.outputs, old.execution_count
    notebook.metadata["kernelspec"] = stored.metadata["kernelspec"]
    if notebook.cells != stored.cells:
        print("renewing", chapter.name, flush=True)
        _store(chapter, notebook)


def main(arguments: list[str]) -> str:
    """Bring up to date what the command line asks for; return what went wrong, empty if nothing did."""
    everything = chapters()
    if arguments == ["--all"]:
        wanted = everything
    else:
        wanted = [Path(argument).resolve() for argument in arguments] or [each for each in everything if stale(each)]
    if missing := [path.name for path in wanted if not path.is_file()]:
        return f"there is no chapter {missing[0]}\n\n{__doc__}"
    if wanted and importlib.util.find_spec("transformers") is None:
        print("to run a page, what tests need has to be installed, too: make test-extras")
        sys.exit(3)
    import matplotlib.font_manager  # noqa: F401  # the first import writes a cache and says so: here, not in a chapter

    with ThreadPoolExecutor(int(os.environ.get("WORKERS", "2"))) as pool:
        failures = [failure for failure in pool.map(execute, wanted) if failure]
    for chapter in [] if arguments else everything:
        if chapter not in wanted:
            renew(chapter)
    return "\n".join(failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
