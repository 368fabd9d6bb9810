# Generated from chapters/00b_sources.md: edit it there and `make export`, or here and `make sync`.

"""The reader's own file, my_transformer.py: how it begins, and how its parts are graded."""

from __future__ import annotations

import ast
import io
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import resources
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from transformer_lib.exercises.grading import GAPS, Gap, Wrong
from transformer_lib.files import InputError, atomic_write, one_line
from transformer_lib.loading import NAME, load, read

HEADING = re.compile(r"^# ---- (?:Chapter (\d+)|Given).*$", re.MULTILINE)


def solution() -> str:
    """The whole file, solved, as the chapters have it."""
    text = resources.files("transformer_lib.exercises").joinpath("solved.py").read_text(encoding="utf-8")
    return text.partition("\n")[2].lstrip()


def parts() -> list[tuple[int, str, str]]:
    """The gaps of the file in order: chapter, name, and the text of the solution."""
    text = solution()
    lines, chapters = text.splitlines(keepends=True), {}
    for number, line in enumerate(lines, start=1):
        if found := HEADING.match(line):
            chapters[number] = int(found[1] or 0)
    gaps = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            chapter = [chapters[number] for number in chapters if number < node.lineno][-1]
            start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            gaps.append((chapter, node.name, "".join(lines[start - 1 : node.end_lineno])))
    return gaps


def emptied(chapter: int, name: str, code: str) -> str:
    """A gap: the code of the solution with its docstrings, and nothing else in its functions."""
    (top,) = ast.parse(code).body
    lines = code.splitlines(keepends=True)
    functions = [node for node in ast.walk(top) if isinstance(node, ast.FunctionDef)]
    for node in sorted(functions, key=lambda node: -node.lineno):
        first = node.body[0].end_lineno or 0  # the docstring
        indent = " " * (node.body[0].col_offset)
        lines[first : node.end_lineno] = [f'{indent}raise NotImplementedError("chapter {chapter}: write {name}")\n']
    return "".join(lines)


def template(solved_to: int = 0) -> str:
    """The file as `start` writes it: its gaps up to this chapter solved, the others empty."""
    text = solution()
    for chapter, name, code in parts():
        if chapter > solved_to:
            text = text.replace(code, emptied(chapter, name, code))
    return text


def start(folder: str | Path = ".", *, solved_to: int = 0, update: bool = False) -> Path:
    """Write my_transformer.py into a folder.

    Args:
        folder: it is made if it is missing.
        solved_to: the gaps up to this chapter come solved.
        update: add the gaps that the file there lacks, at its end; what it has stays as it is.

    Returns:
        The file.

    Raises:
        InputError: there is such a file and `update` is False, or it cannot be read or written.
    """
    path = Path(folder) / NAME
    if not path.exists():
        atomic_write(path, template(solved_to))
    elif not update:
        raise InputError(f"{path} exists, and stays as it is: give another folder, or --update to add gaps it lacks")
    else:
        source = read(path)
        have = {getattr(node, "name", "") for node in source.tree.body}
        missing = [
            (code if chapter <= solved_to else emptied(chapter, name, code))
            for chapter, name, code in parts()
            if name not in have
        ]
        if missing:
            added = "".join(f"\n\n\n{part.rstrip()}\n" for part in missing).encode("ascii")
            added = added.replace(b"\n", b"\r\n") if b"\r\n" in source.data else added
            atomic_write(path.resolve(), source.data.rstrip(b"\r\n") + added)
    return path


