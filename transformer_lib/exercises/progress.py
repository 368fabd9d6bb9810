# Generated from chapters/C_evidence.md: edit it there and `make export`, or here and `make sync`.

"""Which exercises a reader has solved, read from the notebooks."""

import json
import re
from pathlib import Path

from transformer_lib.files import InputError, one_line

VERDICTS = ("passed", "failed", "blocked", "begun", "not attempted")
SAID = r"(?:\w+: )?(passed|failed|blocked|not attempted)"  # of the exercise, or of a part of it


def _overall(said: str) -> str:
    """What `grade` says of an exercise, in one word: of its parts the worst, or that some are written."""
    found = re.findall(rf"(?:^|; ){SAID}", said)
    if said.startswith(found[0]):
        return found[0]
    return next((verdict for verdict in ("failed", "blocked") if verdict in found), "begun")


def progress(folder: str | Path) -> dict[str, dict[str, str]]:
    """The verdict on each exercise of the notebooks in a folder, one of `VERDICTS`.

    Returns:
        For each notebook with exercises, in the order of the names, the exercises ("02-1") and their verdicts; for one
        that cannot be read, "error" and the reason.

    Raises:
        InputError: no notebook of the folder that can be read has an exercise.
    """
    found: dict[str, dict[str, str]] = {}
    for path in sorted(Path(folder).glob("*.ipynb")):
        try:
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            sources = ["".join(cell["source"]) for cell in cells]
            printed = ["".join("".join(output.get("text", [])) for output in cell.get("outputs", [])) for cell in cells]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            found[path.stem] = {"error": f"{path} is not a notebook that can be read ({one_line(error)}): save it anew"}
            continue
        verdicts: dict[str, str] = {}
        for source, text in zip(sources, printed, strict=True):
            for name, own in re.findall(r"""grade\(["']([\w-]+)["'](\)?)""", source):
                exercise = re.sub(r"^(?=\d\D)", "0", name)  # as `grade` does
                lines = re.findall(rf"^{exercise}: (?={SAID})(.*(?:\n    .*)*)", text, re.MULTILINE)
                told = [_overall(" ".join(line.split())) for _, line in lines]
                if exercise.endswith("-0"):  # the preface's example
                    continue
                if own and told:  # parts in my_transformer.py, graded after each step: the last verdict counts
                    verdicts[exercise] = told[-1]
                else:
                    verdicts.setdefault(exercise, told[-1] if told else "not attempted")
        if verdicts:
            found[path.stem] = verdicts
    if all("error" in verdicts for verdicts in found.values()):
        unread = "".join(f"; {verdicts['error']}" for verdicts in found.values())
        raise InputError(f"no notebook with exercises in {folder}; expected the folder in which you work{unread}")
    return found
