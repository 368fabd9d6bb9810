# Generated from chapters/B_files.md: edit it there and `make export`, or here and `make sync`.

"""A corpus that does not fit into memory: encoded once, sorted by length, and read from a file."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

import numpy as np
import torch

from transformer_lib.data.batching import Batch
from transformer_lib.data.corpora import ParallelCorpus, fingerprint, is_blank, open_bytes, read_lines, require_lines
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.files import InputError, atomic_path, atomic_write, folder_lock

CHUNK = 10_000  # pairs that are in memory at a time
SAMPLE = 500_000  # pairs that a tokenizer is trained on, at most


def put_aside(sources: Iterable[str]) -> set[int]:
    """The fingerprints of the sentences whose pairs are put aside for validation: one pair in twenty, and at most 500.

    The fingerprint itself decides, so all pairs of a sentence stay on one side, and the order plays no part. A sentence
    with too many pairs is left to the training, unless all are so and it has no more than a quarter of the pairs.
    """
    size, bound, counts = 0, 2**64, Counter[int]()  # exact for the fingerprints below the bound
    for source in sources:
        size += 1
        if (number := fingerprint(source)) < bound and not is_blank(source):
            counts[number] += 1
            if len(counts) > 2000:
                bound = sorted(counts)[1000]
                counts = Counter({number: count for number, count in counts.items() if number < bound})
    left, chosen = min(size // 20, 500), set[int]()
    for number in sorted(counts):
        if counts[number] <= left:
            chosen.add(number)
            left -= counts[number]
    if left and not chosen and counts:
        rarest = min(counts, key=lambda number: (counts[number], number))
        return {rarest} if counts[rarest] <= size / 4 else set()
    return chosen


def _lines(path: str | Path) -> Iterator[str]:
    """The lines of a file as `read_lines` gives them, with a megabyte of it in memory."""
    first = 1
    with open_bytes(path) as file:
        while part := file.readlines(2**20):
            yield from read_lines(str(path), b"".join(part), first=first)
            first += len(part)


def _digest(path: str | Path) -> str:
    """The SHA-256 of a file."""
    with open_bytes(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


Shape = tuple[int, int]  # source length, target length


def _encode(
    pairs: Iterator[tuple[str, str]], tokenizer: Tokenizer, max_len: int, dtype: type, ids: IO[bytes], shapes: IO[bytes]
) -> tuple[Counter[Shape], np.ndarray]:
    """Append the ids of the usable pairs to one file and their shapes to another.

    Returns:
        How many pairs have each shape, and the fingerprints of all.
    """
    counts, prints = Counter[Shape](), [np.zeros(0, np.uint64)]
    while chunk := list(islice(pairs, CHUNK)):
        texts = [pair for pair in chunk if not any(map(is_blank, pair))]
        sources, targets = (tokenizer.encode_batch([pair[side] for pair in texts]) for side in (0, 1))
        encoded = [(source, [tokenizer.bos_id, *target]) for source, target in zip(sources, targets)]
        usable = [pair for pair in encoded if max(map(len, pair)) <= max_len]
        found = [(len(source), len(target)) for source, target in usable]
        counts.update(found)
        kept = (text for text, pair in zip(texts, encoded) if max(map(len, pair)) <= max_len)
        prints.append(np.fromiter((fingerprint(*text) for text in kept), np.uint64))
        ids.write(np.fromiter(chain.from_iterable(chain.from_iterable(usable)), dtype).tobytes())
        shapes.write(np.array(found, np.int32).tobytes())
    return counts, np.concatenate(prints)


def _in_order(shapes: Counter[Shape]) -> list[Shape]:
    """From short to long, as `token_batches` sorts."""
    return sorted(shapes, key=lambda shape: (max(shape), shape[1], shape[0]))


def _sort(ids: IO[bytes], shapes: IO[bytes], counts: Counter[Shape], out: np.ndarray) -> None:
    """Copy the ids of each pair behind those of the earlier pairs of its shape."""
    order = _in_order(counts)
    free = dict(zip(order, accumulate((sum(shape) * counts[shape] for shape in order), initial=0)))
    while len(chunk := np.fromfile(shapes, np.int32, 2 * CHUNK).reshape(-1, 2)):
        lengths, places = chunk.sum(axis=1, dtype=np.int64), list[int]()
        for n, m in chunk.tolist():
            places.append(free[n, m])
            free[n, m] += n + m
        some = np.fromfile(ids, out.dtype, lengths.sum())
        shifts = np.array(places) - (lengths.cumsum() - lengths)  # from where a pair stands to where it goes
        out[np.repeat(shifts, lengths) + np.arange(len(some))] = some


class PairStore:
    """The pairs of a corpus as token ids in a file: for each shape (source length, target length) one matrix.

    The shapes are in the order of `token_batches` without a seed, and the pairs of one shape in that of the text.
    `LargeCorpus.open` makes stores. `held_out` has the sentences that were put aside for validation, `skipped` counts
    the pairs that are blank on a side or too long, `fingerprints` has one number for each pair, in the order of the
    text, and two stores of the same pairs have the same `checksum`.
    """

    def __init__(self, folder: str | Path) -> None:
        stored = json.loads(Path(folder, "store.json").read_text(encoding="utf-8"))
        self.made_of, self.vocab_size, self.skipped = stored["made_of"], stored["vocab_size"], stored["skipped"]
        self.checksum = hashlib.sha256(json.dumps(self.made_of, sort_keys=True).encode()).hexdigest()
        self.held_out = ParallelCorpus(*stored["held_out"])
        self.tokenizer = Tokenizer.load(Path(folder, "tokenizer.json"))
        ids = np.asarray(np.load(Path(folder, "tokens.npy"), mmap_mode="r"))
        self.fingerprints = np.load(Path(folder, "fingerprints.npy"), mmap_mode="r")
        self.shapes: list[Shape] = [(n, m) for n, m, _ in stored["shapes"]]
        ends = np.cumsum([(n + m) * count for n, m, count in stored["shapes"]])
        self.matrices = [part.reshape(-1, n + m) for part, (n, m) in zip(np.split(ids, ends[:-1]), self.shapes)]
        self.ends = np.cumsum([len(matrix) for matrix in self.matrices])  # the number of pairs up to each shape

    def __len__(self) -> int:
        return int(self.ends[-1])

    def batches(
        self, batch_tokens: int, *, pad_id: int = 0, seed: int | None = None, epoch: int = 0, start: int = 0
    ) -> Iterator[Batch]:
        """Pack the pairs into batches as `token_batches` does, with the same arguments; read each when it is asked for.

        Without a seed the batches are the same. With one their shapes are the same, and each pair is in one of them.

        Raises:
            InputError: a pair alone is over the budget.
        """
        if (longest := max(self.shapes[-1])) > batch_tokens:
            raise InputError(f"expected pairs of at most batch_tokens = {batch_tokens} tokens; got {longest}")
        begins = self._batch_begins(batch_tokens)
        ends, order, rows = [*begins[1:], len(self)], np.arange(len(begins)), None
        if seed is not None:
            key = hashlib.sha512(f"{seed} {epoch}".encode()).digest()
            draw = np.random.RandomState(np.frombuffer(key, "<u4"))  # which NumPy has promised never to change
            order, rows = (
                draw.permutation(order),
                [draw.permutation(np.arange(len(own), dtype=np.uint32)) for own in self.matrices],
            )
        return (self._batch(begins[number], ends[number], pad_id, rows) for number in order[start:])

    def _batch_begins(self, batch_tokens: int) -> np.ndarray:
        """The number of the first pair of each batch, from short to long."""
        begins, begin = [np.zeros(1, np.int64)], 0
        for shape, matrix, end in zip(self.shapes, self.matrices, self.ends):
            most = batch_tokens // max(shape)
            if end - begin > most:  # not all of these pairs fit into the batch that is open
                begins.append(np.arange(max(end - len(matrix), begin + most), end, most))
                begin = begins[-1][-1]
        return np.concatenate(begins)

    def _batch(self, begin: int, end: int, pad_id: int, rows: list[np.ndarray] | None) -> Batch:
        """The pairs with the numbers begin … end - 1; with `rows`, an order for each shape, others of these shapes."""
        first, last = np.searchsorted(self.ends, [begin, end - 1], side="right")
        widths = np.max(self.shapes[first : last + 1], axis=0).tolist()
        source, target = (torch.full((end - begin, width), pad_id) for width in widths)
        for number in range(first, last + 1):
            (n, m), matrix = self.shapes[number], self.matrices[number]
            before = self.ends[number] - len(matrix)
            places = np.arange(max(begin, before), min(end, self.ends[number]))
            places -= before
            own = matrix[places if rows is None else rows[number][places]]  # (pairs, n + m)
            ids = torch.from_numpy(own.astype(np.int64))
            places += before - begin
            source[places, :n], target[places, :m] = ids[:, :n], ids[:, n:]
        return Batch(source, target)


@dataclass(frozen=True)
class LargeCorpus:
    """Two text files, line by line translations of each other, and the folder for their `PairStore`.

    A pipe is read once and copied. With `hold_out`, one pair in twenty but at most 500 are put aside for
    validation, see `put_aside`.
    """

    source: str | Path
    target: str | Path
    folder: str | Path
    hold_out: bool = False

    def open(self, *, max_len: int, vocab_size: int, tokenizer: Tokenizer | None = None) -> PairStore:
        """Open the store in the folder. If there is none, or one of other texts or another tokenizer, build it first.

        Args:
            max_len: the most tokens that a side may have, special tokens included.
            vocab_size: the size of the tokenizer that is trained if none is given, on at most 500,000 pairs.
            tokenizer: what encodes the texts; None = the one in the store, or else a new one.

        Raises:
            InputError: a file cannot be read, is empty or not UTF-8, the files have different numbers of lines, no pair
                is usable, or the folder cannot be written.
        """
        if any(Path(path).is_fifo() for path in (self.source, self.target)):
            with self._copied() as copies:
                return copies.open(max_len=max_len, vocab_size=vocab_size, tokenizer=tokenizer)
        made_of: dict[str, Any] = {"source": _digest(self.source), "target": _digest(self.target)}
        made_of |= {"max_len": max_len, "hold_out": "by fingerprint" if self.hold_out else ""}
        if tokenizer is not None:
            made_of["tokenizer"] = _digest_of(tokenizer)

        def stored() -> PairStore | None:
            try:
                store = PairStore(self.folder)
                same = all(store.made_of[name] == value for name, value in made_of.items())
            except (OSError, ValueError, KeyError, TypeError):  # there is none, a part of one, or an older one
                return None
            return store if same and (tokenizer is not None or store.vocab_size == vocab_size) else None

        if store := stored():
            return store
        sizes = [sum(1 for _ in _lines(path)) for path in (self.source, self.target)]  # before anything is written
        for path, size in zip((self.source, self.target), sizes):
            require_lines(path, size)
        if sizes[0] != sizes[1]:
            counts = f"{sizes[0]} in {self.source} and {sizes[1]} in {self.target}"
            raise InputError(f"expected as many lines in both files; got {counts}")
        with folder_lock(self.folder, wait=True):
            if store := stored():  # another process has built it meanwhile
                return store
            self._build(made_of, sizes[0], vocab_size, tokenizer)
            return PairStore(self.folder)

    @contextmanager
    def _copied(self) -> Iterator[LargeCorpus]:
        """The same with copies of what can be read once only, which errors call by its own name."""
        names, folder = (self.source, self.target), Path(self.folder)
        made = [place for place in (folder, *folder.parents) if not place.exists()]
        copies = list(names)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=folder) as place:
                for number, name in enumerate(names):
                    if Path(name).is_fifo():
                        copies[number] = Path(place, str(number))
                        with open(name, "rb") as text, open(copies[number], "wb") as file:
                            shutil.copyfileobj(text, file)
                yield replace(self, source=copies[0], target=copies[1])
        except OSError as error:
            raise InputError(f"cannot copy the texts into {folder}: {error.strerror or error}") from error
        except InputError as error:
            said = str(error)
            for name, copy in zip(names, copies):
                said = said.replace(str(copy), str(name))
            raise InputError(said) from error
        finally:
            for empty in made:
                with suppress(OSError):  # it is not
                    empty.rmdir()

    def _pairs(self, aside: set[int], held_out: list[tuple[str, str]] | None = None) -> Iterator[tuple[str, str]]:
        """All pairs but those whose source has a fingerprint in `aside`; they go to `held_out`."""
        for pair in zip(_lines(self.source), _lines(self.target)):
            if not aside or fingerprint(pair[0]) not in aside:
                yield pair
            elif held_out is not None:
                held_out.append(pair)

    def _build(self, made_of: dict[str, Any], size: int, vocab_size: int, tokenizer: Tokenizer | None) -> None:
        from tqdm import tqdm  # here, so that importing the library stays fast

        folder, aside = Path(self.folder), put_aside(_lines(self.source)) if self.hold_out else set[int]()
        (folder / "store.json").unlink(missing_ok=True)  # it is written last: without it there is no store
        stored: dict[str, Any] = {"made_of": made_of, "vocab_size": None if tokenizer else vocab_size}
        if tokenizer is None:
            sample = islice(self._pairs(aside), 0, None, math.ceil(size / SAMPLE) or 1)
            tokenizer = Tokenizer.train(chain.from_iterable(sample), vocab_size)
            made_of["tokenizer"] = _digest_of(tokenizer)
        held_out, dtype = list[tuple[str, str]](), np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32
        with (
            atomic_path(folder / "tokens.npy") as part,
            TemporaryFile(dir=folder) as ids,
            TemporaryFile(dir=folder) as shapes,
            tqdm(self._pairs(aside, held_out), desc="encode", total=size, unit="pair", disable=None) as pairs,
        ):
            counts, prints = _encode(iter(pairs), tokenizer, made_of["max_len"], dtype, ids, shapes)
            if not counts:
                why = f"all are blank on a side or longer than {made_of['max_len']} tokens"
                raise InputError(f"no usable pair among {size}: {why}")
            ids.seek(0)
            shapes.seek(0)
            total = sum(sum(shape) * count for shape, count in counts.items())
            out = np.lib.format.open_memmap(part, "w+", dtype, (total,))
            if hasattr(os, "posix_fallocate"):  # so that a full disk is an error here, and no crash later
                with part.open("rb+") as file:
                    os.posix_fallocate(file.fileno(), 0, part.stat().st_size)
            _sort(ids, shapes, counts, out)
            out.flush()
        tokenizer.save(folder / "tokenizer.json")
        with atomic_path(folder / "fingerprints.npy") as part, part.open("wb") as file:
            np.save(file, prints)
        stored["skipped"] = size - len(held_out) - counts.total()
        stored["held_out"] = [[pair[side] for pair in held_out] for side in (0, 1)]
        stored["shapes"] = [(*shape, counts[shape]) for shape in _in_order(counts)]
        atomic_write(folder / "store.json", json.dumps(stored))


def _digest_of(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(tokenizer.to_json().encode()).hexdigest()
