# Generated from chapters/A_command_line.md: edit it there and `make export`, or here and `make sync`.

"""The command line: python -m transformer_lib train | translate | evaluate | export | check | grade and more."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import platform
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import reduce
from importlib import metadata
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import transformer_lib
from transformer_lib.checks import Report, check_transformer
from transformer_lib.checks.hf import check_configuration
from transformer_lib.checks.subject import FAMILIES
from transformer_lib.checks.template import template as template_of
from transformer_lib.data import read_lines
from transformer_lib.data.corpora import is_blank
from transformer_lib.engine import export, load
from transformer_lib.files import InputError, atomic_write, is_plain, one_line, open_to_write, printable
from transformer_lib.loading import NAME, as_before, function_of, source_of
from transformer_lib.model import Transformer
from transformer_lib.own_model import SIZES
from transformer_lib.own_model import architecture as model_of
from transformer_lib.precision import PRECISIONS, prepare_device
from transformer_lib.recipes import (
    PRESETS,
    TRAINED_ON,
    goes_on,
    preset_for,
    read_corpus,
    seen_in_training,
    train_translator,
    training_data,
)
from transformer_lib.scores import TOKENIZERS, bleu_with, evaluate_bleu, in_nfc, papers_form
from transformer_lib.training.distributed import is_first_process, process_group
from transformer_lib.training.train_step import require_compiler
from transformer_lib.translation import KEPT, Translator, has_own_model


class _Lines(logging.Handler):
    """What the library reports, as lines on the error stream."""

    def emit(self, record: logging.LogRecord) -> None:
        _say(f"{'warning: ' if record.levelno >= logging.WARNING else ''}{record.getMessage()}")


_LOGGER = logging.getLogger("transformer_lib")
_LOGGER.addHandler(_Lines())


class _Name(click.ParamType):
    """Any text but an empty one, as "$OUT" is if OUT is not set; as a path it would mean the working directory."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value or self.fail("expected a name; got an empty one", param, ctx)


