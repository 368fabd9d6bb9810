"""Trainings changed in one thing: each change arrives, alone, and the table says what sacrebleu says."""

import json
import math

import distillation
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
from transformer_lib.data import ParallelCorpus, Tokenizer, read_parallel
from transformer_lib.data.corpora import toy_corpus
from transformer_lib.decoding import beam_search
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.scores import evaluate_bleu
from transformer_lib.training import TrainingConfig
from transformer_lib.training.loss import translation_loss
from transformer_lib.translation import Translator
from transformer_lib.variants.ensemble import Ensemble
from transformer_lib.weights import save_weights

RIVAL, SIDES = "torch.nn.Transformer", ("source", "target")


def their_name(name):
    """What our parameter is called in the other model."""
    (theirs,) = torch_names({name: None}, decoder=name.startswith("decoder."))
    return theirs.replace("coder.", "coder.stack.")


@pytest.fixture
def pair():
    """Our model and theirs with the same random weights, in float64."""
    config = small_config(norm_first=True, tie_embeddings="all")
    ours, theirs = randomise(Transformer(config)).double(), TorchTransformer(config).double()
    renamed = {their_name(name): value for name, value in ours.state_dict().items()}
    theirs.load_state_dict(renamed)
    return ours, theirs


def test_same_loss_and_gradients(pair):
    source, target = padded_batch((7, 4, 5)), padded_batch((6, 8, 2))
    losses = [translation_loss(model, source, target, label_smoothing=0.1) for model in pair]
    equal(losses[0], losses[1])
    for loss in losses:
        loss.backward()
    theirs = dict(pair[1].named_parameters())
    for name, parameter in pair[0].named_parameters():
        equal(theirs[their_name(name)].grad, parameter.grad, atol=1e-12)


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


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """What was stored; a record of nine updates, with a training from another seed in it, lies in tmp_path."""
    stored = []
    monkeypatch.setattr(tool, "save_record", lambda record, _: stored.append(record))
    old = {"seed": 0, "steps": 9, "source": "en", "target": "de", "others": {"seed 7": "stays", RIVAL: "older"}}
    (tmp_path / "record.json").write_text(json.dumps(old))
    return stored


