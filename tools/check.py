"""Hold the committed files to what the chapters say; exit 1 with one line for each difference and its remedy."""

import sys
from pathlib import Path

import export
import nbformat
import pages
from execute import fingerprints, inputs, notebook_path, outputs, read_chapter


def notebook_problems(chapter: Path) -> list[str]:
    """Where a stored notebook differs from its chapter, or is not a whole and untouched run of it."""
    path = notebook_path(chapter)
    name = f"book/{path.name}"
    remedy = f"run `python tools/execute.py chapters/{chapter.name}`, or `make book`"
    if not path.exists():
        return [f"{name} is missing: {remedy}"]
    stored, source = nbformat.read(path, as_version=4), read_chapter(chapter)
    kinds = [(cell.cell_type, cell.source, cell.id, cell.metadata) for cell in source.cells]
    if [(cell.cell_type, cell.source, cell.id, cell.metadata) for cell in stored.cells] != kinds:
        return [f"{name} has other cells than chapters/{chapter.name}: {remedy}"]
    code = [cell for cell in stored.cells if cell.cell_type == "code" and cell.source.strip()]
    counts = [cell.execution_count for cell in code if "skip-execution" not in cell.metadata.get("tags", [])]
    if counts != list(range(1, len(counts) + 1)):
        return [f"{name} has a cell that was not run in order (counts {counts}): {remedy}"]
    known = fingerprints(chapter)
    if known[1] != outputs(stored):
        return [f"{name} has an output that was altered or deleted after the run: {remedy}"]
    if known[0] != inputs(chapter):
        return [f"{name} is older than the modules that its chapter imports: {remedy}"]
    return []


def problems() -> list[str]:
    """Every difference between the chapters and what was generated from them."""
    chapters = export.chapters()
    found = export.problems()
    for chapter in chapters:
        found += notebook_problems(chapter)
    known = {notebook_path(chapter) for chapter in chapters}
    for path in sorted((export.ROOT / "book").glob("*.ipynb")):
        if path not in known:
            found.append(f"book/{path.name} belongs to no chapter: delete it, or write chapters/{path.stem}.md")
    return found + pages.problems()


if __name__ == "__main__":
    sys.exit("\n".join(problems()) or 0)
