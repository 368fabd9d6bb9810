"""The exported translator: CTranslate2 gives the same tokens, and what it cannot give is refused."""

import json
import math
import os
import shutil
from pathlib import Path

import pytest
import torch
from small import ROOT, refused
from test_translation import MAX_LEN, TOKENIZER, translator

from transformer_lib.data import load_multi30k
from transformer_lib.decoding.search_state import SearchState
from transformer_lib.engine import export, load
from transformer_lib.files import InputError
from transformer_lib.model import Transformer, evaluation
from transformer_lib.scores import evaluate_bleu
from transformer_lib.translation import Translator

ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")

SENTENCES = [
    "A dog runs on the grass.", "Two men are sitting on a bench.", "A man is climbing a rock above the sea.",
    "A woman in a red dress is playing the violin.", "Three children are playing on the beach.", "Snow.",
    "A girl jumps into the water while her father watches.", "People are walking down a busy street at night.",
    "", "An old man with a hat is reading a newspaper in front of a shop that sells old books and newspapers.",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained():
    return Translator.from_pretrained(ROOT / "records" / "multi30k-en-de")


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine") / "model"
    export(trained, folder)
    return folder


def always_live(translator, sentence, beam_size=5, alpha=1.0):
    """CTranslate2's search over our model: `beam_size` hypotheses are live until twice as many have finished."""
    model, tokenizer, source = translator.model, translator.tokenizer, translator.tokenizer.encode(sentence)
    finished, live = [], [(0.0, [])]
    limit = min(2 * len(source) + 10, model.config.max_len)
    with evaluation(model):
        state = SearchState(model, torch.tensor([[tokenizer.bos_id]]), torch.tensor([source]), use_cache=True)
        for step in range(1, limit + 1):
            logits = state.logits()  # (live, vocabulary)
            logits[:, tokenizer.pad_id] = -math.inf
            totals = logits.log_softmax(dim=-1) + torch.tensor([[total] for total, _ in live])
            best, places = totals.flatten().topk(2 * beam_size)
            candidates = [(total, *divmod(at, logits.size(1))) for total, at in zip(best.tolist(), places.tolist())]
            for total, row, token in candidates[:beam_size]:
                if token == tokenizer.eos_id or step == limit:
                    tokens = [*live[row][1], token]
                    finished.append((total / step**alpha, [t for t in tokens if t != tokenizer.eos_id]))
            if len(finished) >= 2 * beam_size:
                break
            kept = [candidate for candidate in candidates if candidate[2] != tokenizer.eos_id][:beam_size]
            live = [(total, [*live[row][1], token]) for total, row, token in kept]
            state.append(torch.tensor([token for _, _, token in kept]), [row for _, row, _ in kept])
    return tokenizer.decode(max(finished, key=lambda hypothesis: hypothesis[0])[1]).strip(" ")


def score(translator, sentence, answer):
    """Log-probability of an answer divided by its length, the end token counted."""
    tokenizer = translator.tokenizer
    source, target = (torch.tensor([tokenizer.encode(text)]) for text in (sentence, answer))
    shifted = torch.cat([torch.tensor([[tokenizer.bos_id]]), target[:, :-1]], dim=1)
    with torch.no_grad():
        log_probs = translator.model(source, shifted).log_softmax(dim=-1)  # (1, m, vocabulary)
    return log_probs.gather(-1, target[..., None]).mean().item()


def test_ten_sentences_give_the_same_tokens(trained, exported):
    engine = load(exported)
    assert engine.translate(SENTENCES, beam_size=1) == trained.translate(SENTENCES, beam_size=1)
    for options in ({}, {"beam_size": 2, "length_penalty": 2.0, "batch_size": 1}):
        rule = (options.get("beam_size", 5), options.get("length_penalty", 1.0))
        expected = [always_live(trained, sentence, *rule) if sentence else "" for sentence in SENTENCES]
        assert engine.translate(SENTENCES, **options) == expected


@pytest.mark.parametrize("tie", ["none", "target", "all"])
@pytest.mark.parametrize(("norm_first", "dtype"), [(True, torch.float64), (False, torch.float32)])
def test_every_kind_of_transformer_gives_the_same_probabilities(tmp_path, tie, norm_first, dtype):
    """Of every weight at random, and of targets at random, so that no weight may stand in another's place."""
    ours = translator(3, tie_embeddings=tie, norm_first=norm_first, dtype=dtype, d_model=24)
    export(ours, tmp_path / "model")
    names = json.loads((tmp_path / "model" / "shared_vocabulary.json").read_text(encoding="utf-8"))
    threads = torch.get_num_threads()  # whatever it is told, it sets for the whole process
    engine = ctranslate2.Translator(str(tmp_path / "model"), intra_threads=threads)
    for n, m in ((1, 1), (7, 12), (MAX_LEN, MAX_LEN)):
        source, target = torch.randint(3, len(names), (1, n)), torch.randint(3, len(names), (1, m))
        target[0, -1] = TOKENIZER.eos_id
        with torch.no_grad():
            logits = ours.model(source, torch.cat([torch.full((1, 1), TOKENIZER.bos_id), target[:, :-1]], dim=1))
        expected = logits.log_softmax(dim=-1).gather(-1, target[..., None]).flatten()
        pieces = [[names[token] for token in row[0].tolist()] for row in (source, target[:, :-1])]
        (found,) = engine.score_batch(pieces[:1], pieces[1:])
        torch.testing.assert_close(torch.tensor(found.log_probs), expected.float(), rtol=1e-5, atol=2e-4)


def test_every_sentence_has_its_own_limit(tmp_path):
    """Of a model that says one letter for ever: twice the source and ten more, and at most the model's limit."""
    ours = translator(dtype=torch.float32)
    with torch.no_grad():
        ours.model.decoder.norm.weight.zero_()
        ours.model.decoder.norm.bias.fill_(1.0)
        ours.model.output_projection.weight[65] = 9.0
    export(ours, tmp_path / "model")
    engine, asked = load(tmp_path / "model"), ["q", "qqq", "q" * 20]
    answers = engine.translate(asked, beam_size=1)
    assert answers == ours.translate(asked, beam_size=1)
    assert [len(answer) for answer in answers] == [14, 18, MAX_LEN]


@pytest.mark.long
def test_the_whole_test_set_gives_the_same_tokens(trained, exported, tmp_path):
    try:
        test = load_multi30k("test_2016_flickr")
    except InputError as error:
        pytest.skip(str(error))
    engine = load(exported)
    assert engine.translate(test.source, beam_size=1) == trained.translate(test.source, beam_size=1)
    ours, theirs = trained.translate(test.source), engine.translate(test.source)
    assert theirs == [always_live(trained, sentence) for sentence in test.source]
    other = [n for n in range(len(ours)) if ours[n] != theirs[n]]
    assert 0 < len(other) < 0.02 * len(ours)  # the searches differ in their rule for what has finished
    for n in other:
        assert score(trained, test.source[n], theirs[n]) > score(trained, test.source[n], ours[n])
    export(trained, tmp_path / "int8", quantization="int8")
    rounded = load(tmp_path / "int8").translate(test.source)
    assert abs(evaluate_bleu(rounded, test.target)["bleu"] - evaluate_bleu(ours, test.target)["bleu"]) < 0.5


class Doubled(Transformer):
    """The parameters of a Transformer, and another computation."""


def test_a_model_that_the_engine_does_not_have_is_refused(tmp_path):
    subclass, more, less = translator(), translator(), translator()
    subclass.search.model = Doubled(subclass.model.config)
    more.model.encoder.gate = torch.nn.Linear(3, 3)
    less.model.encoder.norm = torch.nn.Identity()
    for model, words in ((subclass, "Doubled"), (more, "encoder.gate.weight"), (less, "encoder.norm.weight")):
        refused([words], export, model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_an_empty_directory_is_filled_wherever_it_is(tmp_path, monkeypatch):
    """It may be where we are, or a volume that nothing can be renamed onto: it stays the same one."""
    ours, before = translator(dtype=torch.float32), tmp_path.stat().st_ino
    (tmp_path / "lost+found").mkdir()
    monkeypatch.chdir(tmp_path)
    export(ours, ".")
    assert load(".").translate(["a dog"]) == ours.translate(["a dog"])
    assert Path().stat().st_ino == before
    assert len(os.listdir()) == 5


@pytest.mark.parametrize("name", ["model.bin", "config.json", "tokenizer.json", "shared_vocabulary.json"])
def test_a_damaged_export_is_refused(exported, tmp_path, name):
    path = shutil.copytree(exported, tmp_path / "model") / name
    for damaged in (path.read_bytes()[: path.stat().st_size // 2], b""):
        path.write_bytes(damaged)
        refused(["model"], load, tmp_path / "model")
    path.unlink()
    refused(["model"], load, tmp_path / "model")


def test_an_exported_translator_says_what_it_lacks(exported, tmp_path):
    engine = load(exported)
    for function, given in ((engine.attention, "a dog"), (engine.save, tmp_path / "new")):
        refused(["exported translator has no model: load the directory"], function, given)
    refused(["is an exported model; expected a trained one: name"], Translator.from_pretrained, exported)


def test_the_n_best_are_as_many_as_pytorch_s_and_the_first_is_the_translation(trained, exported):
    engine, text = load(exported), SENTENCES[0]
    ours, theirs = trained.n_best(text), engine.n_best(text)
    assert len(ours) == len(theirs) == 5
    assert theirs[0] == (pytest.approx(ours[0][0], rel=0, abs=1e-3), engine.translate([text])[0])
    assert theirs == sorted(theirs, key=lambda pair: -pair[0])
    with pytest.raises(ValueError, match="max_length must be from 1"):
        engine.n_best(text, max_length=0)
