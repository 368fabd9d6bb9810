"""Write transformer_lib/*.py from the cells tagged `export` in chapters/*.md.

    python tools/export.py           write the modules
    python tools/export.py --check   exit 1 if a module differs from what the chapters say, or has no chapter

A chapter's front matter names its module (`exports:`, a path or a list of paths) and the names it makes
public (`public:`). A cell tagged `export` goes to the last module named, one tagged `export-toy` to toy.py.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "transformer_lib"
MARK = "# Generated from {}: edit the chapter, not this file, then run `make export`."

GETATTR = '''
def __getattr__(name: str) -> object:
    """Import a package inside this one when somebody asks for it: most programs need neither checks nor exercises."""
    for package, names in _LATER.items():
        if name == package or name in names:
            module = import_module(f"{__name__}.{package}")
            return module if name == package else getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
'''


def chapters() -> list[Path]:
    """The chapters in the book's order."""
    return sorted((ROOT / "chapters").glob("*.md"))


def tangle(chapter: Path) -> tuple[dict[str, str], list[str], str]:
    """The modules one chapter writes: {path: text}, its public names, and the module that holds them."""
    notebook = jupytext.read(chapter)
    paths = notebook.metadata.get("exports", [])
    paths = [paths] if isinstance(paths, str) else list(paths)
    name = f"chapters/{chapter.name}"
    modules = {path: [MARK.format(name)] for path in paths}
    tags = {f"export-{Path(path).stem}": path for path in paths} | ({"export": paths[-1]} if paths else {})
    section = "opening"
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            section = (re.findall(r"^#+ +(.+?) *$", cell.source, re.MULTILINE) or [section])[-1]
            continue
        for tag in cell.metadata.get("tags", []):
            if tag == "export" or tag.startswith("export-"):
                if tag not in tags:
                    sys.exit(f"{name}: a cell is tagged '{tag}', but `exports:` in the front matter names {paths}")
                modules[tags[tag]].append(f"\n# {name}: {section}\n{cell.source}")
    public = list(notebook.metadata.get("public", []))
    if public:
        modules[paths[-1]].append(f"__all__ = {public!r}")
    return {path: "\n\n".join(parts) + "\n" for path, parts in modules.items()}, public, paths[-1] if paths else ""


def package() -> dict[str, str]:
    """Every file of the package as the chapters say it, formatted: {path: text}."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    files: dict[str, str] = {}
    lines, names, later = [], [], {}
    for chapter in chapters():
        modules, public, home = tangle(chapter)
        for path in modules:
            if path in files:
                sys.exit(f"chapters/{chapter.name}: {path} is already written by an earlier chapter")
        files |= modules
        if public:
            module = home.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            line = f"from {module} import {', '.join(public)}"
            if home.endswith("/__init__.py"):
                later[module.removeprefix(f"{PACKAGE}.")] = public, line
            else:
                lines.append(line)
            names += public
    files[f"{PACKAGE}/__init__.py"] = "\n".join(
        [MARK.format("the front matter of chapters/*.md"), '"""The library that the course writes."""',
         "from importlib import import_module", "from typing import TYPE_CHECKING", *sorted(lines),
         "if TYPE_CHECKING:" if later else "", *(f"    {line}" for _, line in later.values()),
         f"__version__ = {version!r}", f"__all__ = {sorted(names)!r}",
         f"_LATER = { {module: public for module, (public, _) in later.items()} }", GETATTR]
    )  # fmt: skip
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
