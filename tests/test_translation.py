"""The translator: what is saved comes back, every sentence gets its own answer, and damaged files are refused."""

import json
import math
import sys
from collections import Counter

import pytest
import sacrebleu
import torch
from reference import randomise
from small import refused

from transformer_lib import files, translation
from transformer_lib.data import ParallelCorpus, Tokenizer
from transformer_lib.decoding import Hypothesis, beam_search
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.recipes import PRESETS, train_translator
from transformer_lib.scores import evaluate_bleu
from transformer_lib.translation import Translator, length_ratio

BOOK = {
    "a dog runs": "ein Hund läuft", "a cat sleeps": "eine Katze schläft",
    "the old dog sleeps": "der alte Hund schläft", "the cat runs": "die Katze läuft",
    "the man sees a dog": "der Mann sieht einen Hund", "a woman reads": "eine Frau liest",
}  # fmt: skip
MAX_LEN = 24
TOKENIZER = Tokenizer.train([*BOOK, *BOOK.values()], 320)


def translator(seed=0, *, tokenizer=TOKENIZER, dtype=torch.float64, **options):
    torch.manual_seed(seed)
    sizes = {"d_model": 12, "num_heads": 3, "d_ff": 20, "num_encoder_layers": 1, "num_decoder_layers": 2}
    size = tokenizer.vocab_size
    sizes |= {"dropout": 0.1, "max_len": MAX_LEN, "norm_first": True} | options
    config = TransformerConfig(size, size, tokenizer.pad_id, **sizes)
    return Translator(randomise(Transformer(config)).to(dtype), tokenizer)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    changed = {
        "model": {"d_model": 32, "d_ff": 64, "num_encoder_layers": 1, "num_decoder_layers": 1, "max_len": MAX_LEN},
        "tokenizer": {"vocab_size": 320},
        "training": {"batch_tokens": 200, "peak_lr": 5e-3, "warmup_steps": 20, "steps": 120},
    }
    preset = {part: settings | changed[part] for part, settings in PRESETS["tiny"].items()}
    out = tmp_path_factory.mktemp("learned")
    train_translator(ParallelCorpus([*BOOK], [*BOOK.values()]), ParallelCorpus([], []), preset, out)
    return Translator.from_pretrained(out)


@pytest.mark.parametrize("beam_size", [1, 5])
def test_each_sentence_is_answered_in_its_place_and_a_blank_one_with_nothing(learned, beam_size):
    asked = [*[*BOOK][3:], "", *BOOK, "   ", "\t", "\u00a0"]
    for batch_size in (1, 3, 64):
        answers = learned.translate(asked, beam_size=beam_size, batch_size=batch_size)
        assert answers == [BOOK.get(sentence, "") for sentence in asked]
    assert learned.translate(["", " "]) == ["", ""]
    assert learned.translate([]) == []
    best = learned.n_best("a dog runs", beam_size=beam_size, length_penalty=0.5)
    assert (len(best) > 1, best[0][1]) == (beam_size > 1, BOOK["a dog runs"])
    assert best == sorted(best, key=lambda pair: -pair[0])


def test_an_answer_is_the_best_hypothesis():
    speaker, special, differ = translator(1), {"bos_id": TOKENIZER.bos_id, "eos_id": TOKENIZER.eos_id}, set()
    for sentence in [*BOOK][2:5]:
        source = torch.tensor([TOKENIZER.encode(sentence)])
        for options in ({"beam_size": 1}, {"beam_size": 2, "length_penalty": 0.0}, {"length_penalty": 2.0}):
            (found,) = beam_search(speaker.model, source, **special, **options)
            differ.add(len(found[0].tokens))
            assert speaker.translate([sentence], **options) == [" ".join(TOKENIZER.decode(found[0].tokens).split())]
    assert len(differ) > 2


def recorded_searches(monkeypatch, answer="x"):
    """Replace the search; keep the sources that it was asked for."""
    sources = []

    def search(model, source, **_):
        sources.extend(row[row != TOKENIZER.pad_id].tolist() for row in source)
        return [[Hypothesis(TOKENIZER.encode(answer)[:-1], 0.0)] for _ in source]

    monkeypatch.setattr(translation, "beam_search", search)
    return sources


