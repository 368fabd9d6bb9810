# Generated from chapters/C_evidence.md: edit it there and `make export`, or here and `make sync`.

"""The reader's own file, my_transformer.py: how it begins, and how its parts are graded."""

from __future__ import annotations

import ast
import io
import math
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from random import Random
from textwrap import fill, indent
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from transformer_lib.exercises import solved
from transformer_lib.exercises.grading import ASKED, GAPS, Gap, Unfinished, Wrong, by_part, defaults, rows
from transformer_lib.files import InputError, atomic_write, one_line, printable
from transformer_lib.loading import NAME, as_before, load, read

HEADING = re.compile(r"^# ---- (?:Chapter (\d+)|Given).*$", re.MULTILINE)
KINDS = ("passed", "failed", "blocked", "not attempted")  # what a verdict begins with
Graded = dict[str, tuple[str, list[str]]]  # of each part: its verdict, and in place of which the solution's stood


def solution() -> str:
    """The whole file, solved, as the chapters have it."""
    return Path(__file__).with_name("solved.py").read_text(encoding="utf-8").partition("\n")[2].lstrip()


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
        space = " " * (node.body[0].col_offset)
        lines[first : node.end_lineno] = [f'{space}raise NotImplementedError("chapter {chapter}: write {name}")\n']
    return "".join(lines)


def variants(seed: object) -> dict[str, list[str]]:
    """Of two to four parts, which a seed draws, the change that it asks for; without a seed, none."""
    if seed is None:
        return {}
    draw, every = Random(str(seed)), by_part("variants.tsv")
    names, n = draw.sample(list(every), draw.randint(2, 4)), str(draw.randint(2, 5))
    return {name: [text.replace("{n}", n) for text in draw.choice(every[name])] for name in names}


def begun(chapter: int, name: str, code: str, solved_to: int, seed: int | None) -> str:
    """A part as `start` writes it: solved up to a chapter, and in the variant of a seed, which its docstring asks."""
    if name in (asked := variants(seed)):
        old, new, sentence = asked[name]
        head, doc, rest = code.split('"""', 2)
        told = fill(f"Your variant, whatever else is said here: {sentence}.", 116)
        code = f'{head}"""{doc.rstrip()}\n\n{indent(told, "    ")}\n    """{rest.replace(old, new)}'
    return code if chapter <= solved_to else emptied(chapter, name, code)


def template(solved_to: int = 0, variant: int | None = None) -> str:
    """The file as `start` writes it: its gaps up to this chapter solved, the others empty."""
    text = solution()
    if variant is not None:
        line = "from torch import nn\n"
        text = text.replace(line, f"{line}\nVARIANT = {variant}  # let it stand\n", 1)
    for chapter, name, code in parts():
        text = text.replace(code, begun(chapter, name, code, solved_to, variant))
    return text


def variant_of(path: str | Path) -> int | None:
    """The seed in the line `VARIANT = SEED` of a file, if it has one."""
    found = re.search(rb"^VARIANT\b[^=\n]*=\s*(-?\d{1,18})\b", read(path).data, re.MULTILINE)
    return int(found[1]) if found else None


def start(folder: str | Path = ".", *, solved_to: int = 0, update: bool = False, variant: int | None = None) -> Path:
    """Write my_transformer.py into a folder.

    Args:
        folder: it is made if it is missing.
        solved_to: the gaps up to this chapter come solved.
        update: add the gaps that the file there lacks, at its end; what it has stays as it is.
        variant: a seed that draws two to four parts, and what is other in them; with `update`, that of the file.

    Returns:
        The file.

    Raises:
        InputError: there is such a file and `update` is False, or it cannot be read or written.
    """
    path = Path(folder) / NAME
    if not path.exists():
        atomic_write(path, template(solved_to, variant))
    elif not update:
        raise InputError(f"{path} exists, and stays as it is: give another folder, or --update to add gaps it lacks")
    else:
        source, seed = read(path), variant_of(path)
        have = {getattr(node, "name", "") for node in source.tree.body}
        missing = [begun(*part, solved_to, seed) for part in parts() if part[1] not in have]
        if missing:
            added = "".join(f"\n\n\n{part.rstrip()}\n" for part in missing).encode("ascii")
            added = added.replace(b"\n", b"\r\n") if b"\r\n" in source.data else added
            atomic_write(path.resolve(), source.data.rstrip(b"\r\n") + added)
    return path


