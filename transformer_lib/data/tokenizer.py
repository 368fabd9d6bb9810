# Generated from chapters/08a_bpe.md: edit it there and `make export`, or here and `make sync`.

"""Text to tokens and back: byte-pair encoding over bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_lib.data.corpora import read_bytes, texts_of
from transformer_lib.files import InputError, atomic_write, one_line

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine

_SPECIALS = ("<pad>", "<bos>", "<eos>")  # ids 0, 1, 2
LARGEST = 2**24  # bytes of a stored tokenizer


def _read_engine(path: str | Path) -> Engine:
    """Only the merges are taken over: the rest of the file must be what this library makes of them."""
    if Path(path).is_file() and (size := Path(path).stat().st_size) > LARGEST:
        raise InputError(f"{path} is no tokenizer: expected at most {LARGEST} bytes; got {size}")
    data = read_bytes(path)
    try:
        stored = json.loads(data)
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in stored["model"]["merges"]]
        engine = _engine_of([(left, right) for left, right in pairs])
        same, ours = stored["model"]["vocab"] == engine.get_vocab(), json.loads(engine.to_str())
        for part in ("normalizer", "pre_tokenizer", "decoder"):  # older libraries stored fewer options
            same = same and "type" in stored[part] and stored[part].items() <= ours[part].items()
    except Exception as error:  # the engine raises plain Exception
        raise InputError(f"{path} is no tokenizer, or only a part of one ({one_line(error)})") from error
    if not same:
        raise InputError(f"{path} is another kind of tokenizer: expected one that this library stored")
    return engine


def _engine_of(merges: list[tuple[str, str]]) -> Engine:
    """The tokenizer of some merges: first special tokens, then bytes, then what the merges make."""
    from tokenizers import Tokenizer as Engine  # here, so that importing the library stays fast
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = dict.fromkeys([*_SPECIALS, *alphabet, *map("".join, merges)])
    engine = Engine(models.BPE({piece: number for number, piece in enumerate(pieces)}, merges))
    engine.normalizer = normalizers.NFC()
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens(list(_SPECIALS))
    return engine


class Tokenizer:
    """Byte-pair encoding (Sennrich et al. 2016) over bytes: any text becomes tokens, and comes back in NFC.

    Made by `train` or `load`. Token 0 is padding, 1 the beginning and 2 the end of a sentence. A text that looks like
    one of these is ordinary text.
    """

    pad_id, bos_id, eos_id = 0, 1, 2

    def __init__(self, engine: Engine) -> None:
        engine.encode_special_tokens = True  # not stored in the file, so it is set here
        self._engine = engine

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[Engine]]:
        """Pickle and copy by way of `__init__`, for the same reason."""
        return type(self), (self._engine,)

    @classmethod
    def train(cls, sentences: Iterable[str], vocab_size: int) -> Tokenizer:
        """Learn the pieces from sentences; for one tokenizer of both languages, the sentences of both.

        `vocab_size` is the largest number of tokens: 256 bytes, 3 special tokens, the rest merges.

        Raises:
            InputError: `vocab_size` is below 259, or a sentence holds half a surrogate pair, which is no Unicode text;
                or the tokenizer would be larger than `load` reads.
            TypeError: `sentences` is one string, or something in it is none.
        """
        from tokenizers import pre_tokenizers, trainers

        alphabet = pre_tokenizers.ByteLevel.alphabet()
        smallest = len(alphabet) + len(_SPECIALS)
        if vocab_size < smallest:
            raise InputError(f"expected a vocab_size of {smallest} or more; got {vocab_size}")
        engine = _engine_of([])
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=list(_SPECIALS), initial_alphabet=alphabet, show_progress=False
        )
        longest = 1000  # the trainer's time grows with the square of a word's length, and a line may be one word
        parts = (text[at : at + longest] for text in texts_of(sentences) for at in range(0, len(text), longest))
        try:
            engine.train_from_iterator(parts, trainer)
        except UnicodeEncodeError as error:
            raise InputError(f"expected Unicode text; got {error.object!r}") from error
        made = cls(engine)
        made.to_json()
        return made

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read what `save` wrote.

        Raises:
            InputError: there is no such file, it is no tokenizer, or it has more than 16 MiB, some 200,000 tokens.
        """
        return cls(_read_engine(path))

    def save(self, path: str | Path) -> None:
        """Write the tokenizer as JSON, or raise an InputError."""
        atomic_write(path, self.to_json())

    def to_json(self) -> str:
        """Give the text that `save` writes; an InputError if it is too large for `load`."""
        text = self._engine.to_str(pretty=True)
        if (size := len(text.encode())) > LARGEST:
            tokens = f"{self.vocab_size} tokens take {size} bytes, and at most {LARGEST} are read again"
            raise InputError(f"the tokenizer is too large: {tokens}; lower vocab_size (--vocab-size)")
        return text

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, special ones included."""
        return self._engine.get_vocab_size()

    def encode(self, sentence: str) -> list[int]:
        """Cut a sentence into tokens, the last of which is `eos_id`.

        Raises:
            InputError: the string holds half a surrogate pair.
        """
        try:
            ids = self._engine.encode(sentence).ids
        except TypeError as error:
            raise InputError(f"expected Unicode text; got {sentence!r}") from error
        return [*ids, self.eos_id]

    def encode_batch(self, sentences: Sequence[str]) -> list[list[int]]:
        """Encode many sentences at once, on all processor cores; errors as in `encode`."""
        texts = list(texts_of(sentences))
        try:
            encodings = self._engine.encode_batch_fast(texts)
        except TypeError:  # one of them is no Unicode text, and `encode` names it
            return [self.encode(text) for text in texts]
        return [[*encoding.ids, self.eos_id] for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Put tokens together, up to the first `eos_id`; padding and `bos_id` are left out.

        Bytes that are not UTF-8, as a half-trained model may produce, become U+FFFD.

        Raises:
            ValueError: there is no token of such an id.
        """
        tokens, size = list(ids), self._engine.get_vocab_size()
        for token in tokens:
            if not 0 <= token < size:
                raise ValueError(f"expected tokens from 0 to {size - 1}; got {token}")
        end = tokens.index(self.eos_id) if self.eos_id in tokens else len(tokens)
        return self._engine.decode(tokens[:end], skip_special_tokens=True)