class _File(_Name):
    """The name of what to write, refused before anything is computed if it cannot be; - is the standard output."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        path = Path(super().convert(value, param, ctx))
        if value == "-":
            return value
        if path.is_dir():
            self.fail(f"{path} is a directory; expected a file: name one in it", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"there is no directory {path.parent}; expected one: make it, or name another", param, ctx)
        if path.exists() and not is_plain(path):
            opened = open_to_write(path)
            if ctx is not None:  # to the end, as the reader of a pipe would take this for all of it
                ctx.call_on_close(lambda: os.close(opened))
        return value


def _device(_: click.Context, parameter: click.Parameter, name: str) -> str:
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda, but torch finds no CUDA device: use --device cpu, or install torch for CUDA")
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
    prepare_device(chosen, tf32=True)  # for the products that stay in float32
    return chosen


def _options(*options: Callable) -> Callable:
    """Several options in one decorator."""
    return lambda function: reduce(lambda wrapped, option: option(wrapped), reversed(options), function)


_COUNT = click.IntRange(min=1)
_data = _options(
    click.option("--corpus", type=_Name(), help="toy, multi30k, or a directory with train.en, train.de, …"),
    click.option("--source", type=_Name(), help="a text file; with --corpus: a language, such as en"),
    click.option("--target", type=_Name(), help="a text file; with --corpus: a language, such as de"),
)
_where = click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", callback=_device, help="auto: a GPU if any"
)
_own_model = click.option(
    "--architecture", type=_Name(), metavar="FILE.py:FUNCTION", help="a model of your own, made by this function"
)
_precision = click.option(
    "--precision", type=click.Choice(PRECISIONS), default="auto",
    help="of matrix products (auto: bf16, fp16 or fp32 on a GPU, the first that it is fast at; fp32 on a CPU)",
)  # fmt: skip
_model = _options(
    _own_model,
    click.option(
        "--model", type=_Name(), required=True, help="what `train --out` or `export --out` wrote, or multi30k-en-de"
    ),
    click.option("--beam", type=click.IntRange(1, 1000), default=5, help="beam size (5); 1 = greedy"),
    click.option(
        "--length-penalty", type=click.FloatRange(0, 10), default=1.0, help="score: log-probability / length^this (1)"
    ),
    click.option(
        "--max-length",
        type=_COUNT,
        help="tokens of a translation at most (10 and twice the sentence's, or what training saw)",
    ),
    click.option("--output", type=_File(), help="write the translations to this file; - is the standard output"),
    _where,
    _precision,
)


class _Command(click.Command):
    """A command that refuses an option given twice, where the last would silently replace the others."""

    def make_parser(self, ctx: click.Context) -> Any:
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_once(args: list[str]) -> tuple[dict[str, Any], list[str], list[click.Parameter]]:
            values, rest, order = parse(args)
            for option in order:
                often, several = order.count(option), getattr(option, "multiple", True) or option.is_eager
                if often > 1 and not several:
                    join = ", put several files into one" if option.name in ("source", "target") else ""
                    raise click.UsageError(f"{option.opts[0]} is given {often} times; expected once{join}", ctx)
            return values, rest, order

        parser.parse_args = parse_once  # type: ignore[method-assign]
        return parser


class _Group(click.Group):
    command_class = _Command


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False)
@click.version_option(transformer_lib.__version__, prog_name="tested-transformer")
def _commands() -> None:
    """Train, use and check a translator."""


@_commands.command("train")
@_data
@click.option("--out", type=_Name(), required=True, help="directory for the model")
@click.option("--store", type=_Name(), help="directory for the encoded pairs (above 32 MiB of text: OUT/store)")
@click.option(
    "--preset",
    type=click.Choice(sorted(PRESETS)),
    help="tiny: a try; small: tens of thousands of pairs; base: a GPU (tiny for toy, else small)",
)
@_own_model
@click.option("--start-from", type=_Name(), help="begin with the weights of this translator, or of multi30k-en-de")
@click.option("--resume", is_flag=True, help="resume the run in --out")
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), help="time of this call (30 if --steps is missing)"
)
@click.option("--steps", type=_COUNT, help="steps, counted from the run's beginning")
@click.option("--evaluate-every", type=_COUNT, help="steps between two validations (60 with small, else 500)")
@click.option("--average", type=_COUNT, help="keep the mean of the last N checkpoints (10 with small, else 1)")
@click.option("--patience", type=_COUNT, help="stop after N validations without a better one (10 with small)")
@click.option("--batch-tokens", type=_COUNT, help="tokens of a batch at most, padding included (preset's)")
@click.option("--learning-rate", "peak_lr", type=click.FloatRange(0, 1, min_open=True), help="its peak (preset's)")
@click.option("--warmup", "warmup_steps", type=_COUNT, help="steps in which the rate rises to its peak (preset's)")
@click.option("--dropout", type=click.FloatRange(0, 1, max_open=True), help="(preset's)")
@click.option("--accumulate", type=_COUNT, help="batches in each step (2 with small, on a GPU one of twice the size)")
@click.option("--cooldown", "cooldown_steps", type=_COUNT, help="let the rate fall to zero over the last N of --steps")
@click.option("--vocab-size", type=click.IntRange(259), help="tokens at most (600 with tiny, 10000 with small)")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="of weights, order and dropout (0)")
@click.option(
    "--compile",
    is_flag=True,
    help="let torch.compile join operations, for a GPU (on a CPU steps got slower); the first step takes minutes",
)
@click.option(
    "--show",
    type=click.IntRange(min=0),
    default=0,
    help="translate N sentences at each validation, so that you can watch",
)
@_where
@_precision
def _train(
    out: str, store: str | None, preset: str | None, architecture: str | None, start_from: str | None, resume: bool,
    show: int, device: str, **options: Any,
) -> None:  # fmt: skip
    """Train a translator on a corpus or on two text files."""
    data = {name: options.pop(name) for name in ("corpus", "source", "target")}
    settings = {name: value for name, value in options.items() if value is not None}
    tokenizer = {"vocab_size": settings.pop("vocab_size")} if "vocab_size" in settings else {}
    if settings.get("cooldown_steps", 0) > settings.get("steps", 0):
        reason = f"expected at most --steps; got {settings['cooldown_steps']}"
        raise click.BadParameter(reason, click.get_current_context(), param_hint="--cooldown")
    shape = {"dropout": settings.pop("dropout")} if "dropout" in settings else {}
    if start_from and (shape or tokenizer):
        given = "--dropout" if shape else "--vocab-size"
        raise InputError(f"{given} does not go with --start-from: the sizes are those of {start_from}")
    if architecture and shape:
        raise InputError(f"--dropout does not go with --architecture: {architecture} decides it")
    if not {"steps", "minutes"} & settings.keys():
        settings["minutes"] = 30.0
    if not math.isfinite(settings.get("minutes", 0)):
        raise click.BadParameter("expected a finite number", click.get_current_context(), param_hint="--minutes")
    chosen = preset_for(preset or ("tiny" if data["corpus"] == "toy" else "small"), device, **settings)
    chosen |= {
        "model": SIZES if architecture else chosen["model"] | shape,
        "tokenizer": chosen["tokenizer"] | tokenizer,
    }
    _LOGGER.setLevel(logging.INFO)
    shown = logging.WARNING if sys.stderr.isatty() else logging.INFO  # a terminal shows a bar instead
    logging.getLogger("transformer_lib.training").setLevel(shown)
    with process_group(device) as place:
        going_on = goes_on(Path(out), resume)  # before anything is read
        if options["compile"]:
            require_compiler(torch.device(place).type)
        build = model_of(architecture) if architecture else Transformer
        if architecture and going_on:
            _require_same_source(architecture, Path(out))
        corpus, val_corpus = training_data(out=Path(out), store=store, **data)
        options = {"build": build, "start_from": start_from, "resume": resume, "device": place, "show": show}
        log = train_translator(corpus, val_corpus, chosen, out, **options)
        if is_first_process():
            click.echo(json.dumps(log[-1]))


@_commands.command("translate")
@_model
@click.option("--n-best", type=click.IntRange(1, 1000), help="this many of each: number, score, translation")
@click.argument("sentences", nargs=-1, metavar="[SENTENCE]…")
def _translate(
    model: str, architecture: str | None, beam: int, length_penalty: float, max_length: int | None,
    output: str | None, device: str, precision: str, n_best: int | None, sentences: tuple[str, ...],
) -> None:  # fmt: skip
    """Translate sentences, or standard input line by line. Put -- before a sentence that begins with a dash."""
    translator = _load(model, architecture, max_length, device=device, precision=precision)
    for sentence in filter(os.path.isfile, sentences):
        _say(f"warning: {sentence} is a file, and its name was taken as a sentence: for its lines, write < {sentence}")
    groups = [list(sentences)] if sentences else _standard_input()
    options: dict[str, Any] = {
        "beam_size": max(beam, n_best or 1),
        "length_penalty": length_penalty,
        "max_length": max_length,
    }
    if n_best is None:
        answers = (answer for group in groups for answer in _answers(translator, model, group, **options))
    else:
        spoken = enumerate(sentence for group in groups for sentence in group)
        found = ((n, translator.n_best(text, **options)[:n_best]) for n, text in spoken if not is_blank(text))
        answers = (f"{n + 1}\t{score:.4f}\t{answer}" for n, best in found for score, answer in best)
    _write(answers, output)


def _write(answers: Iterable[str], output: str | None) -> None:
    """Each on a line of a file, or at once on standard output."""
    if output and output != "-":
        atomic_write(output, "".join(f"{answer}\n" for answer in answers))
    else:
        for answer in answers:
            click.echo(answer)


@_commands.command("evaluate")
@_data
@click.option("--split", help="with --corpus: its part, such as test_2016_flickr")
@click.option("--protocol", type=click.Choice(["cased", "papers"]), default="cased", help="how to count words (cased)")
@click.option(
    "--tokenize", type=click.Choice(list(TOKENIZERS)), default="13a", help="sacrebleu's cutting for BLEU (13a)"
)
@_model
def _evaluate(
    split: str | None, protocol: str, tokenize: str, model: str, architecture: str | None, beam: int,
    length_penalty: float, max_length: int | None, output: str | None, device: str, precision: str,
    **data: str | None,
) -> None:  # fmt: skip
    """Score a translator: BLEU, chrF and TER as JSON."""
    corpus = data["corpus"]
    if corpus is not None and split is None:
        parts = "such as test for toy, test_2016_flickr for multi30k"
        raise InputError(f"--corpus {corpus} needs --split: the name of the part to evaluate on, {parts}")
    if corpus is None and split is not None:
        raise InputError(f"--split {split} needs --corpus: two files have no parts")
    pairs = read_corpus(split or "", **data)
    if pairs.source == pairs.target:
        _say(
            "warning: source and target are the same, so a model that copies would have the best score: name two files"
        )
    if protocol == "papers" and tokenize != "13a":
        raise InputError(f"--tokenize {tokenize} does not go with --protocol papers: leave one out")
    papers = (data["target"] or "de").rpartition(".")[2] if protocol == "papers" else None  # test.de, or de
    if papers is not None:
        papers_form([], papers)  # says now, and not after the search, what is not installed
    bleu_with(tokenize)  # likewise
    translator = _load(model, architecture, max_length, device=device, precision=precision)
    if other := sum(given != ours for given, ours in zip(pairs.target, in_nfc(pairs.target))):
        _say(f"{other} references were brought into NFC, the normal form of the translations")
    if seen := seen_in_training(model, pairs):
        remedy = "the scores are too good for new sentences; expected pairs that were kept apart"
        _say(f"warning: {seen} of {len(pairs)} pairs are among those that the model was trained on: {remedy}")
    answers = _answers(
        translator, model, pairs.source, beam_size=beam, length_penalty=length_penalty, max_length=max_length
    )
    if output:
        _write(answers, output)
    scores = evaluate_bleu(answers, pairs.target, papers=papers, tokenize=tokenize)
    click.echo(json.dumps(scores), err=output == "-")


@_commands.command("export")
@click.option("--model", type=_Name(), required=True, help="what `train --out` wrote")
@click.option("--to", type=click.Choice(["ctranslate2"]), required=True, help="the engine")
@click.option("--quantization", type=click.Choice(["int8", "int16", "float16"]), help="of the matrices (none: float32)")
@click.option("--out", type=_Name(), required=True, help="a new directory")
def _export(model: str, to: str, quantization: str | None, out: str) -> None:
    """Write a translator for a faster engine, which `translate` and `evaluate` then use."""
    if Path(model, "config.json").is_file() and has_own_model(Path(model)):
        remedy = "`translate` and `evaluate` take it with --architecture"
        raise InputError(f"{model} has a model of its own, which CTranslate2 does not have: {remedy}")
    export(Translator.from_pretrained(model), out, quantization=quantization)
    if (trained_on := Path(model, TRAINED_ON)).is_file():  # for `evaluate`
        atomic_write(Path(out, TRAINED_ON), trained_on.read_bytes())


def _require_same_source(architecture: str, out: Path) -> None:
    """A run goes on only with the file of its model that it began with."""
    kept = out / KEPT
    if kept.is_file() and kept.read_bytes() != source_of(architecture):
        remedy = f"give that, or another --out (with --start-from {out} it begins from these weights)"
        raise InputError(f"{architecture} is not what the run began with, {kept}: {remedy}")


def _load(model: str, architecture: str | None, max_length: int | None, **place: str) -> Translator:
    kept = Path(model, KEPT)
    if architecture is not None:
        if kept.is_file() and kept.read_bytes() != source_of(architecture):
            _say(f"warning: {architecture} is not what the model was trained with, {kept}")
        _say("this model has no cache: for each token it computes all tokens before it anew")
        translator = Translator.from_pretrained(model, **place, build=model_of(architecture))
    else:
        translator = load(model, **place)
    if max_length is not None and max_length > translator.max_len:
        raise InputError(f"--max-length {max_length} is too long; expected at most the model's {translator.max_len}")
    return translator


def _answers(translator: Translator, model: str, sentences: list[str], **options: Any) -> list[str]:
    try:
        return translator.translate(sentences, **options)
    except InputError as error:  # the translator does not know from where it was loaded
        raise InputError(f"cannot translate with {model}: {error}") from error


def _standard_input() -> Iterator[list[str]]:
    """The lines of standard input; in one list those that arrive together, so that each is answered at once."""
    if sys.stdin is None:
        raise InputError("standard input is closed: give sentences as arguments, or a file behind <")
    if sys.stdin.isatty():
        _say("type a sentence and Enter; Ctrl-D ends")
    rest, count = b"", 0
    try:
        while chunk := sys.stdin.buffer.read1(2**20):  # type: ignore[union-attr]
            whole, newline, rest = (rest + chunk).rpartition(b"\n")
            if newline:
                lines = _decoded(whole + newline, count)
                count += len(lines)
                yield lines
        yield _decoded(rest, count)
    except OSError as error:  # a directory, for example
        raise InputError(f"cannot read standard input: {error.strerror or error}") from error


def _decoded(data: bytes, count: int) -> list[str]:
    """Lines of standard input behind the first `count`."""
    if not count:
        return read_lines("standard input", data)
    return read_lines(f"standard input from line {count} on", data, first=2)


@_commands.command("check")
@click.argument("factory", metavar="MODULE:FACTORY", required=False)
@click.option("--template", type=click.Choice([*FAMILIES]), help="check nothing; write mine.py, to fill in, here")
@click.option(
    "--family",
    type=click.Choice([*FAMILIES]),
    help="what the model is (encoder-decoder; of hf:, what there is); an encoder answers at each position, as for "
    "masked words",
)
@click.option(
    "--no-training", "training", is_flag=True, flag_value=False, default=True, help="leave out what trains the model"
)
@click.option(
    "--sizes",
    nargs=2,
    type=click.IntRange(8, 2**20),
    default=(None, None),
    metavar="SOURCE TARGET",
    help="numbers of tokens (31 29, or 29 29 if it needs equal ones); a model of one side has the second",
)
@click.option("--pad-id", type=int, help="the padding token (3, or 0 if the model runs with no other)")
@click.option("--max-len", type=click.IntRange(1, 2**20), help="the longest sequence the model accepts")
@click.option("--seed", type=click.IntRange(0, 2**32), default=0, help="of weights, inputs and trainings (0)")
@click.option(
    "--json", "as_json", type=_File(), metavar="FILE", help="also write the report as JSON; - is the standard output"
)
def _check(
    factory: str | None, template: str | None, sizes: tuple[int, int], as_json: str | None, **options: Any
) -> int:
    """Hold a Transformer of your own, encoder-decoder, decoder with its cache or encoder, to its properties.

    FACTORY(source_vocab_size, target_vocab_size, pad_id) returns a small model. It is called as model(source, target)
    with whole numbers (batch, length), the target shifted right, makes its masks itself, and returns logits (batch,
    target length, target_vocab_size). With --family decoder or encoder it is FACTORY(vocab_size, pad_id), and the model
    is called as model(tokens).

    A model that is called in another way gets an adapter. `check --template decoder` writes one to fill in, mine.py,
    into the current folder, or refuses if it is there. It is for `check mine:build --family decoder`, and says how a
    cache is used.

    hf:LlamaConfig, in place of MODULE:FACTORY, is a causal, masked or sequence-to-sequence model of the package
    transformers, named by its configuration; hf:DIR is that of DIR/config.json. It is built small, in a process of its
    own without a network, and code that a directory brings is not run.

    Page F of the course, "Adapters", has more of them; its chapter 12, "Checks", says what a pass does not prove. The
    README links to both. The two trainings take most of a minute on a quiet machine. Status 0: all hold; 1: one does
    not; 2: it cannot be run, or nothing applies.
    """
    if template is not None and factory is None:
        return _write_template(template)
    if factory is None or template is not None:
        raise click.UsageError(
            "expected MODULE:FACTORY, such as mine:build, or --template", click.get_current_context()
        )
    options |= {"source_vocab_size": sizes[0], "target_vocab_size": sizes[1]}
    out = sys.stderr if as_json == "-" else sys.stdout
    with redirect_stdout(sys.stderr):
        with as_before():  # what it prints comes before the progress
            build = None if factory.startswith("hf:") else function_of(factory)
        with _tell_progress() as hooks:
            if build is None:
                report = check_configuration(factory.removeprefix("hf:"), **hooks, **options)
            else:
                report = _run_suite(factory, build, options["family"] or "encoder-decoder", hooks | options)
    if options["pad_id"] is None:
        for pad_id in {finding.pad_id for finding in report.findings} - {None}:
            click.echo(f"if the padding is meant to be {pad_id}, run again with --pad-id {pad_id}", file=out)
    click.echo(repr(report), file=out)
    if as_json:
        _put(report.to_json() + "\n", as_json)
    if report.findings and all(finding.verdict == "not applicable" for finding in report.findings):
        raise InputError(f"no property applies to {factory}: the lines above say why")
    return 0 if report.holds else 1


def _write_template(family: str) -> int:
    if Path("mine.py").exists():
        raise InputError("mine.py is there already, and stays as it is: move it, or work in another folder")
    atomic_write("mine.py", template_of(family))
    command = f"python -m transformer_lib check mine:build --family {family} --no-training"
    click.echo(f"mine.py is there; put your model in, and then: {command}")
    return 0


def _run_suite(factory: str, build: Callable[..., Any], family: str, options: dict[str, Any]) -> Report:
    """The suite's report on a factory of somebody's; an InputError if it cannot be run."""
    try:
        return check_transformer(build, **options | {"family": family})
    except (Exception, SystemExit) as error:
        if not (_is_ours(error) or isinstance(error, NotImplementedError)):  # a gap says what is to be written
            _say(traceback.format_exc().rstrip())
        sides = "source, target" if family == "encoder-decoder" else "tokens"
        called = f"called as model({sides}) with whole numbers (batch, length)"
        raise InputError(f"cannot run {factory}, {called}: {one_line(error)}") from error


def _put(text: str, file: str) -> None:
    """Write a text to a file, or to the standard output."""
    if file == "-":
        click.echo(text, nl=False)
    else:
        atomic_write(file, text)


@contextmanager
def _tell_progress() -> Iterator[dict[str, Any]]:
    """What names each property as it is tried, and counts the steps of the trainings."""
    from tqdm import tqdm  # here, so that other commands start fast

    name, steps = "", 0

    def start(property_name: str) -> None:
        nonlocal name, steps
        name, steps = property_name, 0
        bar.reset()
        bar.set_description(name)

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1
        bar.update()
        if bar.disable and steps % 500 == 0:
            _say(f"{name}: {steps} training steps")

    hook = register_optimizer_step_post_hook(count)
    try:
        with tqdm(bar_format="{desc}{n_fmt} training steps, {elapsed}", leave=False, disable=None) as bar:
            yield {"on_start": start}
    finally:
        hook.remove()


def _is_ours(error: BaseException) -> bool:
    """Whether no line of somebody's code was running when the error was raised."""
    ours = (__name__, check_transformer.__module__, "torch.nn.modules.module", "torch.utils._contextlib")
    return all(frame.f_globals["__name__"].startswith(ours) for frame, _ in traceback.walk_tb(error.__traceback__))


