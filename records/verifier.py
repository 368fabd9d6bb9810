"""What the trainings of page 15.d come to: the page's own cells, with `long = True` and three seeds.

Kept as it made verifier.json; no test runs it. With PYTHONPATH=.:experiments, as python records/verifier.py SEED

With `control` after the seed, only the control is trained and added: from the translations alone, with as many more
updates as the verifier had. With `plateau`, a model learns from fewer pairs, with dropout, until more steps give
little; then the verifier and the control have as many more updates each.
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
PAIRS, MARKS, STEPS = 300, (600, 800, 1000), 100  # the verifier begins at the second mark, with 2 updates a step


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


def own(names: dict, seed: int) -> dict:
    """What the right answers are worth alone: each counts 1, no baseline is subtracted, no wrong one unlearned."""
    exact, imitate, learn, verifier = (names[name] for name in ("exact", "imitate", "learn", "verifier"))
    strict = learn(*imitate(CONTROL - 200), verifier, 50, rate=1e-3, seed=seed)[0]
    model = imitate(*MARKS[:2], pairs=names["translated"][:PAIRS], dropout=0.1)[1]
    names["advantages"] = lambda rewards: rewards
    return {"exact": exact(learn(model, verifier, STEPS, rate=1e-3, seed=seed)[0]), "strict": exact(strict)}


def main(seed: str, *control: str) -> None:
    """Run the cells that train, and keep what they come to."""
    cells = jupytext.read(ROOT / "chapters/15d_verifier.md").cells
    trains = [cell.source for cell in cells if "trains" in cell.metadata.get("tags", [])]
    if control:
        first = next(number for number, code in enumerate(trains) if "(imitator,) = " in code)
        trains[first:] = [trains[first].partition("(imitator,) = ")[0]]
    names: dict = {}
    start = time.process_time()
    with tempfile.TemporaryDirectory() as empty, chdir(empty):  # no file of a reader's: all parts are the solution's
        for code in trains:
            exec(code.replace("long = False", "long = True").replace("seed = 0\n", f"seed = {seed}\n"), names)
        if "plateau" in control:
            result = {"pairs": PAIRS} | plateau(names, int(seed))
        elif "own" in control:
            result = own(names, int(seed))
        elif control:
            result = {"updates": CONTROL, "exact": names["exact"](*names["imitate"](CONTROL))}
    made = {"command": " ".join(["python records/verifier.py", seed, *control])} | environment()
    made |= {"threads": torch.get_num_threads(), "seed": int(seed)}
    made |= {"minutes of one core": round((time.process_time() - start) / 60, 1)}
    path = ROOT / "records/verifier.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if control:
        stored[seed][control[0]] = {"made": made} | result
        atomic_write(path, pretty_json(stored))
        return
    rewards = {name: [round(x, 3) for x in names[name]] for name in ("rewards", "rewards_of_free", "rewards_of_kept")}
    said = {english: [rows[i] for rows in names["said"].values()] for i, english in enumerate(names["tests"])}
    run = {"made": made, "exact": names["results"], "rewards": rewards, "said": said}
    atomic_write(path, pretty_json(dict(sorted((stored | {seed: run}).items()))))


if __name__ == "__main__":
    main(*sys.argv[1:])
