"""Run `check` on public repositories, and write down what it finds.

python experiments/strangers.py [--clones FOLDER] [RUN …]

The list, our adapters, what was found and how each red line is judged are in records/strangers/; the repositories'
own files are not. Each is fetched with git at the commit that the list names, from GitHub or from FOLDER/OWNER/NAME,
into .strangers/, where git does not look. What cannot be fetched or run is told in one line and keeps its old entry.
Their code is run as it is, in processes of this user: read it before you change a commit.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from transformer_lib.files import atomic_write

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
            git, options = ["git", "-C", new], {"check": True, "capture_output": True, "timeout": 300}
            clone = ["clone", "--quiet", "--no-checkout", "--filter=blob:none", f"{clones}/{repository}", "."]
            subprocess.run([*git, *clone], **options, env=os.environ | {"GIT_TERMINAL_PROMPT": "0"})
            subprocess.run([*git, "checkout", "--quiet", commit, "--", FILES], **options)
            folder.parent.mkdir(parents=True, exist_ok=True)
            Path(new).rename(folder)
            Path(new).mkdir()  # for the context to remove
    return folder


def examine(run: str, folder: Path, entry: dict[str, Any]) -> dict[str, Any]:
    """What `check` says of a repository's model: how many properties pass, and the names of the others.

    Raises:
        subprocess.SubprocessError: it took ten minutes, or `check` could not run the model.
    """
    options = ["--no-training", "--family", entry["family"]]
    options += ["--pad-id", str(entry["pad_id"])] if "pad_id" in entry else []
    command = [sys.executable, "-m", "transformer_lib", "check", f"{HERE / 'adapters.py'}:{run}", *options]
    place = folder / entry.get("path", "")
    paths = os.pathsep.join([str(ROOT), str(place), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    with TemporaryDirectory() as temporary:
        report = Path(temporary, "report.json")
        told = subprocess.run(
            [*command, "--json", str(report)], cwd=place, env=environment, capture_output=True, text=True, timeout=600
        )
        if told.returncode not in (0, 1) or not report.exists():
            raise subprocess.CalledProcessError(told.returncode, command, told.stdout, told.stderr)
        text = report.read_text(encoding="utf-8")
    atomic_write(CLONES / f"{run}.json", text)  # with the evidence, to judge by
    found: dict[str, Any] = {"pass": 0}
    for finding in json.loads(text)["findings"]:
        if finding["verdict"] == "pass":
            found["pass"] += 1
        else:
            found.setdefault(finding["verdict"], []).append(finding["name"])
    return found


def main(runs: list[str], clones: str) -> None:
    """Fill the record."""
    entries = json.loads((HERE / "repositories.json").read_text(encoding="utf-8"))
    place = HERE / "found.json"
    record = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {"models": {}}
    record["torch"] = torch.__version__.partition("+")[0]
    CLONES.mkdir(exist_ok=True)
    for run in runs or entries:
        start = time.monotonic()
        try:
            entry = entries[run]
            found = examine(run, fetch(entry["repository"], entry["commit"], clones), entry)
        except subprocess.SubprocessError as error:
            said = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1]
            print(f"{run}: not reached or not run: {said}", flush=True)
            continue
        record["models"] = dict(sorted({**record["models"], run: {"commit": entry["commit"], **found}}.items()))
        atomic_write(place, json.dumps(record, indent=1) + "\n")
        red = ", ".join(found.get("fail", ["none"]))
        print(f"{run}: {found['pass']} pass, red: {red} ({time.monotonic() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run check on public repositories.")
    parser.add_argument("--clones", default="https://github.com", help="where OWNER/NAME are: an address or a folder")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="names in records/strangers/repositories.json; all")
    given = parser.parse_args()
    main(given.runs, given.clones)
