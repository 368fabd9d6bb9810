# Generated from chapters/A1_command_line.md: edit the chapter, not this file, then run `make export`.

"""The command line: python -m transformer_lib train | translate | evaluate | check."""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import math
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

import torch

from transformer_lib.checks import check_transformer
from transformer_lib.data import (
    ParallelCorpus,
    Tokenizer,
    encode_pairs,
    load_multi30k,
    read_lines,
    read_parallel,
    toy_corpus,
)
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.serialization import InputError, one_line
from transformer_lib.training import TrainingConfig, train
from transformer_lib.training.distributed import is_first_process, process_group
from transformer_lib.translation import Translator, evaluate_bleu

_COMMON = dict(norm_first=True, tie_embeddings="all")
PRESETS: dict[str, dict[str, dict]] = {
    "tiny": {
        "model": dict(
            _COMMON, d_model=128, num_heads=4, d_ff=256, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0
        ),
        "training": dict(batch_tokens=2048, peak_lr=3e-3, warmup_steps=150),
        "tokenizer": dict(vocab_size=600),
    },
    "small": {
        "model": dict(
            _COMMON, d_model=128, num_heads=4, d_ff=256, num_encoder_layers=4, num_decoder_layers=4, dropout=0.3
        ),
        "training": dict(batch_tokens=4096, peak_lr=4e-3, warmup_steps=2000, evaluate_every=250, average=10),
        "tokenizer": dict(vocab_size=10_000),
    },
    "base": {
        "model": dict(
            _COMMON, d_model=512, num_heads=8, d_ff=2048, num_encoder_layers=6, num_decoder_layers=6, dropout=0.1
        ),
        "training": dict(batch_tokens=25_000, peak_lr=7e-4, warmup_steps=4000),
        "tokenizer": dict(vocab_size=37_000),
    },
}


def _corpus(arguments: argparse.Namespace, split: str) -> ParallelCorpus:
    """The sentences that the arguments name."""
    name, source, target = arguments.corpus, arguments.source, arguments.target
    if name is None:
        if source is None or target is None:
            raise InputError("no data: give --corpus, or both --source FILE and --target FILE")
        return read_parallel(source, target)
    if name == "toy" and (source or target):
        raise InputError("--corpus toy has its own sentences: leave out --source and --target, or --corpus")
    if name == "toy":
        return toy_corpus(split)
    if name == "multi30k":
        return load_multi30k(split, source=source or "en", target=target or "de")
    if not Path(name).is_dir():
        raise InputError(f"unknown corpus {name!r}: it is neither toy, nor multi30k, nor a directory")
    return read_parallel(Path(name, f"{split}.{source or 'en'}"), Path(name, f"{split}.{target or 'de'}"))


def _training_data(arguments: argparse.Namespace) -> tuple[ParallelCorpus, ParallelCorpus]:
    """The sentences to train on, and those put aside for validation."""
    corpus = _corpus(arguments, "train")
    if arguments.corpus in ("toy", "multi30k"):
        return corpus, _corpus(arguments, "val")
    if arguments.corpus is not None and list(Path(arguments.corpus).glob("val.*")):
        return corpus, _corpus(arguments, "val")
    every = max(20, math.ceil(len(corpus) / 500))
    aside = range(every - 1, len(corpus), every)
    kept = [number for number in range(len(corpus)) if number % every != every - 1]
    train, val = (
        ParallelCorpus([corpus.source[n] for n in numbers], [corpus.target[n] for n in numbers])
        for numbers in (kept, aside)
    )
    return train, val


def _device(name: str) -> str:
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda, but torch finds no CUDA device: use --device cpu, or install torch for CUDA")
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def _keep_memory() -> None:
    """Tell glibc, where there is one, to serve every allocation from its own heap and never to shrink it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-4, 0)  # M_MMAP_MAX: no block of its own for a large tensor
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: give nothing back
        mallopt(-2, 2**26)  # M_TOP_PAD: grow in steps of 64 MiB


def _train(arguments: argparse.Namespace) -> None:
    with process_group(_device(arguments.device)) as device:
        log = _train_here(arguments, device)
        if is_first_process():  # of several processes only the first speaks
            print(json.dumps(log[-1]))


def _goes_on(out: Path, resume: bool) -> bool:
    """Whether to go on with a run in the directory; a InputError if there is one, and we cannot or may not."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file: expected a directory, or a name that is still free")
    if resume and (out / "state.safetensors").exists():
        return True
    if any((out / name).exists() for name in ("model.safetensors", "state.safetensors")):
        remedy = "it has no state to go on from: give" if resume else "give --resume to go on with it, or"
        raise InputError(f"{out} already holds a run: {remedy} another --out")
    return False


