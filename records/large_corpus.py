"""Measure what it costs to start a training on many pairs, and write large_corpus.json (Linux and macOS).

Kept as it made that file; no test runs it. With PYTHONPATH=. :

python records/large_corpus.py [PAIRS …] [--folder DIR]

For each number of pairs two text files of made-up words are written below DIR, and two processes ask for the first
batch of an epoch: the first one builds the store, the second one finds it. The smallest corpus is read into memory,
too, for comparison. Other rows of the record stay. Half an hour, and three gigabytes of disk for the largest.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).resolve().with_name("large_corpus.json")
PAIRS = [100_000, 450_000, 4_500_000]


def write_corpus(folder: Path, pairs: int, *, words: int = 60_000, seed: int = 0) -> tuple[Path, Path]:
    """Write two files of made-up sentences of 4 to 25 words; the n-th word of a language is as rare as 1 / n."""
    rng, paths = np.random.default_rng(seed), (folder / "made-up.en", folder / "made-up.de")
    letters, chances = np.array(list("etaoinshrdlucmfwypvbgk")), np.cumsum(1 / np.arange(1, words + 1))
    for path in paths:
        vocabulary = ["".join(rng.choice(letters, size)) for size in rng.integers(2, 12, words)]
        with path.open("w", encoding="utf-8") as file:
            for first in range(0, pairs, 10_000):
                lengths = rng.integers(4, 26, min(10_000, pairs - first))
                drawn = np.searchsorted(chances, rng.random(lengths.sum()) * chances[-1])
                for sentence in np.split(drawn, lengths.cumsum()[:-1]):
                    file.write(" ".join([vocabulary[word] for word in sentence]) + ".\n")
    return paths


def first_batch(source: str, target: str, folder: str | None) -> None:
    """Do what a training does before its first step, with a store in the folder or, without one, in memory."""
    from transformer_lib.data import LargeCorpus, Tokenizer, encode_pairs, read_parallel, token_batches

    if folder is not None:
        store = LargeCorpus(source, target, folder, hold_out=True).open(max_len=1024, vocab_size=10_000)
        next(store.batches(4096, seed=0))
    else:
        corpus = read_parallel(source, target)
        tokenizer = Tokenizer.train(corpus.source + corpus.target, vocab_size=10_000)
        next(token_batches(encode_pairs(corpus, tokenizer, max_len=1024)[0], 4096, seed=0))


def measured(*arguments: str) -> dict[str, float]:
    """Seconds, processor seconds and most memory of `first_batch` in a process of its own."""
    began = time.monotonic()
    child = subprocess.Popen([sys.executable, __file__, "--first-batch", *arguments])
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"the child failed: {' '.join(arguments)}")
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    cpu = usage.ru_utime + usage.ru_stime
    return {
        "seconds": round(time.monotonic() - began, 1), "cpu_seconds": round(cpu, 1), "peak_mib": round(peak / 2**20),
    }  # fmt: skip


def row(folder: Path, pairs: int, *, in_memory: bool) -> dict[str, Any]:
    """What one corpus costs."""
    source, target = map(str, write_corpus(folder, pairs))
    store = folder / "store"
    found: dict[str, Any] = {"pairs": pairs, "text_mib": round(sum(map(os.path.getsize, (source, target))) / 2**20)}
    found |= {name: measured(source, target, str(store)) for name in ("first", "again")}
    if in_memory:
        found["in_memory"] = measured(source, target)
    ids, shapes = (store / "tokens.npy"), json.loads((store / "store.json").read_text(encoding="utf-8"))["shapes"]
    found["store_mib"] = round(ids.stat().st_size / 2**20)
    found["shapes"] = len(shapes)
    found["tokens_per_side"] = round(sum((n + m) * count for n, m, count in shapes) / sum(s[2] for s in shapes) / 2, 1)
    return found


def main() -> None:
    """Measure each corpus, and write the record after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="*", type=int, default=PAIRS)
    parser.add_argument("--folder", help="where the corpora go for a while")
    arguments = parser.parse_args()
    rows = {row["pairs"]: row for row in json.loads(RECORD.read_text(encoding="utf-8"))} if RECORD.exists() else {}
    for pairs in arguments.pairs:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            rows[pairs] = row(Path(folder), pairs, in_memory=pairs == min(PAIRS))
        lines = ",\n ".join(json.dumps(rows[number]) for number in sorted(rows))
        RECORD.write_text(f"[{lines}]\n", encoding="utf-8")
        print(rows[pairs])


if __name__ == "__main__":
    if "--first-batch" in sys.argv:
        source, target, *folder = sys.argv[2:]
        first_batch(source, target, folder[0] if folder else None)
    else:
        main()
