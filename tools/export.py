"""Write transformer_lib/*.py from the cells tagged `export` in chapters/*.md.

    python tools/export.py           write the modules
    python tools/export.py --check   exit 1 if a module differs from what the chapters say, or has no chapter

A chapter's front matter lists its modules (`exports:`, a list of paths) and the names that it makes public
(`public:`). A cell tagged `export` goes to the last module listed, one tagged `export-cache` to cache.py.
"""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "transformer_lib"
MARK = "# Generated from {}: edit the chapter, not this file, then run `make export`."


def chapters() -> list[Path]:
    """The chapters in the book's order."""
    return sorted((ROOT / "chapters").glob("*.md"))


def tangle(chapter: Path) -> tuple[dict[str, str], list[str]]:
    """The modules one chapter writes, {path: text}, and its public names."""
    notebook = jupytext.read(chapter)
    paths = notebook.metadata.get("exports", [])
    name = f"chapters/{chapter.name}"
    modules = {path: [MARK.format(name)] for path in paths}
    tags = {f"export-{Path(path).stem}": path for path in paths} | ({"export": paths[-1]} if paths else {})
    for cell in notebook.cells:
        for tag in cell.metadata.get("tags", []):
            if tag == "export" or tag.startswith("export-"):
                if tag not in tags:
                    sys.exit(f"{name}: a cell is tagged '{tag}', but `exports:` in the front matter names {paths}")
                modules[tags[tag]].append(cell.source)
    return {path: "\n\n".join(parts) + "\n" for path, parts in modules.items()}, notebook.metadata.get("public", [])


def imports(modules: dict[str, str], public: list[str]) -> list[str]:
    """The lines that import each public name from the module that defines it."""
    lines = []
    for path, text in modules.items():
        try:
            defined = {name for node in ast.parse(text).body for name in _names(node)}
        except SyntaxError as error:
            sys.exit(f"{path} is not Python: {error}")
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if names := [name for name in public if name in defined]:
            lines.append(f"from {module} import {', '.join(names)}")
    return lines


def _names(node: ast.stmt) -> list[str]:
    """What a statement at the top of a module defines; an import defines nothing."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return [target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)]


def package() -> dict[str, str]:
    """Every file of the package as the chapters say it, formatted: {path: text}.

    `transformer_lib` and each folder in it that no chapter gives an `__init__.py` import the public names.
    """
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    files: dict[str, str] = {}
    inits: dict[str, list[str]] = {f"{PACKAGE}/__init__.py": []}
    for chapter in chapters():
        modules, public = tangle(chapter)
        for path in modules:
            if path in files:
                sys.exit(f"chapters/{chapter.name}: {path} is already written by an earlier chapter")
        files |= modules
        lines = imports(modules, public)
        inits[f"{PACKAGE}/__init__.py"] += lines
        for folder in {Path(path).parent.as_posix() for path in modules} - {PACKAGE}:
            inits.setdefault(f"{folder}/__init__.py", []).extend(lines)
    for path, lines in inits.items():
        if path not in files:
            names = sorted(name for line in lines for name in line.partition(" import ")[2].split(", "))
            opening = [MARK.format("the front matter of chapters/*.md"), '"""The public names of this package."""']
            files[path] = "\n".join([*opening, *lines, f"__all__ = {names!r}\n"])
    files[f"{PACKAGE}/__init__.py"] += f"__version__ = {version!r}\n"
    return _formatted(files)


def _formatted(files: dict[str, str]) -> dict[str, str]:
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


def problems() -> list[str]:
    """What stands in transformer_lib/ that the chapters do not say; empty when all is well."""
    wanted, found = package(), []
    for path, text in wanted.items():
        file = ROOT / path
        if not file.exists():
            found.append(f"{path} is missing: run `make export`")
        elif file.read_text(encoding="utf-8") != text:
            found.append(f"{path} differs from its chapter: put the change into the chapter, then run `make export`")
    for file in sorted((ROOT / PACKAGE).rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        if path not in wanted:
            found.append(f"{path} is written by no chapter: delete it, or name it in a chapter's `exports:`")
    return found


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit("\n".join(problems()) or 0)
    for path, text in package().items():
        file = ROOT / path
        if not file.exists() or file.read_text(encoding="utf-8") != text:  # keep the times of what did not change
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            print("wrote", path)
