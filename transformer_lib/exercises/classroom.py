# Generated from chapters/C_evidence.md: edit it there and `make export`, or here and `make sync`.

"""Mark the files of a class, which is trusted: each runs in a process of its own, and its grader there with it."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from transformer_lib.exercises.own_file import KINDS, NAME, gaps, grade_file, kind, variant_of
from transformer_lib.files import InputError, printable

KEPT = ("PATH", "SYSTEMROOT", "LANG", "LD_LIBRARY_PATH")  # of the environment
NAMED = re.compile(r"my[\W_]*transformer", re.IGNORECASE)  # as copies of the file are, too
PACKED = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")
WAY = (
    "forkserver" if sys.platform == "linux" else "spawn"
)  # to begin a process; where a fork is safe, with torch loaded
NOBODYS = ("__pycache__", "__MACOSX", "node_modules", "site-packages")


def report(
    path: bytes, verdicts: str, environment: dict[str, str], seconds: int, memory: int, variant: int | None
) -> None:
    """In the process of one file: grade it, and write what is found into another file."""
    if os.name == "posix":
        os.setsid()  # so that what the file starts ends with it
    for number in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(environment["HOME"])
    torch.set_num_threads(1)
    with suppress(ImportError):  # Windows has no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        parts, own = grade_file(os.fsdecode(path), variant=variant).values(), variant_of(os.fsdecode(path))
        found = {name: said for verdicts_on in parts for name, said in verdicts_on.items()}
        named = "none" if own is None else str(own)
        found["variant"] = named if variant in (None, own) else f"{variant} (the file names {named})"
    except InputError as error:
        found = {"error": printable(str(error))}
    Path(verdicts).write_text(json.dumps(found), encoding="utf-8")
    os._exit(0)


def mark(path: Path, *, seconds: int = 300, memory: int = 8 << 30, variant: int | None = None) -> dict[str, str]:
    """The verdicts on the parts of one file, by name, and its "variant"; or why there are none, as "error".

    The file is trusted: it runs in the process of its grader, and could write verdicts of its own.

    Args:
        path: a file like my_transformer.py.
        seconds: of processor time; after ten times as long by the clock it is ended, too.
        memory: the most bytes of address space, which torch needs much of; no limit on Windows.
        variant: the seed to which the file is held. None = the one that it names.
    """
    with tempfile.TemporaryDirectory() as place:
        verdicts, home = Path(place, "verdicts.json"), Path(place, "home")
        home.mkdir()
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment |= dict.fromkeys(("HOME", "USERPROFILE", "TMPDIR", "TEMP", "TMP"), str(home))
        context: Any = multiprocessing.get_context(WAY)
        context.set_forkserver_preload([__name__, "transformer_lib.exercises.own_file_graders", "torch._dynamo"])
        given = (os.fsencode(path.resolve()), str(verdicts), environment, seconds, memory, variant)
        process = context.Process(target=report, args=given)
        process.start()
        try:
            process.join(10 * seconds)
        finally:  # with everything that it has started
            if os.name == "posix":
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid or 0, signal.SIGKILL)
            process.kill()
            process.join()
        with suppress(OSError, ValueError):  # none, or only a part
            return json.loads(verdicts.read_text(encoding="utf-8"))
    if process.exitcode in (-signal.SIGTERM, *(-getattr(signal, name, 0) for name in ("SIGKILL", "SIGXCPU"))):
        return {"error": f"no result: it was ended after {seconds} seconds, or for its memory"}
    return {"error": f"no result: it ended its own process, with status {process.exitcode}"}


def submissions(folder: str | Path) -> list[tuple[str, Path | str]]:
    """What the students have handed in: a name for each row, and the file to mark, or why there is none.

    That is each file of Python in the folder. In a student's folder, at any depth, it is what is named like
    my_transformer.py, else any file of Python, else a notebook; and a folder without any is a row, too.

    Raises:
        InputError: it is no folder, or has nothing in it.
    """
    if not Path(folder).is_dir():
        raise InputError(f"no files in {folder}: --csv marks a folder, with FILE.py or STUDENT/{NAME} for each student")
    if not (found := _found(Path(folder), top=True)):
        raise InputError(f"no files in {folder}: expected FILE.py or STUDENT/{NAME} for each student")
    return [(_shown(path.relative_to(folder)), why or path) for path, why in found]


def left_out(folder: str | Path) -> list[str]:
    """How many files in a folder are no submissions: those that macOS adds to a copy, and those of other kinds."""
    added = sorted(Path(folder).rglob("._*"))
    others = [path for path in sorted(Path(folder).iterdir()) if path.is_file() and _why_not(path) is None]
    kinds = {"that macOS adds": added, "of another kind": [path for path in others if path.name[0] != "."]}
    return [f"left out: {len(kind)} {why}, such as {_shown(Path(kind[0].name))}" for why, kind in kinds.items() if kind]


def _found(place: Path, *, top: bool = False) -> list[tuple[Path, str]]:
    """The submissions in a folder, each with why it cannot be marked, or with "" if it can."""
    try:
        inside = sorted(place.iterdir())
    except OSError as error:
        return [(place, f"cannot be read: {error.strerror}")]
    files = [(path, why) for path in inside if not path.is_dir() and (why := _why_not(path)) is not None]
    deeper = [each for path in inside if _is_students(path) and (top or not path.is_symlink()) for each in _found(path)]
    if top:
        return sorted([*files, *deeper])
    named = [each for each in files if NAMED.search(each[0].stem)]
    named = [each for each in named if not each[1]] or named
    below = [each for each in deeper if not each[1] and NAMED.search(each[0].stem)]
    own = [each for each in files if not each[1]]
    if named or (own and not below):
        return [*(named or own), *below]
    marked = [each for each in deeper if not each[1]]
    return (deeper if marked else files or deeper) or [(place, f"there is no {NAME} in this folder")]


def _is_students(path: Path) -> bool:
    """Whether a path is a folder in which a student's file may lie, and none that some program has made."""
    made = path.name[0] == "." or path.name in NOBODYS or (path / "pyvenv.cfg").exists()
    return path.is_dir() and not made


