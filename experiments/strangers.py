"""Run `check` on public repositories, and write down what it finds.

python experiments/strangers.py [--clones FOLDER] [RUN …]

The list, our adapters, what was found and how each red line is judged are in records/strangers/; the repositories'
own files are not. Each is fetched with git at the commit that the list names, from GitHub or from FOLDER/OWNER/NAME,
into .strangers/, where git does not look. What cannot be fetched or run is told in one line and keeps its old entry.
Their code is run as it is, in processes of this user: read it before you change a commit. How often a repository is
starred is our estimate.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from transformer_lib.checks import check_transformer
from transformer_lib.files import atomic_write, one_line
from transformer_lib.loading import function_of

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "records" / "strangers"
CLONES = ROOT / ".strangers"
FILES = "*.py"  # of a repository; some have gigabytes besides


def fetch(repository: str, commit: str, clones: str) -> Path:
    """The folder with a repository's Python files at a commit.

    Raises:
        subprocess.SubprocessError: it cannot be fetched.
    """
    folder = CLONES / repository / commit
    if not folder.exists():
        with TemporaryDirectory(dir=CLONES) as new:
            clone = ["clone", "--quiet", "--no-checkout", "--filter=blob:none", f"{clones}/{repository}", "."]
            asks_nothing = os.environ | {"GIT_TERMINAL_PROMPT": "0"}
            for words in (clone, ["checkout", "--quiet", commit, "--", FILES]):
                git = ["git", "-C", new, *words]
                subprocess.run(git, check=True, capture_output=True, timeout=300, env=asks_nothing)
            folder.parent.mkdir(parents=True, exist_ok=True)
            Path(new).rename(folder)
            Path(new).mkdir()  # for the context to remove
    return folder


def examine(run: str, folder: Path, entry: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The verdict, name and text of each finding of `check` on a repository's model, in a process for this alone."""
    place = folder / entry.get("path", "")
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        factory = function_of(f"{HERE / 'adapters.py'}:{run}")
        os.chdir(place)  # two of the adapters read a file
        sys.path.insert(0, str(place))  # where its imports find their modules
        options = {"pad_id": entry.get("pad_id"), "family": entry["family"], "training": False}
        report = check_transformer(factory, **options)
    return [(finding.verdict, finding.name, str(finding)) for finding in report.findings]


def main(runs: list[str], clones: str) -> None:
    """Fill the record."""
    entries = json.loads((HERE / "repositories.json").read_text(encoding="utf-8"))
    place = HERE / "found.json"
    record = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {"models": {}}
    record["torch"] = torch.__version__.partition("+")[0]
    CLONES.mkdir(exist_ok=True)
    for run in runs or entries:
        start, entry = time.monotonic(), entries[run]
        try:
            folder = fetch(entry["repository"], entry["commit"], clones)
            with get_context("fork").Pool(1) as pool:  # what all import is imported once, before
                findings = pool.apply_async(examine, (run, folder, entry)).get(600)
        except Exception as error:
            said = (getattr(error, "stderr", b"") or b"").decode().strip().rpartition("\n")[2]
            print(f"{run}: not reached or not run: {said or one_line(error)}", flush=True)
            continue
        atomic_write(CLONES / f"{run}.txt", "\n".join(text for *_, text in findings))  # to judge by
        found: dict[str, Any] = {"commit": entry["commit"], "pass": 0}
        for verdict, name, _ in findings:
            if verdict == "pass":
                found["pass"] += 1
            else:
                found.setdefault(verdict, []).append(name)
        record["models"] = dict(sorted({**record["models"], run: found}.items()))
        atomic_write(place, json.dumps(record, indent=1) + "\n")
        red = ", ".join(found.get("fail", ["none"]))
        print(f"{run}: {found['pass']} pass, red: {red} ({time.monotonic() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run check on public repositories.")
    parser.add_argument("--clones", default="https://github.com", help="where OWNER/NAME are: an address or a folder")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="names in records/strangers/repositories.json; all")
    given = parser.parse_args()
    main(given.runs, given.clones)