def test_long_sentences_are_cut_with_one_warning(monkeypatch):
    """Of exactly `max_len` tokens: not cut, and the strict filters of this suite would find a warning."""
    fits, sources = "q" * (MAX_LEN - 1), recorded_searches(monkeypatch)
    translator().translate([fits])
    assert sources == [TOKENIZER.encode(fits)]
    sources.clear()
    with pytest.warns(UserWarning, match=rf"longer than {MAX_LEN} tokens were cut: 2$") as found:
        answers = translator().translate(["q" * 24, "a dog runs", "q" * 5000, ""], batch_size=1)
    assert len(found) == 1
    assert answers == ["x", "x", "x", ""]
    assert sorted(sources) == sorted([TOKENIZER.encode(fits), TOKENIZER.encode("a dog runs"), TOKENIZER.encode(fits)])


@pytest.mark.parametrize("answer", ["eins\nzwei", "\neins\r\nzwei\n\n", "eins\x0bzwei\x1e", " eins\u2028zwei\u0085"])
def test_an_answer_is_one_line(monkeypatch, answer):
    recorded_searches(monkeypatch, answer)
    assert translator().translate(["a dog runs", "a cat sleeps"]) == ["eins zwei"] * 2


def test_sizes_are_positive_and_what_shows_one_sentence_wants_one():
    """A negative batch size must not answer everything with nothing."""
    for name, value in (("batch_size", -1), ("beam_size", 0), ("max_length", 0)):
        for text in ("a dog runs", " "):
            with pytest.raises(ValueError, match=f"{name} .*got.* {value}"):
                translator().translate([text], **{name: value})
    for call in (translator().attention, translator().n_best):
        with pytest.raises(ValueError, match="expected a sentence; got a blank one"):
            call("  ")


def weights_by_hand(speaker, source, target):
    """Softmax of queries and keys of each layer, from the weights and from what each layer is given."""
    found = []

    def look(attention, inputs):
        weights, biases = attention.in_projection.weight.chunk(3), attention.in_projection.bias.chunk(3)
        q, k = (
            (x[0] @ weight.T + bias).unflatten(-1, (attention.num_heads, -1)).transpose(0, 1)
            for x, weight, bias in zip(inputs, weights[:2], biases)
        )
        found.append((q @ k.mT / math.sqrt(q.size(-1))).softmax(dim=-1))

    hooks = [layer.cross_attention.register_forward_pre_hook(look) for layer in speaker.model.decoder.layers]
    with torch.no_grad():
        speaker.model(torch.tensor([source]), torch.tensor([target]))
    for hook in hooks:
        hook.remove()
    return torch.stack(found)


@pytest.mark.parametrize("norm_first", [False, True])
def test_attention_is_the_softmax_of_queries_and_keys(norm_first):
    speaker = translator(2, norm_first=norm_first)
    sentence = "the old dog sleeps"
    found = speaker.attention(sentence)
    source = TOKENIZER.encode(sentence)
    best = beam_search(speaker.model, torch.tensor([source]), bos_id=1, eos_id=2, beam_size=5)[0][0]
    looked = [TOKENIZER.bos_id, *best.tokens] if best.finished else [TOKENIZER.bos_id, *best.tokens[:-1]]
    expected = weights_by_hand(speaker, source, looked)
    assert found.weights.shape == (2, 3, len(looked), len(source))
    torch.testing.assert_close(found.weights, expected, rtol=0, atol=1e-12)
    assert (found.weights.sum(dim=-1) - 1).abs().max() < 1e-14
    assert not found.weights.requires_grad


def test_attention_is_without_dropout_and_leaves_no_traces(monkeypatch):
    speaker = translator(2, dropout=0.5)
    wanted = speaker.attention("the old dog")
    speaker.model.train()
    assert torch.equal(speaker.attention("the old dog").weights, wanted.weights)
    monkeypatch.setattr(Transformer, "forward", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        speaker.attention("the old dog")
    assert speaker.model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in speaker.model.modules())


