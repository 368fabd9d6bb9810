"""Trainings changed in one thing: each change arrives, alone, and the table says what sacrebleu says."""

import json
import math

import pytest
import torch
import torch.nn.functional as F
import trainings as tool
from bleu import compared
from equivalence import torch_names
from record import log_of
from reference import equal, padded_batch, randomise, small_config
from small import MICRO, nonsense
from test_record import FOLDER, data, record, with_data
from torch import nn
from torch_model import TorchTransformer

from transformer_lib import recipes
from transformer_lib.data import ParallelCorpus, Tokenizer
from transformer_lib.data.corpora import toy_corpus
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.scores import evaluate_bleu
from transformer_lib.training import TrainingConfig
from transformer_lib.training.loss import translation_loss
from transformer_lib.translation import Translator

RIVAL = "torch.nn.Transformer"


def their_name(name):
    (theirs,) = torch_names({name: None}, decoder=name.startswith("decoder."))
    return theirs.replace("coder.", "coder.stack.")


def test_same_loss_and_gradients():
    config = small_config(norm_first=True, tie_embeddings="all")
    ours, theirs = randomise(Transformer(config)).double(), TorchTransformer(config).double()
    theirs.load_state_dict({their_name(name): value for name, value in ours.state_dict().items()})
    source, target = padded_batch((7, 4, 5)), padded_batch((6, 8, 2))
    losses = [translation_loss(model, source, target, label_smoothing=0.1) for model in (ours, theirs)]
    equal(losses[0], losses[1])
    for loss in losses:
        loss.backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        equal(gradients[their_name(name)], parameter.grad, atol=1e-12)


def test_dropout_in_the_same_places(monkeypatch):
    """The same calls of dropout in the same order: one for each embedding and each sub-layer."""
    config, calls = small_config(dropout=0.3), []

    def dropout(x, p, *_):
        if p:
            calls.append((x.shape, p))
        return x

    monkeypatch.setattr(F, "dropout", dropout)
    source, target = padded_batch((7, 4, 5)), padded_batch((6, 8, 2))
    for model in (Transformer(config), TorchTransformer(config)):
        translation_loss(model.train(), source, target)
    assert len(calls) == 2 * (2 + 2 * 2 + 2 * 3)
    assert calls[:12] == calls[12:]
    inner = [module.dropout for module in model.modules() if isinstance(module, nn.MultiheadAttention)]
    assert inner == [0.0] * 6


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


@pytest.mark.parametrize("name", tool.TRAININGS | tool.WHOLE)
def test_every_change_is_one_that_the_library_knows(name):
    def settings(changed):
        preset = tool.recipe({"seed": record()["seed"]}, changed, 9000)
        config = TransformerConfig(300, 300, 0, **preset["model"])
        others = changed.get("build"), changed.get("record")
        return config, TrainingConfig(**preset["training"]), preset["tokenizer"], *others

    as_it_is, changed = settings({}), settings((tool.TRAININGS | tool.WHOLE)[name])
    assert sum(a != b for a, b in zip(as_it_is, changed, strict=True)) == (name not in (tool.AS_IT_IS, "student"))


@pytest.mark.parametrize(("name", "kind", "direction"), [
    ("seed 0", Transformer, ("en", "de")), (RIVAL, TorchTransformer, ("en", "de")),
    ("German to English", Transformer, ("de", "en")),
])  # fmt: skip
def test_a_whole_training_is_scored_with_its_own_model(tmp_path, monkeypatch, name, kind, direction):
    corpus, said, stored = ParallelCorpus(["a dog runs ."], ["ein Hund läuft ."]), [], []
    tokenizer = Tokenizer.train(corpus.source + corpus.target, 300)
    size = tokenizer.vocab_size
    ours = Translator(randomise(kind(small_config(source_vocab_size=size, target_vocab_size=size))), tokenizer)
    ours.save(tmp_path)
    old = {"seed": 0, "steps": 9, "source": "en", "target": "de", "others": {"seed 7": "stays", name: "older"}}
    (tmp_path / "record.json").write_text(json.dumps(old))
    (tmp_path / "log.jsonl").write_text(json.dumps({"step": 9, "val_loss": 0.5, "train_loss": 2.0}) + "\n")
    (tmp_path / "test_2016_flickr.de").write_text("ein Hund läuft .\n")
    monkeypatch.setattr(tool, "corpus", lambda known, split: corpus if known["source"] == direction[0] else None)
    monkeypatch.setattr(tool, "further", lambda known: {known["target"]: corpus})
    monkeypatch.setattr(tool, "scores", lambda answers, *rest: said.append(answers) or rest)
    monkeypatch.setattr(tool, "save_record", lambda record, _: stored.append(record))
    tool.add_training(name, tmp_path, tmp_path, {}, 9)
    others, scored = stored[0]["others"], (corpus.target, direction[1])  # references, language
    assert others["seed 7"] == "stays"
    found = {"validation": [[9, 0.5]], "scores": scored, "val_scores": scored, "further": {direction[1]: scored}}
    if direction == ("en", "de"):  # as the record's, which is perfect here
        found["interval"] = 2 * [pytest.approx(-100, rel=0, abs=0.1)]
    assert others[name] == found
    assert said == 3 * [ours.translate(corpus.source, **tool.DECODING)]


