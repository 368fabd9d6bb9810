"""Data: the grammar speaks German, splits keep apart, files are read strictly, texts come back, no pair is lost."""

import copy
import gzip
import hashlib
import json
import os
import pickle
import unicodedata
from collections import Counter
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import refused

import transformer_lib.data.corpora as corpora_module
from transformer_lib.data import Batch, Tokenizer, encode_pairs, token_batches, toy_oracle
from transformer_lib.data.corpora import ParallelCorpus, load_multi30k, read_lines, read_parallel, toy_corpus

PAD, BOS, EOS = 0, 1, 2


OTHER = [
    "", "The dog", "the dog sleeps.", "The  dog sleeps.", "A old dog sleeps.", "The dog sleeps. The dog sleeps.",
    "The dog calls the cat that laughs.",  # it would tear "ruft … an" apart
    "A cat sees a dog that sleeps, and the man laughs because the dog sleeps.",  # a reason of a second main clause
    "The dog says that " + "the dog says that " * 2000 + "the dog sleeps.",
]  # fmt: skip


@pytest.mark.parametrize("english", OTHER)
def test_other_sentences_are_refused_in_one_line(english):
    refused(["toy grammar: expected "], toy_oracle, english)


def test_sizes_and_seeds():
    sizes = {"train": 20_000, "val": 500, "test": 500, "long": 200}
    corpora = {split: toy_corpus(split) for split in sizes}
    assert {split: len(corpus) for split, corpus in corpora.items()} == sizes
    for corpus in corpora.values():
        assert len(set(corpus.source)) == len(corpus)
    assert toy_corpus("train", size=50).source == corpora["train"].source[:50]
    assert toy_corpus("train", size=50, seed=1).source != corpora["train"].source[:50]
    assert len(toy_corpus("test", size=0)) == 0


def test_unknown_splits_sizes_and_sides():
    refused(["'dev'", "train, val, test, long"], toy_corpus, "dev")
    refused(["-1"], toy_corpus, "train", size=-1)
    refused(["2 source and 1 target"], ParallelCorpus, ["a", "b"], ["c"])
    refused(["unknown part of multi30k", "test_2016_flickr de"], load_multi30k, "../val", source="de", target="de")


