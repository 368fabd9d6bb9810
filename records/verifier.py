"""What the trainings of page 15.d come to: the page's own cells, from two starts, with each seed.

Kept as it made verifier.json; no test runs it. With PYTHONPATH=.:experiments, as
python records/verifier.py SEED …

The start has learned from the 300 translations, with dropout, until more steps give little. From it lead, each with
100 updates, `verifier`, with the mean of the group as baseline, its `right` answers alone (baseline 0), its `wrong`
ones alone (1), and `once`, the right ones of answers that the start drew to the same questions, each at four rates;
at one of these rates `verifier` and `right` without the clip, and `right, mixed`, the right ones of groups in which
some are wrong; `more` of the same translations; `taught`, the oracle's translations of the sentences that the
verifier is asked about; `pairs`, DPO (two betas) and its control at five rates (40 updates), with as many drawn
answers; and every answer, right or wrong, counted as right, with new ones for each update: `every`, and `every,
unaveraged`, where Adam takes each gradient as it is, in place of a mean of past ones.

`noise` has the mean squared length of the gradients of the same answers of the start with the baselines P, 0 and 1;
`tries`, how often one at least of so many answers is right. `lenient BETA` is the flawed verifier with this weight of
the KL term, and `held` the right one with one such weight. `second` begins with the same from another start, 600
translations for 260 updates without dropout; `second more` is 200 updates more of these.
"""

import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import chdir
from functools import partial
from pathlib import Path

import jupytext
import torch
import torch.nn.functional as F
from record import environment, pretty_json
from torch.nn.utils import parameters_to_vector
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data import toy_oracle
from transformer_lib.files import atomic_write

