# Generated from chapters/11a_toy_grammar.md and 1 more: edit it there and `make export`, or here and `make sync`.

"""Corpora: sentences and their translations, from the toy grammar, from files, from Multi30k."""

import gzip
import hashlib
import http.client
import os
import random
import re
import unicodedata
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

from transformer_lib.data.toy_grammar import ADJECTIVES, NOUNS, toy_sentence
from transformer_lib.files import InputError, atomic_write, user_cache

HELD_OUT = {
    (adjective, noun) for i, adjective in enumerate(ADJECTIVES) for j, noun in enumerate(NOUNS) if (2 * i + j) % 7 == 0
}
LONGEST_IN_TRAIN, LONGEST = 14, 24  # words


def toy_split(english: str) -> str | None:
    """Say to which split a sentence of the toy grammar belongs; None if to none, since it is too hard for all."""
    words = re.findall(r"\w+", english)
    new, long = bool(set(pairwise(words)) & HELD_OUT), len(words) > LONGEST_IN_TRAIN
    if len(words) > LONGEST or (new and long):
        return None
    if new or long:
        return "test" if new else "long"
    return "val" if crc32(english.encode()) % 10 == 0 else "train"


def texts_of(sentences: Iterable[str]) -> Iterator[str]:
    """The sentences of anything that has them one behind the other, by their places: labels and indices play no part.

    Args:
        sentences: a list, a generator, a column of a table (pandas, polars, pyarrow) or an array of numpy; what is
            bytes is read as UTF-8.

    Raises:
        TypeError: it is one string, a whole table, or without an order, or something in it is no string.
    """
    if isinstance(sentences, str | bytes | os.PathLike):
        name = os.fsdecode(sentences)
        names_a_file = os.path.isfile(name) or re.fullmatch(r"\S+\.[A-Za-z]\w{0,4}", name)
        hint = ": a file's lines are Path(…).read_text().splitlines()" if names_a_file else ": put it into a list"
        raise TypeError(f"expected a list of sentences; got one string, {name[:60]!r}{hint}")
    if isinstance(sentences, Mapping) or hasattr(sentences, "columns") or hasattr(sentences, "column_names"):
        raise TypeError(f"expected a list of sentences; got a {type(sentences).__name__}: give one column of it")
    if isinstance(sentences, set | frozenset):
        raise TypeError(f"expected a list of sentences; got a {type(sentences).__name__}, which has no order")
    try:
        found = iter(sentences)
    except TypeError as error:
        raise TypeError(f"expected a list of sentences; got {_shown(sentences)}") from error
    return (text if type(text) is str else _text_of(text, place) for place, text in enumerate(found))


def _text_of(given: Any, place: int) -> str:
    """A plain string of what is nearly one, at a place of many; or a TypeError."""
    text = given.as_py() if hasattr(given, "as_py") else given  # a scalar of pyarrow
    if getattr(text, "shape", None) == () and hasattr(text, "item"):  # an array of one number or text
        text = text.item()
    if isinstance(text, bytes):
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise TypeError(f"expected UTF-8; got {text[:60]!r} at place {place}") from error
    if isinstance(text, str):
        return str.__str__(text)
    remedy = "leave it out, or put an empty string there"
    if isinstance(text, list | tuple) or getattr(given, "shape", False):
        remedy = "give one flat list; of nested references, sacrebleu's form, one list, such as references[0]"
    raise TypeError(f"expected a sentence, a string; got {_shown(text)} at place {place}, counted from 0: {remedy}")


def _shown(given: object) -> str:
    """The beginning of what Python prints, on one line."""
    return " ".join(repr(given).split())[:60]


