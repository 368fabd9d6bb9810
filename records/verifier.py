"""What the trainings of page 15.d come to: the page's own cells, with `long = True` and three seeds.

Kept as it made verifier.json; no test runs it. With PYTHONPATH=.:experiments, as python records/verifier.py SEED

With `control` after the seed, only the control is trained and added: from the translations alone, with as many more
updates as the verifier had.
"""

import json
import sys
import tempfile
import time
from contextlib import chdir
from pathlib import Path

import jupytext
import torch
from record import environment, pretty_json

from transformer_lib.files import atomic_write

ROOT = Path(__file__).resolve().parent.parent
CONTROL = 260 + 2 * 100  # updates


def main(seed: str, *control: str) -> None:
    """Run the cells that train, and keep what they come to."""
    cells = jupytext.read(ROOT / "chapters/15d_verifier.md").cells
    trains = [cell.source for cell in cells if "trains" in cell.metadata.get("tags", [])]
    if control:
        first = next(number for number, code in enumerate(trains) if "imitator = " in code)
        trains[first:] = [trains[first].partition("imitator = ")[0]]
    names: dict = {}
    start = time.process_time()
    with tempfile.TemporaryDirectory() as empty, chdir(empty):  # no file of a reader's: all parts are the solution's
        for code in trains:
            exec(code.replace("long = False", "long = True").replace("seed = 0\n", f"seed = {seed}\n"), names)
        if control:
            exact = names["exact"](names["imitate"](CONTROL))
    made = {"command": " ".join(["python records/verifier.py", seed, *control])} | environment()
    made |= {"threads": torch.get_num_threads(), "seed": int(seed)}
    made |= {"minutes of one core": round((time.process_time() - start) / 60, 1)}
    path = ROOT / "records/verifier.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if control:
        stored[seed]["control"] = {"made": made, "updates": CONTROL, "exact": exact}
        atomic_write(path, pretty_json(stored))
        return
    rewards = {name: [round(x, 3) for x in names[name]] for name in ("rewards", "rewards_of_free", "rewards_of_kept")}
    said = {english: [rows[i] for rows in names["said"].values()] for i, english in enumerate(names["tests"])}
    run = {"made": made, "exact": names["results"], "rewards": rewards, "said": said}
    atomic_write(path, pretty_json(dict(sorted((stored | {seed: run}).items()))))


if __name__ == "__main__":
    main(*sys.argv[1:])