def _why_not(path: Path) -> str | None:
    """Why a file cannot be marked; "" if it can, None if it is no submission."""
    kinds = [kind.lower() for kind in path.suffixes[-1:]]
    if path.is_dir() or path.name.startswith("._") or (path.name[0] == "." and kinds != [".py"]):
        return None
    if not path.is_file():
        return "it is neither a file nor a folder"
    if kinds == [".ipynb"]:
        return f"a notebook: ask for a {NAME} (Jupyter saves a notebook as an executable script, too)"
    if kinds and kinds[0] in PACKED:
        return "packed: unpack it, into a folder of this name"
    if ".py." in path.name.lower():
        return f"it is no file of Python by its name: let it end in .py, and not in {kinds[0]}"
    return "" if kinds == [".py"] else None


def mark_class(folder: str | Path, *, seconds: int = 300) -> Iterator[tuple[str, dict[str, str]]]:
    """Mark the `submissions` of a folder, one after the other: the name of each, and what `mark` says.

    Raises:
        InputError: as for `submissions`.
    """
    for name, found in submissions(folder):
        yield name, {"error": found} if isinstance(found, str) else mark(found, seconds=seconds)


def _shown(path: Path) -> str:
    """A file's name as text: in UTF-8, or else in Latin-1."""
    name = os.fsencode(path.as_posix())
    try:
        return printable(name.decode())
    except UnicodeDecodeError:
        return printable(name.decode("latin-1"))


def cell(text: str) -> str:
    """A text that no program for tables takes for a formula."""
    text = printable(text)
    return f"'{text}" if re.match(r"\s*[=+\-@\uff0b\uff0d\uff1d\uff20]|[\t\r\n]", text) else text


def table(marked: Iterable[tuple[str, dict[str, str]]]) -> str:
    """The verdicts as CSV, as Excel opens it: for each file, counts, what is said of each part, and its variant."""
    parts, text = [part.name for part in gaps()], io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", *KINDS, "error", *parts, "variant"])
    for name, verdicts in marked:
        kinds = [kind(verdict) for part, verdict in verdicts.items() if part in parts]
        counts = [kinds.count(each) for each in KINDS]
        said = [verdicts.get(part, "") for part in ("error", *parts, "variant")]
        writer.writerow([cell(name), *counts, *map(cell, said)])
    return "\ufeff" + text.getvalue()


def results(verdicts: dict[str, str]) -> str:
    """What `mark` says of a file, as Gradescope reads it in results.json: a point for each part that passed."""
    tests = [
        {"name": part.name, "score": int(said == "passed"), "max_score": 1, "output": said,
         "status": "passed" if said == "passed" else "failed"}
        for part in gaps() for said in [verdicts.get(part.name, verdicts.get("error", ""))]
    ]  # fmt: skip
    output = verdicts.get("error") or f"variant: {verdicts['variant']}"
    return json.dumps({"output": output, "tests": tests}, indent=1, ensure_ascii=False) + "\n"