def planted(name: str, old: str, new: str) -> str:
    """The whole file, solved, with a fault in one part."""
    (code,) = (code for _, part, code in parts() if part == name)
    return solution().replace(code, code.replace(old, new))


def debug(folder: str | Path, seed: int) -> list[Path]:
    """Write debug_01.py to debug_10.py into a folder: the whole file, solved, each with a fault in another part.

    The seed draws the parts, their order, and a fault of each.

    Raises:
        InputError: there is such a file already, or it cannot be written.
    """
    paths = [Path(folder, f"debug_{number:02}.py") for number in range(1, 11)]
    if there := [path for path in paths if path.exists()]:
        raise InputError(f"{there[0]} exists, and stays as it is: give another folder")
    draw, every = Random(seed), by_part("wrong.tsv")
    for path, name in zip(paths, draw.sample(list(every), len(paths))):
        old, new, _ = draw.choice(every[name])
        atomic_write(path, planted(name, old, new))
    return paths


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
                remedy = ": `make book` installs it" if why.startswith("ModuleNotFoundError") else ""
                raise InputError(f"the notebooks cannot be made ({why}){remedy}")
        for notebook in sorted(stored.glob("*.ipynb")):
            path = Path(folder) / notebook.name
            if not path.exists():
                atomic_write(path, notebook.read_bytes())
                written.append(path)
    return written


def gaps() -> list[Gap]:
    """The parts that the reader writes, in the file's order."""
    from transformer_lib.exercises import own_file_graders  # noqa: F401  # it registers the graders

    return list(GAPS.values())


def kind(said: str) -> str:
    """Which of `KINDS` a verdict is; "failed" for what a file has written in its own favour."""
    return next((each for each in KINDS if said.startswith(each)), "failed")


@cache
def _used() -> dict[str, list[str]]:
    """The parts that each part of the solution calls."""
    names = [name for _, name, _ in parts()]
    return {
        name: [other for other in names if other != name and re.search(rf"\b{other}\(", code)]
        for _, name, code in parts()
    }


def _grade(path: str | Path, asked: Iterable[Gap], known: Graded, seed: int | None) -> Graded:
    """Add the verdicts on parts of a file, and on the parts that those use, to the known ones.

    In the place of a part that has not passed, or is a variant by the seed, the solution's is used by the others.

    Raises:
        InputError: the file cannot be read or run.
    """
    tree, every = read(path).tree, {part.name: part for part in gaps()}
    with as_before(needed=True):
        with as_before():
            mine = load(path)
        ASKED.clear()
        ASKED.update(variants(seed))

        def of(part: Gap) -> tuple[str, list[str]]:
            if part.name not in known:
                lent: list[str] = []
                for name in _used().get(part.name, ()):
                    if name in every:
                        said, others = of(every[name])
                        lent += others if said == "passed" and name not in ASKED else [name]
                lent = list(dict.fromkeys(lent))
                known[part.name] = _with_lent(part, mine, tree, lent, known)
            return known[part.name]

        for part in asked:
            of(part)
    return known


def _with_lent(part: Gap, mine: ModuleType, tree: ast.Module, lent: list[str], known: Graded) -> tuple[str, list[str]]:
    """The verdict on a part with some of the solution's, and which: none if it passes with the file's own only.

    It is blocked if it raises an error with them, and another one or none without them.
    """
    with patch.dict(vars(mine), {name: getattr(solved, name) for name in lent}):
        said, raised = _grade_part(part, mine, tree)
    written = [name for name in lent if kind(known[name][0]) != "not attempted"]
    if written and said.startswith("failed"):
        alone, _ = _grade_part(part, mine, tree)
        if alone == "passed":
            return alone, []
        wrong = [name for name in written if known[name][0] != "passed"]  # a variant may have passed
        if raised and wrong and alone != said:
            return f"blocked by {wrong[0]}: with the right one in its place, {said.partition(': ')[2]}", lent
    return said, lent


