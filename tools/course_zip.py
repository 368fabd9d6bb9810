"""Packs the course into one zip, for its readers: pip installs it as it is, and unpacked it is the whole folder.

python tools/course_zip.py FILE.zip
"""

import subprocess
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from export import ROOT

MADE = {".git", ".venv", "my_env", "my_course", "_build", "runs", "mutants", "notebooks", "__pycache__"}


def files() -> list[str]:
    """What git tracks; in a folder without git, all that is there and was not made there."""
    command = ["git", "-C", str(ROOT), "ls-files"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    every = (path.relative_to(ROOT) for path in sorted(ROOT.rglob("*")))
    return listed or [path.as_posix() for path in every if not MADE & {*path.parts}]


def pack(target: Path) -> None:
    """Write the zip."""
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        for name in files():
            if (ROOT / name).is_file():
                archive.write(ROOT / name, f"tested-transformer/{name}")


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
