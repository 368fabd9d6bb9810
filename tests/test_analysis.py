"""What the last chapter says about the recorded translator is measured by functions that are right on small cases."""

from collections import Counter
from types import SimpleNamespace

import analysis
import heads
import pytest
import torch
from aligner import align, dictionary, words
from reference import randomise

from transformer_lib.data import ParallelCorpus, Tokenizer
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.translation import Translator

TEXT = ["a little dog runs", "two dogs run", "ein kleiner Hund läuft", "zwei Hunde laufen schnell"]
TOKENIZER = Tokenizer.train(TEXT, 300)


def small_model(seed=0, **options):
    torch.manual_seed(seed)
    sizes = {"d_model": 12, "num_heads": 3, "d_ff": 20, "num_encoder_layers": 1, "num_decoder_layers": 2}
    size = TOKENIZER.vocab_size
    return randomise(Transformer(TransformerConfig(size, size, 0, **(sizes | options)))).eval()


def pairs():
    ids = [(TOKENIZER.encode(TEXT[n]), [1, *TOKENIZER.encode(TEXT[n + 2])]) for n in (0, 1)]
    return [*ids, (ids[1][0], ids[0][1])]


def test_recall_counts_each_word_in_its_bin_and_no_more_often_than_it_was_said():
    assert analysis.how_often(["a dog, a cat", "a dog."]) == {"a": 3, "dog": 2, ",": 1, "cat": 1, ".": 1}
    seen = Counter({"der": 5000, "Hund": 100, "bellt": 9, "Katze": 1})
    reference = [["der", "Hund", "und", "der", "Hund"], ["Katze", "bellt"]]
    said = [["der", "der", "der", "Hund"], ["bellt", "bellt"]]
    found = analysis.recall_by_frequency(said, reference, seen)
    assert found == {"from": [0, 1, 10, 100, 1000], "words": [1, 2, 0, 2, 2], "found": [0, 1, 0, 1, 2]}


def test_calibration_bins():
    confidence = torch.tensor([0.0, 0.24, 0.25, 0.6, 0.99, 1.0])
    right = torch.tensor([False, True, True, False, True, False])
    sums = {"count": [2, 1, 1, 2], "confidence": [0.24, 0.25, 0.6, 1.99], "right": [1.0, 1.0, 0.0, 1.0]}
    assert analysis.calibration(confidence, right, bins=4) == sums


def test_guesses_are_those_of_each_real_next_token():
    model = small_model()
    expected = []
    for source, target in pairs():
        logits = model(torch.tensor([source]), torch.tensor([target[:-1]]))[0]
        for row, label in zip(logits.softmax(-1), target[1:]):
            expected.append((round(row.max().item(), 4), row.argmax().item() == label))
    confidence, right = analysis.best_guesses(model, pairs())
    assert sorted((round(c, 4), r) for c, r in zip(confidence.tolist(), right.tolist())) == sorted(expected)


@pytest.mark.parametrize("text", ["ein kleiner Hund, läuft!", "Ölgötze", "\u6f22 dog"])
def test_each_token_belongs_to_the_word_that_it_is_a_piece_of(text):
    tokens, of = TOKENIZER.encode(text), analysis.words(text)
    numbers = heads.word_of_each_token(TOKENIZER, tokens, of)
    assert numbers[-1] == -1  # the end token
    pieces = [[token for token, number in zip(tokens, numbers) if number == word] for word in range(len(of))]
    assert [TOKENIZER.decode(own).strip() for own in pieces] == of


def test_weights_between_words_are_means_of_sums():
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.1, 0.3], [0.25, 0.25, 0.25, 0.25]])
    between = heads.between_words(weights, [0, 0, 1], [0, 1, 1, -1])
    assert torch.allclose(between, torch.tensor([[0.3, 0.35], [0.25, 0.5]]), rtol=0, atol=1e-6)


