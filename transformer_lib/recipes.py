# Generated from chapters/A_command_line.md: edit it there and `make export`, or here and `make sync`.

"""Recipes: from sentences to a trained translator."""

from __future__ import annotations

import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from transformer_lib.data import (
    LargeCorpus,
    PairStore,
    ParallelCorpus,
    Tokenizer,
    encode_pairs,
    load_multi30k,
    read_parallel,
    toy_corpus,
)
from transformer_lib.data.corpora import fingerprint, is_blank
from transformer_lib.data.store import put_aside
from transformer_lib.files import InputError, atomic_write
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.precision import mixed_precision, prepare_device
from transformer_lib.training import TrainingConfig, train
from transformer_lib.training.distributed import is_first_process
from transformer_lib.training.state import steps_of
from transformer_lib.training.train_step import require_compiler
from transformer_lib.translation import KEPT, Translator, length_ratio

_LOGGER = logging.getLogger("transformer_lib")

_COMMON = dict(norm_first=True, tie_embeddings="all")
_SMALL = _COMMON | dict(d_model=128, num_heads=4, d_ff=256)
PRESETS: dict[str, dict[str, dict]] = {
    "tiny": {
        "model": _SMALL | dict(num_encoder_layers=2, num_decoder_layers=2, dropout=0.0),
        "training": dict(batch_tokens=2048, peak_lr=3e-3, warmup_steps=150),
        "tokenizer": dict(vocab_size=600),
    },
    "small": {
        "model": _SMALL | dict(num_encoder_layers=4, num_decoder_layers=4, dropout=0.3),
        "training": dict(
            batch_tokens=4096, accumulate=2, peak_lr=5e-3, warmup_steps=2000, evaluate_every=60, average=10, patience=10
        ),
        "tokenizer": dict(vocab_size=10_000),
    },
    "base": {
        "model": _COMMON
        | dict(d_model=512, num_heads=8, d_ff=2048, num_encoder_layers=6, num_decoder_layers=6, dropout=0.1),
        "training": dict(batch_tokens=25_000, peak_lr=7e-4, warmup_steps=4000),
        "tokenizer": dict(vocab_size=37_000),
    },
}

CUT = {"batch_tokens", "accumulate"}  # how a step is cut into batches


def preset_for(name: str, device: str | torch.device, **training: Any) -> dict[str, dict]:
    """A preset of `PRESETS` with further settings of its training, as it runs best on a device.

    On a GPU the batches of a step are one, unless `training` has its size or their number: as many tokens a step, and
    half as many kernels to start where there were two. So the steps are others, and so is the result of a seed.
    """
    preset = PRESETS[name]
    chosen = preset["training"]
    if torch.device(device).type == "cuda" and "accumulate" in chosen and not CUT & training.keys():
        chosen = chosen | {"batch_tokens": chosen["batch_tokens"] * chosen["accumulate"], "accumulate": 1}
    return preset | {"training": chosen | training}


OURS = ("toy", "multi30k")
LARGE = 2**25  # bytes of two text files; larger ones are kept in a store


def _files(split: str, corpus: str | None, source: str | None, target: str | None) -> tuple[Path, Path]:
    """Two text files: a part of a corpus in a directory, or `source` and `target` themselves."""
    if corpus is None:
        if source is None or target is None:
            raise InputError("no data: expected a corpus, or two text files, source and target")
        return Path(source), Path(target)
    if not Path(corpus).is_dir():
        raise InputError(f"unknown corpus {corpus!r}: it is neither toy, nor multi30k, nor a directory")
    return Path(corpus, f"{split}.{source or 'en'}"), Path(corpus, f"{split}.{target or 'de'}")


def read_corpus(split: str, corpus: str | None, source: str | None, target: str | None) -> ParallelCorpus:
    """The sentences of a part of a corpus, or of two text files.

    Args:
        split: the part, such as "train"; two files have none.
        corpus: "toy", "multi30k" or a directory; None = two files.
        source: a text file; with a corpus, a language, such as "en".
        target: likewise.

    Raises:
        InputError: there are no such sentences.
    """
    if corpus == "toy" and (source or target):
        raise InputError("the corpus toy has its own sentences: leave out source and target, or the corpus")
    if corpus == "toy":
        return toy_corpus(split)
    if corpus == "multi30k":
        return load_multi30k(split, source=source or "en", target=target or "de")
    return read_parallel(*_files(split, corpus, source, target))