def fingerprint(*texts: str) -> int:
    """A number of 64 bits for a sentence or a pair; spaces, capitals and normal forms make no difference."""
    plain = "\n".join(" ".join(unicodedata.normalize("NFKC", text.casefold()).split()) for text in texts)
    return int.from_bytes(hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


@dataclass(frozen=True)
class ParallelCorpus:
    """Sentences and their translations: `target[i]` translates `source[i]`. Both become lists, see `texts_of`.

    Raises:
        InputError: the two are not equally long.
        TypeError: one is no sequence of strings.
    """

    source: list[str]
    target: list[str]

    def __post_init__(self) -> None:
        for side in ("source", "target"):
            object.__setattr__(self, side, list(texts_of(getattr(self, side))))
        if len(self.source) != len(self.target):
            sizes = f"{len(self.source)} source and {len(self.target)} target"
            raise InputError(f"expected as many source as target sentences; got {sizes}")

    def __len__(self) -> int:
        return len(self.source)


TOY_SIZES = {"train": 20_000, "val": 500, "test": 500, "long": 200}


def toy_corpus(split: str = "train", *, size: int | None = None, seed: int = 0) -> ParallelCorpus:
    """A split of the toy corpus, English to German, every sentence once. The same arguments give the same pairs.

    Splits are disjoint, whatever their sizes and seeds: a sentence itself decides where it belongs.

    Args:
        split: "train"; "val", like it; "test", where every sentence has an adjective with a noun that "train" never
            puts together; or "long", sentences of more words than any in "train".
        size: number of pairs; None = 20,000 for "train", 500 for "val" and "test", 200 for "long".
        seed: another seed gives other sentences.

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


NO_TEXT = {  # how files begin that hold something else
    b"\x1f\x8b": "a compressed file (gzip)", b"BZh": "a compressed file (bzip2)", b"\xfd7zXZ": "a compressed file (xz)",
    b"\x28\xb5\x2f\xfd": "a compressed file (zstd)", b"PK\x03\x04": "an archive (zip) or a document",
    b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16",
}  # fmt: skip


def read_lines(name: str, data: bytes, *, first: int = 1) -> list[str]:
    """Decode UTF-8 and split it at newlines, and nowhere else; where there is none, at carriage returns.

    A byte order mark in front, one carriage return at the end of a line, and the newline at the very end are dropped.

    Args:
        name: what to call the data in an error.
        data: the bytes.
        first: the number of their first line, if they are a later part of a file.

    Raises:
        InputError: a line is not UTF-8, or holds a NUL byte, as text in UTF-16 does.
    """
    kind = next((kind for start, kind in NO_TEXT.items() if first == 1 and data.startswith(start)), None)
    try:
        text = data.decode("utf-8-sig" if first == 1 else "utf-8")
        if "\0" in text:
            raise UnicodeDecodeError("utf-8", data, at := data.index(0), at + 1, "NUL")
    except UnicodeDecodeError as error:
        number, byte = error.object.count(b"\n", 0, error.start) + first, error.object[error.start]
        got = f"the byte 0x{byte:02x}" if byte else "a NUL byte, as in UTF-16"
        remedy = "unpack it first" if kind and kind != "UTF-16" else "save it as UTF-8"
        raise InputError(f"{name}, line {number}: got {kind or got}; expected UTF-8: {remedy}") from error
    lines = text.split("\n" if "\n" in text or first > 1 else "\r")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def is_blank(text: str) -> bool:
    """Whether nothing of a text is seen: it has only spaces, control and format characters, and marks on nothing."""
    unseen = ("Zs", "Zl", "Zp", "Cc", "Cf", "Mn")
    return all(unicodedata.category(letter) in unseen or letter in "\u115f\u1160\u2800\u3164\uffa0" for letter in text)


@contextmanager
def open_bytes(path: str | Path) -> Iterator[BufferedReader]:
    """Open a file to read its bytes; if the system cannot, raise an InputError that names the file."""
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def read_bytes(path: str | Path) -> bytes:
    """The whole of a file, or an InputError that names it."""
    with open_bytes(path) as file:
        return file.read()


def require_lines(path: str | Path, count: int) -> None:
    """Raise an InputError if a file has no lines."""
    if not count:
        raise InputError(f"{path} is empty; expected a sentence in each line: name another file")


def read_parallel(source_file: str | Path, target_file: str | Path) -> ParallelCorpus:
    """Read two text files that are translations of each other, line by line (see `read_lines`); empty lines stay.

    Raises:
        InputError: a file cannot be read, is empty or not UTF-8, or the files have different numbers of lines.
    """
    source, target = (read_lines(str(path), read_bytes(path)) for path in (source_file, target_file))
    for path, lines in ((source_file, source), (target_file, target)):
        require_lines(path, len(lines))
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
    ("test_2017_flickr", "en"): "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
    ("test_2017_flickr", "de"): "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    ("test_2017_mscoco", "en"): "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58",
    ("test_2017_mscoco", "de"): "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338",
}


def load_multi30k(
    split: str, *, source: str = "en", target: str = "de", beside: str | Path | None = None
) -> ParallelCorpus:
    """Load a split of Multi30k (Elliott et al. 2016): from disk, or else by download into the user's cache.

    Looked for in `$TRANSFORMER_LIB_DATA/multi30k`, then in `transformer_lib/multi30k` under `$XDG_CACHE_HOME` or
    `~/.cache`. For research and education only.

    Args:
        split: "train" (29,000 pairs), "val" (1,014), "test_2016_flickr", "test_2017_flickr" (1,000 each) or
            "test_2017_mscoco" (461).
        source: "en" or "de".
        target: likewise.
        beside: a folder whose folder multi30k, if there is one, comes before the others.

    Raises:
        InputError: the split or a language is unknown, the download fails or cannot be stored, a file has another
            checksum, or there is no home directory to look in.
    """
    return ParallelCorpus(*(_multi30k_lines(split, language, beside) for language in (source, target)))


def find_multi30k(split: str, language: str, beside: str | Path | None = None) -> Path | None:
    """The file of Multi30k that `load_multi30k` reads, or None if it has to be downloaded first."""
    files = (folder / f"{split}.{language}.gz" for folder in _multi30k_folders(beside))
    return next((file for file in files if file.exists()), None)


def _multi30k_folders(beside: str | Path | None = None) -> Iterator[Path]:
    """Where to look; the last one is the cache."""
    if beside is not None:
        yield Path(beside, "multi30k")
    if data := os.environ.get("TRANSFORMER_LIB_DATA"):
        yield Path(os.path.expanduser(data), "multi30k")
    yield user_cache() / "multi30k"


def _multi30k_lines(split: str, language: str, beside: str | Path | None) -> list[str]:
    if (split, language) not in MULTI30K_SHA256:
        known = "; ".join(f"{split} {language}" for split, language in MULTI30K_SHA256)
        raise InputError(f"unknown part of multi30k: {split!r} {language!r}: expected one of {known}")
    name, path = f"{split}.{language}.gz", find_multi30k(split, language, beside)
    data = read_bytes(path) if path else _download(f"{MULTI30K_URL}/{name}")
    expected, found = MULTI30K_SHA256[split, language], hashlib.sha256(data).hexdigest()
    if found != expected:
        remedy = f"{path}: delete it, or replace it" if path else f"{MULTI30K_URL}/{name}: try again later"
        raise InputError(f"expected the SHA-256 {expected[:12]}…; got {found[:12]}… from {remedy}")
    if not path:
        *_, cache = _multi30k_folders()
        atomic_write(cache / name, data)
    return read_lines(name, gzip.decompress(data))


def _download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.read()
    except (OSError, http.client.HTTPException) as error:
        raise InputError(
            f"cannot download {url}: {error}; try again, or set TRANSFORMER_LIB_DATA to the folder that holds multi30k"
        ) from error