def test_hits_count_links_whose_source_has_the_most_weight():
    first = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.1, 0.4], [0.1, 0.3, 0.6]])
    weights = torch.stack([first, first.flip(1)])[None]  # (1 layer, 2 heads, 3, 3)
    assert heads.hits(weights, [(0, 0), (2, 1), (2, 2)]).tolist() == [[2, 1]]
    assert heads.hits(weights, []).tolist() == [[0, 0]]


def test_agreement_tells_the_row_that_predicts_from_the_row_that_reads(monkeypatch):
    """A translator whose one head looks at the word to be predicted, and then at the one after it."""
    source, target = "a little dog", "ein kleiner Hund"
    tokens = TOKENIZER.encode(source), TOKENIZER.encode(target)
    owners = [heads.word_of_each_token(TOKENIZER, ids, t.split()) for ids, t in zip(tokens, (source, target))]
    weights = torch.zeros(1, 1, len(tokens[1]), len(tokens[0]))
    for row, word in enumerate(owners[1]):
        weights[0, 0, row, owners[0].index(word)] = 1
    speaker = Translator(small_model(num_heads=1, num_decoder_layers=1), TOKENIZER)
    monkeypatch.setattr(speaker, "attention", lambda *_: SimpleNamespace(weights=weights))
    corpus = ParallelCorpus([source], [target])
    found = heads.alignment(speaker, corpus, [[(0, 0), (1, 1), (2, 2)]])
    assert (found["predicting"], found["links"]) == ([[1.0, 1.0]], 3)  # the head, and the mean of the one head
    assert found["reading"][0][0] < 1
    found = heads.alignment(speaker, corpus, [[(0, 0), (2, 0)]])
    off = found["off the diagonal"]
    assert (found["predicting"], off["predicting"], off["links"]) == ([[0.5, 0.5]], [[0.0, 0.0]], 1)


@pytest.mark.parametrize("norm_first", [False, True])
def test_cutting_a_head_equals_removing_it(norm_first):
    """Removing: its columns of the output projection are gone, so that nothing of it can arrive."""
    source, target = (torch.tensor([side]) for side in pairs()[0])
    model = small_model(norm_first=norm_first)
    whole = model(source, target)
    for name, head in heads.all_heads(model)[1::4]:
        smaller = small_model(norm_first=norm_first)
        with torch.no_grad():
            smaller.get_submodule(name).out_projection.weight[:, 4 * head : 4 * head + 4] = 0
        with heads.without_heads(model, [(name, head)]):
            cut = model(source, target)
        assert torch.allclose(cut, smaller(source, target), rtol=0, atol=1e-5)
        assert not torch.allclose(cut, whole, rtol=0, atol=1e-3)
        assert torch.equal(model(source, target), whole)  # grown again


# --- the word aligner must find links that a reader can check ---
SENTENCES = {
    "a dog runs": "ein Hund läuft", "a cat runs": "ein Kater läuft", "a dog sleeps": "ein Hund schläft",
    "the cat has slept": "der Kater hat geschlafen", "the cat has the ball": "der Kater hat den Ball",
    "the dog has the ball seen": "der Hund hat den Ball gesehen", "a dog": "ein Hund",
}  # fmt: skip
PAIRS = [(words(source), words(target)) for source, target in SENTENCES.items()]


def test_words_that_come_together_are_linked():
    """By what they mean, not only by where they stand; a word that has no counterpart stays without."""
    assert align(PAIRS)[:3] == [[(0, 0), (1, 1), (2, 2)]] * 3
    assert dictionary(PAIRS).items() >= {"a": "ein", "dog": "Hund", "cat": "Kater", "ball": "Ball"}.items()
    assert align([*PAIRS * 5, (words("runs a dog"), words("ein Hund läuft"))])[-1] == [(0, 2), (1, 0), (2, 1)]
    extra = [(words("a dog"), words("ja ein Hund")), (words("the cat"), words("ja der Kater"))] * 3
    assert align([*PAIRS, *extra])[-2:] == [[(0, 1), (1, 2)]] * 2