def _grade_part(part: Gap, mine: ModuleType, tree: ast.Module) -> tuple[str, bool]:
    """The verdict on one part, which begins with one of `KINDS`, and whether the part raised an error."""
    if not hasattr(mine, part.name):
        return f"failed: there is no {part.name} in the file; `start --update` adds it", False
    twice, raised, seeded = _twice(part.name, tree), False, torch.manual_seed

    def seed(number: int) -> torch.Generator:
        if sys._getframe(1).f_code.co_filename == mine.__file__:
            raise Wrong("it sets the seed of all random numbers: leave that to who runs the program")
        return seeded(number)

    try:
        with as_before(), patch.object(torch, "manual_seed", seed):
            torch.set_deterministic_debug_mode("warn")  # what torch.empty gives is NaN until it is written
            own = getattr(mine, part.name)
            before = dict(vars(own)) if isinstance(own, type) else {}
            defaults(own, getattr(solved, part.name))
            part.grader(mine)
            if kept := [name for name, value in vars(own).items() if before and before.get(name, own) is not value]:
                raise Wrong(f"{kept[0]} is kept on the class, which all its instances share: write self.{kept[0]}")
            if not torch.is_grad_enabled() or torch.get_default_dtype() != torch.float32:
                raise Wrong("it switches gradients or the default dtype for all that follows: `with torch.no_grad():`")
    except Unfinished as step:
        return f"not attempted: {step}", False
    except Wrong as error:
        said = printable(str(error))
    except (Exception, SystemExit) as error:
        if isinstance(error, NotImplementedError) and str(error) in ("", f"chapter {part.chapter}: write {part.name}"):
            forgotten = twice or _forgotten(error, mine, tree)
            return f"failed: {forgotten}" if forgotten else "not attempted", False
        if empty := re.fullmatch(r"chapter \d+: write (\w+)", str(error)):
            return f"blocked by {empty[1]}: it is not written yet, and {part.name} calls it", False
        said, raised = printable(in_words(error, mine)), True
    else:
        return "passed", False
    asked = f"; your variant: {ASKED[part.name][-1]}" if part.name in ASKED else ""
    return f"failed: {said}{twice and '; '}{twice}{asked}", raised


def _line(error: BaseException, mine: ModuleType) -> int:
    """The innermost line of the file in which an error was raised; 0 if none was."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == mine.__file__]
    return (lines and lines[-1]) or 0


def in_words(error: BaseException, mine: ModuleType) -> str:
    """What an error that a part raised comes from, if that is known ({} = the error), and the line that raised it."""
    place = f" (line {line})" if (line := _line(error, mine)) else ""
    known = [words for raw, words in rows("errors.tsv") if raw in str(error)]
    return (known[0].replace("{}", one_line(error)) if known else f"it raised {one_line(error)}") + place


def _twice(name: str, tree: ast.Module) -> str:
    """Where a name is defined more than once, or a function of the class of that name is; "" if none is."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    top = [node for node in tree.body if isinstance(node, kinds)]
    own = [node for node in top if node.name == name]
    inner = [each for each in own[-1].body if isinstance(each, kinds)] if own[-1:] and len(own) == 1 else []
    for nodes in (own, *([n for n in inner if n.name == each.name and not n.decorator_list] for each in inner)):
        if len(nodes) > 1:
            lines = " and ".join(str(node.lineno) for node in nodes)
            return f"{nodes[0].name} is defined in lines {lines}, and only the last one counts: delete the others"
    return ""


def _forgotten(error: NotImplementedError, mine: ModuleType, tree: ast.Module) -> str:
    """Where a gap's `raise` still stands, if its function has something of the reader's above or below it."""
    line = _line(error, mine)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [each for each in node.body if not isinstance(each, ast.Pass | ast.Expr)]  # without its docstring
            if len(body) > 1 and any(isinstance(each, ast.Raise) and each.lineno == line for each in body):
                return f"line {line} still raises NotImplementedError, in the midst of your {node.name}: delete it"
    return ""


def of_chapter(chapter: int, only: str | None = None) -> str:
    """The verdicts on a chapter's parts, or one, in the present folder's file, up to the first that is not written."""
    if not Path(NAME).exists():
        return f"not attempted: there is no {NAME} here; `python -m transformer_lib start` makes one"
    try:
        verdicts = grade_file(NAME, chapter, only=only)[chapter]
    except InputError as error:
        return f"failed: {error}"
    if set(verdicts.values()) == {"passed"}:
        return "passed"
    written = {name: said for name, said in verdicts.items() if said != "not attempted"}
    following = [name for name in verdicts if name not in written][:1]
    if not written:
        return f"not attempted: {following[0]}"
    return "; ".join(f"{name}: {verdicts[name]}" for name in verdicts if name in (*written, *following))