@_commands.command("start")
@click.argument("folder", default=".", metavar="[FOLDER]", type=_Name())
@click.option("--solved-to", type=click.IntRange(0, 10), default=0, help="solve the gaps up to this chapter (0)")
@click.option("--update", is_flag=True, help="add the gaps that the file there lacks; change nothing else")
@click.option("--debug", type=int, metavar="SEED", help="write ten solved files instead, each with a fault to find")
@click.option("--variant", type=int, metavar="SEED", help="let a few parts ask for another formula, drawn by the seed")
def _start(folder: str, debug: int | None, **options: Any) -> None:
    """Write my_transformer.py into FOLDER, a gap for each part that you will write, and the notebooks beside it."""
    from transformer_lib.exercises import own_file  # here, as in all that is about exercises: `check` needs none

    if options["variant"] is not None and (options["update"] or debug is not None):
        raise InputError(f"--variant does not go with --{'update' if options['update'] else 'debug'}: give one of them")
    if debug is not None:
        first, *_, last = own_file.debug(folder, debug)
        click.echo(f"{first} to {last} are there, each with one fault: find it, then `grade` the file")
        return
    path = own_file.start(folder, **options)
    click.echo(f"{path} is there; `grade` says how its parts fare")
    if notebooks := own_file.copy_notebooks(folder):
        click.echo(f"{len(notebooks)} notebooks lie beside it: open them with Jupyter")


