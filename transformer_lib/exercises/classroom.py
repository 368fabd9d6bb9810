# Generated from chapters/00b_sources.md: edit it there and `make export`, or here and `make sync`.

"""Mark the files of a class: each runs in a process of its own, and another process writes its result."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from transformer_lib.exercises.own_file import NAME, gaps, grade_file
from transformer_lib.files import InputError

KEPT = ("PATH", "SYSTEMROOT", "LANG", "LD_LIBRARY_PATH")  # of the environment


def report(path: str, verdicts: str, seconds: int, memory: int) -> None:
    """In the process of one file: grade it, and write what is found into another file."""
    with suppress(ImportError):  # Windows has no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        found = {name: said for parts in grade_file(path).values() for name, said in parts.items()}
    except InputError as error:
        found = {"error": str(error)}
    Path(verdicts).write_text(json.dumps(found), encoding="utf-8")
    os._exit(0)


def mark(path: Path, *, seconds: int = 300, memory: int = 8 << 30) -> dict[str, str]:
    """The verdicts on the parts of one file, by name; or why there are none, as "error".

    The file is trusted: it runs in the process of its grader, and could write verdicts of its own.

    Args:
        path: a file like my_transformer.py.
        seconds: of processor time; after ten times as long by the clock it is ended, too.
        memory: the most bytes of address space, which torch needs much of; no limit on Windows.
    """
    with tempfile.TemporaryDirectory() as place:
        verdicts, home = Path(place, "verdicts.json"), Path(place, "home")
        home.mkdir()
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment |= dict.fromkeys(("HOME", "USERPROFILE", "TMPDIR", "TEMP", "TMP"), str(home))
        environment |= {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
        code = f"from {__name__} import report; report({str(path.resolve())!r}, {str(verdicts)!r}, {seconds}, {memory})"
        process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=home, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10 * seconds)
        finally:  # with everything that it has started
            if os.name == "posix":
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
        with suppress(OSError, ValueError):  # none, or only a part
            return json.loads(verdicts.read_text(encoding="utf-8"))
    if process.returncode in (-signal.SIGTERM, *(-getattr(signal, name, 0) for name in ("SIGKILL", "SIGXCPU"))):
        return {"error": f"no result: it was ended after {seconds} seconds, or for its memory"}
    return {"error": f"no result: it ended its own process, with status {process.returncode}"}


def mark_class(folder: str | Path, *, seconds: int = 300) -> Iterator[tuple[str, dict[str, str]]]:
    """Mark FOLDER/*.py and FOLDER/*/my_transformer.py, one after the other: the file's name, and what `mark` says.

    Raises:
        InputError: there is no such file.
    """
    files = sorted([*Path(folder).glob("*.py"), *Path(folder).glob(f"*/{NAME}")])
    if not files:
        raise InputError(f"no files in {folder}: expected FILE.py or STUDENT/{NAME} for each student")
    for path in files:
        yield path.relative_to(folder).as_posix(), mark(path, seconds=seconds)


def table(marked: dict[str, dict[str, str]]) -> str:
    """The verdicts as CSV: a line for each file, with counts, then what is said of each part."""
    parts, text = [part.name for part in gaps()], io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "passed", "failed", "not attempted", "error", *parts])
    for name, verdicts in marked.items():
        kinds = [verdict.partition(":")[0] for part, verdict in verdicts.items() if part in parts]
        counts = [kinds.count(kind) for kind in ("passed", "failed", "not attempted")]
        writer.writerow([name, *counts, verdicts.get("error", ""), *(verdicts.get(part, "") for part in parts)])
    return text.getvalue()
