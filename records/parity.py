"""How far the networks of chapter 16 get at parity and at its controls, also with noise in their weights: parity.json.

The page's own functions, from three seeds. And how often the weights that page 16.a writes down are wrong, by dtype.
With PYTHONPATH=.:experiments, as python records/parity.py
"""

import time
from copy import deepcopy
from pathlib import Path

import jupytext
import torch
from record import environment, pretty_json

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.files import atomic_write
from transformer_lib.masks import causal_mask
from transformer_lib.multi_head import split_heads

CHAPTERS = Path(__file__).resolve().parent.parent / "chapters"
SEEDS, NOISE, DRAWS = (0, 1, 2), (0.02, 0.05, 0.1, 0.2), 5
RUNS = [  # the network, the task, the steps, the peak of the learning rate
    ("Recurrent", "parity", 600, 1e-2),
    ("CausalTransformer", "majority", 1000, 3e-3),
    ("CausalTransformer", "repetition", 1000, 3e-3),
    ("CausalTransformer", "parity", 1000, 1e-3),
    ("CausalTransformer", "parity", 1000, 3e-3),
    ("CausalTransformer", "parity", 1000, 1e-2),
    ("CausalTransformer", "parity", 4000, 3e-3),
    ("CausalTransformer", "majority", 4000, 3e-3),
]


@torch.no_grad()
def with_noise(model: torch.nn.Module, size: float, seed: int) -> torch.nn.Module:
    """A copy; to each weight is added a normal number, times size and the root mean square of its tensor."""
    noisy, generator = deepcopy(model), torch.Generator().manual_seed(seed)
    for weights in noisy.parameters():
        weights += size * weights.square().mean().sqrt() * torch.randn(weights.shape, generator=generator)
    return noisy


@torch.no_grad()
def outputs(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """By how much the two logits differ after 1, 2, … 32 bits, and by how much a flip of one bit so far moves that.

    Means of absolute values over 1,000 strings: (32,).
    """
    generator = torch.Generator().manual_seed(1)
    bits = torch.randint(2, (1000, 32), generator=generator)
    place = torch.randint(32, (1000, 1), generator=generator)  # which bit of each string is flipped
    flipped = bits.scatter(1, place, 1 - bits.gather(1, place))
    before, after = (model(each).diff(dim=-1)[..., 0] for each in (bits, flipped))  # (1000, 32)
    seen = place <= torch.arange(32)  # (1000, 32)
    return {"output": before.abs().mean(dim=0), "moved": ((after - before).abs() * seen).sum(dim=0) / seen.sum(dim=0)}


@torch.no_grad()
def largest_weights(model: torch.nn.Module) -> torch.Tensor:
    """Of each layer, the largest weight that a head gives after 1, 2, … 32 bits: the mean over 1,000 strings, (32,)."""
    projected: list[torch.Tensor] = []  # what each layer makes queries, keys and values of: (1000, 32, 3 d_model)
    for layer in model.layers:
        layer.self_attention.in_projection.register_forward_hook(lambda _module, _given, made: projected.append(made))
    model(torch.randint(2, (1000, 32), generator=torch.Generator().manual_seed(1)))
    means = []
    for layer, made in zip(model.layers, projected):
        own = layer.self_attention
        queries, keys, values = (split_heads(part, own.num_heads) for part in made.chunk(3, dim=-1))
        _, weights = scaled_dot_product_attention(queries, keys, values, causal_mask(32))  # (1000, heads, 32, 32)
        means.append(weights.amax(dim=-1).mean(dim=(0, 1)))
    return torch.stack(means)  # (layers, 32)


def rounded(numbers: list) -> list:
    """To three digits, in lists of lists, too."""
    return [rounded(x) if isinstance(x, list) else round(x, 3) for x in numbers]


def names_of(page: str, code: str) -> dict:
    """What the first cell of the page defines in which this code stands."""
    cells = jupytext.reads((CHAPTERS / page).read_text(encoding="utf-8"), fmt="md:myst").cells
    names: dict = {}
    exec(next(cell.source for cell in cells if code in cell.source), names)
    return names


def by_hand(n: int = 1000) -> dict[str, int]:
    """For how many of k = 0 … n - 1 ones, before zeros, the weights of page 16.a are wrong."""
    parity, wrong = names_of("16a_theorems.md", "def parity_by_hand")["parity_by_hand"], {}
    for dtype in (torch.bfloat16, torch.float32):
        answers = [parity([1] * k + [0] * (n - k), dtype) > 0 for k in range(n)]
        wrong[str(dtype).removeprefix("torch.")] = sum(said != (k % 2 == 1) for k, said in enumerate(answers))
    return wrong


def main() -> None:
    """Train, and write the proportions of right answers after 1, 2, … 32 bits, one row for each seed."""
    where, start = environment(), time.process_time()
    names = names_of("16_limits.md", "class CausalTransformer")
    runs: dict[str, dict] = {}
    test = names["right_by_position"]
    for network, name, steps, peak in RUNS:
        rows: dict[str, list] = {}
        for seed in SEEDS:
            torch.manual_seed(seed)
            model, task = names[network](), names[name]
            found = {"right": names["learn"](model, task, steps, peak)} | outputs(model)
            for size in NOISE:  # the mean of some draws
                noisy = [test(with_noise(model, size, draw), task) for draw in range(DRAWS)]
                found[f"noise {size}"] = torch.stack(noisy).mean(dim=0)
            if hasattr(model, "layers"):
                found["largest weights"] = largest_weights(model)[:, 7::8]  # after 8, 16, 24 and 32 bits
            for key, right in found.items():
                rows.setdefault(key, []).append(rounded(right.tolist()))
            print(network, name, steps, peak, seed, flush=True)
        runs[f"{network}, {name}, {steps} steps, {peak}"] = rows
    made = {"command": "python records/parity.py"} | where | {"threads": torch.get_num_threads(), "seeds": SEEDS}
    made |= {"draws of noise": DRAWS, "minutes of one core": round((time.process_time() - start) / 60, 1)}
    kept = {"made": made, "by hand": by_hand(), "runs": runs}
    atomic_write(Path(__file__).with_suffix(".json"), pretty_json(kept, 3) + "\n")


if __name__ == "__main__":
    main()
