"""The recipe with one thing changed: each change arrives, alone, and the table says what sacrebleu says."""

import json
import math

import numpy as np
import pytest
import sacrebleu
import torch
import variations as tool
from record import log_of
from reference import equal, padded_batch, randomise, small_config
from small import MICRO
from test_record import FOLDER, data, record, recorded, with_data

from transformer_lib import __main__ as command_line
from transformer_lib.corpora import toy_corpus
from transformer_lib.data import Tokenizer
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.training import TrainingConfig, inverse_sqrt_schedule
from transformer_lib.translation import Translator, evaluate_bleu

# --- the changes ---


def test_unscaled_embeddings_lack_the_root_and_nothing_else():
    config = small_config(d_model=12)
    ours, other = randomise(Transformer(config)).double().eval(), tool.Unscaled(config).double().eval()
    other.load_state_dict(ours.state_dict())
    source, target = padded_batch((7, 4)), padded_batch((5, 6))
    assert (ours(source, target) - other(source, target)).abs().max() > 1e-3
    with torch.no_grad():
        for embedding in (other.source_embedding, other.target_embedding):
            embedding.weight.mul_(math.sqrt(12))
    equal(other(source, target), ours(source, target))


def test_a_quarter_as_long_and_one_thing_changed():
    preset = {
        "model": {"d_model": 8, "dropout": 0.3},
        "training": {"peak_lr": 1.0, "warmup_steps": 2000, "evaluate_every": 250, "average": 10},
        "tokenizer": {"vocab_size": 9},
    }
    quarter = preset["training"] | {"warmup_steps": 500, "evaluate_every": 62}
    assert tool.shorter(preset, {}) == preset | {"training": quarter}
    changed = tool.shorter(preset, {"training": {"warmup_steps": 1}, "model": {"dropout": 0.1}})
    assert changed["training"] == quarter | {"warmup_steps": 1}
    assert changed["model"] == {"d_model": 8, "dropout": 0.1}
    assert preset["training"]["warmup_steps"] == 2000


def test_without_its_rise_the_rate_is_the_peak_and_then_the_same():
    for step in (1, 20, 499, 500, 501, 2250):
        ours = inverse_sqrt_schedule(step, peak=3e-3, warmup=500)
        assert tool.without_rise(step, peak=3e-3, warmup=500) == (3e-3 if step < 500 else ours)


@pytest.mark.parametrize("name", tool.TRAININGS)
def test_every_change_is_one_that_the_library_knows(name):
    def settings(changed):
        preset = tool.shorter(command_line.PRESETS["small"], changed)
        config = TransformerConfig(300, 300, 0, **preset["model"])
        return config, TrainingConfig(**preset["training"], steps=9), preset["tokenizer"]

    as_it_is, changed = settings({}), settings(tool.TRAININGS[name])
    others = [a for a, b in zip(as_it_is, changed, strict=True) if a != b]
    elsewhere = (name in tool.REPLACED) + ("command" in tool.TRAININGS[name])
    assert len(others) + elsewhere == (name != tool.AS_IT_IS)


# --- the table ---


def test_rows_are_what_sacrebleu_says():
    references = [f"der Hund Nummer {n} läuft über die Straße und bellt ." for n in range(40)]
    near = [text.replace("bellt", "schläft") if n % 2 else text for n, text in enumerate(references)]
    said = {"first": near, "same": near, "far": [text.replace("über die", "an der") for text in near]}
    rows = tool.compared(said, references)
    for name, texts in said.items():
        score = evaluate_bleu(texts, references)
        assert rows[name]["bleu"] == pytest.approx(score["bleu"], abs=5e-4)  # the rounding
        assert rows[name]["chrf"] == pytest.approx(score["chrf"], abs=5e-4)
    assert rows["same"] == rows["first"]
    assert rows["same"]["low"] == rows["same"]["high"] == 0  # the same draws for both
    assert rows["far"]["low"] < rows["far"]["bleu"] - rows["first"]["bleu"] < rows["far"]["high"] < 0
    assert tool.compared({"a": ["eins zwei drei"], "b": ["eins"]}, ["eins zwei drei vier"])["b"]["length"] == 0.25


def test_the_interval_is_that_of_the_paired_bootstrap():
    """The same from other random numbers: 1,000 draws place a quantile to a tenth of the interval or so."""
    generator = np.random.default_rng(1)
    references = [" ".join(map(str, generator.integers(0, 50, 12))) for _ in range(80)]

    def spoilt(share):
        return [" ".join("x" if generator.random() < share else word for word in text.split()) for text in references]

    said = {"first": spoilt(0.1), "other": spoilt(0.12)}
    metric = sacrebleu.BLEU()
    stored = [np.array(metric._extract_corpus_statistics(texts, [references])) for texts in said.values()]
    differences = []
    for _ in range(1000):
        draw = generator.integers(0, 80, 80)
        first, other = (metric._compute_score_from_stats(rows[draw].sum(0)).score for rows in stored)
        differences.append(other - first)
    low, high = np.quantile(differences, [0.025, 0.975])
    found = tool.compared(said, references)["other"]
    assert abs(found["low"] - low) + abs(found["high"] - high) < 0.15 * (high - low)


