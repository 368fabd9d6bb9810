"""What the trainings of page 15.d come to: the page's own cells, with `long = True` and three seeds.

Kept as it made verifier.json; no test runs it. With PYTHONPATH=.:experiments, as python records/verifier.py SEED
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


def main(seed: str) -> None:
    """Run the cells that train, and keep what they come to."""
    cells = jupytext.read(ROOT / "chapters/15d_verifier.md").cells
    trains = [cell.source for cell in cells if "trains" in cell.metadata.get("tags", [])]
    names: dict = {}
    start = time.process_time()
    with tempfile.TemporaryDirectory() as empty, chdir(empty):  # no file of a reader's: all parts are the solution's
        for code in trains:
            exec(code.replace("long = False", "long = True").replace("seed = 0\n", f"seed = {seed}\n"), names)
    made = {"command": f"python records/verifier.py {seed}"} | environment()
    made |= {"threads": torch.get_num_threads(), "seed": int(seed)}
    made |= {"minutes of one core": round((time.process_time() - start) / 60, 1)}
    rewards = {name: [round(x, 3) for x in names[name]] for name in ("rewards", "rewards_of_free", "rewards_of_kept")}
    said = {english: [rows[i] for rows in names["said"].values()] for i, english in enumerate(names["tests"])}
    path = ROOT / "records/verifier.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    run = {"made": made, "exact": names["results"], "rewards": rewards, "said": said}
    atomic_write(path, pretty_json(dict(sorted((stored | {seed: run}).items()))))


if __name__ == "__main__":
    main(sys.argv[1])
