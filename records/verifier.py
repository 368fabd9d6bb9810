"""What the trainings of page 15.d come to: the page's own cells, with `long = True` and three seeds.

Kept as it made verifier.json; no test runs it. With PYTHONPATH=.:experiments, as python records/verifier.py SEED

With `control` after the seed, only the control is trained and added: from the translations alone, with as many more
updates as the verifier had. With `plateau`, a model learns from fewer pairs, with dropout, until more steps give
little; then the verifier has as many more updates, and more imitation with dropout. With `same`, imitation goes on
there as the verifier did: with its rates, its number of answers in an update, and no dropout. With `own`, no baseline
is subtracted. With `pairs`, four losses learn from the same pairs of own answers; each takes the rate that is best on
sentences which nothing else uses. With `lenient`, what the lenient verifier gives for test answers before it was
learned from and after, drawn and greedy.
"""

import json
import sys
import tempfile
import time
from contextlib import chdir
from functools import partial
from pathlib import Path

import jupytext
import torch
from record import environment, pretty_json
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.files import atomic_write

ROOT = Path(__file__).resolve().parent.parent
CONTROL = 260 + 2 * 100  # updates
PAIRS, MARKS, STEPS = 300, (600, 800, 1000), 100  # the verifier begins at the second mark, with 2 updates a step
RATES = [1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3]


def plateau(names: dict, seed: int) -> dict:
    """What imitation of PAIRS pairs comes to at each mark, and what the verifier makes of the second model."""
    exact, german, write, tests = (names[name] for name in ("exact", "german", "write", "tests"))
    models = names["imitate"](*MARKS, pairs=names["translated"][:PAIRS], dropout=0.1)
    learner, rewards = names["learn"](models[1], names["verifier"], STEPS, rate=1e-3, seed=seed)
    rows = [
        [german(row) for row in write(model, names["sources"](tests), greedy=True)] for model in (models[1], learner)
    ]
    imitated = {str(steps): exact(model) for steps, model in zip(MARKS, models)}
    said = {english: list(told) for english, *told in zip(tests, *rows) if told[0] != told[1]}
    return {"imitated": imitated, "verifier": exact(learner), "rewards": [round(x, 3) for x in rewards], "said": said}


def same(names: dict) -> dict:
    """What imitation of PAIRS pairs comes to that differs from the verifier's updates only in what is learned from."""
    imitate, few = names["imitate"], names["translated"][:PAIRS]
    model = imitate(*MARKS[:2], pairs=few, dropout=0.1)[1]
    size, warm_up = 16 * 8, 2 * 10  # questions, answers to each; 2 updates a step
    return {"exact": names["exact"](*imitate(2 * STEPS, pairs=few, start=model, rate=1e-3, warm_up=warm_up, size=size))}


def pairs(names: dict, seed: int) -> dict:
    """What four losses make of the same pairs of own answers: at each rate, and at the best one."""
    kept_apart, results = names["untranslated"][320:640], {}
    (imitator,) = names["imitate"](260)
    found = names["own_pairs"](imitator, seed)
    losses = {"DPO": names["dpo"], "DPO, 1": partial(names["dpo"], beta=1.0), "imitation": names["imitation"]}
    losses["both"] = names["both"]
    untouched = list(map(names["german"], names["write"](imitator, names["sources"](kept_apart), greedy=True)))
    for name, loss in losses.items():
        models = {rate: names["prefer"](imitator, found, loss, rate, seed=seed) for rate in RATES}
        rows = {
            rate: names["write"](model, names["sources"](kept_apart), greedy=True) for rate, model in models.items()
        }
        told = {rate: list(map(names["german"], answers)) for rate, answers in rows.items()}
        right = {rate: sum(map(names["verifier"], kept_apart, answers)) for rate, answers in told.items()}
        best = max(RATES, key=right.__getitem__)
        results[name] = {
            "right": [int(right[rate]) for rate in RATES],
            "best": best,
            "exact": names["exact"](models[best]),
            "gains": [gain(names, models[rate], imitator, found) for rate in RATES],
        }
    head = {"pairs": len(found), "kept apart": len(kept_apart), "rates": RATES}
    return head | {"untouched": int(sum(map(names["verifier"], kept_apart, untouched)))} | results