def copy_notebooks(folder: str | Path) -> list[Path]:
    """Write the notebooks of the main line into a folder, those that are there excepted.

    A checkout has none to copy, so its tools make them.

    Returns:
        What was written.

    Raises:
        InputError: the folder cannot be written, or the notebooks cannot be made.
    """
    package, written = Path(__file__).parents[1], []
    with tempfile.TemporaryDirectory() as made:
        stored = package / "notebooks"
        if not stored.is_dir():
            stored, tool = Path(made), package.parent / "tools" / "notebooks.py"
            command = [sys.executable, str(tool), made, "--start"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                why = (done.stderr.strip() or "no reason given").splitlines()[-1]
                raise InputError(f"the notebooks cannot be made ({why}): `make book` installs what that needs")
        for notebook in sorted(stored.glob("*.ipynb")):
            path = Path(folder) / notebook.name
            if not path.exists():
                atomic_write(path, notebook.read_bytes())
                written.append(path)
    return written


def gaps() -> list[Gap]:
    """The parts that the reader writes, in the file's order."""
    from transformer_lib.exercises import gaps  # noqa: F401  # it registers the graders

    return list(GAPS.values())


def grade_part(part: Gap, mine: ModuleType) -> str:
    """The verdict on one part: "passed", "not attempted", or "failed: " and what is wrong."""
    if not hasattr(mine, part.name):
        return f"failed: there is no {part.name} in the file; `start --update` adds it"
    try:
        part.grader(mine)
    except NotImplementedError as error:
        own = f"chapter {part.chapter}: write {part.name}"
        return "not attempted" if str(error) in ("", own) else f"not attempted: it needs another part first, {error}"
    except Wrong as error:
        return f"failed: {error}"
    except (Exception, SystemExit) as error:
        return f"failed: it raised {one_line(error)}"
    return "passed"


def of_chapter(chapter: int) -> str:
    """The verdict on the parts of a chapter in the file of the present folder: on the first that has not passed."""
    if not Path(NAME).exists():
        return f"not attempted: there is no {NAME} here; `python -m transformer_lib start` makes one"
    try:
        verdicts = grade_file(NAME, chapter)[chapter]
    except InputError as error:
        return f"failed: {error}"
    for name, said in verdicts.items():
        if said != "passed":
            verdict, _, why = said.partition(": ")
            return f"{verdict}: {name}" + (why and f": {why}")
    return "passed"


def grade_file(path: str | Path, chapter: int | None = None) -> dict[int, dict[str, str]]:
    """The verdict on each part of a file, by chapter; of one chapter or of all.

    Raises:
        InputError: the file cannot be read or run.
    """
    mine, verdicts = load(path), dict[str, str]()
    code = {name: text for _, name, text in parts()}

    def verdict(part: Gap) -> str:
        """That of a part; of one that fails and is made of a wrong part, which one."""
        if part.name not in verdicts:
            verdicts[part.name] = grade_part(part, mine)
            for other in gaps() if verdicts[part.name].startswith("failed") else ():
                if other.name != part.name and re.search(rf"\b{other.name}\(", code[part.name]):
                    first, _, wrong = verdict(other).partition("first repair ")
                    if wrong or first.startswith("failed"):
                        verdicts[part.name] = f"not attempted: first repair {wrong or other.name}"
                        break
        return verdicts[part.name]

    found: dict[int, dict[str, str]] = {}
    for part in gaps():
        if chapter in (None, part.chapter):
            found.setdefault(part.chapter, {})[part.name] = verdict(part)
    return found


_PASSED: dict[tuple[Path, bytes, str], bool] = {}  # by a file, its content, and a part: what was graded already


def passed(path: str | Path, chapter: int = 10) -> list[str]:
    """The parts of a file that pass, of the chapters up to this one. Each is graded once, until the file changes.

    Raises:
        InputError: the file cannot be read or run.
    """
    file, data = Path(path).resolve(), read(path).data
    asked = [part for part in gaps() if part.chapter <= chapter]
    if any((file, data, part.name) not in _PASSED for part in asked):
        with redirect_stdout(io.StringIO()), torch.random.fork_rng(devices=[]):  # what it prints, it printed before
            mine = load(path)
            for part in asked:
                if (file, data, part.name) not in _PASSED:
                    _PASSED[file, data, part.name] = grade_part(part, mine) == "passed"
    return [part.name for part in asked if _PASSED[file, data, part.name]]


def joined(path: str | Path, names: Sequence[str]) -> ModuleType:
    """A file, run anew, with these parts of its own; all others are the solution's, and each calls the others.

    Raises:
        InputError: the file cannot be read or run.
    """
    with redirect_stdout(io.StringIO()):
        mine = load(path) if names else ModuleType("solution")
    for name, value in (("math", math), ("torch", torch), ("nn", nn)):  # what the solution uses
        vars(mine).setdefault(name, value)
    for _, name, code in parts():
        if name not in names and not (name == "build" and hasattr(mine, name)):
            exec(compile(code, f"the solution's {name}", "exec"), vars(mine))
    return mine


def yours(names: Sequence[str], asked: Sequence[str]) -> str:
    """One line that says which of some parts are the reader's, and which the course's."""
    others = [name for name in asked if name not in names]
    told = ", ".join(others) if len(others) < 7 else "all others" if names else "all"
    return (
        f"Yours: {', '.join(names)}. The course's: {told or 'what follows'}."
        if names
        else (f"Yours: nothing yet; the course's: {told}.")
    )


def with_parts(file: str | Path | None = None, *, chapter: int = 10) -> ModuleType:
    """Your parts that pass, and the solution's in the place of the others; prints which are yours.

    Args:
        file: my_transformer.py in the present folder; if it is not there or cannot be run, all parts are the
            solution's, and a line says why.
        chapter: parts of later chapters are not graded, and are the solution's.

    Returns:
        A module, in which each part calls the others. Its `yours` is the list of your parts.
    """
    names: list[str] = []
    try:
        names = passed(file or NAME, chapter) if file or Path(NAME).exists() else []
    except InputError as error:
        print(f"{error}.")
    print(yours(names, [part.name for part in gaps() if part.chapter <= chapter]))
    module = joined(file or NAME, names)
    module.yours = names  # type: ignore[attr-defined]
    return module