def _train_here(arguments: argparse.Namespace, device: str) -> list[dict[str, float]]:
    if not 0 <= arguments.seed < 2**63:
        raise InputError(f"--seed must be at least 0 and below 2**63; got {arguments.seed}")
    _goes_on(Path(arguments.out), arguments.resume)  # before anything is read
    preset = PRESETS[arguments.preset or ("tiny" if arguments.corpus == "toy" else "small")]
    names = ("steps", "minutes", "evaluate_every", "average", "patience", "seed")
    options = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if not {"steps", "minutes"} & options.keys():
        options["minutes"] = 30.0
    preset = preset | {"training": preset["training"] | options}
    if device == "cpu":
        _keep_memory()
    return train_translator(*_training_data(arguments), preset, arguments.out, resume=arguments.resume, device=device)


def train_translator(
    corpus: ParallelCorpus,
    val_corpus: ParallelCorpus,
    preset: Mapping[str, Mapping[str, Any]],
    out: str | Path,
    *,
    build: Callable[[TransformerConfig], Transformer] = Transformer,
    resume: bool = False,
    device: str = "cpu",
) -> list[dict[str, float]]:
    """Train a translator from its first sentence to the last update, as the command `train` does.

    Args:
        corpus: sentences to train on.
        val_corpus: sentences for validation; may be none.
        preset: as in `PRESETS`; its "training" says how long, by `steps`, `minutes` or both, and may have any other
            setting of `TrainingConfig`.
        out: directory for what `Translator.from_pretrained` loads, and for what `train` writes.
        build: makes the model of a configuration.
        resume: go on with the run in `out`, if there is one.
        device: where to compute.

    Returns:
        The log of `train`.

    Raises:
        InputError: `out` holds a run that may or can not go on, there is no usable pair, or what `train` refuses.
        ValueError: a setting is out of its range.
        KeyboardInterrupt: after Ctrl-C or SIGTERM.
    """
    out, settings = Path(out), TrainingConfig(**preset["training"])
    going_on = _goes_on(out, resume)
    if going_on:
        tokenizer = Tokenizer.load(out / "tokenizer.json")
    else:
        tokenizer = Tokenizer.train(corpus.source + corpus.target, **preset["tokenizer"])
    config = TransformerConfig(tokenizer.vocab_size, tokenizer.vocab_size, tokenizer.pad_id, **preset["model"])
    longest = min(config.max_len, settings.batch_tokens)
    pairs, skipped = encode_pairs(corpus, tokenizer, max_len=longest)
    try:
        val_pairs, also_skipped = encode_pairs(val_corpus, tokenizer, max_len=longest)
    except InputError:  # no usable pair among the few put aside: train without validation
        val_pairs, also_skipped = [], len(val_corpus)
    skipped += also_skipped
    if settings.patience and not val_pairs:
        raise InputError("--patience waits for a better validation loss, but no pair is left for validation")
    torch.manual_seed(settings.seed)
    translator = Translator(build(config), tokenizer)
    if going_on:
        try:
            translator.check_config(out)
        except InputError as error:
            raise InputError(f"{error}: give the --preset that the run began with") from error

    def prepare() -> None:
        if _goes_on(out, resume) != going_on:
            raise InputError(f"another run began in {out} while this one read its data: give the command again")
        if not going_on:
            translator.save(out, weights=False)
        why = f" (blank on a side, or longer than {longest} tokens)" if skipped else ""
        _say(f"{len(pairs)} pairs to train on, {len(val_pairs)} for validation; skipped {skipped}{why}")

    options: dict[str, Any] = {"val_pairs": val_pairs, "out": out, "resume": resume, "device": device}
    log = train(translator.model, pairs, settings, **options, prepare=prepare)
    if log[-1]["step"] < settings.warmup_steps and is_first_process():
        rising = f"the learning rate was still rising, up to step {settings.warmup_steps}"
        _say(f"warning: this was step {log[-1]['step']}, and {rising}: train longer, or take --preset tiny")
    if settings.steps and log[-1]["step"] > settings.steps and is_first_process():
        _say(f"warning: nothing was trained: the run has made {log[-1]['step']} steps, more than {settings.steps}")
    return log


