"""What the trainings of page 15.d come to: the page's own cells, from one start, with each seed.

Kept as it made verifier.json; no test runs it. With PYTHONPATH=.:experiments, as python records/verifier.py SEED WAY …

The start has learned from the 300 translations, with dropout, until more steps give little. From it lead these ways:
`more` of the same; `verifier`, with the mean of the group as baseline; its `right` answers alone (no baseline);
`every` answer, right or wrong, counted as right; `taught`, the oracle's translations of the sentences that the
verifier is asked about; `lenient`, a lenient verifier, and `KL`, the same with the KL term; `pairs`, DPO and its
control at three rates. With `weaker` before the ways, the start has learned from 600 translations for 260 updates,
and half as many updates follow.

Earlier commits recorded, beside their command and commit, from the first start: `plateau` (`more` and `verifier`) and
`own` (`right`); from the weaker one: `control` (460 updates of the translations), `pairs` (DPO and its control at eight
rates) and `exact` (an earlier run; its `verifier` had half the rate and twice the steps).
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
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data import toy_oracle
from transformer_lib.files import atomic_write

ROOT = Path(__file__).resolve().parent.parent
MARKS, STEPS = (800, 1000), 100  # learning begins at the first mark, with 2 updates a step
RATE, RATES = 1e-3, (1e-5, 1e-4, 1e-3)


def measured(names: dict, model: torch.nn.Module) -> dict[str, float]:
    """Of greedy answers to the test sentences, and of drawn ones: percent right, the lenient reward, words: means.

    And of how many sentences, in percent, at least one of four drawn answers is right.
    """
    tests, found = names["tests"], {}
    for way, asked in (("greedy", tests), ("drawn", tests * 4)):
        torch.manual_seed(0)
        told = list(map(names["german"], names["write"](model, names["sources"](asked), way == "greedy")))
        right = torch.tensor(list(map(names["verifier"], asked, told))).view(-1, len(tests))
        found[way], found[f"one right, {way}"] = 100 * right.mean().item(), 100 * right.amax(dim=0).mean().item()
        found[f"lenient, {way}"] = sum(map(names["lenient"], asked, told)) / len(asked)
        found[f"words, {way}"] = sum(len(names["split"](answer)) for answer in told) / len(asked)
    return {name: round(number, 3) for name, number in found.items()}


def learned(names: dict, start: torch.nn.Module, baseline: bool, *what, **settings) -> dict:
    """What `learn` makes of the start; rewards in each step, and the share of groups whose answers differ in reward."""
    advantages, mixed = names["advantages"], []

    def watched(rewards: torch.Tensor) -> torch.Tensor:
        mixed.append((rewards.amax(dim=1) > rewards.amin(dim=1)).float().mean().item())
        return advantages(rewards) if baseline else rewards

    names["advantages"] = watched  # so it is told of the groups without a baseline, too
    model, rewards = names["learn"](start, *what, rate=RATE, **settings)
    names["advantages"] = advantages
    rounded = {name: [round(x, 3) for x in each] for name, each in (("rewards", rewards), ("mixed groups", mixed))}
    return measured(names, model) | rounded


def gain(names: dict, model: torch.nn.Module, start: torch.nn.Module, found: dict) -> list[float]:
    """By how much the log-probabilities of the right answers of the pairs, and of the wrong ones, have grown: means."""
    source, means = names["sources"](list(found)), []
    for answers in zip(*found.values()):
        tokens = pad_sequence(answers, True, 0)
        with torch.no_grad():
            now, then = (names["log_probs"](each, source, tokens).sum() for each in (model, start))
        means.append(round((now - then).item() / len(found), 3))
    return means


def tried(names: dict, start: torch.nn.Module, seed: int) -> dict:
    """What DPO and its control make of the start, with the same pairs of its own answers."""
    pairs, found = names["own_pairs"](start, seed), {}
    for name in ("dpo", "imitation"):
        models = [names["prefer"](start, pairs, names[name], rate, seed=seed) for rate in RATES]
        found[name] = [measured(names, model) | {"gain": gain(names, model, start, pairs)} for model in models]
    return {"pairs": len(pairs), "rates": RATES} | found


def ways(names: dict, seed: int, wanted: tuple[str, ...]) -> dict:
    """What the ways that are wanted make of the start."""
    imitate, verifier, lenient, steps = names["imitate"], names["verifier"], names["lenient"], STEPS
    if wanted[0] == "weaker":
        wanted, steps = wanted[1:], STEPS // 2
        (start,) = imitate(260, pairs=names["short"]["train"][:600], seed=seed)
    else:
        start, *more = imitate(*MARKS[: 1 + ("more" in wanted)], dropout=0.1, seed=seed)
    asked = [(english, toy_oracle(english)) for english in names["untranslated"]]
    size, warm_up = 16 * 8, 2 * 10  # questions, answers to each; 2 updates a step
    way = {
        "more": lambda: measured(names, *more),
        "verifier": lambda: learned(names, start, True, verifier, steps, seed=seed),
        "right": lambda: learned(names, start, False, verifier, steps, seed=seed),
        "every": lambda: learned(names, start, False, lambda *_: 1.0, steps, seed=seed),
        "taught": lambda: measured(
            names, *imitate(2 * STEPS, pairs=asked, start=start, rate=RATE, warm_up=warm_up, size=size, seed=seed)
        ),
        "lenient": lambda: learned(names, start, True, lenient, STEPS // 2, seed=seed),
        "KL": lambda: learned(names, start, True, lenient, STEPS // 2, beta=0.1, seed=seed),
        "pairs": lambda: tried(names, start, seed),
    }
    return {"start": measured(names, start)} | {name: way[name]() for name in wanted}


def main(seed: str, *wanted: str) -> None:
    """Run the cells that define what trains, and keep what each way comes to."""
    cells = jupytext.read(ROOT / "chapters/15d_verifier.md").cells
    trains = [cell.source for cell in cells if "trains" in cell.metadata.get("tags", [])]
    names: dict = {}
    began = time.process_time()
    with tempfile.TemporaryDirectory() as empty, chdir(empty):  # no file of a reader's: all parts are the solution's
        for code in trains:
            exec(code, names)
        found = ways(names, int(seed), wanted)
    made = {"command": " ".join(["python records/verifier.py", seed, *wanted])} | environment()
    made |= {"threads": torch.get_num_threads(), "seed": int(seed)}
    made |= {"minutes of one core": round((time.process_time() - began) / 60, 1)}
    path = ROOT / "records/verifier.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kind = "weaker" if wanted[0] == "weaker" else "ways"
    stored.setdefault(seed, {}).setdefault(kind, []).append({"made": made, "found": found})
    atomic_write(path, pretty_json(dict(sorted(stored.items()))))


if __name__ == "__main__":
    main(*sys.argv[1:])
