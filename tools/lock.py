"""book/outputs.lock: what was generated from what, a line for each page and for each module.

The line of a page has two fingerprints: of all that its outputs follow from, and of the outputs. That of a module has
its hash when it was exported. Lines that two people's changes made differ are made anew by `make book`.
"""

import threading
from collections.abc import Callable
from pathlib import Path

NAME = "book/outputs.lock"
_ONE_AT_A_TIME = threading.Lock()


def read(root: Path) -> dict[str, str]:
    """Each name with what its line says; what is no such line, as in a conflict of two versions, is passed over."""
    file = root / NAME
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return dict(line.split(" ", 1) for line in lines if line.startswith(("book/", "transformer_lib/")) and " " in line)


def update(root: Path, values: dict[str, str], *, among: Callable[[str], bool] = lambda name: False) -> None:
    """Change or add lines; of the names `among` these, only those of `values` stay."""
    with _ONE_AT_A_TIME:
        before = read(root)
        after = {name: value for name, value in before.items() if not among(name)} | values
        if after != before:
            text = "".join(f"{name} {after[name]}\n" for name in sorted(after))
            (root / NAME).write_text(text, encoding="utf-8")
