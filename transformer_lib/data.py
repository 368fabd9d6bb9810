# Generated from chapters/09_data.md: edit the chapter, not this file, then run `make export`.


# chapters/09_data.md: Four splits that keep their promise
"""Text, tokens and batches: corpora, byte-pair encoding, and batches of sentences of nearly equal length."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import http.client
import os
import random
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.files import UserError, atomic_write
from transformer_lib.toy import toy_oracle, toy_sentence, toy_split

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine


# chapters/09_data.md: Four splits that keep their promise
@dataclass(frozen=True)
class ParallelCorpus:
    """Sentences and their translations: `target[i]` translates `source[i]`.

    Args:
        source: one sentence each.
        target: as many.

    Raises:
        UserError: the two are not equally long.
    """

    source: list[str]
    target: list[str]

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            lengths = f"{len(self.source)} source and {len(self.target)} target"
            raise UserError(f"expected as many source as target sentences; got {lengths}")

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
        UserError: the split is unknown, or the size negative.
    """
    if split not in TOY_SIZES:
        raise UserError(f"unknown split {split!r} of the toy corpus: expected one of {', '.join(TOY_SIZES)}")
    size = TOY_SIZES[split] if size is None else size
    if size < 0:
        raise UserError(f"expected a size of 0 or more; got {size}")
    rng, pairs = random.Random(f"{split} {seed}"), dict[str, str]()
    while len(pairs) < size:
        english, german = toy_sentence(rng, eagerness=2 if split == "long" else 1)
        if toy_split(english) == split:
            pairs[english] = german
    return ParallelCorpus(list(pairs), list(pairs.values()))


# chapters/09_data.md: Your own files
def read_lines(name: str, data: bytes) -> list[str]:
    r"""Decode UTF-8 and split it at newlines, and nowhere else.

    Args:
        name: what to call the data in an error.
        data: the bytes. A byte order mark in front, one carriage return at the end of a line, and the newline at the
            very end are dropped.

    Returns:
        The lines, without their ends.

    Raises:
        UserError: a line is not UTF-8.
    """
    lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
    if not lines[-1]:
        lines.pop()
    texts = []
    for number, line in enumerate(lines, start=1):
        try:
            texts.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}, line {number}: expected UTF-8; got the byte 0x{line[error.start]:02x}: save it as UTF-8"
            ) from error
    return texts


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def read_parallel(source_file: str | Path, target_file: str | Path) -> ParallelCorpus:
    """Read two text files, one sentence a line (see `read_lines`).

    Args:
        source_file: the sentences.
        target_file: their translations, line by line.

    Returns:
        The pairs, empty lines included.

    Raises:
        UserError: a file cannot be read or is not UTF-8, or the files have different numbers of lines.
    """
    source, target = (read_lines(str(path), _read(path)) for path in (source_file, target_file))
    if len(source) != len(target):
        counts = f"{len(source)} in {source_file} and {len(target)} in {target_file}"
        raise UserError(f"expected as many lines in both files; got {counts}")
    return ParallelCorpus(source, target)


