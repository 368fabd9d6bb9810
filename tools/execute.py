"""Run chapters and store them, with their outputs, as book/NAME.ipynb.

python tools/execute.py                  the chapters whose source or imported modules changed
python tools/execute.py --all            every chapter
python tools/execute.py chapters/NN.md   this chapter

The same chapter gives the same notebook byte for byte: cell ids come from the sources, nothing is timed,
and the kernel runs on one thread with the plainest instructions, which every processor has.
"""

import ast
import hashlib
import json
import os
import sys
from pathlib import Path

import jupytext
import nbformat
from export import PACKAGE, ROOT, chapters
from nbclient import NotebookClient

REPRODUCIBLE = {
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "PYTHONHASHSEED": "0",
}


def notebook_path(chapter: Path) -> Path:
    """Where a chapter's executed notebook lies."""
    return ROOT / "book" / f"{chapter.stem}.ipynb"


def read_chapter(chapter: Path) -> nbformat.NotebookNode:
    """The chapter as a notebook without outputs, each cell with an id made from its source."""
    notebook = jupytext.read(chapter)
    for number, cell in enumerate(notebook.cells):
        cell.id = digest(f"{number}\n{cell.source}")[:12]
    notebook.metadata["generated"] = f"by tools/execute.py from chapters/{chapter.name}: edit the chapter"
    notebook.metadata.pop("jupytext", None)
    return notebook


def digest(text: str) -> str:
    """A fingerprint of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def imported(source: str, seen: set[str]) -> set[str]:
    """The modules of our package that this source imports, directly or through one another."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            names = [node.module or ""] + [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == PACKAGE]
        else:
            continue
        for name in names:
            folder = ROOT / name.replace(".", "/")
            file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
            if file.exists() and str(file) not in seen:
                seen.add(str(file))
                imported(file.read_text(encoding="utf-8"), seen)
    return seen


def inputs(chapter: Path) -> str:
    """A fingerprint of all that a chapter's outputs follow from: its source and the modules it imports."""
    notebook = jupytext.read(chapter)
    code = "\n".join(_python(cell.source) for cell in notebook.cells if cell.cell_type == "code")
    files = [Path(name) for name in sorted(imported(code, set()))]
    return digest("\n".join(file.read_text(encoding="utf-8") for file in [chapter, *files]))


def _python(source: str) -> str:
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines())


def outputs(notebook: nbformat.NotebookNode) -> str:
    """A fingerprint of all stored outputs, pictures included."""
    return digest(json.dumps([cell.get("outputs", []) for cell in notebook.cells], sort_keys=True))


def execute(chapter: Path) -> None:
    """Run one chapter and store its notebook."""
    notebook, made_from = read_chapter(chapter), inputs(chapter)
    client = NotebookClient(
        notebook, timeout=900, kernel_name="python3", record_timing=False, coalesce_streams=True,
        resources={"metadata": {"path": ROOT / "book"}},
    )  # fmt: skip
    client.execute(env=os.environ | REPRODUCIBLE)
    notebook.metadata = {key: notebook.metadata[key] for key in ("kernelspec", "generated")}
    notebook.metadata["fingerprints"] = {"inputs": made_from, "outputs": outputs(notebook)}
    path = notebook_path(chapter)
    nbformat.write(notebook, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def stale(chapter: Path) -> bool:
    """True if the chapter or a module it imports changed since its notebook was stored."""
    path = notebook_path(chapter)
    if not path.exists():
        return True
    return nbformat.read(path, as_version=4).metadata.get("fingerprints", {}).get("inputs") != inputs(chapter)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if not arguments:
        wanted = [chapter for chapter in chapters() if stale(chapter)]
    elif arguments == ["--all"]:
        wanted = chapters()
    else:
        wanted = [Path(argument).resolve() for argument in arguments]
    for chapter in wanted:
        print("executing", chapter.name, flush=True)
        execute(chapter)