@pytest.mark.parametrize(("raw", "lines"), [
    (b"", []), (b"a\rb\r\rc\r", ["a", "b", "", "c"]), (b"a\rb\n", ["a\rb"]),
    (b"\n", [""]), (b"a\n\n", ["a", ""]), (b"a\r\n\r\nb", ["a", "", "b"]), (b"a\r\r\n", ["a\r"]),
    (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
    ("a\u2028b\x0cc\x85d\x1ce\u2029f\rg\x0bh\n".encode(), ["a\u2028b\x0cc\x85d\x1ce\u2029f\rg\x0bh"]),
])  # fmt: skip
def test_ends_of_lines(raw, lines):
    assert read_lines("x", raw) == lines


def test_unequal_and_missing_files(tmp_path):
    english, german = tmp_path / "a.en", tmp_path / "a.de"
    english.write_bytes(b"one\ntwo\n")
    german.write_bytes(b"eins\nzwei\ndrei\n")
    refused([f"got 2 in {english} and 3 in {german}"], read_parallel, english, german)
    refused([f"cannot read {tmp_path}"], read_parallel, tmp_path, german)


# Multi30k: a small file on this machine stands in for the real one
@pytest.fixture
def multi30k(tmp_path, monkeypatch):
    (tmp_path / "remote").mkdir()
    for language, text in (("en", "A dog.\nA cat.\n"), ("de", "Ein Hund.\nEine Katze.\n")):
        packed = gzip.compress(text.encode())
        (tmp_path / "remote" / f"val.{language}.gz").write_bytes(packed)
        monkeypatch.setitem(corpora_module.MULTI30K_SHA256, ("val", language), hashlib.sha256(packed).hexdigest())
    monkeypatch.setattr(corpora_module, "MULTI30K_URL", (tmp_path / "remote").as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TRANSFORMER_LIB_DATA", raising=False)
    return tmp_path


VAL = ParallelCorpus(["A dog.", "A cat."], ["Ein Hund.", "Eine Katze."])


def test_downloads_once_into_the_cache_and_the_data_folder_comes_first(multi30k, monkeypatch):
    assert corpora_module.find_multi30k("val", "de") is None
    assert load_multi30k("val") == VAL
    cached = multi30k / "cache" / "transformer_lib" / "multi30k"
    assert sorted(path.name for path in cached.iterdir()) == ["val.de.gz", "val.en.gz"]
    mine = multi30k / "mine" / "multi30k"
    mine.mkdir(parents=True)
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(multi30k / "mine"))
    monkeypatch.setattr(corpora_module, "MULTI30K_URL", (multi30k / "nowhere").as_uri())
    assert load_multi30k("val", source="de", target="en") == ParallelCorpus(VAL.target, VAL.source)  # from the cache
    (mine / "val.en.gz").write_bytes(b"broken")
    assert corpora_module.find_multi30k("val", "en") == mine / "val.en.gz"
    refused([mine / "val.en.gz"], load_multi30k, "val")


def test_without_a_home_directory(multi30k, monkeypatch):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it does where nobody says what home is
    monkeypatch.delenv("XDG_CACHE_HOME")
    refused(["there is no home directory ", ": set XDG_CACHE_HOME"], load_multi30k, "val")


def test_a_wrong_or_failed_download_and_a_cache_that_cannot_be_written_leave_nothing(multi30k, monkeypatch):
    (multi30k / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(multi30k / "file"))
    refused(["cannot write"], load_multi30k, "val")
    monkeypatch.setenv("XDG_CACHE_HOME", str(multi30k / "cache"))
    remote = multi30k / "remote" / "val.en.gz"
    remote.write_bytes(b"<html>Too many requests</html>")
    refused(["expected the SHA-256 ", "val.en.gz"], load_multi30k, "val")
    remote.unlink()
    refused(["cannot download file:", "val.en.gz", "TRANSFORMER_LIB_DATA"], load_multi30k, "val")
    assert not (multi30k / "cache").exists()


def train_tokenizer():
    corpus = toy_corpus(size=2000)
    return Tokenizer.train(corpus.source + corpus.target, vocab_size=400)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer()


special = st.lists(st.sampled_from(["<eos>", "<pad>", "<bos>", " ", "a", "<", "eos>"])).map("".join)


@given(st.text() | special)
def test_every_text_comes_back_and_special_tokens_in_it_are_text(tokenizer, text):
    ids = tokenizer.encode(text)
    assert ids[-1] == EOS
    assert not {PAD, BOS, EOS} & set(ids[:-1])
    assert max(ids) < tokenizer.vocab_size
    assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)


def test_special_tokens_are_text_in_training():
    text = "<eos> <pad><bos>"
    greedy = Tokenizer.train([text] * 100, vocab_size=300)
    assert not {PAD, BOS, EOS} & set(greedy.encode(text)[:-1])
    assert greedy.decode(greedy.encode(text)) == text


@pytest.mark.bad_input
def test_half_a_surrogate_pair_is_named(tokenizer):
    batch, train = tokenizer.encode_batch, partial(Tokenizer.train, vocab_size=300)
    for call in (tokenizer.encode, lambda text: batch(["a dog", text]), lambda text: train(["a dog", text])):
        refused([r"expected Unicode text; got 'a \ud800 cat'"], call, "a \ud800 cat")


def test_decoding_stops_at_the_end_and_leaves_out_the_rest(tokenizer):
    ids = tokenizer.encode("The dog.")
    assert tokenizer.decode([BOS, *ids, *tokenizer.encode("never"), PAD]) == "The dog."
    assert tokenizer.decode([PAD, BOS, PAD, *ids[:-1]]) == "The dog."
    assert tokenizer.decode([]) == tokenizer.decode([EOS]) == ""
    for wrong in (-1, tokenizer.vocab_size):
        with pytest.raises(ValueError, match=f"expected tokens from 0 to {tokenizer.vocab_size - 1}; got {wrong}$"):
            tokenizer.decode([*ids, wrong, 5])