def gain(names: dict, model: torch.nn.Module, imitator: torch.nn.Module, found: dict) -> list[float]:
    """By how much the log-probabilities of the right answers of the pairs, and of the wrong ones, have grown: means."""
    source, means = names["sources"](list(found)), []
    for answers in zip(*found.values()):
        tokens = pad_sequence(answers, True, 0)
        with torch.no_grad():
            now, then = (names["log_probs"](each, source, tokens).sum() for each in (model, imitator))
        means.append(round((now - then).item() / len(found), 3))
    return means


def own(names: dict, seed: int) -> dict:
    """What the right answers are worth alone: each counts 1, no baseline is subtracted, no wrong one unlearned."""
    exact, imitate, learn, verifier = (names[name] for name in ("exact", "imitate", "learn", "verifier"))
    strict = learn(*imitate(260), verifier, 50, rate=1e-3, seed=seed)[0]
    model = imitate(*MARKS[:2], pairs=names["translated"][:PAIRS], dropout=0.1)[1]
    names["advantages"] = lambda rewards: rewards
    return {"exact": exact(learn(model, verifier, STEPS, rate=1e-3, seed=seed)[0]), "strict": exact(strict)}


def lenient(names: dict, seed: int) -> dict:
    """Before and after learning from the lenient verifier: mean reward, percent right, words, drawn and greedy."""
    tests, split = names["tests"], names["split"]
    (before,) = names["imitate"](260)
    after = names["learn"](before, names["lenient"], 50, rate=1e-3, seed=seed)[0]
    found: dict = {}
    for name, model in {"before": before, "after": after}.items():
        for way, asked in (("drawn", tests * 4), ("greedy", tests)):
            told = list(map(names["german"], names["write"](model, names["sources"](asked), way == "greedy")))
            sums = [
                sum(map(names["lenient"], asked, told)),
                100 * sum(map(names["verifier"], asked, told)),
                sum(len(split(answer)) for answer in told),
            ]
            found[f"{name}, {way}"] = [round(total / len(asked), 3) for total in sums]
    return found


def main(seed: str, *what: str) -> None:
    """Run the cells that train, and keep what they come to."""
    cells = jupytext.read(ROOT / "chapters/15d_verifier.md").cells
    trains = [cell.source for cell in cells if "trains" in cell.metadata.get("tags", [])]
    if what:
        first = next(number for number, code in enumerate(trains) if "(imitator,) = " in code)
        prefer = next(code for code in trains if "def prefer(" in code).partition("chosen = ")[0]
        hack = next(code for code in trains if "def lenient(" in code).partition("free, ")[0]
        trains[first:] = [trains[first].partition("(imitator,) = ")[0], hack, prefer]
    names: dict = {}
    start = time.process_time()
    with tempfile.TemporaryDirectory() as empty, chdir(empty):  # no file of a reader's: all parts are the solution's
        for code in trains:
            exec(code.replace("long = False", "long = True").replace("seed = 0\n", f"seed = {seed}\n"), names)
        if what:
            result = {
                "plateau": lambda: {"pairs": PAIRS} | plateau(names, int(seed)),
                "control": lambda: {"updates": CONTROL, "exact": names["exact"](*names["imitate"](CONTROL))},
                "same": lambda: same(names),
                "own": lambda: own(names, int(seed)),
                "pairs": lambda: pairs(names, int(seed)),
                "lenient": lambda: lenient(names, int(seed)),
            }[what[0]]()
    made = {"command": " ".join(["python records/verifier.py", seed, *what])} | environment()
    made |= {"threads": torch.get_num_threads(), "seed": int(seed)}
    made |= {"minutes of one core": round((time.process_time() - start) / 60, 1)}
    path = ROOT / "records/verifier.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if what:
        stored[seed][what[0]] = {"made": made} | result
        atomic_write(path, pretty_json(stored))
        return
    rewards = {name: [round(x, 3) for x in names[name]] for name in ("rewards", "rewards_of_free", "rewards_of_kept")}
    said = {english: [rows[i] for rows in names["said"].values()] for i, english in enumerate(names["tests"])}
    run = {"made": made, "exact": names["results"], "rewards": rewards, "said": said}
    atomic_write(path, pretty_json(dict(sorted((stored | {seed: run}).items()))))


if __name__ == "__main__":
    main(*sys.argv[1:])
