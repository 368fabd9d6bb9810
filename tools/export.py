"""Write transformer_lib/*.py from the cells tagged `export` in chapters/*.md.

    python tools/export.py           write the modules
    python tools/export.py --check   exit 1 if a module differs from what the chapters say, or has no chapter

A chapter's front matter lists its modules (`exports:`, a list of paths) and the names that it makes public
(`public:`). A cell tagged `export` goes to the last module listed, one tagged `export-cache` to cache.py. A module that
several chapters list has their cells in the book's order. Its imports stand together at its top; all else is as the
cells have it, to the letter.
"""

import ast
import hashlib
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import lock
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "transformer_lib"
FIRST = """import sys

if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].endswith(__name__) and not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))  # `python -m` puts the working directory first: a random.py there would be random
"""
MARK = "# Generated from {}: edit it there and `make export`, or here and `make sync`."


class Cell(NamedTuple):
    """A cell that goes to a module."""

    chapter: Path
    module: str  # its path from the repository's root
    source: str


class Part(NamedTuple):
    """A statement at the top of a file, with the comments and blank lines before it."""

    node: ast.stmt
    text: str

    @property
    def is_import(self) -> bool:
        """Whether it is an import."""
        return isinstance(self.node, ast.Import | ast.ImportFrom)


def chapters() -> list[Path]:
    """The chapters in the book's order."""
    return sorted((ROOT / "chapters").glob("*.md"))


def read(chapter: Path) -> NotebookNode:
    """A chapter as a notebook without outputs; it is shared, so copy it before you change it."""
    return _parsed(chapter.read_text(encoding="utf-8"))


@cache
def _parsed(text: str) -> NotebookNode:
    import jupytext  # here, because the package is built without it

    return jupytext.reads(text, fmt="md:myst")


def cells() -> list[Cell]:
    """All cells that go to modules, in the book's order; each holds whole statements."""
    found = []
    for chapter in chapters():
        notebook = read(chapter)
        paths = notebook.metadata.get("exports", [])
        tags = {f"export-{Path(path).stem}": path for path in paths} | ({"export": paths[-1]} if paths else {})
        for cell in notebook.cells:
            for tag in cell.metadata.get("tags", []):
                if tag == "export" or tag.startswith("export-"):
                    if tag not in tags:
                        sys.exit(
                            f"chapters/{chapter.name}: a cell is tagged '{tag}', but `exports:` in the front matter "
                            f"names {paths}"
                        )
                    found.append(Cell(chapter, tags[tag], cell.source))
    return found


def parts(text: str, where: str) -> list[Part]:
    """A text in Python, cut into its statements; comments at the end belong to the last one."""
    try:
        nodes = ast.parse(text).body
    except SyntaxError as error:
        sys.exit(f"{where} is not Python: {error}")
    lines = text.splitlines(keepends=True)
    ends = [node.end_lineno or 0 for node in nodes[:-1]] + [len(lines)]
    return [Part(node, "".join(lines[start:end])) for node, start, end in zip(nodes, [0, *ends], ends)]