# chapters/09_data.md: Real sentences: Multi30k
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
        UserError: the split or a language is unknown, the download fails or cannot be stored, or a file does not have
            the checksum that it must have.
    """
    return ParallelCorpus(*(_multi30k_lines(split, language) for language in (source, target)))


def _multi30k_lines(split: str, language: str) -> list[str]:
    if (split, language) not in MULTI30K_SHA256:
        known = "; ".join(f"{split} {language}" for split, language in MULTI30K_SHA256)
        raise UserError(f"unknown part of multi30k: {split!r} {language!r}: expected one of {known}")
    name = f"{split}.{language}.gz"
    cached = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "transformer_lib" / "multi30k" / name
    given = os.environ.get("TRANSFORMER_LIB_DATA")
    for path in ([Path(given, "multi30k", name)] if given else []) + [cached]:
        if path.exists():
            data = _checked(_read(path), MULTI30K_SHA256[split, language], f"{path}: delete it, or replace it")
            break
    else:
        url = f"{MULTI30K_URL}/{name}"
        data = _checked(_download(url), MULTI30K_SHA256[split, language], f"{url}: try again later")
        atomic_write(cached, data)
    return read_lines(name, gzip.decompress(data))


def _checked(data: bytes, expected: str, place: str) -> bytes:
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise UserError(f"expected the SHA-256 {expected[:12]}…; got {found[:12]}… from {place}")
    return data


def _download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.read()
    except (OSError, http.client.HTTPException) as error:
        raise UserError(
            f"cannot download {url}: {error}; try again, or set TRANSFORMER_LIB_DATA to the folder that holds multi30k"
        ) from error


# chapters/09_data.md: The tokenizer
class Tokenizer:
    """Byte-pair encoding (Sennrich et al. 2016) over bytes: any text becomes tokens, and comes back in NFC.

    Made by `train` or `load`. Token 0 is padding, 1 the beginning and 2 the end of a sentence. A text that looks like
    one of these is ordinary text.
    """

    pad_id, bos_id, eos_id = 0, 1, 2
    _specials = ("<pad>", "<bos>", "<eos>")

    def __init__(self, engine: Engine) -> None:
        engine.encode_special_tokens = True  # not stored in the file, so it is set here
        self._engine = engine

    @classmethod
    def train(cls, sentences: Iterable[str], vocab_size: int) -> Tokenizer:
        """Learn the pieces from sentences.

        Args:
            sentences: for one tokenizer of both languages, the sentences of both.
            vocab_size: how many tokens to have at most: 256 bytes, 3 special tokens, the rest merges.

        Returns:
            The tokenizer. Few sentences may give fewer tokens than asked for.

        Raises:
            UserError: `vocab_size` is below 259.
        """
        from tokenizers import Tokenizer as Engine  # here, so that importing the library stays fast
        from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

        alphabet = pre_tokenizers.ByteLevel.alphabet()
        if vocab_size < len(alphabet) + len(cls._specials):
            raise UserError(f"expected a vocab_size of {len(alphabet) + len(cls._specials)} or more; got {vocab_size}")
        engine = Engine(models.BPE())
        engine.normalizer = normalizers.NFC()
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        engine.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=list(cls._specials), initial_alphabet=alphabet, show_progress=False
        )
        engine.train_from_iterator(sentences, trainer)
        return cls(engine)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read what `save` wrote.

        Raises:
            UserError: there is no such file, or it holds no tokenizer with our special tokens.
        """
        from tokenizers import Tokenizer as Engine

        try:
            engine = Engine.from_str(_read(path).decode())
        except UserError:
            raise
        except Exception as error:  # the library raises plain Exception
            raise UserError(f"{path} is no tokenizer, or only a part of one: {error}") from error
        if [engine.token_to_id(token) for token in cls._specials] != [cls.pad_id, cls.bos_id, cls.eos_id]:
            raise UserError(
                f"{path} is another kind of tokenizer: expected {', '.join(cls._specials)} as tokens 0, 1, 2"
            )
        return cls(engine)

    def save(self, path: str | Path) -> None:
        """Write the tokenizer as JSON.

        Raises:
            UserError: the file cannot be written.
        """
        atomic_write(path, self.to_json())

    def to_json(self) -> str:
        """Give the text that `save` writes."""
        return self._engine.to_str(pretty=True)

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, special ones included."""
        return self._engine.get_vocab_size()

    def encode(self, sentence: str) -> list[int]:
        """Cut a sentence into tokens, the last of which is `eos_id`.

        Raises:
            UserError: the string holds half a surrogate pair, which is no Unicode text.
        """
        try:
            return [*self._engine.encode(sentence).ids, self.eos_id]
        except TypeError as error:
            raise UserError(f"expected Unicode text; got {sentence!r}") from error

    def decode(self, ids: Iterable[int]) -> str:
        """Put tokens together, up to the first `eos_id`; padding and `bos_id` are left out.

        Bytes that are not UTF-8, as a half-trained model may produce, become U+FFFD.

        Raises:
            ValueError: there is no token of such a number.
        """
        numbers = list(ids)
        if any(not 0 <= number < self.vocab_size for number in numbers):
            raise ValueError(f"expected tokens from 0 to {self.vocab_size - 1}; got {numbers}")
        end = numbers.index(self.eos_id) if self.eos_id in numbers else len(numbers)
        return self._engine.decode(numbers[:end], skip_special_tokens=True)


# chapters/09_data.md: Batches
def encode_pairs(
    corpus: ParallelCorpus, tokenizer: Tokenizer, *, max_len: int
) -> tuple[list[tuple[list[int], list[int]]], int]:
    """Turn a corpus into pairs of token lists.

    Args:
        corpus: sentences and translations.
        tokenizer: one for both languages.
        max_len: the most tokens that a side may have, special tokens included.

    Returns:
        The pairs (source … eos, bos target … eos), and how many were skipped because a side was blank or too long.

    Raises:
        UserError: no pair is left.
    """
    pairs = []
    for source, target in zip(corpus.source, corpus.target):
        pair = tokenizer.encode(source), [tokenizer.bos_id, *tokenizer.encode(target)]
        if source.strip() and target.strip() and _width(pair) <= max_len:
            pairs.append(pair)
    if not pairs:
        raise UserError(f"no usable pair among {len(corpus)}: all are blank on a side or longer than {max_len} tokens")
    return pairs, len(corpus) - len(pairs)


def _width(pair: tuple[list[int], list[int]]) -> int:
    """The length of the longer side."""
    return max(map(len, pair))


# chapters/09_data.md: By length
class Batch(NamedTuple):
    """Token numbers of some pairs, padded on the right: `source` (rows, n) and `target` (rows, m)."""

    source: Tensor
    target: Tensor


def token_batches(
    pairs: Sequence[tuple[list[int], list[int]]],
    batch_tokens: int,
    *,
    pad_id: int = 0,
    seed: int | None = None,
    epoch: int = 0,
) -> list[Batch]:
    """Pack pairs of similar length into batches; each pair is in one batch.

    Args:
        pairs: (source, target) token lists.
        batch_tokens: the budget: rows times the longest side of a batch is never more.
        pad_id: what short rows are filled up with, on the right.
        seed: None = from short to long, in the given order among equals; a number = shuffled.
        epoch: with the same seed, another epoch gives another order.

    Returns:
        The batches, whose tensors hold int64.

    Raises:
        UserError: a pair alone is over the budget.
    """
    rng, order = random.Random(f"{seed} {epoch}"), list(pairs)
    if seed is not None:
        order.sort(key=lambda _: rng.random())
    order.sort(key=lambda pair: (_width(pair), len(pair[1]), len(pair[0])))
    if order and _width(order[-1]) > batch_tokens:
        raise UserError(f"expected pairs of at most batch_tokens = {batch_tokens} tokens; got {_width(order[-1])}")
    groups = [order[:0]]
    for pair in order:
        if (len(groups[-1]) + 1) * _width(pair) > batch_tokens:
            groups.append([])
        groups[-1].append(pair)
    if seed is not None:
        groups.sort(key=lambda _: rng.random())
    return [Batch(*(_pad(side, pad_id) for side in zip(*group))) for group in groups if group]


def _pad(sentences: Sequence[list[int]], pad_id: int) -> Tensor:
    rows = [torch.tensor(sentence, dtype=torch.long) for sentence in sentences]
    return pad_sequence(rows, batch_first=True, padding_value=pad_id)  # (rows, longest)


__all__ = [
    "ParallelCorpus",
    "toy_corpus",
    "toy_oracle",
    "load_multi30k",
    "read_lines",
    "read_parallel",
    "Tokenizer",
    "encode_pairs",
    "Batch",
    "token_batches",
]
