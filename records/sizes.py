"""The trainings of page 9.e: a small decoder of six widths, several numbers of characters, rates, parametrisations.

Kept as it made sizes.json; no test runs it. Model and training are the page's own cells. With Multi30k, and with
PYTHONPATH=.:experiments, as python records/sizes.py. What is in the record stays, so an interrupted run goes on.

A run's second number is 0 for the standard parametrisation, 1 for the maximal-update one; 2 for the standard one whose
embeddings keep the rate that is best at width 16, and 3 for the standard one with the rates of the maximal-update one
alone: that of all matrices but the embeddings is divided by the width. Up to 3 a batch has 16 windows of 64 characters.
With 4 windows, 4 is the maximal-update one, 5 the standard one, and 7 as 3. The page uses these, and of the others what
compares batches.
"""

import json
import time
from itertools import product
from pathlib import Path

import jupytext
import torch
from record import environment, pretty_json

from transformer_lib.data import load_multi30k
from transformer_lib.files import atomic_write

ROOT = Path(__file__).resolve().parent.parent
PATH = ROOT / "records/sizes.json"
WIDTHS, STEPS, SHORT = (8, 16, 32, 64, 128, 256), (100, 200, 400, 800), 100
TRIED = (16, 64, 256)  # the widths at which rates are compared; at 16 both parametrisations are one
MOST = 44  # minutes of one core