def test_rows_are_what_sacrebleu_says():
    references = [f"der Hund Nummer {n} läuft über die Straße und bellt ." for n in range(40)]
    near = [text.replace("bellt", "schläft") if n % 2 else text for n, text in enumerate(references)]
    said = {"first": near, "same": near, "far": [text.replace("über die", "an der") for text in near]}
    rows = compared(said, references)
    for name, texts in said.items():
        score = evaluate_bleu(texts, references)
        assert rows[name]["bleu"] == pytest.approx(score["bleu"], abs=5e-4)  # the rounding
        assert rows[name]["chrf"] == pytest.approx(score["chrf"], abs=5e-4)
    assert rows["same"] == rows["first"]
    assert rows["same"]["low"] == rows["same"]["high"] == 0  # the same draws for both
    assert rows["far"]["low"] < rows["far"]["bleu"] - rows["first"]["bleu"] < rows["far"]["high"] < 0
    assert compared({"a": ["eins zwei drei"], "b": ["eins"]}, ["eins zwei drei vier"])["b"]["length"] == 0.25


def test_search_and_training_on_the_toy_corpus(tmp_path, monkeypatch):
    """Every part at work: a quarter as long, and as often as said, with the changed model, and never twice."""
    longer = tool.recipe({"seed": 7}, {"training": {"cooldown_steps": 500}}, 90, 4)
    assert longer["training"].items() >= {"steps": 22, "cooldown_steps": 22}.items()  # no longer than the run
    monkeypatch.setitem(tool.DECODING, "max_length", 9)
    micro = MICRO | {"training": MICRO["training"] | {"warmup_steps": 16, "evaluate_every": 8, "average": 10}}
    monkeypatch.setitem(recipes.PRESETS, "small", micro)
    corpora = {"train": toy_corpus("train", size=60), "val": toy_corpus("val", size=4)}
    monkeypatch.setattr(tool, "corpus", lambda _, split: corpora[split])
    kept = (tool.AS_IT_IS, "greedy", "seed 2", "embeddings without √d", "no warm-up")
    for table in ("SEARCHES", "TRAININGS"):
        monkeypatch.setattr(tool, table, {name: row for name, row in getattr(tool, table).items() if name in kept})
    folder, runs = tmp_path / "record", tmp_path / "runs"
    nonsense(folder, corpora["val"].source + corpora["val"].target)
    said = {"command": "as typed", "seed": 0, "steps": 16, "source": "en", "target": "de"}
    (folder / "record.json").write_text(json.dumps(said))
    trained, train = [], recipes.train

    def noted(model, pairs, config, **options):
        trained.append((type(model), config.seed, torch.get_float32_matmul_precision()))
        return train(model, pairs, config, **options)

    monkeypatch.setattr(recipes, "train", noted)
    assert tool.variations(folder, None, None, "abc").keys() == {"search"}
    found = tool.variations(folder, runs, None, "abc")
    kinds = (Transformer, 0), (Transformer, 2), (tool.Unscaled, 0), (Transformer, 0)
    assert trained == [(*kind, "highest") for kind in kinds]
    assert {"command": "as typed", "preset": micro, "steps": 4, "commit": "abc"}.items() <= found["training"].items()
    assert list(found["training"]["rows"]) == list(tool.TRAININGS)
    for name, row in found["training"]["rows"].items():
        log = log_of(runs / name.replace(" ", "-"))
        assert [line["step"] for line in log] == [2, 4]
        assert [line["learning_rate"] for line in log] == [5e-3 * (1 if name == "no warm-up" else 2 / 4), 5e-3]
        assert row["loss"] == round(min(line["val_loss"] for line in log), 3)
    (folder / "variations.json").write_text(json.dumps(found))
    states = {path: path.stat().st_mtime_ns for path in runs.glob("*/state.safetensors")}
    for where in (None, runs):  # what was trained stays, and is not trained again
        assert tool.variations(folder, where, None, "abc") == found
    assert states == {path: path.stat().st_mtime_ns for path in states}
    both = tool.variations(folder, tmp_path / "rounded", None, "abc", ["seed 2"], bfloat16=True)
    assert list(both["training in bfloat16"]["rows"]) == [tool.AS_IT_IS, "seed 2"]
    assert trained[-1][2] == "medium"


@with_data
@pytest.mark.long
def test_the_recorded_search_comes_again():
    found = json.loads((FOLDER / "variations.json").read_text(encoding="utf-8"))
    again = tool.variations(FOLDER, None, None, None)
    for name, row in again["search"]["rows"].items():
        assert row["bleu"] == pytest.approx(found["search"]["rows"][name]["bleu"], abs=0.05)  # other processors round
    assert len(data("val")) == 1014