def _translate(arguments: argparse.Namespace) -> None:
    translator = Translator.from_pretrained(arguments.model, device=_device(arguments.device))
    for line in _translations(arguments, translator, arguments.sentences or _standard_input()):
        print(line)


def _standard_input() -> list[str]:
    if sys.stdin is None:
        raise InputError("standard input is closed: give sentences as arguments, or a file behind <")
    try:
        return read_lines("standard input", sys.stdin.buffer.read())
    except OSError as error:  # a directory, for example
        raise InputError(f"cannot read standard input: {error.strerror or error}") from error


def _translations(arguments: argparse.Namespace, translator: Translator, sentences: list[str]) -> list[str]:
    try:
        return translator.translate(sentences, beam_size=arguments.beam)
    except InputError as error:  # the translator does not know from where it was loaded
        raise InputError(f"cannot translate with {arguments.model}: {error}") from error


def _evaluate(arguments: argparse.Namespace) -> None:
    if arguments.corpus is not None and arguments.split is None:
        parts = "such as test for toy, test_2016_flickr for multi30k"
        raise InputError(f"--corpus {arguments.corpus} needs --split: the name of the part to evaluate on, {parts}")
    if arguments.corpus is None and arguments.split is not None:
        raise InputError(f"--split {arguments.split} needs --corpus: two files have no parts")
    corpus = _corpus(arguments, arguments.split)
    if not len(corpus):
        raise InputError("nothing to evaluate: there is no sentence in the files")
    translator = Translator.from_pretrained(arguments.model, device=_device(arguments.device))
    print(json.dumps(evaluate_bleu(_translations(arguments, translator, corpus.source), corpus.target)))


