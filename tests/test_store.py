"""Corpora in a file: the batches of a list, in memory that does not grow, and a store of other texts is noticed."""

import os
import random
import subprocess
import tracemalloc
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from record import log_of
from small import MICRO, call, recorded_training, refused

from transformer_lib import recipes
from transformer_lib.data import LargeCorpus, PairStore, Tokenizer, encode_pairs, read_parallel, token_batches
from transformer_lib.data import store as store_module

MAX_LEN, VOCAB = 40, 300


def write_texts(folder, count=600, seed=0):
    rng, texts = random.Random(seed), []
    for _ in range(2):
        lines = [" ".join(rng.choices(["dog", "Hund", "🦘", "a", "\u2028"], k=rng.randint(1, 9))) for _ in range(count)]
        lines[7], lines[count // 2], lines[-1] = " \t", "", "long " * 50
        texts.append(lines)
    (folder / "a").write_bytes(b"\xef\xbb\xbf" + "".join(line + "\r\n" for line in texts[0]).encode())
    (folder / "b").write_bytes("\n".join(texts[1]).encode())
    return folder / "a", folder / "b"


def opened(corpus, **options):
    return corpus.open(**{"max_len": MAX_LEN, "vocab_size": VOCAB} | options)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def both(texts, tmp_path_factory):
    """The same pairs as a list and as a store, which is built in many small parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "CHUNK", 70)
        store = opened(LargeCorpus(*texts, tmp_path_factory.mktemp("store")))
    corpus = read_parallel(*texts)
    tokenizer = Tokenizer.train(corpus.source + corpus.target, VOCAB)
    assert store.tokenizer.to_json() == tokenizer.to_json()
    pairs, skipped = encode_pairs(corpus, tokenizer, max_len=MAX_LEN)
    assert skipped > 0
    assert (len(store), store.skipped) == (len(pairs), skipped)
    return pairs, store


def same(ours, theirs):
    return all(torch.equal(a, b) for one, two in zip(ours, theirs, strict=True) for a, b in zip(one, two))


def test_a_budget_below_a_pair_is_refused_as_for_a_list(both):
    pairs, store = both
    longest = max(len(side) for pair in pairs for side in pair)
    for batches in (store.batches, partial(token_batches, pairs)):
        refused([f"at most batch_tokens = {longest - 1} tokens; got {longest}"], batches, longest - 1)


def test_a_store_is_built_once_and_again_when_something_differs(texts, tmp_path, monkeypatch):
    builds, build, checksums = [], LargeCorpus._build, set()
    monkeypatch.setattr(LargeCorpus, "_build", lambda *arguments: builds.append(1) or build(*arguments))
    source, target, folder = tmp_path / "a", tmp_path / "b", tmp_path / "store"
    for path, copy in zip(texts, (source, target)):
        copy.write_bytes(path.read_bytes())
    corpus, held_out = LargeCorpus(source, target, folder), LargeCorpus(source, target, folder, hold_out=True)

    def expect(number, corpus=corpus, **options):
        checksums.add(opened(corpus, **options).checksum)
        assert len(builds) == number

    expect(1)
    expect(1, tokenizer=PairStore(folder).tokenizer)
    assert len(checksums) == 1
    data, times = target.read_bytes(), target.stat()
    target.write_bytes(data.replace(b"dog", b"cat", 1))  # as long as before, and as old
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
    expect(2)
    expect(3, vocab_size=VOCAB - 30)
    expect(4, max_len=MAX_LEN - 1, vocab_size=VOCAB - 30)
    expect(5, held_out)
    assert len(checksums) == 5
    for number, (name, length) in enumerate({"tokens.npy": -10, "store.json": 2}.items(), 6):  # cut short
        (folder / name).write_bytes((folder / name).read_bytes()[:length])
        expect(number, held_out)
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["fingerprints.npy", "store.json", "tokenizer.json", "tokens.npy"]


def test_bad_texts_are_named_before_anything_is_written(tmp_path):
    source, target = write_texts(tmp_path)
    corpus = LargeCorpus(source, target, tmp_path / "store")
    data = target.read_bytes()
    target.write_bytes(data + b"\none more")
    refused([f"600 in {source} and 601 in {target}"], opened, corpus)
    target.write_bytes(b"a line\n" * 300_000 + b"\xe4\n")  # more than is read at once
    refused([f"{target}, line 300001: got the byte 0xe4; expected UTF-8"], opened, corpus)
    target.unlink()
    refused([f"cannot read {target}"], opened, corpus)
    assert not (tmp_path / "store").exists()
    source.write_text("\n")
    target.write_text("\n")
    refused(["no usable pair among 1"], opened, corpus)
    assert list((tmp_path / "store").iterdir()) == []


@contextmanager
def piped(path):
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as process:
        yield f"/dev/fd/{process.stdout.fileno()}"


def test_a_text_that_can_be_read_once_is_copied_first(texts, tmp_path):
    named = opened(LargeCorpus(*texts, tmp_path / "named"))
    kept = set()
    for _ in range(2):
        with piped(texts[0]) as source, piped(texts[1]) as target:
            assert opened(LargeCorpus(source, target, tmp_path / "piped")).checksum == named.checksum
        kept.add((tmp_path / "piped" / "tokens.npy").stat().st_ino)
    assert len(kept) == 1
    assert sorted(os.listdir(tmp_path / "piped")) == sorted(os.listdir(tmp_path / "named"))


def test_a_store_and_an_epoch_need_little_more_memory_for_many_pairs_than_for_few(tmp_path, monkeypatch):
    """Eight times as many pairs: so many bytes for each. All their texts are read at once; lists would need 800.

    An epoch keeps the number of each pair (4 bytes) shuffled, beside those of one shape in order, and its batches.
    """
    for name in ("CHUNK", "SAMPLE"):
        monkeypatch.setattr(store_module, name, 500)
    peaks, sizes = [], (300, 3000, 24_000)  # the first for what is made once, whatever the size
    for size in sizes:
        for name in ("a", "b"):
            (tmp_path / name).write_text("".join(f"{'x' * (number % 5)} {number % 7}\n" for number in range(size)))
        tracemalloc.start()
        store = opened(LargeCorpus(tmp_path / "a", tmp_path / "b", tmp_path / str(size)))
        built = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert sum(len(batch.source) for batch in store.batches(1000, seed=0)) == size
        peaks.append((built, tracemalloc.get_traced_memory()[1]))
        tracemalloc.stop()
    for few, many, bound in zip(*peaks[1:], (400, 12), strict=True):
        assert many - few < bound * (sizes[2] - sizes[1])


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setitem(recipes.PRESETS, "small", MICRO)
    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        status, out, err = call("train", "--source", "a", "--target", "b", "--device", "cpu", *arguments)
        return status, out, (err.splitlines() or [""])[-1]

    return run


def test_a_run_goes_on_in_the_middle_of_an_epoch(run, tmp_path):
    """Bit for bit, over the end of an epoch as well; without its store, or with another text, it is refused."""
    for out, steps in (("whole", 60), ("parts", 3), ("parts", 50), ("parts", 60)):
        assert run("--out", out, "--store", "store", "--steps", steps, "--resume")[0] == 0
    assert log_of(tmp_path / "whole")[-1]["epoch"] == 1
    whole, parts = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts
    for store in ([], ["--store", "store"]):
        status, _, line = run("--out", "parts", "--steps", 61, "--resume", *store)
        assert (status, "trained with another set of pairs: " in line) == (2, True)
        (tmp_path / "b").write_text((tmp_path / "b").read_text().replace("dog", "cat", 1))


def test_large_texts_get_a_store_in_the_run(run, tmp_path, monkeypatch):
    """It has the pairs, the pairs put aside and the tokenizer that the lists would have."""
    seen = recorded_training(monkeypatch)
    small = run("--out", "small", "--steps", 1)
    pairs, val_pairs = seen["pairs"], seen["val_pairs"]
    monkeypatch.setattr(recipes, "LARGE", 1000)
    assert run("--out", "large", "--steps", 1) == small
    assert seen["val_pairs"] == val_pairs != []
    assert same(seen["pairs"].batches(101), token_batches(pairs, 101))
    files = {name: {path.name for path in (tmp_path / name).iterdir()} for name in ("small", "large")}
    assert files["large"] == files["small"] | {"store"}
    assert (tmp_path / "small" / "tokenizer.json").read_bytes() == (tmp_path / "large" / "tokenizer.json").read_bytes()
