"""PyTorch's own Transformer, trained as ours for comparison: the same function, with dropout in the same places."""

import json

import baseline
import pytest
import torch
import torch.nn.functional as F
from baseline import TorchTransformer
from reference import equal, padded_batch, randomise, small_config
from torch import nn

from transformer_lib.data import ParallelCorpus, Tokenizer
from transformer_lib.decoding import beam_search
from transformer_lib.loss import translation_loss
from transformer_lib.model import Transformer
from transformer_lib.translation import Translator

NAMES = {
    "self_attention.in_projection.": "self_attn.in_proj_",
    "self_attention.out_projection": "self_attn.out_proj",
    "memory_attention.in_projection.": "multihead_attn.in_proj_",
    "memory_attention.out_projection": "multihead_attn.out_proj",
    "feed_forward.linear": "linear",
    "self_attention_norm": "norm1",
    "memory_attention_norm": "norm2",
}


def their_name(name):
    """What our parameter is called in the other model."""
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    for stack, last in (("encoder.", "norm2"), ("decoder.", "norm3")):
        if name.startswith(stack):
            name = name.replace(stack, f"{stack}stack.", 1).replace("feed_forward_norm", last)
    return name


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


def test_same_translations(pair):
    ids = {"bos_id": 1, "eos_id": 2, "beam_size": 3, "max_length": 9}
    source = padded_batch((7, 4, 5))
    ours, theirs = (beam_search(model.eval(), source, use_cache=model is pair[0], **ids) for model in pair)
    for a, b in zip(ours, theirs, strict=True):
        assert [one.tokens for one in a] == [one.tokens for one in b]
        assert [one.score for one in a] == pytest.approx([one.score for one in b], abs=1e-12)


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


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """What was stored; a record of nine updates, with a training from another seed in it, lies in tmp_path."""
    stored = []
    monkeypatch.setattr(baseline, "store", lambda record, _: stored.append(record))
    old = {"steps": 9, "source": "en", "target": "de", "others": {"seed 7": "stays", baseline.NAME: "older"}}
    (tmp_path / "record.json").write_text(json.dumps(old))
    return stored


def log(folder, *steps):
    rows = [{"step": step, "val_loss": 1 / step, "train_loss": 2.0} for step in steps]
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_training_that_was_stopped_gives_a_curve_and_no_score(tmp_path, stored):
    log(tmp_path, 2, 4)
    baseline.add_training(baseline.NAME, TorchTransformer, tmp_path, tmp_path, {"device": "a lathe"})
    found = {"device": "a lathe", "validation": [[2, 0.5], [4, 0.25]]}
    assert stored[0]["others"] == {"seed 7": "stays", baseline.NAME: found}


@pytest.mark.parametrize("kind", [Transformer, TorchTransformer])
def test_a_whole_training_is_scored_with_its_own_model(tmp_path, monkeypatch, stored, kind):
    log(tmp_path, 9)
    corpus = ParallelCorpus(["a dog runs .", "a cat sleeps ."], ["ein Hund läuft .", "eine Katze schläft ."])
    tokenizer = Tokenizer.train(corpus.source + corpus.target, 300)
    size = tokenizer.vocab_size
    model = randomise(kind(small_config(source_vocab_size=size, target_vocab_size=size)))
    Translator(model, tokenizer).save(tmp_path)
    monkeypatch.setattr(baseline, "load_multi30k", lambda *_, **__: corpus)
    said = []
    monkeypatch.setattr(baseline, "scores", lambda answers, *rest: said.append(answers) or rest)
    (tmp_path / "test_2016_flickr.de").write_text("eins\nzwei\n")
    pairs = []
    intervals = {"ours": {}, "new": {"low": -1.5, "high": 0.5}}
    monkeypatch.setattr(
        baseline, "compared", lambda systems, references: pairs.append((systems, references)) or intervals
    )
    baseline.add_training("new", kind, tmp_path, tmp_path, {})
    found = {"validation": [[9, 1 / 9]], "scores": (corpus.target, "de"), "interval": [-1.5, 0.5]}
    assert stored[0]["others"]["new"] == found
    assert pairs == [({"ours": ["eins", "zwei"], "new": said[0]}, corpus.target)]
    ids = {"bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id, "use_cache": False}
    for text, answer in zip(corpus.source, said[0], strict=True):
        best = beam_search(model.eval(), torch.tensor([tokenizer.encode(text)]), beam_size=5, **ids)[0][0]
        assert answer == " ".join(tokenizer.decode(best.tokens).split())
