"""Train the recipe of a record again, changed in one thing, and write down what that does to the score.

python experiments/trainings.py RECORD [--train RUN [--only NAME …] [--table NAME] [--whole NAME] [--bfloat16]]
        [--pairs FOLDER] [--steps N] [--commit HASH]
python experiments/trainings.py RECORD --second-stage RUN --command COMMAND [--commit HASH]

Without --train the search alone is changed, with the record's weights. With it the recipe is trained, too: once as it
is and once with each change, below the directory RUN, at a quarter of its length, which is that of the updates, of the
warm-up and the like, and from one validation to the next. Both are kept as variations.json, and both translate the
validation set, so the test set decides nothing. --only leaves all changes out but these. --table writes them into
another table of that file than "training".

With --whole NAME only the change of this name is trained, at its whole length and in the directory RUN itself. How it
went and its scores are written into the record. `torchrun` may start it with several processes.

--second-stage scores the model in RUN, which COMMAND trained on from the record's weights: second_stage.json, beside
the record.

--bfloat16 trains a CPU faster that multiplies bfloat16 numbers by itself (avx512_bf16 or amx_bf16 among its flags): the
products of matrices are of factors that are rounded to them, as on a GPU, and everything else is as before.

What was interrupted goes on. N is the number of updates at most, if it is not the record's. HASH names the commit,
where git cannot.
"""

import argparse
import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from bleu import compared
from record import DECODING, SPLITS, corpus, digest, environment, further, load, log_of, save_record, save_table, scores
from torch import Tensor, nn
from torch_model import TorchTransformer

from transformer_lib.data import ParallelCorpus, read_parallel
from transformer_lib.model import Transformer
from transformer_lib.recipes import preset_for, train_translator
from transformer_lib.training.distributed import process_group
from transformer_lib.translation import Translator

QUARTER = 4
LENGTHS = ("steps", "warmup_steps", "evaluate_every", "cooldown_steps")

# --- what is changed ---------------------------------------------------------------------------------------------


class Unscaled(Transformer):
    """Our model without the factor √d_model behind its embeddings."""

    def embed(self, tokens: Tensor, embedding: nn.Embedding, offset: int = 0) -> Tensor:
        """As in `Transformer`, but for the factor."""
        return self.dropout(self.positions(embedding(tokens), offset=offset))


def without_rise(step: int, *, peak: float, warmup: int) -> float:
    """The learning rate with its fall from step `warmup` on, and before it the peak."""
    return peak * min(1.0, math.sqrt(warmup / step))


AS_IT_IS = "as it is"
# The recipe before its batches became larger; it went on to its last step.
SMALLER = {"accumulate": 1, "peak_lr": 4e-3, "evaluate_every": 250, "patience": None}
SEARCHES: dict[str, dict[str, Any]] = {
    AS_IT_IS: {},
    "greedy": {"beam_size": 1},
    "beam of 2": {"beam_size": 2},
    "beam of 10": {"beam_size": 10},
    "length penalty 0": {"length_penalty": 0.0},
    "length penalty 0.6": {"length_penalty": 0.6},
    "length penalty 1.4": {"length_penalty": 1.4},
}
# The rows of variations.json are changes of "smaller batches". Four more of them (BPE-dropout, R-Drop, masked label
# smoothing, both directions first) are of settings that the library had at the commit that stands beside them; chapter
# 17.g has their code.
TRAININGS: dict[str, dict[str, Any]] = {  # parts of the preset, of its whole length; "build" makes the model
    AS_IT_IS: {},
    "seed 0": {"training": {"seed": 0}},
    "seed 2": {"training": {"seed": 2}},
    "seed 3": {"training": {"seed": 3}},
    "norms behind the sub-layers": {"model": {"norm_first": False}},
    "embeddings without √d": {"build": Unscaled},
    "no warm-up": {"training": {"schedule": without_rise}},
    "no label smoothing": {"training": {"label_smoothing": 0.0}},
    "three tables of embeddings": {"model": {"tie_embeddings": "none"}},
    "dropout 0.1": {"model": {"dropout": 0.1}},
    "no dropout": {"model": {"dropout": 0.0}},
    "vocabulary of 4,000": {"tokenizer": {"vocab_size": 4_000}},
    "vocabulary of 5,000": {"tokenizer": {"vocab_size": 5_000}},
    "rate to zero": {"training": {"cooldown_steps": 2000}},
    "smaller batches, seed 0": {"training": SMALLER | {"seed": 0}},
    "smaller batches, seed 1": {"training": SMALLER | {"seed": 1}},
    "smaller batches, seed 2": {"training": SMALLER | {"seed": 2}},
    "no averaging": {"training": {"average": 1}},
    "half as wide": {"model": {"d_model": 64, "d_ff": 128}},
    "twice as wide": {"model": {"d_model": 256, "d_ff": 512}},
}
WHOLE: dict[str, dict[str, Any]] = {  # of no use at a quarter; "record" has other languages
    "torch.nn.Transformer": {"build": TorchTransformer},
    "German to English": {"record": {"source": "de", "target": "en"}},
    "student": {},  # of other --pairs
}

