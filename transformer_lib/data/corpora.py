# Generated from chapters/09_data.md: edit the chapter, not this file, then run `make export`.

"""Corpora: sentences and their translations, from the toy grammar, from files, from Multi30k."""

import codecs
import gzip
import hashlib
import http.client
import os
import random
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from transformer_lib.data.toy_grammar import toy_sentence, toy_split
from transformer_lib.serialization import InputError, atomic_write


@dataclass(frozen=True)
class ParallelCorpus:
    """Sentences and their translations: `target[i]` translates `source[i]`.

    Args:
        source: one sentence each.
        target: as many.

    Raises:
        InputError: the two are not equally long.
    """

    source: list[str]
    target: list[str]

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            lengths = f"{len(self.source)} source and {len(self.target)} target"
            raise InputError(f"expected as many source as target sentences; got {lengths}")

    def __len__(self) -> int:
        return len(self.source)


TOY_SIZES = {"train": 20_000, "val": 500, "test": 500, "long": 200}


def toy_corpus(split: str = "train", *, size: int | None = None, seed: int = 0) -> ParallelCorpus:
    """Write a split of the toy corpus: English to German, every sentence once.

    Splits are disjoint, whatever their sizes and seeds: a sentence itself decides where it belongs.

    Args:
        split: "train"; "val", like it; "test", where every sentence has an adjective with a noun that "train" never
            puts together; or "long", sentences of more words than any in "train".
        size: number of pairs; None = 20,000 for "train", 500 for "val" and "test", 200 for "long".
        seed: another seed gives other sentences.

    Returns:
        The pairs. The same arguments give the same pairs on every machine.

    Raises:
        InputError: the split is unknown, or the size negative.
    """
    if split not in TOY_SIZES:
        raise InputError(f"unknown split {split!r} of the toy corpus: expected one of {', '.join(TOY_SIZES)}")
    size = TOY_SIZES[split] if size is None else size
    if size < 0:
        raise InputError(f"expected a size of 0 or more; got {size}")
    rng, pairs = random.Random(f"{split} {seed}"), dict[str, str]()
    while len(pairs) < size:
        english, german = toy_sentence(rng, eagerness=2 if split == "long" else 1)
        if toy_split(english) == split:
            pairs[english] = german
    return ParallelCorpus(list(pairs), list(pairs.values()))


def read_lines(name: str, data: bytes) -> list[str]:
    r"""Decode UTF-8 and split it at newlines, and nowhere else.

    Args:
        name: what to call the data in an error.
        data: the bytes. A byte order mark in front, one carriage return at the end of a line, and the newline at the
            very end are dropped.

    Returns:
        The lines, without their ends.

    Raises:
        InputError: a line is not UTF-8.
    """
    lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
    if not lines[-1]:
        lines.pop()
    texts = []
    for number, line in enumerate(lines, start=1):
        try:
            texts.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}, line {number}: expected UTF-8; got the byte 0x{line[error.start]:02x}: save it as UTF-8"
            ) from error
    return texts


def read_bytes(path: str | Path) -> bytes:
    """The whole of a file, or a InputError that names it."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def read_parallel(source_file: str | Path, target_file: str | Path) -> ParallelCorpus:
    """Read two text files, one sentence a line (see `read_lines`).

    Args:
        source_file: the sentences.
        target_file: their translations, line by line.

    Returns:
        The pairs, empty lines included.

    Raises:
        InputError: a file cannot be read or is not UTF-8, or the files have different numbers of lines.
    """
    source, target = (read_lines(str(path), read_bytes(path)) for path in (source_file, target_file))
    if len(source) != len(target):
        counts = f"{len(source)} in {source_file} and {len(target)} in {target_file}"
        raise InputError(f"expected as many lines in both files; got {counts}")
    return ParallelCorpus(source, target)


MULTI30K_URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
MULTI30K_SHA256 = {
    ("train", "en"): "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    ("train", "de"): "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    ("val", "en"): "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    ("val", "de"): "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    ("test_2016_flickr", "en"): "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    ("test_2016_flickr", "de"): "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
}


def load_multi30k(split: str, *, source: str = "en", target: str = "de") -> ParallelCorpus:
    """Load a split of Multi30k (Elliott et al. 2016): from disk, or else by download into the user's cache.

    Looked for in `$TRANSFORMER_LIB_DATA/multi30k`, then in `transformer_lib/multi30k` under `$XDG_CACHE_HOME` or
    `~/.cache`. For research and education only.

    Args:
        split: "train", "val" or "test_2016_flickr".
        source: "en" or "de".
        target: likewise.

    Returns:
        The pairs, of which the three splits have 29,000, 1,014 and 1,000.

    Raises:
        InputError: the split or a language is unknown, the download fails or cannot be stored, a file does not have
            the checksum that it must have, or there is no home directory to look in.
    """
    return ParallelCorpus(*(_multi30k_lines(split, language) for language in (source, target)))


def find_multi30k(split: str, language: str) -> Path | None:
    """The file of Multi30k that `load_multi30k` reads, or None if it has to be downloaded first."""
    name, given = f"{split}.{language}.gz", os.environ.get("TRANSFORMER_LIB_DATA")
    if given and (file := _expanded(given) / "multi30k" / name).exists():
        return file
    return file if (file := _cache() / name).exists() else None


def _cache() -> Path:
    return _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "transformer_lib" / "multi30k"


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InputError(
            f"there is no home directory for {path}: set TRANSFORMER_LIB_DATA to the folder that holds multi30k"
        ) from error


def _multi30k_lines(split: str, language: str) -> list[str]:
    if (split, language) not in MULTI30K_SHA256:
        known = "; ".join(f"{split} {language}" for split, language in MULTI30K_SHA256)
        raise InputError(f"unknown part of multi30k: {split!r} {language!r}: expected one of {known}")
    name, expected = f"{split}.{language}.gz", MULTI30K_SHA256[split, language]
    path, url = find_multi30k(split, language), f"{MULTI30K_URL}/{name}"
    if path:
        data = _checked(read_bytes(path), expected, f"{path}: delete it, or replace it")
    else:
        data = _checked(_download(url), expected, f"{url}: try again later")
        atomic_write(_cache() / name, data)
    return read_lines(name, gzip.decompress(data))


def _checked(data: bytes, expected: str, place: str) -> bytes:
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise InputError(f"expected the SHA-256 {expected[:12]}…; got {found[:12]}… from {place}")
    return data


def _download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.read()
    except (OSError, http.client.HTTPException) as error:
        raise InputError(
            f"cannot download {url}: {error}; try again, or set TRANSFORMER_LIB_DATA to the folder that holds multi30k"
        ) from error