def training_data(
    corpus: str | None, out: Path, store: str | None, **languages: str | None
) -> tuple[ParallelCorpus | LargeCorpus, ParallelCorpus]:
    """The sentences to train on, and those put aside for validation (none here if a `LargeCorpus` puts them aside)."""
    has_val = corpus in OURS or (corpus is not None and bool(list(Path(corpus).glob("val.*"))))
    if store and corpus in OURS:
        raise InputError(f"a store is for text files of your own: the corpus {corpus} fits into memory")
    if corpus not in OURS:
        files = _files("train", corpus, **languages)
        if store or sum(file.stat().st_size for file in files if file.is_file()) > LARGE:
            val = read_corpus("val", corpus, **languages) if has_val else ParallelCorpus([], [])
            return LargeCorpus(*files, folder=store or out / "store", hold_out=not has_val), val
    whole = read_corpus("train", corpus, **languages)
    if has_val:
        return whole, read_corpus("val", corpus, **languages)
    aside = put_aside(whole.source)
    parts: tuple[list[tuple[str, str]], list[tuple[str, str]]] = [], []
    for pair in zip(whole.source, whole.target):
        parts[fingerprint(pair[0]) in aside].append(pair)
    train, val = (ParallelCorpus([a for a, _ in part], [b for _, b in part]) for part in parts)
    return train, val