def names(node: ast.stmt) -> list[str]:
    """What a statement at the top of a module defines; an import defines nothing."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    return [target.id for target in targets if isinstance(target, ast.Name)]


def tangle(own: list[Cell]) -> str:
    """The text of a module from its cells: its docstring, its imports, and the rest."""
    pages = list(dict.fromkeys(f"chapters/{cell.chapter.name}" for cell in own))
    where = " and ".join(pages)
    if len(pages) > 2 or len(MARK.format(where)) > 120:
        where = f"{pages[0]} and {len(pages) - 1} more"
    opening, imports, rest = "", [], []
    for number, cell in enumerate(own):
        others = parts(cell.source, f"a cell of chapters/{cell.chapter.name} for {cell.module}")
        if not number and others and isinstance(others[0].node, ast.Expr):
            opening = others.pop(0).text
        imports += [part.text.strip("\n") for part in others if part.is_import]
        rest.append("".join(part.text for part in others if not part.is_import))
    return "\n\n".join([MARK.format(where), opening, "\n".join(imports), *rest]) + "\n"


def _public(own: list[Cell]) -> list[tuple[str, str]]:
    """The names that the chapters make public, each with its module: the last that its chapter lists for it."""
    found = []
    for chapter in chapters():
        front = read(chapter).metadata
        wanted, paths = front.get("public", []), front.get("exports", [])
        mine = [cell for cell in own if cell.chapter == chapter]
        defined = {
            name: cell.module
            for cell in sorted(mine, key=lambda cell: paths.index(cell.module))
            for part in parts(cell.source, cell.module)
            for name in names(part.node)
        }
        if missing := [name for name in wanted if name not in defined]:
            sys.exit(f"chapters/{chapter.name}: `public:` names {', '.join(missing)}, which no exported cell defines")
        found += [(name, defined[name]) for name in wanted]
    return found


def package() -> dict[str, str]:
    """Every file of the package as the chapters say it, formatted: {path: text}.

    `transformer_lib` and each folder in it that no chapter gives an `__init__.py` import the public names.
    """
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    own = cells()
    paths = dict.fromkeys(path for chapter in chapters() for path in read(chapter).metadata.get("exports", []))
    files = {path: tangle([cell for cell in own if cell.module == path]) for path in paths}
    inits: dict[str, list[tuple[str, str]]] = {f"{PACKAGE}/__init__.py": []}
    for path in paths:
        inits.setdefault(f"{Path(path).parent.as_posix()}/__init__.py", [])
    for name, path in _public(own):
        for folder in {PACKAGE, Path(path).parent.as_posix()}:
            inits[f"{folder}/__init__.py"].append((name, path))
    for path, public in inits.items():
        if path not in files:
            opening = [MARK.format("the front matter of chapters/*.md"), '"""The public names of this package."""']
            modules = [
                (path.removesuffix(".py").removesuffix("/__init__").replace("/", "."), name) for name, path in public
            ]
            lines = [f"from {module} import {name}" for module, name in modules]
            opening += [FIRST] if path == f"{PACKAGE}/__init__.py" else []
            files[path] = "\n".join([*opening, *lines, f"__all__ = {sorted(name for _, name in modules)!r}\n"])
    files[f"{PACKAGE}/__init__.py"] += f"__version__ = {version!r}\n"
    return formatted(files)


def unmarked(text: str) -> str:
    """A module without its first line, which says where it comes from."""
    return text.partition("\n")[2]


def formatted(files: dict[str, str]) -> dict[str, str]:
    """The same files as ruff sorts their imports and formats them."""
    with TemporaryDirectory() as folder:
        for path, text in files.items():
            file = Path(folder) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        for command in (["check", "--select", "I", "--fix", "-q"], ["format", "-q"]):
            ruff = [sys.executable, "-m", "ruff", *command, "--no-cache", "--config", str(ROOT / "pyproject.toml")]
            run = subprocess.run([*ruff, folder], capture_output=True, text=True, check=False)
            if run.returncode:
                complaint = (run.stderr.strip() or run.stdout.strip()).replace(f"{folder}/", "")
                sys.exit(f"ruff cannot format the exported code: {complaint}")
        return {path: (Path(folder) / path).read_text(encoding="utf-8") for path in sorted(files)}


def digest(text: str) -> str:
    """A fingerprint of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def edited() -> list[str]:
    """The modules that were edited since they were exported."""
    known, found = lock.read(ROOT), []
    for path in sorted(known):
        file = ROOT / path
        if path.endswith(".py") and file.exists() and digest(file.read_text(encoding="utf-8")) != known[path]:
            found.append(path)
    return found


def write(wanted: dict[str, str]) -> None:
    """Write the modules that differ, and note what all of them are."""
    for path, text in wanted.items():
        file = ROOT / path
        if not file.exists() or file.read_text(encoding="utf-8") != text:  # keep the times of what did not change
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            print("wrote", path)
    lock.update(ROOT, {path: digest(text) for path, text in wanted.items()}, among=lambda name: name.endswith(".py"))


def problems() -> list[str]:
    """What stands in transformer_lib/ that the chapters do not say; empty when all is well."""
    wanted, known, found = package(), lock.read(ROOT), []
    for path, text in wanted.items():
        file = ROOT / path
        if not file.exists():
            found.append(f"{path} is missing: run `make export`")
        elif file.read_text(encoding="utf-8") != text:
            found.append(f"{path} differs from its chapter: run `make sync` if you edited it, else `make export`")
        elif known.get(path) != digest(text):
            found.append(f"{lock.NAME} has another {path}: run `make export`")
    for file in sorted((ROOT / PACKAGE).rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        if path not in wanted:
            found.append(f"{path} is written by no chapter: delete it, or name it in a chapter's `exports:`")
    return found + unequal(wanted)


def unequal(wanted: dict[str, str]) -> list[str]:
    """The cells with a statement other than an import that their module does not have to the letter."""
    found = []
    for cell in cells():
        have = {part.text.strip() for part in parts(unmarked(wanted[cell.module]), cell.module)}
        for part in parts(cell.source, cell.module):
            if not part.is_import and part.text.strip() not in have:
                line = part.text.strip().splitlines()[0]
                found.append(f"chapters/{cell.chapter.name}: not as ruff formats it, from `{line}` on: run `make sync`")
    return found


def main(arguments: list[str]) -> str:
    """Write the package or, with --check, only look; return what is wrong, empty if nothing is."""
    if arguments == ["--check"]:
        return "\n".join(problems())
    wanted = package()
    if lost := [path for path in edited() if (ROOT / path).read_text(encoding="utf-8") != wanted.get(path)]:
        return f"{', '.join(lost)} was edited: run `make sync` to carry that into its chapter, or delete it"
    write(wanted)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