def test_a_tokenizer_trained_again_or_stored_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "t.json")
    loaded = Tokenizer.load(tmp_path / "t.json")
    assert train_tokenizer().to_json() == tokenizer.to_json()
    assert (tmp_path / "t.json").read_text("utf-8") == tokenizer.to_json() == loaded.to_json()
    assert loaded.vocab_size == tokenizer.vocab_size == 400
    for again in (loaded, pickle.loads(pickle.dumps(tokenizer)), copy.copy(tokenizer), copy.deepcopy(tokenizer)):
        assert again.encode("<eos> Bär 🦘") == tokenizer.encode("<eos> Bär 🦘")
        assert again.to_json() == tokenizer.to_json()


OTHER_KINDS = [
    lambda stored: stored.update(normalizer=None), lambda stored: stored["normalizer"].update(lowercase=True),
    lambda stored: stored["pre_tokenizer"].update(add_prefix_space=True),
    lambda stored: stored["model"]["vocab"].update({"a": 10**6}), lambda stored: stored["model"]["vocab"].pop("a"),
    lambda stored: stored["model"]["merges"].append(["a", "b", "c"]),
]  # fmt: skip


@pytest.mark.parametrize("change", OTHER_KINDS)
def test_a_tokenizer_of_another_kind_is_refused(tokenizer, tmp_path, change):
    path, stored = tmp_path / "t.json", json.loads(tokenizer.to_json())
    refused([f"cannot read {path}"], Tokenizer.load, path)
    change(stored)
    path.write_text(json.dumps(stored))
    refused([f"{path} is ", " tokenizer"], Tokenizer.load, path)


def test_one_endless_word_does_not_take_forever():
    """The trainer's time grows with the square of a word's length: without a limit this would be hours."""
    endless = Tokenizer.train(["q" * 1_000_000, "qu" * 500_000], 265)
    assert endless.decode(endless.encode("quqqq")) == "quqqq"


def test_sizes_of_the_vocabulary(tokenizer):
    assert Tokenizer.train([], vocab_size=259).vocab_size == 259
    assert Tokenizer.train(["ab"], vocab_size=1000).vocab_size == 260
    refused(["259 or more; got 258"], Tokenizer.train, ["a"], vocab_size=258)


def test_encode_pairs_skips_and_counts_and_max_len_counts_special_tokens(tokenizer):
    sources = ["The dog.", "", "The cat.", " \t", "A man.", "The dog. " * 30]
    corpus = ParallelCorpus(sources, ["Der Hund.", "x", "\u3000", "", "Ein " * 40, "y"])
    pairs, skipped = encode_pairs(corpus, tokenizer, max_len=30)
    assert skipped == 5
    assert pairs == [(tokenizer.encode("The dog."), [BOS, *tokenizer.encode("Der Hund.")])]
    corpus = ParallelCorpus(["a"], ["The old dog laughs."])
    longest = len(tokenizer.encode("The old dog laughs.")) + 1
    assert encode_pairs(corpus, tokenizer, max_len=longest)[1] == 0
    refused(["no usable pair among 1: ", f"{longest - 1} tokens"], encode_pairs, corpus, tokenizer, max_len=longest - 1)


side = st.lists(st.integers(3, 99), max_size=12)
some_pairs = st.lists(st.tuples(side, side), max_size=60)


def listed(batches, pad_id=PAD):
    """The pairs in batches, in their order; fails if padding stands anywhere but on the right."""
    found = []
    for batch in batches:
        assert isinstance(batch, Batch)
        assert batch.source.dtype == batch.target.dtype == torch.int64
        for rows in zip(*batch):
            lengths = [int((row != pad_id).sum()) for row in rows]
            assert all((row[length:] == pad_id).all() for row, length in zip(rows, lengths))
            found.append(tuple(row[:length].tolist() for row, length in zip(rows, lengths)))
    return found


@given(some_pairs, st.integers(12, 80), st.sampled_from([None, 0, 7]), st.integers(0, 2), st.sampled_from([0, 2, 100]))
def test_every_pair_is_in_one_batch_within_the_budget(pairs, budget, seed, epoch, pad_id):
    batches = list(token_batches(pairs, budget, pad_id=pad_id, seed=seed, epoch=epoch))
    assert Counter(map(repr, listed(batches, pad_id))) == Counter(map(repr, pairs))
    for source, target in batches:
        assert len(source) == len(target) >= 1
        assert len(source) * max(source.size(1), target.size(1)) <= budget
        for rows in (source, target):
            assert (rows != pad_id).any(0).all()  # no column of padding alone