def _check(arguments: argparse.Namespace) -> int:
    module, colon, name = arguments.factory.partition(":")
    if not (module and colon and name):
        raise InputError(f"expected module:factory, such as mymodel:build; got {arguments.factory!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    options = {"pad_id": arguments.pad_id, "max_len": arguments.max_len, "training": arguments.training}
    with redirect_stdout(sys.stderr):
        try:
            factory = getattr(importlib.import_module(module), name)
        except (Exception, SystemExit) as error:
            raise InputError(f"cannot import {arguments.factory}: {one_line(error)}") from error
        try:
            report = check_transformer(factory, **options)
        except (Exception, SystemExit) as error:
            called = "called as model(source, target) with whole numbers (batch, length)"
            raise InputError(f"cannot run {arguments.factory}, {called}: {one_line(error)}") from error
    print(report.to_json() if arguments.json else report)
    return 0 if report.holds else 1


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def _positive(kind: type[int] | type[float], *, most: int | None = None) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value < math.inf or (most is not None and value > most):
            wanted = (
                ("a whole number" if kind is int else "a number") + " above 0" + (f", at most {most}" if most else "")
            )
            raise argparse.ArgumentTypeError(f"expected {wanted}; got {text!r}")
        return value

    return parse


def _given(text: str) -> str:
    if not text:  # as "$OUT" is if nobody has set OUT; as a path it would mean the working directory
        raise argparse.ArgumentTypeError("expected a name; got an empty one")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m transformer_lib", description="Train, use and check a translator.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, function, about in (
        ("train", _train, "train a translator on a corpus or on two text files"),
        ("translate", _translate, "translate sentences, or standard input line by line"),
        ("evaluate", _evaluate, "score a translator: BLEU and chrF as JSON"),
    ):
        command = commands.add_parser(name, help=about, description=about)
        command.set_defaults(run=function)
        command.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="auto: a GPU if any")
        if name != "translate":
            command.add_argument(
                "--corpus", type=_given, help="toy, multi30k, or a directory with train.en, train.de, …"
            )
            command.add_argument("--source", type=_given, help="a text file; with --corpus: a language, such as en")
            command.add_argument("--target", type=_given, help="a text file; with --corpus: a language, such as de")
        if name == "train":
            command.add_argument("--out", type=_given, required=True, help="directory for the model")
            command.add_argument(
                "--preset",
                choices=sorted(PRESETS),
                help="tiny: a try; small: tens of thousands of pairs; base: a GPU (tiny for toy, else small)",
            )
            command.add_argument("--resume", action="store_true", help="go on with the run in --out")
            command.add_argument(
                "--minutes", type=_positive(float), help="time of this call (30 if --steps is missing)"
            )
            command.add_argument("--steps", type=_positive(int), help="updates, counted from the run's beginning")
            command.add_argument(
                "--evaluate-every",
                type=_positive(int),
                help="updates between two validations (250 with small, else 500)",
            )
            command.add_argument(
                "--average",
                type=_positive(int),
                help="keep the mean of the last so many checkpoints (10 with small, else 1)",
            )
            command.add_argument("--patience", type=_positive(int), help="stop after so many validations in vain")
            command.add_argument("--seed", type=int, default=0, help="of weights, order and dropout (0)")
        else:
            command.add_argument("--model", type=_given, required=True, help="directory that `train --out` wrote")
            command.add_argument("--beam", type=_positive(int, most=1000), default=5, help="beam size (5); 1 = greedy")
        if name == "evaluate":
            command.add_argument("--split", help="with --corpus: its part, such as test_2016_flickr")
        if name == "translate":
            command.add_argument("sentences", nargs="*", metavar="SENTENCE", help="none: read standard input")
    about = "hold a Transformer of your own to its properties"
    contract = (
        "FACTORY(source_vocab_size, target_vocab_size, pad_id) returns a small model. It is called as model(source, "
        "target) with whole numbers (batch, length), the target shifted right, makes its masks itself, and returns "
        "logits (batch, target length, target_vocab_size). The two trainings take most of a minute on a quiet "
        "machine. Status 0: all hold; 1: one does not; 2: it cannot be run. The rooms of the gallery that a report "
        "names stand in chapters/08c_gallery.md; chapters/08_checks.md says what a pass does not prove."
    )
    command = commands.add_parser("check", help=about, description=f"{about}. {contract}")
    command.set_defaults(run=_check)
    command.add_argument("factory", metavar="MODULE:FACTORY", help="called with two vocabulary sizes and pad_id")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("--no-training", action="store_false", dest="training", help="leave out what trains the model")
    command.add_argument("--max-len", type=_positive(int, most=2**20), help="the longest sequence the model accepts")
    command.add_argument("--pad-id", type=int, default=0, help="the padding token (0)")
    return parser


def _say(message: str) -> None:
    if sys.stderr is not None:  # print would take standard output instead of one that is closed
        print(message, file=sys.stderr)


def _fail(message: str) -> int:
    _say(f"error: {' '.join(message.split())[:1000]}")
    return 2


def _warn(message: Warning | str, *_: object) -> None:
    _say(f"warning: {message}")


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status: 0, 1 if `check` fails, 2 after an error, 130 if it was stopped."""
    status = 0
    try:
        warnings.showwarning = _warn  # type: ignore[assignment]
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as the input, whatever the locale says
        arguments = _parser().parse_args(argv)
        status = arguments.run(arguments) or 0
        if sys.stdout is not None:
            sys.stdout.flush()
    except InputError as error:
        return _fail(str(error))
    except KeyboardInterrupt as stop:
        _say(str(stop) or "stopped by Ctrl-C")
        return 130
    except BrokenPipeError:  # somebody closed our output, as `head` does
        _discard_output()
    except OSError as error:
        if error.filename is None:  # a full disk behind our output
            _discard_output()
        return _fail(f"cannot use {error.filename or 'standard output'}: {error.strerror or error}")
    except Exception as error:
        if _is_out_of_memory(error):
            return _fail("not enough memory: choose a smaller --beam or --preset, or shorter sentences")
        _say(traceback.format_exc())
        return _fail(f"{one_line(error)}; this is a mistake of the library: please report it, with the lines above")
    return status


def _discard_output() -> None:
    """Send what Python still wants to print at its end to nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
