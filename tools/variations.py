"""Change the recipe of a record in one thing at a time, and keep what that does to the score as variations.json.

python tools/variations.py RECORD [--train RUNS] [--steps N] [--commit HASH]

Changes of the search are made with the record's weights. With --train the recipe is also trained again, once as it is
and once with each change, below the directory RUNS, at a quarter of its length: of the N updates (if N is not given,
the record's), of the warm-up, and from one validation to the next. What was interrupted goes on.
HASH names the commit, where git cannot. All translate the validation set, so the test set decides nothing.
"""

import argparse
import json
import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import sacrebleu
from analysis import readable
from record import DECODING, again, digest, here, load, log_of, seal
from torch import Tensor, nn

from transformer_lib import __main__ as command_line
from transformer_lib import training, translation, update
from transformer_lib.data import load_multi30k
from transformer_lib.files import atomic_write
from transformer_lib.model import Transformer
from transformer_lib.translation import Translator

QUARTER = 4

# --- what is changed ---------------------------------------------------------------------------------------------


class Unscaled(Transformer):
    """Our model without the factor √d_model behind its embeddings."""

    def _embed(self, tokens: Tensor, embedding: nn.Embedding, offset: int = 0) -> Tensor:
        return self.dropout(self.positions(embedding(tokens), offset=offset))


def without_rise(step: int, *, peak: float, warmup: int) -> float:
    """The learning rate with its fall from step `warmup` on, and before it the peak."""
    return peak * min(1.0, math.sqrt(warmup / step))


AS_IT_IS = "as it is"
SEARCHES: dict[str, dict[str, Any]] = {
    AS_IT_IS: {},
    "greedy": {"beam_size": 1},
    "beam of 2": {"beam_size": 2},
    "beam of 10": {"beam_size": 10},
    "length penalty 0": {"length_penalty": 0.0},
    "length penalty 0.6": {"length_penalty": 0.6},
    "length penalty 1.4": {"length_penalty": 1.4},
}
TRAININGS: dict[str, dict[str, dict[str, Any]]] = {  # "command": options; the others change the preset
    AS_IT_IS: {},
    "seed 1": {"command": {"--seed": 1}},
    "seed 2": {"command": {"--seed": 2}},
    "seed 3": {"command": {"--seed": 3}},
    "norms behind the sub-layers": {"model": {"norm_first": False}},
    "embeddings without √d": {},
    "no warm-up": {},
    "no label smoothing": {"training": {"label_smoothing": 0.0}},
    "three tables of embeddings": {"model": {"tie_embeddings": "none"}},
    "dropout 0.1": {"model": {"dropout": 0.1}},
    "no dropout": {"model": {"dropout": 0.0}},
    "vocabulary of 4,000": {"tokenizer": {"vocab_size": 4_000}},
    "no averaging": {"training": {"average": 1}},
    "half as wide": {"model": {"d_model": 64, "d_ff": 128}},
    "twice as wide": {"model": {"d_model": 256, "d_ff": 512}},
}
REPLACED: dict[str, tuple[str, Any, tuple[Any, ...]]] = {  # in these modules this name is something else
    "embeddings without √d": ("Transformer", Unscaled, (command_line, translation)),
    "no warm-up": ("inverse_sqrt_schedule", without_rise, (training, update)),
}

# --- what that does ----------------------------------------------------------------------------------------------


def compared(said: dict[str, list[str]], references: Sequence[str]) -> dict[str, dict[str, float]]:
    """Of each system cased BLEU, chrF, words a word of the references, and how far its BLEU is from the first one's.

    "low" and "high" hold the difference in 95 of 100 draws of the sentences, the same draws for both: the paired
    bootstrap (Koehn 2004), with 1,000 draws.
    """
    bleu, chrf, rows, drawn = sacrebleu.BLEU(), sacrebleu.CHRF(), {}, []
    draws = np.random.default_rng(0).integers(len(references), size=(1000, len(references)))
    for name, texts in said.items():
        counts = np.array(bleu._extract_corpus_statistics(texts, [list(references)]))  # (sentences, counts)
        score = bleu._compute_score_from_stats(counts.sum(axis=0))
        drawn.append(np.array([bleu._compute_score_from_stats(counts[draw].sum(axis=0)).score for draw in draws]))
        low, high = np.quantile(drawn[-1] - drawn[0], [0.025, 0.975])
        rows[name] = {
            "bleu": score.score,
            "low": low,
            "high": high,
            "chrf": chrf.corpus_score(texts, [list(references)]).score,
            "length": score.sys_len / score.ref_len,
        }
    return {name: {key: round(float(value), 3) for key, value in row.items()} for name, row in rows.items()}


def shorter(preset: dict[str, dict], changed: dict[str, dict]) -> dict[str, dict]:
    """A preset whose warm-up and whose way between two validations are a quarter as long, and then the changes."""
    settings = preset["training"]
    lengths = settings.keys() & {"warmup_steps", "evaluate_every"}
    preset = preset | {"training": settings | {name: max(1, settings[name] // QUARTER) for name in lengths}}
    return {part: own | changed.get(part, {}) for part, own in preset.items()}


def trained(command: str, name: str, run: Path, steps: int) -> Translator:
    """The translator that a record's command makes with one of TRAININGS."""
    changed = TRAININGS[name]
    with ExitStack() as stack:
        preset = shorter(command_line.PRESETS["small"], changed)
        stack.enter_context(mock.patch.dict(command_line.PRESETS, small=preset))
        what, new, modules = REPLACED.get(name, ("", None, ()))
        for module in modules:
            stack.enter_context(mock.patch.object(module, what, new))
        again(run, command, {"--steps": steps} | changed.get("command", {}))
        return Translator.from_pretrained(run)


def variations(folder: Path, runs: Path | None, steps: int | None, commit: str | None) -> dict[str, dict]:
    """All that variations.json holds; what was trained earlier stays if nothing is to be trained."""
    record = load(folder)
    val = load_multi30k("val", source=record["source"], target=record["target"])
    model = Translator.from_pretrained(folder)
    said = {name: model.translate(val.source, **DECODING | changed) for name, changed in SEARCHES.items()}
    weights = digest(folder / "model.safetensors")
    found: dict[str, dict] = {"search": {"weights": weights, "rows": compared(said, val.target)}}
    if runs is None:
        earlier = folder / "variations.json"
        return (json.loads(earlier.read_text(encoding="utf-8")) if earlier.exists() else {}) | found
    steps = max(1, (steps or record["steps"]) // QUARTER)
    said, losses = {}, {}
    for name in TRAININGS:
        run = runs / name.replace(" ", "-")
        said[name] = trained(record["command"], name, run, steps).translate(val.source, **DECODING)
        losses[name] = {"loss": round(min(row["val_loss"] for row in log_of(run)), 3)}
    rows = {name: row | losses[name] for name, row in compared(said, val.target).items()}
    what = {"command": record["command"], "preset": command_line.PRESETS["small"], "steps": steps}
    return found | {"training": here(commit) | what | {"rows": rows}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--train", type=Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--commit")
    given = parser.parse_args()
    tables = readable(variations(given.record, given.train, given.steps, given.commit), depth=3)
    atomic_write(given.record / "variations.json", tables + "\n")
    seal(given.record)