# --- a shorter step ----------------------------------------------------------------------------------------------


class Precision(torch.autograd.Function):
    """The identity. What comes after it multiplies float32 matrices in one precision; on the way back, in another."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ahead: str, back: str) -> Tensor:
        """Return x, of any shape; both precisions are those of `torch.set_float32_matmul_precision`."""
        torch.set_float32_matmul_precision(ahead)
        ctx.back = back
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient as it comes."""
        torch.set_float32_matmul_precision(ctx.back)
        return grads[0], None, None


@contextmanager
def rounded_products() -> Iterator[None]:
    """Round the factors of matrix products to bfloat16, but not those of attention: its many small ones get slower."""
    attention, usual = F.scaled_dot_product_attention, torch.get_float32_matmul_precision()

    def exact(query: Tensor, *others: Any, **options: Any) -> Tensor:
        heads = attention(Precision.apply(query, usual, "medium"), *others, **options)
        return Precision.apply(heads, "medium", usual)

    try:
        with mock.patch.object(F, "scaled_dot_product_attention", exact):
            torch.set_float32_matmul_precision("medium")
            yield
    finally:
        torch.set_float32_matmul_precision(usual)


# --- what that does ----------------------------------------------------------------------------------------------


def device() -> str:
    """Where to train."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def recipe(record: dict, changed: dict[str, Any], steps: int, part: int = 1) -> dict[str, dict]:
    """The preset of the record with a change, for so many updates; of all lengths only one part of so many."""
    preset = preset_for("small", device(), **changed.get("training", {}))
    preset |= {name: preset[name] | changed.get(name, {}) for name in ("model", "tokenizer")}
    settings = {"seed": record["seed"], "steps": steps} | preset["training"]
    if "cooldown_steps" in settings:
        settings["cooldown_steps"] = min(steps, settings["cooldown_steps"])
    lengths = {name: max(1, settings[name] // part) for name in LENGTHS if name in settings}
    return preset | {"training": settings | lengths}


def retrain(
    record: dict,
    changed: dict[str, Any],
    run: Path,
    steps: int,
    part: int = 1,
    *,
    bfloat16: bool = False,
    pairs: Path | None = None,
) -> None:
    """Train the recipe of the record with a change, or go on with what was begun in `run`."""
    known = record | changed.get("record", {})
    if pairs:
        train = read_parallel(*(pairs / f"train.{known[side]}" for side in ("source", "target")))
    else:
        train = corpus(known, "train")
    val = corpus(known, "val")
    preset, build = recipe(record, changed, steps, part), changed.get("build", Transformer)
    products = rounded_products() if bfloat16 else nullcontext()
    with products, process_group(device()) as place:
        begun = (run / "state.safetensors").exists()
        train_translator(train, val, preset, run, build=build, resume=begun, device=place)


def run_of(name: str, runs: Path) -> Path:
    """Where the training of this name is kept."""
    return runs / name.replace(" ", "-")


def translations(changed: dict[str, Any], run: Path, data: ParallelCorpus) -> list[str]:
    """What the translator says that was trained with a change."""
    build = changed.get("build", Transformer)
    translator = Translator.from_pretrained(run, build=build)
    return translator.translate(data.source, **DECODING)


def variations(
    folder: Path,
    runs: Path | None,
    steps: int | None,
    commit: str | None,
    names: Iterable[str] = (),
    *,
    table: str = "training",
    bfloat16: bool = False,
) -> dict[str, dict]:
    """All that variations.json holds, with the trainings of these names or all; without `runs` the earlier ones."""
    record, kept = load(folder), folder / "variations.json"
    val, model = corpus(record, "val"), Translator.from_pretrained(folder)
    hypotheses = {name: model.translate(val.source, **DECODING | changed) for name, changed in SEARCHES.items()}
    weights = digest(folder / "model.safetensors")
    found: dict[str, dict] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    found["search"] = {"weights": weights, "rows": compared(hypotheses, val.target)}
    if runs is None:
        return found
    steps, hypotheses, losses = steps or record["steps"], {}, {}
    for name in dict.fromkeys([AS_IT_IS, *(names or TRAININGS)]):
        run = run_of(name, runs)
        retrain(record, TRAININGS[name], run, steps, QUARTER, bfloat16=bfloat16)
        hypotheses[name] = translations(TRAININGS[name], run, val)
        losses[name] = {"loss": round(min(row["val_loss"] for row in log_of(run)), 3)}
    rows = {name: row | losses[name] for name, row in compared(hypotheses, val.target).items()}
    what = {"command": record["command"], "preset": preset_for("small", device()), "steps": max(1, steps // QUARTER)}
    return found | {f"{table} in bfloat16" if bfloat16 else table: environment(commit) | what | {"rows": rows}}


def went_all_the_way(log: list[dict], steps: int, patience: int | None) -> bool:
    """Whether a training has all its steps, or stopped because so many validations in a row were no better."""
    losses = [row["val_loss"] for row in log]
    return log[-1]["step"] == steps or len(losses) - 1 - losses.index(min(losses)) >= (patience or math.inf)


def add_training(name: str, run: Path, folder: Path, where: dict[str, Any], steps: int) -> None:
    """Write the validation losses into the record, and the scores of a training that went all the way."""
    record, log, changed = load(folder), log_of(run), (TRAININGS | WHOLE)[name]
    found: dict[str, object] = where | {"validation": [[row["step"], row["val_loss"]] for row in log]}
    if went_all_the_way(log, steps, recipe(record, changed, steps)["training"].get("patience")):
        directed = record | changed.get("record", {})
        (test, val), target = (corpus(directed, split) for split in SPLITS), directed["target"]
        hypotheses, on_val = (translations(changed, run, data) for data in (test, val))
        found["scores"] = scores(hypotheses, test.target, target)
        found["val_scores"] = scores(on_val, val.target, target)
        found["further"] = {
            split: scores(translations(changed, run, data), data.target, target)
            for split, data in further(directed).items()
        }
    if "scores" in found and "record" not in changed:
        ours = (folder / f"{SPLITS[0]}.{target}").read_text(encoding="utf-8").splitlines()
        row = compared({"ours": ours, name: hypotheses}, test.target)[name]
        found["interval"] = [row["low"], row["high"]]  # of cased BLEU minus ours, by the paired bootstrap
    record["others"] = record.get("others", {}) | {name: found}
    save_record(record, folder)


def second_stage(run: Path, command: str, folder: Path, where: dict[str, str]) -> dict[str, Any]:
    """What a training from the record's weights reached: its loss, its scores, and the intervals of the gains."""
    record, translator = load(folder), Translator.from_pretrained(run)
    log, kept = log_of(run), {}
    for split in SPLITS:
        data = corpus(record, split)
        ours = (folder / f"{split}.{record['target']}").read_text(encoding="utf-8").splitlines()
        hypotheses = translator.translate(data.source, **DECODING)
        row = compared({"ours": ours, "after": hypotheses}, data.target)["after"]
        interval = [row["low"], row["high"]]  # of cased BLEU minus ours, by the paired bootstrap
        kept[split] = scores(hypotheses, data.target, record["target"]) | {
            "interval": interval,
            "length": row["length"],
        }
    loss = round(min(row["val_loss"] for row in log), 4)
    return where | {"command": command, "steps": log[-1]["step"], "val_loss": loss, "scores": kept}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--train", type=Path)
    parser.add_argument("--only", nargs="+", choices=TRAININGS, default=[])
    parser.add_argument("--table", default="training")
    parser.add_argument("--whole", choices=TRAININGS | WHOLE)
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--second-stage", type=Path)
    parser.add_argument("--command")
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--commit")
    given = parser.parse_args()
    if (given.whole or given.only or given.bfloat16) and not given.train:
        parser.error("--whole, --only and --bfloat16 need --train: the directory to train in")
    if bool(given.pairs) != (given.whole == "student"):
        parser.error("--pairs belongs to --whole student")
    if given.second_stage and not given.command:
        parser.error("--second-stage needs --command: how its model was trained")
    if given.second_stage:
        found = second_stage(given.second_stage, given.command, given.record, environment(given.commit))
        save_table(given.record.with_name("second_stage.json"), found, depth=3)
    elif given.whole:
        record = load(given.record)
        changed, steps = (TRAININGS | WHOLE)[given.whole], given.steps or record["steps"]
        retrain(record, changed, given.train, steps, bfloat16=given.bfloat16, pairs=given.pairs)
        if os.environ.get("RANK", "0") == "0":
            where = environment(given.commit) | ({"bfloat16": True} if given.bfloat16 else {})
            add_training(given.whole, given.train, given.record, where, steps)
    else:
        settings = given.record, given.train, given.steps, given.commit, given.only
        tables = variations(*settings, table=given.table, bfloat16=given.bfloat16)
        save_table(given.record / "variations.json", tables, depth=3)
