# Generated from chapters/11a_toy_grammar.md and 1 more: edit it there and `make export`, or here and `make sync`.

"""A translator: a tokenizer and a search."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data import Tokenizer
from transformer_lib.data.corpora import is_blank, texts_of
from transformer_lib.decoding import Hypothesis, beam_search
from transformer_lib.files import SHIPPED, InputError, atomic_write, one_line, shipped
from transformer_lib.model import Transformer, TransformerConfig, evaluation
from transformer_lib.precision import mixed_precision, prepare_device
from transformer_lib.weights import load_weights, save_weights

_CUT = "%d of %d translations were cut off; expected an end token before: allow more with max_length (--max-length)"
_NO_TEXT = "expected a sentence, a string; got %.60s"
KEPT = "architecture.py"  # the copy of the file of a model of your own, in the directory of a run
_LINE_ENDS = re.compile("[ \\t-\\r\\x1c-\\x1e\\x85\\u2028\\u2029]+")  # spaces of other kinds are letters, and stay


class Attention(NamedTuple):
    """Tokens of both sides, and cross-attention weights (layers, heads, target length, source length)."""

    source: list[str]
    target: list[str]
    weights: Tensor


class ModelSearch:
    """Beam search with a model in PyTorch.

    Args:
        model: what has `encode`, `decode`, `output_projection` and `config` like a `Transformer`; it is put into
            evaluation mode and moved to `device`.
        tokenizer: whose special tokens are read.
        device: where to compute: "cpu" or "cuda".
        precision: as in `Translator`.

    Raises:
        InputError: as in `Translator`.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, device: str | torch.device, precision: str) -> None:
        _require_one_vocabulary(model.config, tokenizer)
        place = prepare_device(device, precision)
        self.model, self.tokenizer, self.device = model.to(place).eval(), tokenizer, device
        self.precision = mixed_precision(device, precision)  # a block to compute in
        self.max_len = model.config.max_len

    def __call__(self, sources: list[list[int]], limits: list[int], **options: Any) -> list[list[Hypothesis]]:
        """The hypotheses for each source, best first, of at most so many tokens, with `options` of `beam_search`."""
        rows, tokenizer = [torch.tensor(source) for source in sources], self.tokenizer
        source = pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_id)  # (sentences, n)
        options |= {"bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id, "max_length": limits}
        with self.precision:
            return beam_search(self.model, source.to(self.device), **options)


class Translator:
    """A tokenizer and a search: text in, text out. Use it from one thread at a time.

    Args:
        model: what is searched with: a `Transformer`, an `Ensemble`, or another search, such as an `EngineSearch`, to
            which device and precision do not matter.
        tokenizer: one for both languages.
        device: where to compute: "cpu" or "cuda".
        precision: what matrices are multiplied in: "bf16", "fp16", "fp32", or what `chosen_dtype` says for "auto".
        length_ratio: a translation of n tokens gets at most this times n, plus ten; see `length_ratio`.

    Raises:
        InputError: the device is another, torch does not find it, or model and tokenizer differ in the sizes of their
            vocabularies or in `pad_id`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        *,
        device: str | torch.device = "cpu",
        precision: str = "auto",
        length_ratio: float = 2.0,
    ) -> None:
        is_model = isinstance(model, nn.Module)
        self.search = ModelSearch(model, tokenizer, device, precision) if is_model else model
        self.tokenizer, self.max_len, self.length_ratio = tokenizer, self.search.max_len, length_ratio

    @property
    def model(self) -> Any:
        """The model that is searched with.

        Raises:
            InputError: the search is one in another engine.
        """
        if not isinstance(self.search, ModelSearch):
            raise InputError("an exported translator has no model: load the directory that it was exported from")
        return self.search.model

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        device: str | torch.device = "cpu",
        precision: str = "auto",
        build: Callable[[TransformerConfig], Transformer] = Transformer,
    ) -> Translator:
        """Load what `save` or the command `train --out` wrote.

        Args:
            path: the directory; or "multi30k-en-de", the translator that comes with the course (see `shipped`).
            device: where to compute.
            precision: as in `Translator`.
            build: makes the model of a configuration, such as a subclass of `Transformer`.

        Raises:
            InputError: a file is missing or damaged, the files do not belong together, or as in `Translator`.
        """
        prepare_device(device)
        folder = Path(path)
        if str(path) in SHIPPED and not folder.is_dir():
            folder = shipped(str(path))
        (config, ratio), tokenizer = _read_config(folder), Tokenizer.load(folder / "tokenizer.json")
        try:
            _require_one_vocabulary(config, tokenizer)
        except InputError as error:
            raise InputError(f"{folder}: {error}") from error
        if build is Transformer and (kept := has_own_model(folder)):
            remedy = f"read {kept}, then give --architecture {kept}:FUNCTION, in Python build="
            raise InputError(f"{folder} has a model of its own: {remedy}")
        _require_plausible(config, folder / "model.safetensors")
        model = build(config)
        load_weights(folder / "model.safetensors", model)
        if not all(parameter.isfinite().all() for parameter in model.parameters()):
            raise InputError(f"{folder / 'model.safetensors'} is damaged: it holds numbers that are not finite")
        return cls(model, tokenizer, device=device, precision=precision, length_ratio=ratio)

    def save(self, path: str | Path, *, weights: bool = True) -> None:
        """Write config.json, tokenizer.json, the file of your own model and, unless told otherwise, model.safetensors.

        Raises:
            InputError: the directory cannot be written, or the model is an ensemble.
        """
        folder = Path(path)
        config = asdict(self._single_model().config) | {"length_ratio": self.length_ratio}
        atomic_write(folder / "config.json", json.dumps(config, indent=1) + "\n")
        atomic_write(folder / "tokenizer.json", self.tokenizer.to_json())
        if isinstance(code := getattr(self.model, "code", None), bytes):  # of a model of one's own
            atomic_write(folder / KEPT, code)
        if weights:
            save_weights(folder / "model.safetensors", self.model)

    def check_config(self, path: str | Path) -> None:
        """Raise an InputError if the model stored in a directory has another configuration than this one."""
        ours, theirs = asdict(self._single_model().config), asdict(_read_config(Path(path))[0])
        different = [f"{name} = {theirs[name]}, not {ours[name]}" for name in ours if ours[name] != theirs[name]]
        if different:
            raise InputError(f"{path} holds a model of another configuration: {'; '.join(different)}")

    def _single_model(self) -> Transformer:
        """The model, or an InputError if it is several."""
        if hasattr(self.model, "models"):
            raise InputError("an ensemble has no files of its own: save its members, each in its directory")
        return self.model

    def translate(
        self,
        sentences: Iterable[str],
        *,
        beam_size: int = 5,
        length_penalty: float = 1.0,
        batch_size: int = 64,
        max_length: int | None = None,
    ) -> list[str]:
        """Translate sentences, each by itself.

        Args:
            sentences: strings, in a list, a column of a table, or anything else that `texts_of` reads; an empty or
                blank one is answered by an empty string. One longer than the model's `max_len` is cut, with a warning.
            beam_size: hypotheses kept; 1 is greedy.
            length_penalty: the exponent of the length in the score, see `beam_search`.
            batch_size: sentences searched at once.
            max_length: the most tokens of a translation, its end token counted. None = `length_ratio` times the tokens
                of the sentence, plus ten. A warning counts those that were cut off there.

        Returns:
            One translation for each sentence, in their order.

        Raises:
            TypeError: `sentences` is one string, or holds something else.
            ValueError: `batch_size` or `beam_size` is below 1, `length_penalty` not from 0 to 50, or `max_length` not
                from 1 to the model's `max_len`.
        """
        sentences = list(texts_of(sentences))
        for name, size in (("batch_size", batch_size), ("beam_size", beam_size)):
            if not isinstance(size, Integral) or size < 1:
                raise ValueError(f"{name} must be a whole number, at least 1; got {size!r}")
        if max_length is not None and not (isinstance(max_length, Integral) and 1 <= max_length <= self.max_len):
            raise ValueError(f"max_length must be from 1 to the model's {self.max_len}; got {max_length!r}")
        spoken = [n for n, text in enumerate(sentences) if not is_blank(text)]
        tokens = dict(zip(spoken, self._encode([sentences[n] for n in spoken])))
        answers, unfinished = [""] * len(sentences), 0
        order = sorted(tokens, key=lambda n: len(tokens[n]))
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            found = self._search([tokens[n] for n in numbers], max_length, beam_size, length_penalty)
            for n, (best, *_) in zip(numbers, found):
                answers[n] = _LINE_ENDS.sub(" ", self.tokenizer.decode(best.tokens)).strip(" ")
                unfinished += not best.finished
        if unfinished:
            warnings.warn(_CUT % (unfinished, len(spoken)), stacklevel=2)
        return answers

    def _search(
        self, sources: list[list[int]], max_length: int | None, beam_size: int = 5, length_penalty: float = 1.0
    ) -> list[list[Hypothesis]]:
        """The hypotheses for each source, best first."""
        limits = [
            min(math.ceil(self.length_ratio * len(own)) + 10, self.max_len) if max_length is None else max_length
            for own in sources
        ]
        return self.search(sources, limits, beam_size=beam_size, length_penalty=length_penalty)

    def n_best(
        self,
        sentence: str,
        *,
        beam_size: int = 5,
        length_penalty: float = 1.0,
        max_length: int | None = None,
    ) -> list[tuple[float, str]]:
        """The scores and translations that a beam search ends with, best first; see `beam_search`.

        Args:
            sentence: not blank. One that is longer than the model's `max_len` is cut, with a warning.
            beam_size: hypotheses kept.
            length_penalty: the exponent of the length in the score.
            max_length: as in `translate`.

        Raises:
            TypeError: the sentence is no string.
            ValueError: the sentence is blank, or as in `translate`.
        """
        _require_sentence(sentence)
        (found,) = self._search(self._encode([sentence]), max_length, beam_size, length_penalty)
        if not found[0].finished:
            warnings.warn(_CUT % (1, 1), stacklevel=2)
        texts = (_LINE_ENDS.sub(" ", self.tokenizer.decode(hypothesis.tokens)).strip(" ") for hypothesis in found)
        return [(hypothesis.score, text) for hypothesis, text in zip(found, texts)]

    def attention(self, sentence: str, translation: str | None = None) -> Attention:
        """Translate one sentence and record the cross-attention weights of each decoder layer.

        Args:
            sentence: not blank. One that is longer than the model's `max_len` is cut, with a warning.
            translation: record the weights for this one, whoever wrote it, cut likewise; None = for the model's own.

        Returns:
            The tokens of source and translation, and the weights (layers, heads, target length, source length); row i
            is the one with which target token i was predicted.

        Raises:
            InputError: the model has no cross-attention of this library: an ensemble, say, or a model of your own.
            TypeError: the sentence is no string.
            ValueError: the sentence is blank.
        """
        _require_sentence(sentence)
        _cross_attentions(self.model)
        model, bos, eos = self.model, self.tokenizer.bos_id, self.tokenizer.eos_id
        tokens = self._encode([sentence])
        source = torch.tensor(tokens, device=self.search.device)  # (1, n)
        if translation is None:
            (found,) = self._search(tokens, None)
            best = found[0]
            predicted = [*best.tokens, eos] if best.finished else best.tokens  # (m)
        else:
            (predicted,) = self._encode([translation])
        read = torch.tensor([[bos, *predicted[:-1]]], device=self.search.device)  # (1, m)
        weights = cross_attention_weights(model, source, read).cpu()
        return Attention(self._pieces(source[0].tolist()), self._pieces(predicted), weights)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text. Of one that is too long, the beginning and the end token, with a warning."""
        tokens = [self.tokenizer.encode(text) for text in texts]
        if too_long := [own for own in tokens if len(own) > self.max_len]:
            warnings.warn(f"sentences longer than {self.max_len} tokens were cut: {len(too_long)}", stacklevel=3)
        for own in too_long:
            del own[self.max_len - 1 : -1]
        return tokens

    def _pieces(self, tokens: list[int]) -> list[str]:
        eos = self.tokenizer.eos_id
        return ["<eos>" if token == eos else self.tokenizer.decode([token]).strip() or "␣" for token in tokens]


def has_own_model(folder: Path) -> str:
    """If a directory has a model of somebody's own, its file that is kept there, or else FILE.py; "" if it has none."""
    if (folder / KEPT).is_file():
        return str(folder / KEPT)
    config, _ = _read_config(folder)
    return "FILE.py" if config.d_model == config.d_ff == 1 else ""  # sizes that stand for unknown ones


def _require_sentence(text: Any) -> None:
    """Refuse what is no string, or a blank one."""
    if not isinstance(text, str):
        raise TypeError(_NO_TEXT % repr(text))
    if is_blank(text):
        raise ValueError("expected a sentence; got a blank one")


def _require_one_vocabulary(config: TransformerConfig, tokenizer: Tokenizer) -> None:
    """Raise an InputError if a model and a tokenizer cannot belong together."""
    expected = config.source_vocab_size, config.target_vocab_size, config.pad_id
    got = tokenizer.vocab_size, tokenizer.vocab_size, tokenizer.pad_id
    if expected != got:
        sizes = f"{got} in the tokenizer, but {expected} in the model"
        raise InputError(f"vocabulary sizes and pad_id are {sizes}: they come from different runs")


def length_ratio(shapes: Counter[tuple[int, int]]) -> float:
    """The ratio with which the limit of a search, ratio · n + 10, lets 999 of 1000 translations end; at least 2.

    Args:
        shapes: how many pairs have a source of n and a target of m tokens, both end tokens counted.
    """
    rest = shapes.total() // 1000  # mistaken pairs, say a word beside a page
    for ratio, count in sorted((((m - 10) / n, count) for (n, m), count in shapes.items()), reverse=True):
        rest -= count
        if rest < 0:
            return max(2.0, math.ceil(100 * ratio) / 100)
    return 2.0


def cross_attention_weights(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    """Run the model on a source (1, n) and a target (1, m), and return its weights (layers, heads, m, n)."""
    with recorded_weights(_cross_attentions(model)) as recorded, evaluation(model):
        model(source, target)
    return torch.stack(recorded)


@contextmanager
def recorded_weights(attentions: Iterable[nn.Module]) -> Iterator[list[Tensor]]:
    """Inside the block, collect the weights (heads, n_q, n_k) that each of these gives the first sentence."""
    recorded: list[Tensor] = []
    with ExitStack() as hooks:
        for module in attentions:
            before = module.register_forward_pre_hook(
                lambda _, args, options: (args, options | {"need_weights": True}), with_kwargs=True
            )
            after = module.register_forward_hook(lambda _, args, output: recorded.append(output[1][0]))
            hooks.callback(before.remove)
            hooks.callback(after.remove)
        yield recorded


def _cross_attentions(model: Transformer) -> list[nn.Module]:
    """The cross-attention of each decoder layer, or an InputError if there is none."""
    named = getattr(model, "decoder", nn.Module()).named_modules()
    found = [module for name, module in named if name.endswith(".cross_attention")]
    if not found:
        remedy = "an ensemble has that of each member, and a model of your own can return its own"
        raise InputError(f"{type(model).__name__} has no cross-attention of this library: {remedy}")
    return found


def _read_config(folder: Path) -> tuple[TransformerConfig, float]:
    """The model's configuration, and the translator's length ratio; older translators have none, and get 2."""
    if not folder.is_dir():
        raise InputError(f"there is no model directory {folder}: name what `train --out` wrote")
    if (folder / "model.bin").is_file():
        raise InputError(
            f"{folder} is an exported model; expected a trained one: name the directory that `train --out` wrote"
        )
    try:
        stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        ratio = float(stored.pop("length_ratio", 2.0))
        if not 0 < ratio <= 2**20:
            raise ValueError(f"length_ratio must be above 0 and at most {2**20}; got {ratio}")
        return TransformerConfig(**stored), ratio
    except FileNotFoundError as error:
        raise InputError(f"{folder} is no model directory: it has no config.json") from error
    except (OSError, ArithmeticError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{folder / 'config.json'} is not a model's configuration ({one_line(error)})") from error


def _require_plausible(config: TransformerConfig, weights: Path) -> None:
    """Raise an InputError before a wrong number in config.json asks for more memory than there is."""
    layers, widths = config.num_encoder_layers + config.num_decoder_layers, 4 * config.d_model + 2 * config.d_ff
    fewest = config.d_model * (config.source_vocab_size + layers * widths)  # not all parameters, but most
    if weights.is_file() and fewest > weights.stat().st_size:  # a parameter takes a byte at the very least
        raise InputError(f"{weights} belongs to a model of another configuration: it is too small for config.json")
    if config.max_len > 2**20:
        raise InputError(
            f"{weights.with_name('config.json')}: expected max_len of at most {2**20}; got {config.max_len}"
        )