ROOT = Path(__file__).resolve().parent.parent
MARKS, STEPS = (600, 700), 50  # learning begins at the first mark, with 2 updates a step
RATE, RATES, PAIRS_RATES = 1e-3, (1e-4, 3e-4, 1e-3, 3e-3), (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
BETAS, TRIES = (0.0, 0.03, 0.1, 0.3), (1, 4, 16, 64)


def quickly(model: torch.nn.Module, source: torch.Tensor, greedy: bool = False, longest: int = 14) -> torch.Tensor:
    """The page's `write`, with one run of the encoder instead of one for each token."""
    mask, tokens = (source != 0)[:, None, None], torch.full((len(source), 1), 1)
    ended = torch.zeros(len(source), dtype=torch.bool)
    with torch.no_grad():
        memory = model.embed(source, model.source_embedding)
        for layer in model.encoder_layers:
            memory = layer(memory, mask)
        memory = model.encoder_norm(memory)
        while tokens.size(1) <= longest and not ended.all():
            seen = (tokens != 0)[:, None, None] & torch.ones(1, 1, *[tokens.size(1)] * 2, dtype=torch.bool).tril()
            y = model.embed(tokens, model.target_embedding)
            for layer in model.decoder_layers:
                y = layer(y, memory, seen, mask)
            logits = model.output(model.decoder_norm(y[:, -1:]))[:, 0].index_fill(-1, torch.tensor([0]), -torch.inf)
            new = logits.argmax(dim=-1) if greedy else torch.multinomial(logits.softmax(dim=-1), 1)[:, 0]
            tokens = torch.cat([tokens, new.masked_fill(ended, 0)[:, None]], dim=1)
            ended = ended | (new == 2)
    return tokens


def measured(names: dict, model: torch.nn.Module) -> dict[str, float]:
    """Of greedy answers to the test sentences, and of drawn ones, four each: percent right, reward, words: means.

    And of how many sentences, in percent, at least one of the drawn answers is right.
    """
    tests, found = names["tests"], {}
    for way, asked in (("greedy", tests), ("drawn", tests * 4)):
        torch.manual_seed(0)
        told = list(map(names["german"], quickly(model, names["sources"](asked), way == "greedy")))
        right = torch.tensor(list(map(names["verifier"], asked, told))).view(-1, len(tests))
        found[way], found[f"one right, {way}"] = 100 * right.mean().item(), 100 * right.amax(dim=0).mean().item()
        found[f"lenient, {way}"] = sum(map(names["lenient"], asked, told)) / len(asked)
        found[f"words, {way}"] = sum(len(names["split"](answer)) for answer in told) / len(asked)
    return {name: round(number, 3) for name, number in found.items()}


def fooled(names: dict, model: torch.nn.Module) -> list[tuple[str, str]]:
    """Three greedy answers that are wrong, and have all reward of the lenient verifier; with their sentences."""
    pairs = zip(names["tests"], map(names["german"], quickly(model, names["sources"](names["tests"]), True)))
    return [pair for pair in pairs if names["lenient"](*pair) == 1 and not names["verifier"](*pair)][:3]


def tries(names: dict, model: torch.nn.Module) -> dict[int, float]:
    """For how many test sentences, in percent, one at least of so many drawn answers is right: the unbiased estimate.

    Chen et al. 2021 (Codex), equation 1.
    """
    asked, n = names["tests"] * 4, max(TRIES)
    torch.manual_seed(0)
    told = [names["german"](row) for _ in range(n // 4) for row in quickly(model, names["sources"](asked))]
    said = torch.tensor([names["verifier"](*pair) for pair in zip(asked * (n // 4), told)])
    right = said.view(n, -1).sum(dim=0).int().tolist()  # of the n answers to each sentence
    none = {k: sum(math.comb(n - c, k) for c in right) / math.comb(n, k) / len(right) for k in TRIES}
    return {k: round(100 * (1 - share), 3) for k, share in none.items()}


def noise(names: dict, model: torch.nn.Module, seed: int, batches: int = 10) -> dict[str, float]:
    """The mean squared length of the gradient of a batch, as `learn` draws it, in each way, scaled to the same mean."""
    torch.manual_seed(seed)
    rng, found = random.Random(seed), dict.fromkeys(("verifier", "right", "wrong"), 0.0)
    for _ in range(batches):
        source, tokens, rewards = names["ask"](model, rng.sample(names["untranslated"], 16), 8, names["verifier"])
        ways = (8 / 7 * names["advantages"](rewards.view(16, 8)).view(-1), rewards, rewards - 1)
        log_p = names["log_probs"](model, source, tokens).sum(dim=1)
        for way, weights in zip(found, ways):
            step = torch.autograd.grad((weights * log_p).mean(), list(model.parameters()), retain_graph=True)
            found[way] += sum(part.square().sum().item() for part in step) / batches
    return {way: round(length, 4) for way, length in found.items()}


def itself(rewards: torch.Tensor) -> torch.Tensor:
    """The weights of answers with the baseline 0."""
    return rewards


def differ(rewards: torch.Tensor) -> torch.Tensor:
    """In which groups, (questions, 1), the rewards, (questions, group), differ: 1 or 0."""
    return (rewards.amax(dim=1, keepdim=True) > rewards.amin(dim=1, keepdim=True)).float()


def learned(
    names: dict, start: torch.nn.Module, weigh: Callable, *what, rate=RATE, clip=0.2, beta1=0.9, also=(), **settings
) -> dict:
    """What `learn` makes of the start, if `weigh` makes the weights of answers of their rewards.

    The rewards of each step, the share of groups whose rewards differ, and before every tenth step: how many greedy
    answers are right. `also`: what else is measured of the model.
    """
    own = {name: names[name] for name in ("advantages", "write", "update", "clipped")}
    mixed, curve, path = [], [], 0.0

    def watched(rewards: torch.Tensor) -> torch.Tensor:
        mixed.append(differ(rewards).mean().item())
        return weigh(rewards)

    def followed(model: torch.nn.Module, source: torch.Tensor) -> torch.Tensor:
        if len(mixed) % 10 == 0:
            told = map(names["german"], quickly(model, names["sources"](names["tests"]), True))
            right = list(map(names["verifier"], names["tests"], told))
            curve.append(round(100 * sum(right) / len(right), 3))
        return quickly(model, source)

    def update(optimizer: torch.optim.Optimizer, loss: torch.Tensor, rate: float) -> None:
        nonlocal path
        weights = optimizer.param_groups[0]["params"]
        before = parameters_to_vector(weights).detach().clone()
        optimizer.param_groups[0]["betas"] = (beta1, 0.98)
        own["update"](optimizer, loss, rate)
        path += (parameters_to_vector(weights).detach() - before).norm().item()

    names |= {"advantages": watched, "write": followed, "update": update}  # `watched` is told of all groups
    names["clipped"] = partial(own["clipped"], clip=clip)
    model, rewards = names["learn"](start, *what, rate=rate, **settings)
    names |= own
    series = {"rewards": rewards, "mixed groups": mixed}
    rounded = {name: [round(x, 4) for x in each] for name, each in series.items()}
    more = {measure.__name__: measure(names, model) for measure in also}
    moved = (parameters_to_vector(model.parameters()) - parameters_to_vector(start.parameters())).norm().item()
    return measured(names, model) | more | {"curve": curve, "moved": round(moved, 3), "path": round(path, 3)} | rounded


def drawn_once(names: dict, start: torch.nn.Module, seed: int) -> list[tuple[str, str]]:
    """The right ones of as many answers as `learn` draws, to the same questions, all drawn from the start."""
    torch.manual_seed(seed)
    rng, kept = random.Random(seed), []
    for _ in range(STEPS):
        asked = [sentence for sentence in rng.sample(names["untranslated"], 16) for _ in range(8)]
        told = map(names["german"], quickly(start, names["sources"](asked)))
        kept += [pair for pair in zip(asked, told) if names["verifier"](*pair)]
    return kept


def copied(names: dict, start: torch.nn.Module, pairs: list[tuple[str, str]], rate: float, seed: int) -> dict:
    """What imitation of the pairs makes of the start, with as many in each update as `learn` draws for a step."""
    settings = {"pairs": pairs, "start": start, "rate": rate, "warm_up": 2 * 10, "size": 16 * 8, "seed": seed}
    return measured(names, *names["imitate"](2 * STEPS, **settings)) | {"pairs": len(pairs)}


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
    pairs, found = names["own_pairs"](start, seed, STEPS * 16), {}
    losses = {"dpo": names["dpo"], "dpo 1": partial(names["dpo"], beta=1.0), "imitation": names["imitation"]}
    for name, loss in losses.items():
        models = [names["prefer"](start, pairs, loss, rate, seed=seed) for rate in PAIRS_RATES]
        found[name] = [measured(names, model) | {"gain": gain(names, model, start, pairs)} for model in models]
    return {"pairs": len(pairs), "rates": PAIRS_RATES} | found


def first(names: dict, start: None, seed: int, found: dict) -> torch.nn.Module:
    """The start, and more of the same."""
    begun, more = names["imitate"](*MARKS, dropout=0.1, seed=seed)
    found |= {"start": measured(names, begun) | {"tries": tries(names, begun)}, "more": measured(names, more)}
    found |= {"noise": noise(names, begun, seed)}
    return begun


def by_rate(names: dict, start: torch.nn.Module, seed: int, found: dict) -> torch.nn.Module:
    """Policy gradient, own right answers, own wrong ones, and right answers drawn once."""
    kept = drawn_once(names, start, seed)
    reward, group = names["verifier"], names["advantages"]
    ways = {"verifier": (group, reward), "right": (itself, reward)}
    ways["wrong"] = itself, lambda *given: reward(*given) - 1
    for rate in RATES:
        settings = {"rate": rate, "seed": seed, "also": [tries] if rate == RATE else []}
        for way, (weigh, rewarded) in ways.items():
            found[f"{way} {rate}"] = learned(names, start, weigh, rewarded, STEPS, **settings)
        found[f"once {rate}"] = copied(names, start, kept, rate, seed)
    for way, weigh, clip in (
        ("verifier, unclipped", group, math.inf),
        ("right, unclipped", itself, math.inf),
        ("right, mixed", lambda rewards: rewards * differ(rewards), 0.2),
    ):
        found[way] = learned(names, start, weigh, reward, STEPS, clip=clip, seed=seed)
    return start


def others(names: dict, start: torch.nn.Module, seed: int, found: dict) -> torch.nn.Module:
    """The oracle's translations, every answer counted as right, and preferences."""
    asked = [(english, toy_oracle(english)) for english in names["untranslated"]]
    found |= {"taught": copied(names, start, asked, RATE, seed), "pairs": tried(names, start, seed)}
    settings = {"updates": 1, "seed": seed}  # new answers for each update
    for way, beta1 in (("every", 0.9), ("every, unaveraged", 0.0)):
        found[way] = learned(names, start, itself, lambda *_: 1.0, 2 * STEPS, beta1=beta1, **settings)
    return start


def without_series(found: dict) -> dict:
    """What is measured at the end."""
    series = ("curve", "rewards", "mixed groups")
    return {name: number for name, number in found.items() if name not in series}


def flawed(names: dict, start: torch.nn.Module, seed: int, found: dict) -> torch.nn.Module:
    """The lenient verifier, from both starts; and from the second what the first was put through, at one rate."""
    second, more = names["imitate"](260, 460, pairs=names["short"]["train"][:600], seed=seed)
    found |= {"second start": measured(names, second), "second more": measured(names, more)}
    group = names["advantages"]
    for begun, prefix in ((start, ""), (second, "second ")):
        for beta in BETAS:
            made = learned(names, begun, group, names["lenient"], STEPS, beta=beta, seed=seed, also=[fooled])
            found[f"{prefix}lenient {beta}"] = without_series(made)
        made = learned(names, begun, group, names["verifier"], STEPS, beta=BETAS[1], seed=seed)
        found[f"{prefix}held"] = without_series(made)
    for way, weigh in (("verifier", group), ("right", itself)):
        made = learned(names, second, weigh, names["verifier"], STEPS, seed=seed, also=[tries])
        found[f"second {way}"] = without_series(made)
    return start


def main(*seeds: str) -> None:
    """Run the cells that define what trains, and keep what each way comes to."""
    cells = jupytext.read(ROOT / "chapters/15d_verifier.md").cells
    trains = [cell.source for cell in cells if "trains" in cell.metadata.get("tags", [])]
    names: dict = {}
    with tempfile.TemporaryDirectory() as empty, chdir(empty):  # no file of a reader's: all parts are the solution's
        for code in trains:
            exec(code, names)
    # The same numbers as the taught norm, up to rounding, in a third of the time.
    names["mine"].LayerNorm.forward = lambda norm, x: F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, 1e-5)
    names["write"] = quickly
    where, path, starts = environment(), ROOT / "records/verifier.json", {}
    for part in (first, by_rate, others, flawed):
        for seed in seeds:
            began, stored = time.process_time(), json.loads(path.read_text(encoding="utf-8"))
            if part is first:
                made = {"command": " ".join(["python records/verifier.py", *seeds])} | where
                made |= {"threads": torch.get_num_threads(), "seed": int(seed), "minutes of one core": 0.0}
                stored[seed] = {"made": made, "found": {}}
            kept = stored[seed]
            starts[seed] = part(names, starts.get(seed), int(seed), kept["found"])
            spent = kept["made"]["minutes of one core"] + (time.process_time() - began) / 60
            kept["made"]["minutes of one core"] = round(spent, 2)
            atomic_write(path, pretty_json(dict(sorted(stored.items()))))


if __name__ == "__main__":
    main(*sys.argv[1:])