def write_log(folder, losses):
    rows = [{"step": step, "val_loss": loss, "train_loss": 2.0} for step, loss in losses.items()]
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(("name", "kind", "direction"), [
    ("seed 0", Transformer, ("en", "de")), (RIVAL, TorchTransformer, ("en", "de")),
    ("German to English", Transformer, ("de", "en")),
])  # fmt: skip
def test_a_whole_training_is_scored_with_its_own_model(tmp_path, monkeypatch, stored, name, kind, direction):
    write_log(tmp_path, {9: 1 / 9})
    corpus = ParallelCorpus(["a dog runs .", "a cat sleeps ."], ["ein Hund läuft .", "eine Katze schläft ."])
    tokenizer = Tokenizer.train(corpus.source + corpus.target, 300)
    size = tokenizer.vocab_size
    model = randomise(kind(small_config(source_vocab_size=size, target_vocab_size=size)))
    Translator(model, tokenizer).save(tmp_path)
    asked = []
    monkeypatch.setattr(tool, "corpus", lambda known, split: asked.append([*map(known.get, SIDES), split]) or corpus)
    said, pairs = [], []
    monkeypatch.setattr(tool, "scores", lambda answers, *rest: said.append(answers) or rest)
    (tmp_path / "test_2016_flickr.de").write_text("eins\nzwei\n")
    intervals = {"ours": {}, name: {"low": -1.5, "high": 0.5}}
    monkeypatch.setattr(tool, "compared", lambda systems, references: pairs.append((systems, references)) or intervals)
    monkeypatch.setattr(tool, "further", lambda known: {known["target"]: corpus})
    tool.add_training(name, tmp_path, tmp_path, {}, 9)
    same, scored = direction == ("en", "de"), (corpus.target, direction[1])  # as the record; references, language
    found = {"validation": [[9, 1 / 9]]} | dict.fromkeys(("scores", "val_scores"), scored)
    found["further"] = {direction[1]: scored}
    assert stored[0]["others"][name] == found | ({"interval": [-1.5, 0.5]} if same else {})
    assert (stored[0]["source"], stored[0]["target"]) == ("en", "de")
    assert asked == [[*direction, split] for split in tool.SPLITS]
    assert pairs == [({"ours": ["eins", "zwei"], name: said[0]}, corpus.target)] * same
    ids = {"bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id, "use_cache": False}
    for text, answer in zip(corpus.source, said[0], strict=True):
        best = beam_search(model.eval(), torch.tensor([tokenizer.encode(text)]), beam_size=5, **ids)[0][0]
        assert answer == " ".join(tokenizer.decode(best.tokens).split())


def test_a_student_learns_from_what_its_teachers_say(tmp_path, monkeypatch):
    """The teacher is the mean of them all, so each of them moves its translations."""
    monkeypatch.setitem(tool.DECODING, "max_length", 20)
    corpora = {"train": toy_corpus("train", size=30), "val": toy_corpus("val", size=6)}
    for script in (tool, distillation):
        monkeypatch.setattr(script, "corpus", lambda _, split: corpora[split])
    (tmp_path / "record.json").write_text(json.dumps({"source": "en", "target": "de", "seed": 0}))
    nonsense(tmp_path, corpora["train"].source + corpora["train"].target)
    first = Translator.from_pretrained(tmp_path)
    models = [first.model]
    for name in "12":
        models.append(randomise(Transformer(first.model.config)).eval())
        (folder := tmp_path / name).mkdir()
        save_weights(folder / "model.safetensors", models[-1])
    ensemble = distillation.teacher(tmp_path, [tmp_path, tmp_path / "1", tmp_path / "2"])
    distillation.distill(tmp_path, tmp_path / "pairs", ensemble)
    got = read_parallel(tmp_path / "pairs/train.en", tmp_path / "pairs/train.de")
    assert got.source == corpora["train"].source

    def said(members):
        return Translator(Ensemble(members), first.tokenizer).translate(got.source, **tool.DECODING)

    assert got.target == said(models)
    assert all(got.target != said(models[:n] + models[n + 1 :]) for n in range(3))
    learnt = []
    monkeypatch.setattr(tool, "train_translator", lambda *pairs, **_: learnt.extend(pairs[:2]))
    languages = {"source": "en", "target": "de", "seed": 0}
    tool.retrain(languages, tool.WHOLE["student"], tmp_path / "run", 9, pairs=tmp_path / "pairs")
    assert learnt == [got, corpora["val"]]


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
    val = toy_corpus("val", size=4)
    corpora = {"train": toy_corpus("train", size=60), "val": val}
    monkeypatch.setattr(tool, "corpus", lambda _, split: corpora[split])
    for table in ("SEARCHES", "TRAININGS"):
        kept = (tool.AS_IT_IS, "greedy", "seed 2", "no averaging", "embeddings without √d", "no warm-up")
        rows = {name: change for name, change in getattr(tool, table).items() if name in kept}
        monkeypatch.setattr(tool, table, rows)
    folder, runs = tmp_path / "record", tmp_path / "runs"
    nonsense(folder, val.source + val.target)
    command = "whatever was typed"
    said = {"command": command, "seed": 0, "steps": 16, "source": "en", "target": "de"}
    (folder / "record.json").write_text(json.dumps(said))
    trained, precisions, train = [], [], recipes.train

    def noted(model, pairs, config, **options):
        precisions.append(torch.get_float32_matmul_precision())
        trained.append((type(model), config.seed, config.average))
        return train(model, pairs, config, **options)

    monkeypatch.setattr(recipes, "train", noted)
    first = tool.variations(folder, None, None, "abc")
    assert first.keys() == {"search"}
    found = tool.variations(folder, runs, None, "abc")
    assert found["search"] == first["search"]
    ours, other = Transformer, tool.Unscaled
    assert trained == [(ours, 0, 10), (ours, 2, 10), (other, 0, 10), (ours, 0, 10), (ours, 0, 1)]
    known = {"command": command, "preset": micro, "steps": 4, "commit": "abc"}
    assert known.items() <= found["training"].items()
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
    states = [(path, path.stat().st_mtime_ns) for path in sorted(runs.glob("*/state.safetensors"))]
    assert len(states) == 5
    assert tool.variations(folder, runs, None, "abc") == found  # and is not trained again
    assert states == [(path, path.stat().st_mtime_ns) for path, _ in states]
    both = tool.variations(folder, tmp_path / "rounded", None, "abc", ["no averaging"], bfloat16=True)
    assert both.keys() == {"search", "training", "training in bfloat16"}
    assert both["training"] == found["training"]
    assert list(both["training in bfloat16"]["rows"]) == [tool.AS_IT_IS, "no averaging"]
    assert (precisions[0], precisions[-1]) == ("highest", "medium")


@with_data
@pytest.mark.long
def test_the_recorded_search_comes_again():
    found = json.loads((FOLDER / "variations.json").read_text(encoding="utf-8"))
    again = tool.variations(FOLDER, None, None, None)
    for name, row in again["search"]["rows"].items():
        assert row["bleu"] == pytest.approx(found["search"]["rows"][name]["bleu"], abs=0.05)  # other processors round
    assert len(data("val")) == 1014