@_commands.command("grade")
@click.argument("file", default=NAME, metavar="[FILE]", type=_Name())
@click.option(
    "--json", "as_json", type=_File(), metavar="FILE", help="also write the verdicts as JSON; - is the standard output"
)
@click.option(
    "--csv", "as_csv", type=_File(), metavar="FILE", help="mark all files of a folder, and write a table (- as above)"
)
@click.option("--only", type=_Name(), metavar="PART", help="grade one part, such as attention")
@click.option("--variant", type=int, metavar="SEED", help="hold the file to this variant, whatever it says")
@click.option(
    "--results", type=_File(), metavar="FILE", help="mark one file as --csv does, and write Gradescope's results.json"
)
@click.option("--seconds", default=300, type=click.IntRange(1), help="when marking, processor time of a file (300)")
def _grade(
    file: str, as_json: str | None, as_csv: str | None, results: str | None, seconds: int, **options: Any
) -> int:
    """Say how the parts of my_transformer.py, or of FILE, fare: passed, failed and why, blocked, or not attempted.

    A part that uses one that has not passed is graded with the solution's in its place. It is blocked if it cannot run
    with that one.

    With --csv, FILE is a folder with the files of a class: NAME.py, or a folder NAME with a my_transformer.py.
    """
    from transformer_lib.exercises import classroom, own_file

    marks = [name for name, value in (("--csv", as_csv), ("--results", results)) if value]
    alone = {**options, "variant": options["variant"] if as_csv else None}  # a result may be held to one
    if others := marks and [*marks[1:], *(f"--{name}" for name, value in alone.items() if value is not None)]:
        raise InputError(f"{marks[0]} does not go with {others[0]}: give one of them")
    if as_csv:
        return _mark(file, as_csv, seconds)
    if Path(file).is_dir():
        inside = Path(file, NAME)
        raise InputError(
            f"{file} is a folder: name a file, such as {inside}, or mark all files in it with --csv marks.csv"
        )
    if results:
        _put(classroom.results(classroom.mark(Path(file), seconds=seconds, variant=options["variant"])), results)
        return 0
    with redirect_stdout(sys.stderr):  # what the file itself prints
        chapters = own_file.grade_file(file, **options)
    rows = [(chapter, name, said) for chapter, parts in chapters.items() for name, said in parts.items()]
    kinds = [own_file.kind(said) for *_, said in rows]
    for chapter, name, said in rows:
        click.echo(f"{chapter:2}  {name:20} {said}", err=as_json == "-")
    if as_json:
        parts = [
            {"chapter": chapter, "part": name, "verdict": kind, "why": said.removeprefix(kind).lstrip(": ")}
            for (chapter, name, said), kind in zip(rows, kinds)
        ]
        report = {"schema": 1, "course": transformer_lib.__version__, "file": printable(file), "parts": parts}
        _put(json.dumps(report, indent=1, ensure_ascii=False) + "\n", as_json)
    return int(bool({"failed", "blocked"} & {*kinds}))