def main() -> None:
    """Run what the record lacks, the most important first, and keep it after each training."""
    made: dict = {"command": "python records/sizes.py"} | environment()
    made |= {"threads": torch.get_num_threads(), "seeds": [0, 1, 2]}
    cells = jupytext.read(ROOT / "chapters/09e_size.md").cells
    names: dict = {}
    for cell in cells:
        if "trains" in cell.metadata.get("tags", []):
            exec(cell.source, names)
    texts = ["\n".join([*load_multi30k(split).source, ""]) for split in ("train", "val")]
    vocabulary = sorted(set(texts[0]))
    train, val = (names["windows"](text, vocabulary) for text in texts)
    val = val[::2]
    record: dict = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {"made": made, "runs": []}
    counts = torch.ones(len(vocabulary), len(vocabulary))  # of each pair of characters
    counts.index_put_((train[:, :-1].flatten(), train[:, 1:].flatten()), torch.ones(1), accumulate=True)
    pairs = -(counts / counts.sum(dim=1, keepdim=True)).log()[val[:, :-1], val[:, 1:]].mean().item()
    record |= {"characters": len(vocabulary), "validation windows": len(val), "pairs of characters": round(pairs, 4)}
    record["made"].setdefault("minutes of one core", 0.0)
    record["made"]["commit of the last"] = made["commit"]
    seconds = record.setdefault("seconds of a step", {})  # the least of all trainings of a width
    known = {tuple(run[:-1]): run[-1] for run in record["runs"]}

    of_the_page = names["adam"]

    def adam(model: torch.nn.Module, embeddings: float, rest: float) -> torch.optim.Adam:
        """With a rate for the embeddings, and one for all other matrices."""
        own = [model.tokens.weight, model.positions.weight]
        others = [*model.hidden.parameters(), model.output.weight]
        groups = [{"params": own, "lr": embeddings}, {"params": others, "lr": rest}]
        return torch.optim.Adam(groups, betas=(0.9, 0.98), fused=True)

    def embeddings_apart(model: torch.nn.Module, rate: float) -> torch.optim.Adam:
        """The embeddings keep the narrow model's best rate."""
        return adam(model, 2.0**chosen, rate)

    def rates_alone(model: torch.nn.Module, rate: float) -> torch.optim.Adam:
        """Those of the maximal-update parametrisation, in a standard model."""
        return adam(model, rate, rate * names["BASE"] / model.tokens.embedding_dim)

    def keep() -> None:
        """Write what is known."""
        head = {name: value for name, value in record.items() if name != "runs"}
        rows = ",\n  ".join(json.dumps([*key, found]) for key, found in sorted(known.items()))
        atomic_write(PATH, pretty_json(head)[:-2] + f',\n "runs": [\n  {rows}\n ]\n}}\n')

    def loss(*key: int) -> float:
        """The validation loss of one training: width, parametrisation, log2 of the rate, steps, seed."""
        width, kind, power, steps, seed = key
        if width == names["BASE"]:  # both parametrisations are one
            kind = {0: 1, 5: 4}.get(kind, kind)
        key = (width, int(kind), power, steps, seed)
        if key not in known:
            if record["made"]["minutes of one core"] > MOST:
                raise SystemExit("the time is over")
            start = time.process_time()
            torch.manual_seed(seed)
            shuffled = train[torch.randperm(len(train))]
            model = names["Decoder"](len(vocabulary), width, kind in (1, 4))
            names["adam"] = {2: embeddings_apart, 3: rates_alone, 7: rates_alone}.get(kind, of_the_page)
            began = time.process_time()
            names["train"](model, shuffled, steps, 2.0**power, {4: 4, 5: 4, 7: 4}.get(kind, 16))
            step = round((time.process_time() - began) / steps, 5)
            if kind < 2:
                seconds[str(width)] = min(step, seconds.get(str(width), step))
            known[key] = round(names["validation_loss"](model, val), 4)
            minutes = record["made"]["minutes of one core"] + (time.process_time() - start) / 60
            record["made"]["minutes of one core"] = round(minutes, 3)
            keep()
            print(*key, known[key], f"{time.process_time() - start:.1f} s", flush=True)
        return known[key]

    def best(width: int, mup: bool, seed: int, start: int) -> int:
        """The log2 of the best rate: those around `start`, and further ones until the best has one on each side."""
        reach = 1 if width == 256 else 2
        powers = [*range(start - reach, start + reach + 1)]
        while True:
            losses = [loss(width, mup, power, SHORT, seed) for power in powers]
            place = losses.index(min(losses))
            if place == 0:
                powers.insert(0, powers[0] - 1)
            elif place == len(powers) - 1:
                powers.append(powers[-1] + 1)
            else:
                return powers[place]

    def compare(widths: tuple[int, ...], seed: int) -> None:
        """Find the best rate of each width, with both parametrisations."""
        for width, mup in product(widths, (True, False)):
            best(width, mup, seed, chosen if mup else chosen - {16: 0, 64: 2, 256: 4}[width])

    def grow(widths: tuple[int, ...], amounts: tuple[int, ...], seed: int = 0) -> None:
        """Train these widths for these numbers of steps."""
        for steps, width in product(amounts, widths):
            loss(width, True, chosen, steps, seed)

    chosen = best(16, True, 0, -4)
    compare(TRIED, 0)
    loss(256, False, chosen, SHORT, 0)  # what comes of taking the narrower model's rate
    grow(WIDTHS[:-1], STEPS)
    grow(WIDTHS, STEPS[:-1])
    compare((16, 64), 1)
    compare((16, 64), 2)
    for power in (chosen - 1, chosen + 1):
        loss(64, True, power, STEPS[-1], 0)  # is it still the best in the longest training?
    grow(WIDTHS, STEPS)
    compare((256,), 1)
    compare((256,), 2)
    for seed in (0, 1):  # what takes about as long: 8 seconds, 16, 4
        for steps, factor in product((200, 400, 100), (1, 2, 4, 8)):
            if steps * factor <= 1600:  # the text has no more
                loss(128 // factor, True, chosen, steps * factor, seed)
        loss(32, True, chosen, 1200, seed)  # 13 seconds, as 64 has in 800 steps
    for power, seed in product(range(-8, -3), (0, 1, 2)):
        loss(64, 2, power, SHORT, seed)
    for power in range(-10, -6):
        loss(256, 2, power, SHORT, 0)
    for power in range(-10, -7):
        loss(256, 2, power, SHORT, 1)
    for seed, power in product((0, 1, 2), range(chosen - 1, chosen + 2)):
        loss(64, 3, power, SHORT, seed)
    for power in (chosen - 1, chosen + 1):  # at `chosen` the rates are those of 2 at 1/256
        loss(256, 3, power, SHORT, 0)
    for power in (chosen - 1, chosen + 1):
        loss(16, True, power, STEPS[-1], 0)  # is width 16's best rate width 64's, long after the step, too?

    def lowest(width: int, kind: int, powers: list[int], seeds: tuple[int, ...] = (0, 1, 2)) -> int:
        """The log2 of the best rate of 1,600 steps of 4 windows, tried with both its neighbours."""
        while True:
            means = {power: sum(loss(width, kind, power, 1600, seed) for seed in seeds) for power in sorted(powers)}
            at = min(means, key=lambda power: means[power])
            if {at - 1, at + 1} <= {*means}:
                return at
            powers = [*means, at - 1, at + 1]

    rate = lowest(16, 4, [-6, -5, -4, -3])
    lowest(64, 4, [rate - 1, rate, rate + 1])
    lowest(64, 5, [rate - 3, rate - 2, rate - 1])

    def sweep(amounts: tuple[int, ...], dearest: int) -> None:
        """All sizes for these numbers of steps, if a training is no longer than width 128 for so many steps."""
        for steps, width in product(amounts, WIDTHS):
            if steps * width**2 <= dearest * 128**2:
                loss(width, 4, rate, steps, 0)

    sweep((400, 800, 1600, 3200), 1600)
    for seed, power, width in product((0, 1), (-4, -5), (32, 64)):  # the same text in smaller batches
        loss(width, 1, power, 200, seed)
        loss(width, 4, power, 4 * 200, seed)
    for seed in (0, 1, 2):
        loss(64, 7, rate, 1600, seed)
        for power in (rate, rate + 1):  # what comes of taking the narrower model's rate, long
            loss(64, 5, power, 1600, seed)
        loss(256, 0, chosen, SHORT, seed)  # and short
    sweep((1600, 3200, 6400), 3200)
    for seeds in ((0,), (0, 1, 2)):
        lowest(128, 4, [rate - 1, rate, rate + 1], seeds)
        lowest(128, 5, [rate - 4, rate - 3, rate - 2], seeds)
        for seed in seeds:
            loss(128, 5, rate, 1600, seed)  # what comes of taking the narrower model's rate
    for seed in (0, 1, 2):
        loss(128, 7, rate, 1600, seed)
    sweep((1600, 3200, 6400), 12800)
    keep()


if __name__ == "__main__":
    main()