def test_attention_of_a_translation_that_is_given():
    speaker, text, answer = translator(2), "the old dog", "eine Katze liest"
    found = speaker.attention(text, answer)
    expected = weights_by_hand(speaker, TOKENIZER.encode(text), [TOKENIZER.bos_id, *TOKENIZER.encode(answer)[:-1]])
    torch.testing.assert_close(found.weights, expected, rtol=0, atol=1e-12)
    assert "".join(found.target).replace("␣", "") == "eineKatzeliest<eos>"
    for long in (("a dog", "Hund " * MAX_LEN), ("dog " * MAX_LEN, "Hund")):
        with pytest.warns(UserWarning, match=rf"longer than {MAX_LEN} tokens were cut: 1$"):
            found = speaker.attention(*long)
        assert found.weights.shape[2:] == (len(found.target), len(found.source))
        assert max(found.weights.shape[2:]) == MAX_LEN


@pytest.mark.parametrize("options", [{}, {"tie_embeddings": "all"}, {"tie_embeddings": "target", "norm_first": False}])
def test_what_is_saved_comes_back(tmp_path, options):
    ours, folder = translator(5, dtype=torch.float32, **options), tmp_path / "some" / "model"
    ours.save(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    theirs = Translator.from_pretrained(str(folder))
    assert theirs.model.config == ours.model.config
    assert not theirs.model.training
    assert theirs.tokenizer.to_json() == ours.tokenizer.to_json()
    torch.testing.assert_close(theirs.model.state_dict(), ours.model.state_dict(), rtol=0, atol=0)
    assert theirs.translate([*BOOK]) == ours.translate([*BOOK])
    assert len(list(theirs.model.parameters())) == len(list(ours.model.parameters()))  # tied matrices stay tied


@pytest.fixture
def folder(tmp_path):
    translator(dtype=torch.float32).save(tmp_path / "model")
    return tmp_path / "model"


def test_a_directory_that_is_missing_or_a_file_or_lacks_one_or_has_a_tokenizer_of_another_size(folder, tmp_path):
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        path = (folder / name).rename(tmp_path / name)
        refused([name], Translator.from_pretrained, folder)
        path.rename(folder / name)
    Tokenizer.train(["other words"], 262).save(folder / "tokenizer.json")
    refused([folder, "262", TOKENIZER.vocab_size, "tokenizer"], Translator.from_pretrained, folder)
    refused([tmp_path / "nothing", "train --out"], Translator.from_pretrained, tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    refused([tmp_path / "file"], Translator.from_pretrained, tmp_path / "file")


@pytest.mark.parametrize(("change", "words"), [
    ({"layers": 6}, ["config.json"]), ({"norm_first": False}, ["model.safetensors", "configuration"]),
    ({"pad_id": 2}, ["pad"]),  # all sizes fit, but the model would take the end of a sentence for padding
])  # fmt: skip
def test_a_configuration_that_fits_nothing(folder, change, words):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    refused([folder, *words], Translator.from_pretrained, folder)


GERMAN = ["Ein Hund läuft über die Straße.", "Zwei Männer, die reden", "ein Ball"]
TRANSLATED = ["Ein Hund rennt über die straße.", "Zwei Männer, die reden", "Ball"]  # one word less: an exchange shows


def test_bleu_and_chrf_are_sacrebleus_but_perfect_is_100():
    scores = evaluate_bleu(TRANSLATED, GERMAN)
    assert scores.keys() == {"bleu", "chrf", "ter", "signature", "chrf_signature"}
    for name in ("bleu", "chrf", "ter"):
        assert 0 < scores[name] == getattr(sacrebleu, f"corpus_{name}")(TRANSLATED, [GERMAN]).score < 100
    parts = {"nrefs:1", "case:mixed", "eff:no", "tok:13a", "smooth:exp", f"version:{sacrebleu.__version__}"}
    assert parts <= {*scores["signature"].split("|")}
    json.dumps(scores)
    assert evaluate_bleu(["", "", ""], GERMAN)["bleu"] == 0
    assert sacrebleu.corpus_bleu(["a b c d"], [["a b c d"]]).score > 100  # by rounding; no score of ours is
    assert evaluate_bleu(["a b c d"], ["a b c d"])["bleu"] == 100
    for hypotheses, references in (([], []), (["a"], ["a", "b"])):
        with pytest.raises(ValueError, match=f"^expected .*; got {len(hypotheses)} and {len(references)}$"):
            evaluate_bleu(hypotheses, references)


def test_papers_do_not_care_for_case_and_quotation_marks(monkeypatch):
    """The second sentence shares 2 of 4 tokens and 1 of 3 pairs with its reference, the first one everything."""
    hypotheses = ["ein Hund läuft über „Die Straße“ , allein .", "Zwei männer reden."]
    references = ['Ein Hund läuft über "die Straße", allein.', "Zwei Männer gehen!"]
    papers = evaluate_bleu(hypotheses, references, papers="de")
    shares = (11 + 2) / (11 + 4), (10 + 1) / (10 + 3), (9 + 0) / (9 + 2), (8 + 0) / (8 + 1)
    assert papers["bleu"] == pytest.approx(100 * math.prod(shares) ** 0.25, rel=1e-12)
    assert evaluate_bleu(hypotheses, references)["bleu"] < 40
    assert "tok:none" in papers["signature"].split("|")
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    refused(["needs sacremoses: run `pip install sacremoses`"], evaluate_bleu, hypotheses, references, papers="de")


CHINESE = [f"那个年老的男人看见了一只{colour}色的猫,它正睡在温暖的房子前面。" for colour in "黑白红"]


def test_text_without_spaces_has_its_tokenizers_and_bleu_says_when_it_counts_no_words(monkeypatch):
    """A perfect translation scores 0 where there is no word, or no four in a row, and that is told."""
    with pytest.warns(UserWarning, match=r"hardly have spaces: 3 of 3 have none; expected .*\(--tokenize zh"):
        assert evaluate_bleu(CHINESE, CHINESE)["bleu"] == 0
    for tokenize in ("zh", "char"):  # and the strict filters of this suite would find a warning
        score = evaluate_bleu(CHINESE, CHINESE, tokenize=tokenize)
        assert score["bleu"] == pytest.approx(100, rel=0, abs=1e-9)
        assert f"|tok:{tokenize}|" in score["signature"]
    with pytest.warns(UserWarning, match=r"no reference has four words or signs; expected .* chrF"):
        assert evaluate_bleu(["Eine Katze."], ["Eine Katze."])["bleu"] == 0

    with pytest.raises(ValueError, match="'words'; expected one of 13a, intl, zh"):
        evaluate_bleu(CHINESE, CHINESE, tokenize="words")
    monkeypatch.setitem(sys.modules, "MeCab", None)
    refused(["ja-mecab is not installed; ", "sacrebleu[ja]"], evaluate_bleu, CHINESE, CHINESE, tokenize="ja-mecab")


def test_a_translation_without_an_end_is_told_and_its_limit_can_be_set(learned):
    """Blank sentences do not count. A ratio is learnt from the lengths of the pairs."""
    with pytest.warns(UserWarning, match=r"^6 of 6 translations were cut off; expected an end token") as found:
        short = learned.translate([*BOOK, ""], beam_size=1, max_length=2)
    assert len(found) == 1
    assert all(whole.startswith(part) and part != whole for part, whole in zip(short, BOOK.values()))
    with pytest.warns(UserWarning, match="^1 of 1 translations were cut off"):
        assert learned.n_best("a dog runs", beam_size=1, max_length=2)[0][1] == short[0]
    assert learned.translate([*BOOK], max_length=MAX_LEN) == [*BOOK.values()]
    with pytest.raises(ValueError, match=f"max_length .* 24; got {MAX_LEN + 1}"):
        learned.translate(["a dog runs"], max_length=MAX_LEN + 1)
    assert length_ratio(Counter({(4, 18): 500, (9, 28): 499})) == 2.0
    assert length_ratio(Counter({(3, 40): 1, (4, 26): 998})) == 10.0
    assert length_ratio(Counter({(3, 40): 1, (4, 26): 1, (4, 18): 999})) == 4.0  # one pair in a thousand is a mistake


def test_shipped_files_are_found_here_then_in_checkout_package_and_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "__file__", str(tmp_path / "checkout/transformer_lib/files.py"))
    monkeypatch.chdir(tmp_path)
    places = [  # later ones come first
        "cache/transformer_lib/multi30k-en-de", "checkout/transformer_lib/records/multi30k-en-de",
        "checkout/records/multi30k-en-de", "multi30k-en-de",
    ]  # fmt: skip
    refused(["multi30k-en-de", tmp_path / places[0]], Translator.from_pretrained, "multi30k-en-de")
    for width, place in enumerate(places, start=20):
        translator(d_ff=width).save(tmp_path / place)
        assert Translator.from_pretrained("multi30k-en-de").model.config.d_ff == width