def _mark(folder: str, as_csv: str, seconds: int) -> int:
    """Mark a class; what is marked so far is in the table, unless that cannot be written twice."""
    from transformer_lib.exercises import classroom

    marked: list[tuple[str, dict[str, str]]] = []
    again = as_csv != "-" and is_plain(as_csv)
    try:
        for name, verdicts in classroom.mark_class(folder, seconds=seconds):
            marked.append((name, verdicts))
            passed = f"{[*verdicts.values()].count('passed')} passed"
            click.echo(f"{name:40} {verdicts.get('error', passed)}", err=as_csv == "-")
            if again:
                atomic_write(as_csv, classroom.table(marked))
    finally:
        if not again:
            _put(classroom.table(marked), as_csv)
    for line in classroom.left_out(folder):
        _say(line)
    return 0


@_commands.command("try")
@click.argument("file", default=NAME, metavar="[FILE]", type=_Name())
@click.argument("sentence", required=False)
@click.option("--without", metavar="NAME", help="with a mistake: scale, heads, merge, positions, padding, causal, …")
@click.option("--chapter", type=click.IntRange(2, 10), help="your parts up to this one only, and what it shows")
def _try(file: str, sentence: str | None, **options: Any) -> None:
    """Translate with the parts of my_transformer.py, or of FILE, in the translator that comes with the course."""
    from transformer_lib.exercises import try_parts

    if sentence is None and not file.endswith(".py") and not os.path.exists(file):
        file, sentence = NAME, file
    try_parts(sentence, file=file if file != NAME else None, **options)