def goes_on(out: Path, resume: bool) -> bool:
    """Whether to go on with a run in the directory; an InputError if there is one, and we cannot or may not."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: expected a directory, or a name that is still free")
    state = out / "state.safetensors"
    begun = state.exists() and steps_of(state) != 0  # what failed in its first steps is in nobody's way
    if resume and begun:
        return True
    if begun or (out / "model.safetensors").exists():
        remedy = "it has no state to go on from:" if resume else "resume it, or"
        raise InputError(f"{out} already holds a run: {remedy} take another directory")
    return False


def _shapes(pairs: PairStore | list[tuple[list[int], list[int]]]) -> Counter[tuple[int, int]]:
    """How many pairs have a source of n and a target of m tokens, both end tokens counted."""
    if isinstance(pairs, PairStore):
        return Counter({(n, m - 1): len(rows) for (n, m), rows in zip(pairs.shapes, pairs.matrices)})
    return Counter((len(source), len(target) - 1) for source, target in pairs)


def _equal(pairs: PairStore | list[tuple[list[int], list[int]]]) -> int:
    """How many pairs have the same tokens on both sides."""
    if isinstance(pairs, PairStore):
        alike = (rows[:, :n] == rows[:, n + 1 :] for (n, m), rows in zip(pairs.shapes, pairs.matrices) if m == n + 1)
        return sum(int(rows.all(axis=1).sum()) for rows in alike)
    return sum(source == target[1:] for source, target in pairs)


TRAINED_ON = "trained-on.bin"  # in the directory of a run: the fingerprints of its pairs, sorted


def _fingerprints(corpus: ParallelCorpus) -> np.ndarray:
    """Those of the pairs that are blank on no side."""
    pairs = (pair for pair in zip(corpus.source, corpus.target) if not any(map(is_blank, pair)))
    return np.fromiter((fingerprint(*pair) for pair in pairs), "<u8")


def _trained_on(folder: str | Path) -> np.ndarray:
    """The fingerprints that a run has stored; none of a translator that has no such file."""
    path = Path(folder, TRAINED_ON)
    return np.fromfile(path, "<u8") if path.is_file() else np.zeros(0, "<u8")


def seen_in_training(folder: str | Path, corpus: ParallelCorpus) -> int:
    """How many of these pairs the translator in a directory was trained on, as far as the directory says.

    Spaces, capitals and normal forms make no difference.
    """
    return int(np.isin(_fingerprints(corpus), _trained_on(folder)).sum())


def train_translator(
    corpus: ParallelCorpus | LargeCorpus,
    val_corpus: ParallelCorpus,
    preset: Mapping[str, Mapping[str, Any]],
    out: str | Path,
    *,
    build: Callable[[TransformerConfig], Transformer] = Transformer,
    start_from: str | Path | None = None,
    resume: bool = False,
    device: str = "cpu",
    show: int = 0,
    report: Callable[[list[dict[str, float]]], None] = lambda log: None,
) -> list[dict[str, float]]:
    """Train a translator from its first sentence to the last step, as the command `train` does.

    What it has to say goes to the logger "transformer_lib", and its progress to a bar, on a terminal or in a notebook.

    Args:
        corpus: sentences to train on.
        val_corpus: sentences for validation; may be none. Those that a `LargeCorpus` puts aside take their place.
        preset: as in `PRESETS`; its "training" may have any setting of `TrainingConfig`, and says how long to train.
        out: directory for what `Translator.from_pretrained` loads, and for what `train` writes.
        build: makes the model of a configuration.
        start_from: begin with the weights, sizes and tokenizer of this translator, as `Translator.from_pretrained`
            loads it; what `preset` says of a model and a tokenizer then goes unused.
        resume: go on with the run in `out`, if there is one.
        device: where to compute.
        show: also report the translations of so many sentences for validation, after each validation.
        report: called with the log so far after each validation, as `train` does.

    Returns:
        The log of `train`.

    Raises:
        InputError: `out` holds a run that cannot be resumed, there is no usable pair, or what `train` refuses.
        ValueError: a setting is out of its range.
        KeyboardInterrupt: after Ctrl-C or another signal that `train` knows.
    """
    place = prepare_device(device)
    out, settings, sizes = Path(out), TrainingConfig(**preset["training"]), preset["tokenizer"]
    if settings.compile:
        require_compiler(place.type)
    going_on = goes_on(out, resume)
    start = Translator.from_pretrained(start_from, build=build, device=device) if start_from else None
    tokenizer = Tokenizer.load(out / "tokenizer.json") if going_on else start.tokenizer if start else None
    max_len = start.model.config.max_len if start else preset["model"].get("max_len", TransformerConfig.max_len)
    longest = min(max_len, settings.batch_tokens)
    pairs: PairStore | list[tuple[list[int], list[int]]]
    if isinstance(corpus, LargeCorpus):
        pairs = corpus.open(max_len=longest, tokenizer=tokenizer, **sizes)
        tokenizer, skipped, learnt = pairs.tokenizer, pairs.skipped, pairs.fingerprints
        val_corpus = pairs.held_out if corpus.hold_out else val_corpus
    else:
        tokenizer = tokenizer or Tokenizer.train(corpus.source + corpus.target, **sizes)
        (pairs, skipped), learnt = encode_pairs(corpus, tokenizer, max_len=longest), _fingerprints(corpus)
    try:
        val_pairs, also_skipped = encode_pairs(val_corpus, tokenizer, max_len=longest)
    except InputError:  # no usable pair among the few put aside: train without validation
        val_pairs, also_skipped = [], len(val_corpus)
    skipped += also_skipped
    if settings.patience and not val_pairs:
        raise InputError("patience waits for a better validation loss, but no pair is left for validation")
    torch.manual_seed(settings.seed)
    both = tokenizer.vocab_size, tokenizer.vocab_size
    config = TransformerConfig(*both, tokenizer.pad_id, **preset["model"])
    translator = start or Translator(build(config), tokenizer, device=device)
    translator.search.precision = mixed_precision(device, settings.precision)  # `train` warns of one that is slow
    translator.length_ratio = max(translator.length_ratio, length_ratio(_shapes(pairs)))
    if going_on:
        try:
            translator.check_config(out)
        except InputError as error:
            raise InputError(f"{error}: take the preset that the run began with") from error

    trained = getattr(translator.model, "trained", nullcontext)  # of a model of one's own
    if try_out := getattr(translator.model, "try_out", None):
        lengths = _shapes(pairs) + _shapes(val_pairs)
        with translator.search.precision:
            try_out({max(lengths), max(lengths, key=itemgetter(1))}, tokenizer.eos_id)

    def prepare() -> None:
        if goes_on(out, resume) != going_on:
            raise InputError(f"another run began in {out} while this one read its data: start again")
        if not going_on:
            if resume:
                _LOGGER.warning("there is no run to resume in %s; a new one begins", out)
            if build is Transformer:
                (out / KEPT).unlink(missing_ok=True)
            translator.save(out, weights=False)
        distinct = np.unique(learnt)
        if not (going_on and (out / TRAINED_ON).exists()):
            earlier = _trained_on(start_from) if start_from else distinct
            atomic_write(out / TRAINED_ON, np.union1d(distinct, earlier).astype("<u8").tobytes())
        why = f" (blank on a side, or longer than {longest} tokens)" if skipped else ""
        if (equal := _equal(pairs)) > len(pairs) / 2:
            remedy = "expected translations: give two files that differ, unless you train a copier"
            _LOGGER.warning("source and target are the same in %d of %d pairs; %s", equal, len(pairs), remedy)
        if known := int(np.isin(_fingerprints(val_corpus), distinct).sum()):
            remedy = "its loss will be too good; expected others: leave them out of one of the two"
            _LOGGER.warning("%d of %d pairs for validation are trained on, too, so %s", known, len(val_corpus), remedy)
        if repeated := len(learnt) - len(distinct):
            _LOGGER.info("%d of %d pairs to train on repeat an earlier one", repeated, len(learnt))
        _LOGGER.info("%d pairs to train on, %d for validation; skipped %d%s", len(pairs), len(val_pairs), skipped, why)

    sample = val_corpus.source[:: max(len(val_corpus) // max(show, 1), 1)][:show]

    def shown(log: list[dict[str, float]]) -> None:
        with warnings.catch_warnings(action="ignore"):  # a beginner's sentences may lack an end
            answers = translator.translate(sample, beam_size=1)
        for source, answer in zip(sample, answers):
            _LOGGER.info("    %s -> %s", source, answer)
        report(log)

    options: dict[str, Any] = {"val_pairs": val_pairs, "out": out, "resume": going_on, "device": device}
    ipython = sys.modules.get("IPython")
    bar = True if ipython and ipython.get_ipython() else None  # in a notebook, and on a terminal
    with trained():
        log = train(translator.model, pairs, settings, **options, prepare=prepare, report=shown, bar=bar)
    first, done = is_first_process(), log[-1]["step"]  # of several processes only the first speaks
    if first and done < settings.warmup_steps:
        rising = f"the learning rate was still rising, up to step {settings.warmup_steps}"
        _LOGGER.warning("this was step %d, and %s: train longer", done, rising)
    if first and settings.steps and done > settings.steps:
        _LOGGER.warning("nothing was trained: the run has made %d steps, more than %d", done, settings.steps)
    return log