def grade_file(
    path: str | Path, chapter: int | None = None, *, only: str | None = None, variant: int | None = None
) -> dict[int, dict[str, str]]:
    """The verdict on each part of a file, by chapter.

    A part that uses one that has not passed is graded with the solution's in its place.

    Args:
        path: a file like my_transformer.py.
        chapter: the parts of this one. None = of all.
        only: the part of this name. None = all.
        variant: the seed to which the file is held, whatever it says. None = the one that it names, if any.

    Raises:
        InputError: the file cannot be read or run, or there is no part of that name.
    """
    names = [part.name for part in gaps()]
    if only not in (None, *names):
        raise InputError(f"there is no part {only}: expected one of {', '.join(names)}")
    asked = [part for part in gaps() if chapter in (None, part.chapter) and only in (None, part.name)]
    seed = variant_of(path) if variant is None else variant
    known, found = _known(path, asked, seed), dict[int, dict[str, str]]()
    for part in asked:
        found.setdefault(part.chapter, {})[part.name] = known[part.name][0]
    return found


_GRADED: dict[tuple[Any, ...], Graded] = {}  # by a file, its content and that of those beside it, and a seed


def _known(path: str | Path, asked: list[Gap], seed: int | None) -> Graded:
    place, text = Path(path).resolve(), read(path).data
    beside = tuple((each, each.read_bytes()) for each in sorted(place.parent.glob("*.py")) if each.is_file())
    known = _GRADED.setdefault((place, text, beside, seed), {})
    return known if all(part.name in known for part in asked) else _grade(path, asked, known, seed)


def graded(path: str | Path, chapter: int = 10) -> tuple[list[str], list[str]]:
    """The parts of a file that pass, of the chapters up to this one, and a line about those that fail, if some do.

    The file is graded once, until it changes. If it cannot be read or run, none passes, and the line says why.
    """
    asked = [part for part in gaps() if part.chapter <= chapter]
    try:
        seed = variant_of(path)
        with redirect_stdout(io.StringIO()):  # what it prints, it printed before
            known = _known(path, asked, seed)
    except InputError as error:
        return [], [f"{error}."]
    own = [part.name for part in asked if part.name not in variants(seed)]  # the translator has the usual weights
    wrong = ", ".join(name for name in own if kind(known[name][0]) in ("failed", "blocked"))
    told = f"Not right yet, so the course's stand in; `grade` says what is wrong: {wrong}."
    return [name for name in own if known[name][0] == "passed"], [told] if wrong else []


def joined(path: str | Path, names: Sequence[str]) -> ModuleType:
    """A file, run anew, with these parts of its own; all others are the solution's, and each calls the others.

    Raises:
        InputError: the file cannot be read or run.
    """
    with as_before(needed=True), redirect_stdout(io.StringIO()):
        mine = load(path) if names else ModuleType("solution")
    for name, value in (("math", math), ("torch", torch), ("nn", nn)):  # what the solution uses
        vars(mine).setdefault(name, value)
    for _, name, code in parts():
        if name not in names and not (name == "build" and hasattr(mine, name)):
            exec(compile(code, f"the solution's {name}", "exec"), vars(mine))
    return mine


def yours(names: Sequence[str], asked: Sequence[str]) -> str:
    """One line that says which of some parts are the reader's, and which the course's."""
    if not (others := [name for name in asked if name not in names]):
        return f"Yours: all {len(names)}."
    if not names:
        return f"Yours: nothing yet; the course's: {', '.join(others) if len(others) < 7 else 'all'}."
    return f"Yours: {', '.join(names)}. The course's: {', '.join(others) if len(others) < 7 else 'all others'}."


def with_parts(file: str | Path | None = None, *, chapter: int = 10) -> ModuleType:
    """Your parts that pass, and the solution's in the place of the others; prints which are yours.

    Args:
        file: my_transformer.py in the present folder; if it is not there or cannot be run, all parts are the
            solution's, and a line says why.
        chapter: parts of later chapters are not graded, and are the solution's.

    Returns:
        A module, in which each part calls the others. Its `yours` is the list of your parts.
    """
    names, wrong = graded(file or NAME, chapter) if file or Path(NAME).exists() else ([], [])
    print(yours(names, [part.name for part in gaps() if part.chapter <= chapter]), *wrong, sep="\n")
    module = joined(file or NAME, names)
    module.yours = names  # type: ignore[attr-defined]
    return module