def test_search_and_training_on_the_toy_corpus(tmp_path, monkeypatch):
    """Every part at work: trained as long and as often as said, with the changed model, and never twice."""
    micro = MICRO | {"training": MICRO["training"] | {"warmup_steps": 16, "evaluate_every": 8, "average": 10}}
    monkeypatch.setitem(command_line.PRESETS, "small", micro)
    val = toy_corpus("val", size=12)
    monkeypatch.setattr(tool, "load_multi30k", lambda split, **_: {"val": val}[split])
    monkeypatch.setattr(command_line, "toy_corpus", lambda split: toy_corpus(split, size=60))
    for table in ("SEARCHES", "TRAININGS"):
        kept = (tool.AS_IT_IS, "greedy", "seed 2", "no averaging", *tool.REPLACED)
        rows = {name: change for name, change in getattr(tool, table).items() if name in kept}
        monkeypatch.setattr(tool, table, rows)
    folder, runs = tmp_path / "record", tmp_path / "runs"
    tokenizer = Tokenizer.train(val.source + val.target, 300)
    model = Transformer(TransformerConfig(tokenizer.vocab_size, tokenizer.vocab_size, 0, **MICRO["model"]))
    Translator(model, tokenizer).save(folder)
    command = "python -m transformer_lib train --corpus toy --preset small --out elsewhere --steps 99 --device cpu"
    said = {"command": command, "steps": 16, "source": "en", "target": "de"}
    (folder / "record.json").write_text(json.dumps(said))
    trained, train = [], command_line.train

    def noted(model, pairs, config, **options):
        trained.append((type(model), config.seed, config.average))
        return train(model, pairs, config, **options)

    monkeypatch.setattr(command_line, "train", noted)
    first = tool.variations(folder, None, None, "abc")
    assert first.keys() == {"search"}
    found = tool.variations(folder, runs, None, "abc")
    assert found["search"] == first["search"]
    ours, other = Transformer, tool.Unscaled
    assert trained == [(ours, 0, 10), (ours, 2, 10), (other, 0, 10), (ours, 0, 10), (ours, 0, 1)]
    assert found["training"]["command"] == command
    assert found["training"]["preset"] == micro
    assert found["training"]["steps"] == 4
    assert found["training"]["commit"] == "abc"
    assert list(found["training"]["rows"]) == list(tool.TRAININGS)
    for name, row in found["training"]["rows"].items():
        log = log_of(runs / name.replace(" ", "-"))
        assert [line["step"] for line in log] == [2, 4]
        flat = name == "no warm-up"
        assert [line["learning_rate"] for line in log] == [5e-3 * (1 if flat else 2 / 4), 5e-3]
        assert row["loss"] == round(min(line["val_loss"] for line in log), 3)
    losses = [row["loss"] for row in found["training"]["rows"].values()]
    assert len(set(losses)) >= len(losses) - 1  # averaging changes nothing if the last weights are the best
    (folder / "variations.json").write_text(json.dumps(found))
    assert tool.variations(folder, None, None, "abc") == found  # what was trained stays
    name = "embeddings without √d"
    assert type(tool.trained(command, name, runs / name.replace(" ", "-"), 4).model) is tool.Unscaled
    states = [(path, path.stat().st_mtime_ns) for path in sorted(runs.glob("*/state.safetensors"))]
    assert len(states) == 5
    assert tool.variations(folder, runs, None, "abc") == found  # and is not trained again
    assert states == [(path, path.stat().st_mtime_ns) for path, _ in states]


# --- the record ---


@recorded
def test_the_recorded_search_is_that_of_the_recorded_weights():
    found = json.loads((FOLDER / "variations.json").read_text(encoding="utf-8"))
    assert found["search"]["weights"] == record()["files"]["model.safetensors"]
    assert list(found["search"]["rows"]) == list(tool.SEARCHES)
    cased = record()["scores"]["val"]["cased"]
    for score in ("bleu", "chrf"):
        assert found["search"]["rows"][tool.AS_IT_IS][score] == pytest.approx(cased[score], abs=5e-4)  # the rounding


@recorded
@with_data
@pytest.mark.long
def test_the_recorded_search_comes_again():
    found = json.loads((FOLDER / "variations.json").read_text(encoding="utf-8"))
    again = tool.variations(FOLDER, None, None, None)
    for name, row in again["search"]["rows"].items():
        assert row["bleu"] == pytest.approx(found["search"]["rows"][name]["bleu"], abs=0.05)  # other processors round
    assert len(data("val")) == 1014