@_commands.command("progress")
@click.argument("folder", default=".", metavar="[FOLDER]")
def _progress(folder: str) -> None:
    """List the exercises in the notebooks of FOLDER: passed, failed, blocked, begun, not attempted."""
    from transformer_lib.exercises.progress import VERDICTS, progress

    counts = dict.fromkeys(VERDICTS, 0)
    for notebook, verdicts in progress(folder).items():
        parts = []
        for verdict in counts:
            names = [exercise for exercise, told in verdicts.items() if told == verdict]
            counts[verdict] += len(names)
            parts += [f"{verdict}: {', '.join(names)}"] if names else []
        click.echo(f"{notebook:24} {verdicts.get('error', '; '.join(parts))}")
    click.echo(f"{'all':24} " + "; ".join(f"{verdict}: {count}" for verdict, count in counts.items()))


@_commands.command("env")
def _env() -> None:
    """Print versions, device and threads, for a report of a mistake."""
    said = {"tested-transformer": transformer_lib.__version__, "Python": platform.python_version()}
    said |= {"system": platform.platform(), "processor": torch.backends.cpu.get_cpu_capability()}
    others = [kind for kind in (torch.backends.mps, torch.xpu) if kind.is_available()]
    said["GPU"] = "one that the course does not use" if others else "none that torch can use"
    if torch.cuda.is_available():
        said["GPU"] = torch.cuda.get_device_name()
    said["threads"] = str(torch.get_num_threads())
    for name in ("torch", "numpy", "tokenizers", "safetensors", "sacrebleu", "jaxtyping", "click", "ctranslate2"):
        try:
            said[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            said[name] = "not installed"
    for name, value in said.items():
        click.echo(f"{name:20}{value}")


def _say(message: object) -> None:
    try:
        click.echo(printable(str(message)), err=True)
    except OSError as error:
        if error.errno != errno.EIO:  # of a terminal that was closed: the work goes on to its end
            raise


def _fail(message: str) -> int:
    _say(f"error: {' '.join(message.split())[:1000]}")
    return 2


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status: 0, 1 if `check` fails, 2 after an error, 130 if it was stopped."""
    script = Path(sys.argv[0]).stem
    program = script if script == "tested-transformer" else "python -m transformer_lib"
    try:
        warnings.showwarning = lambda message, *_: _say(f"warning: {message}")
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as the input, whatever the locale says
        words = sys.argv[1:] if argv is None else list(argv)
        with _commands.make_context(program, words) as context:
            return _commands.invoke(context) or 0
    except click.exceptions.Exit as stop:  # --help
        return stop.exit_code
    except click.UsageError as error:
        called = error.ctx.command_path if error.ctx else program
        dash = isinstance(error, click.NoSuchOption) and called.endswith(" translate")
        hint = " Put -- before a sentence that begins with a dash" if dash else ""
        return _fail(f"{error.format_message()}{hint} (see {called} --help)")
    except InputError as error:
        return _fail(str(error))
    except KeyboardInterrupt as stop:
        _say(str(stop) or "stopped by Ctrl-C")
        return 130
    except OSError as error:
        if error.filename is None:  # what Python still wants to print at its end goes to nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):  # somebody closed our output, as `head` does
            return 0
        return _fail(f"cannot use {error.filename or 'standard output'}: {error.strerror or error}")
    except Exception as error:
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            return _fail("not enough memory: choose a smaller --beam or --preset, or shorter sentences")
        _say(traceback.format_exc())
        return _fail(
            f"{one_line(error)}; this is a mistake of the library: please report it, with the lines above and `env`"
        )


if __name__ == "__main__":
    sys.exit(main())
