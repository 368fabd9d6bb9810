"""How far the networks of chapter 16 get at parity and at its controls, also with noise in their weights: parity.json.

The page's own functions, from three seeds. With PYTHONPATH=.:experiments, as python records/parity.py
"""

import time
from copy import deepcopy
from pathlib import Path

import jupytext
import torch
from record import environment, pretty_json

from transformer_lib.files import atomic_write

PAGE = Path(__file__).resolve().parent.parent / "chapters/16_limits.md"
SEEDS, NOISE, DRAWS = (0, 1, 2), (0.02, 0.05, 0.1, 0.2), 5
RUNS = [  # the network, the task, the steps, the peak of the learning rate
    ("Recurrent", "parity", 600, 1e-2),
    ("CausalTransformer", "majority", 1000, 3e-3),
    ("CausalTransformer", "repetition", 1000, 3e-3),
    ("CausalTransformer", "parity", 1000, 1e-3),
    ("CausalTransformer", "parity", 1000, 3e-3),
    ("CausalTransformer", "parity", 1000, 1e-2),
    ("CausalTransformer", "parity", 4000, 3e-3),
]


@torch.no_grad()
def with_noise(model: torch.nn.Module, size: float, seed: int) -> torch.nn.Module:
    """A copy; to each weight is added a normal number, times size and the root mean square of its tensor."""
    noisy, generator = deepcopy(model), torch.Generator().manual_seed(seed)
    for weights in noisy.parameters():
        weights += size * weights.square().mean().sqrt() * torch.randn(weights.shape, generator=generator)
    return noisy


def main() -> None:
    """Train, and write the proportions of right answers after 1, 2, … 32 bits, one row for each seed."""
    cells = jupytext.reads(PAGE.read_text(encoding="utf-8"), fmt="md:myst").cells
    where, start = environment(), time.process_time()
    names: dict = {}
    exec(next(cell.source for cell in cells if "class CausalTransformer" in cell.source), names)
    runs: dict[str, dict] = {}
    test = names["right_by_position"]
    for network, name, steps, peak in RUNS:
        rows: dict[str, list] = {}
        for seed in SEEDS:
            torch.manual_seed(seed)
            model, task = names[network](), names[name]
            found = {"right": names["learn"](model, task, steps, peak)}
            for size in NOISE:  # the mean of some draws
                noisy = [test(with_noise(model, size, draw), task) for draw in range(DRAWS)]
                found[f"noise {size}"] = torch.stack(noisy).mean(dim=0)
            for key, right in found.items():
                rows.setdefault(key, []).append([round(x, 3) for x in right.tolist()])
            print(network, name, steps, peak, seed, {key: row[-1][7::8] for key, row in rows.items()}, flush=True)
        runs[f"{network}, {name}, {steps} steps, {peak}"] = rows
    made = {"command": "python records/parity.py"} | where | {"threads": torch.get_num_threads(), "seeds": SEEDS}
    made |= {"draws of noise": DRAWS, "minutes of one core": round((time.process_time() - start) / 60, 1)}
    atomic_write(Path(__file__).with_suffix(".json"), pretty_json({"made": made, "runs": runs}, 3) + "\n")


if __name__ == "__main__":
    main()
