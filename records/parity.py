"""How far the networks of chapter 16 get at parity and at its controls, from three seeds: parity.json.

The page's own functions, trained as its table says. With PYTHONPATH=.:experiments, as python records/parity.py
"""

import time
from pathlib import Path

import jupytext
import torch
from record import environment, pretty_json

from transformer_lib.files import atomic_write

PAGE = Path(__file__).resolve().parent.parent / "chapters/16_limits.md"
SEEDS = 0, 1, 2
RUNS = [  # the network, the task, the steps, the peak of the learning rate
    ("Recurrent", "parity", 600, 1e-2),
    ("CausalTransformer", "majority", 1000, 3e-3),
    ("CausalTransformer", "repetition", 1000, 3e-3),
    ("CausalTransformer", "parity", 1000, 1e-3),
    ("CausalTransformer", "parity", 1000, 3e-3),
    ("CausalTransformer", "parity", 1000, 1e-2),
    ("CausalTransformer", "parity", 4000, 3e-3),
]


def main() -> None:
    """Train, and write the proportions of right answers after 1, 2, … 32 bits, one row for each seed."""
    cells = jupytext.reads(PAGE.read_text(encoding="utf-8"), fmt="md:myst").cells
    made, start, names = environment(), time.process_time(), {}
    exec(next(cell.source for cell in cells if "class CausalTransformer" in cell.source), names)
    runs: dict[str, list] = {}
    for network, task, steps, peak in RUNS:
        rows = runs[f"{network}, {task}, {steps} steps, {peak}"] = []
        for seed in SEEDS:
            torch.manual_seed(seed)
            right = names["learn"](names[network](), names[task], steps, peak)
            rows.append([round(x, 3) for x in right.tolist()])
            print(network, task, steps, peak, seed, rows[-1], flush=True)
    made = {"command": "python records/parity.py"} | made | {"threads": torch.get_num_threads(), "seeds": SEEDS}
    made |= {"minutes of one core": round((time.process_time() - start) / 60, 1)}
    atomic_write(Path(__file__).with_suffix(".json"), pretty_json({"made": made, "runs": runs}) + "\n")


if __name__ == "__main__":
    main()
