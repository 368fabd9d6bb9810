# Generated from chapters/B_files.md: edit it there and `make export`, or here and `make sync`.

"""The training loop: where a run stands, what it keeps on its way, and how it goes on after an interruption."""

from __future__ import annotations

import json
import logging
import math
import signal
import threading
import time
import warnings
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from copy import copy
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_lib.data import Batch, PairStore, token_batches
from transformer_lib.data.batching import ahead
from transformer_lib.files import InputError, atomic_write, folder_lock, one_line
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.precision import loss_scaler, prepare_device
from transformer_lib.training.config import TrainingConfig, adamw
from transformer_lib.training.distributed import all_reduce_sum, is_first_process, rank_and_world_size, wrap_for_ddp
from transformer_lib.training.loss import Pairs, real_targets, validation_loss
from transformer_lib.training.state import (
    Weights,
    load_recent,
    load_state,
    other_weights,
    save_recent,
    save_state,
    weights_of,
)
from transformer_lib.training.train_step import (
    LossModule,
    activation_checkpointing,
    layers_of,
    memory_for,
    require_compiler,
    train_step,
)
from transformer_lib.weights import save_weights

if TYPE_CHECKING:
    from tqdm import tqdm

_LOGGER = logging.getLogger("transformer_lib.training")
READ_EVERY = {"cuda": 10}  # steps between two looks at their results, for which the program must wait
STOP = [  # Ctrl-C; a batch system; a terminal that is closed; Slurm's --signal=USR1@120; `ulimit -t`
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGXCPU")
    if hasattr(signal, name)  # Windows has the first two
]


@contextmanager
def run_lock(folder: str | Path | None, prepare: Callable[[], None]) -> Iterator[None]:
    """Inside the block no other run may train into the directory, if there is one.

    Of several processes the first locks it and calls `prepare`. If it meets an `InputError` there, all raise one.
    """
    with ExitStack() as stack:
        refusal = None
        if is_first_process():
            try:
                if folder is not None:
                    stack.enter_context(folder_lock(folder))
                prepare()
            except InputError as error:
                refusal = error
        if any(all_reduce_sum(refusal is not None)):  # of all processes: they must agree
            raise refusal or InputError(f"the first process cannot train into {folder}")
        yield


@dataclass
class TrainingState:
    """Where a run stands: all that the next step depends on, besides weights and moments."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # batches of this epoch that are used up
    tokens: int = 0  # real targets seen
    seconds: float = 0.0
    best_loss: float = math.inf
    validations_since_best: int = 0
    loss_sum: float = 0.0  # since the last row of the log, like the next
    loss_tokens: int = 0
    scaler: dict[str, float] = field(default_factory=dict)  # of float16
    recent: list[tuple[int, int]] = field(default_factory=list)  # steps and checksums of the weights to average

    def diverged(self, kind: str, value: float) -> InputError:
        """What to raise when a loss or a norm is no longer finite."""
        where = f"step {self.step} (epoch {self.epoch}, batch {self.batch})"
        return InputError(f"the {kind} is {value} at {where}: lower peak_lr, raise warmup_steps, or look at that batch")


def _file_of(step: int | str) -> str:
    """Where the weights of a step lie that later means need."""
    return f"recent-{step}.safetensors"


class Checkpointer:
    """The state and the log of a run that trains `model`, kept in `folder` unless it is None.

    Of several processes the first writes. Each method raises an `InputError` if the folder cannot be written.
    """

    def __init__(
        self,
        model: Transformer,
        optimizer: Optimizer,
        config: TrainingConfig,
        pairs: Pairs | PairStore,
        folder: str | Path | None,
        val_pairs: Pairs = (),
    ) -> None:
        self.model, self.optimizer, self.config = model, optimizer, config
        self.folder = None if folder is None else Path(folder)
        self.state, self.log, self.settings = TrainingState(), list[dict[str, float]](), _settings(config, pairs)
        self.settings["pairs for validation"] = _checksum_of(val_pairs)
        self.scaler = loss_scaler(next(model.parameters()).device, config.precision)
        self.recent_weights = deque[Weights](maxlen=config.average - 1)  # and today's are one more
        self.start, self.slowest = time.monotonic(), 0.0  # the slowest checkpoint so far, in seconds

    def seconds(self) -> float:
        """How long the run has lasted, the time before an interruption included."""
        return round(time.monotonic() - self.start, 1)

    def begin(self, *, resume: bool) -> None:
        """Go on where the folder's state stands, if asked to and if there is one; else write the first state.

        Raises:
            InputError: also if the state is damaged or belongs to another run.
        """
        if self.folder is None or not resume or not (self.folder / "state.safetensors").exists():
            self.save()
            return
        stored = load_state(self.folder / "state.safetensors", self.model, self.optimizer)
        if stored.get("state", {}).keys() != vars(self.state).keys():
            raise InputError(f"{self.folder} holds the state of another version of this library: use another directory")
        settings = stored.get("settings", {})
        changed = ", ".join(name for name, value in self.settings.items() if settings.get(name) != value)
        if changed:
            changed = changed.replace("pairs", "set of pairs")
            remedy = (
                f"use the same, or another directory (with --start-from {self.folder} it begins from these weights)"
            )
            raise InputError(f"{self.folder} was trained with another {changed}: {remedy}")
        self.state = TrainingState(**stored["state"])
        if self.state.scaler:
            self.scaler.load_state_dict(self.state.scaler)
        self.recent_weights += [load_recent(self.folder / _file_of(n), checksum) for n, checksum in self.state.recent]
        self.start -= self.state.seconds
        log = self.folder / "log.jsonl"
        try:
            rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
            self.log += [row for row in rows if row["step"] <= self.state.step]
        except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
            reason = one_line(error)
            raise InputError(f"{log} is missing or damaged ({reason}): train into another place") from error

    def checkpoint(self, val_pairs: Pairs, report: Callable[[list[dict[str, float]]], None]) -> None:
        """Validate, add a row to the log, keep the weights if they are the best so far, save the state, and report.

        With `config.average` above 1, what is validated, kept and in the model while it reports is the mean of these
        weights and the last ones.
        """
        before, state, is_best = time.monotonic(), self.state, True
        row: dict[str, float] = {"step": state.step, "epoch": state.epoch, "tokens": state.tokens}
        row["learning_rate"] = self.config.learning_rate(state.step)
        row["train_loss"], state.loss_sum, state.loss_tokens = state.loss_sum / state.loss_tokens, 0.0, 0
        own = weights_of(self.model) if self.config.average > 1 else {}
        recent = [*self.recent_weights, own]
        mean = {name: torch.stack([weights[name] for weights in recent]).mean(dim=0) for name in own}
        with other_weights(self.model, mean, own):
            if val_pairs:
                with memory_for("the validation: lower batch_tokens, or take a smaller model"):
                    row["val_loss"] = validation_loss(
                        self.model, val_pairs, self.config.batch_tokens, self.config.precision
                    )
                if not math.isfinite(row["val_loss"]):
                    raise state.diverged("validation loss", row["val_loss"])
                is_best = row["val_loss"] < state.best_loss
                state.best_loss = min(state.best_loss, row["val_loss"])
                state.validations_since_best = 0 if is_best else state.validations_since_best + 1
            if is_best and self.folder is not None and is_first_process():
                save_weights(self.folder / "model.safetensors", self.model)
        self.log.append(row | {"seconds": self.seconds()})
        self.keep_recent(own)
        self.save()
        if is_first_process():
            with other_weights(self.model, mean, own):
                report(self.log)
        self.slowest = max(self.slowest, time.monotonic() - before)

    def keep_recent(self, weights: Weights) -> None:
        """Remember weights for the next means; each is written once, and the state says which ones it needs."""
        self.recent_weights.append(weights)
        needed = self.recent_weights.maxlen
        if not needed:
            self.state.recent = []
        elif self.folder is not None and is_first_process():
            checksum = save_recent(self.folder / _file_of(self.state.step), weights)
            self.state.recent = [*self.state.recent, (self.state.step, checksum)][-needed:]

    def save(self) -> None:
        """Write the log, then the state; then remove the weights that this state no longer needs."""
        self.state.seconds, self.state.scaler = self.seconds(), self.scaler.state_dict()
        if self.folder is not None and is_first_process():
            log, path = "".join(json.dumps(row) + "\n" for row in self.log), self.folder / "state.safetensors"
            atomic_write(self.folder / "log.jsonl", log)
            save_state(path, self.model, self.optimizer, {"state": asdict(self.state), "settings": self.settings})
            needed = {_file_of(step) for step, _ in self.state.recent}
            for file in self.folder.glob(_file_of("*")):
                if file.name not in needed:
                    file.unlink()


def _settings(config: TrainingConfig, pairs: Pairs | PairStore) -> dict[str, Any]:
    """What may not change on the way, as JSON gives it back: a schedule by some of its rates, pairs by a checksum."""
    free = ("steps", "minutes", "cooldown_steps", "evaluate_every", "compile", "recompute", "average", "patience")
    settings = {name: value for name, value in vars(config).items() if name not in free}
    settings["schedule"] = [config.schedule(2**n, peak=1.0, warmup=100) for n in range(17)]
    if isinstance(pairs, PairStore):
        settings["pairs"] = pairs.checksum
    else:
        settings["pairs"] = _checksum_of(pairs)
    return json.loads(json.dumps(settings))


def _checksum_of(pairs: Pairs) -> int:
    return zlib.crc32(repr([(list(source), list(target)) for source, target in pairs]).encode())


@contextmanager
def stop_signals(folder: str | Path | None, noted: list[int]) -> Iterator[None]:
    """Inside the block what stops a process (`STOP`) stops nothing and is noted, if there is a folder to save in.

    A second Ctrl-C interrupts at once, unless there are several processes: what launched them sends each signal again.
    """
    before: dict[int, Any] = {}

    def note(number: int, _: object) -> None:
        noted.append(number)
        if number == signal.SIGINT and rank_and_world_size()[1] == 1:
            signal.signal(number, before[number])

    if folder is not None and threading.current_thread() is threading.main_thread():  # Python allows it nowhere else
        for number in STOP:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):  # what is ignored stays ignored
                before[number] = signal.signal(number, note)
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


class _Prepared(NamedTuple):
    """A batch, its place, so that a run can go on behind it, and its number of real targets."""

    epoch: int
    number: int  # within the epoch, from 1
    tokens: int
    batch: Batch


def _batches(
    first: Pairs | PairStore,
    pairs_of: Callable[[int], Pairs | PairStore],
    config: TrainingConfig,
    pad_id: int,
    state: TrainingState,
) -> Iterator[_Prepared]:
    """Batches without end from where the run stands. Epoch 0 learns the `first` pairs."""
    start = state.batch
    for epoch in count(state.epoch):
        pairs = pairs_of(epoch) if epoch else first
        batches_of = pairs.batches if isinstance(pairs, PairStore) else partial(token_batches, pairs)
        place = {"seed": config.seed, "epoch": epoch, "start": start}
        for number, batch in enumerate(batches_of(config.batch_tokens, pad_id=pad_id, **place), start + 1):
            yield _Prepared(epoch, number, real_targets(batch.target, pad_id), batch)
        start = 0


def _step(loss: nn.Module, batches: list[Batch], tokens: int, run: Checkpointer, parts: int) -> tuple[Tensor, int]:
    """A `train_step` on batches in so many parts, or in twice as many until the device's memory is large enough."""
    while True:
        pieces = [piece for batch in batches for piece in _in_parts(batch, parts)]
        try:
            return train_step(loss, pieces, tokens, run.optimizer, run.config, run.state.step, run.scaler), parts
        except torch.OutOfMemoryError as error:
            if rank_and_world_size()[1] > 1 or parts >= max(len(batch.source) for batch in batches):
                remedy = "lower batch_tokens, or take a smaller model"
                raise InputError(f"the memory of the device is too small: {remedy} ({one_line(error):.80})") from error
        parts *= 2
        _LOGGER.warning("the memory of the device is too small for a batch: it is computed in %d parts now", parts)


def _in_parts(batch: Batch, parts: int) -> list[Batch]:
    """The rows of a batch in so many parts, or one a part if there are fewer rows."""
    return [Batch(*sides) for sides in zip(*(side.chunk(parts) for side in batch))]


def _pairs_of(
    epoch: int, pairs: Pairs | PairStore | Callable[[int], Pairs], batch_tokens: int, sizes: TransformerConfig
) -> Pairs | PairStore:
    """What an epoch learns, or an error if that would stop the run in the middle."""
    chosen = pairs(epoch) if callable(pairs) else pairs
    if not chosen:
        raise ValueError("expected at least one pair to train on; got none")
    _require_usable(chosen, batch_tokens, sizes)
    return chosen


def _require_usable(pairs: Pairs | PairStore, batch_tokens: int, sizes: TransformerConfig) -> None:
    """Refuse what would stop the run in the middle."""
    max_len, vocabularies = sizes.max_len, (sizes.source_vocab_size, sizes.target_vocab_size)
    if isinstance(pairs, PairStore):
        shapes, largest = pairs.shapes, 2 * [pairs.tokenizer.vocab_size - 1]
        if any(token >= size for token, size in zip(largest, vocabularies)):
            raise InputError(f"expected a store of at most {min(vocabularies)} tokens; got {largest[0] + 1}")
    else:
        shapes = [(len(source), len(target)) for source, target in pairs]
        for name, size, side in zip(("source", "target"), vocabularies, zip(*pairs)):
            wrong = next((token for tokens in side for token in tokens if not 0 <= token < size), None)
            if wrong is not None:
                raise InputError(f"expected {name} tokens from 0 to {size - 1}, the model's vocabulary; got {wrong}")
        if not all(any(token != sizes.pad_id for token in target[1:]) for _, target in pairs if len(target) > 1):
            raise InputError("expected targets with a token to predict; got one of padding only")
    for n, m in shapes:
        if max(n, m) > batch_tokens or max(n, m - 1) > max_len:
            limits = f"at most batch_tokens = {batch_tokens} tokens, and the model's max_len = {max_len}"
            raise InputError(f"expected pairs of {limits}; got {n} and {m}")
        if m < 2:
            raise InputError(f"expected targets of 2 tokens or more, <bos> … <eos>; got {m}")


class _Pace:
    """How fast a run is, and how long it will last at most, in words."""

    def __init__(self, state: TrainingState, config: TrainingConfig, deadline: float) -> None:
        self.config, self.deadline, self.start = config, deadline, time.monotonic()
        self.steps, self.tokens = state.step, state.tokens

    def __call__(self, state: TrainingState) -> str:
        now = time.monotonic()
        a_step = (now - self.start) / max(state.step - self.steps, 1)
        seconds = min(self.deadline - now, a_step * ((self.config.steps or math.inf) - state.step))
        speed = (state.tokens - self.tokens) / max(now - self.start, 1e-9)
        return f"{speed:,.0f} tokens/s, {max(seconds, 0) / 60:.0f} min left"


def _progress_bar(steps: int | None, wanted: bool | None) -> tqdm:
    """A bar for the first process: in the cell of a notebook, or on the error stream."""
    with warnings.catch_warnings(action="ignore"):  # of a notebook program without widgets, which gets a line of text
        from tqdm.auto import tqdm  # here, so that importing the library stays fast
    hidden = True if not is_first_process() else None if wanted is None else not wanted
    return tqdm(desc="train", total=steps, unit="step", disable=hidden)


def train(
    model: Transformer,
    pairs: Pairs | PairStore | Callable[[int], Pairs],
    config: TrainingConfig,
    *,
    val_pairs: Pairs = (),
    out: str | Path | None = None,
    resume: bool = False,
    device: str | torch.device = "cpu",
    prepare: Callable[[], None] = lambda: None,
    report: Callable[[list[dict[str, float]]], None] = lambda log: None,
    bar: bool | None = None,
) -> list[dict[str, float]]:
    """Train a model on pairs of token lists.

    Several processes that `torch.distributed` has joined train one model together: each computes its share of every
    step. With `out`, a signal of `STOP` lets the step at hand finish and saves where it stands. On a GPU the loop looks
    at losses, clock and signals once in ten steps. If its memory is too small for a batch, it computes one half after
    the other, or smaller parts, for the same step. The global random numbers stay as they were.

    Args:
        model: the model; it is moved to `device`, changed in place, and left in training mode, with the weights of the
            last step. The best ones, and the mean of `config.average`, are in `out` only.
        pairs: (source, target) token lists, as `encode_pairs` gives them, at least one; or a `PairStore`. A function of
            the epoch, from 0, gives each epoch its own; the same epoch must always get the same.
        config: how to train.
        val_pairs: pairs for validation; may be empty.
        out: directory for `model.safetensors` (the best on `val_pairs`, or the last without them), `log.jsonl` and
            `state.safetensors`; None = write nothing.
        resume: go on from the state in `out`, if there is one.
        device: where to compute: "cpu" or "cuda".
        prepare: called by the first process as soon as no other run can write to `out`, and before this one does.
        report: called by the first process after each validation, with the log so far. Everything is saved then, and
            the model has the weights that were validated.
        bar: whether to show a progress bar; None = on a terminal only. Without one, each validation is logged.

    Returns:
        The log, one row for each validation, with step, epoch, target tokens seen, seconds, learning rate, and the
        training and validation loss in nats a token.

    Raises:
        InputError: a pair does not fit into a batch or the model, has a token that the model lacks or nothing to
            predict, the model has nothing to train, or no layers for `config.recompute`, `out` cannot be written,
            another run is training there, its state does not belong to this run, a loss or a gradient is no longer
            finite, the device is none of these, or its memory is too small for a single pair or for the optimiser.
        ValueError: there is no pair, `patience` without `val_pairs`, or `average` above 1 without `out`.
        KeyboardInterrupt: after a signal of `STOP`.
    """
    place = prepare_device(device, config.precision)
    if config.patience is not None and not val_pairs:
        raise ValueError("patience waits for a better validation loss: give val_pairs")
    if config.average > 1 and out is None:
        raise ValueError(f"the mean of {config.average} checkpoints is kept in a file: give out, or average=1")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("expected a model with weights to train; got none, or all are frozen")
    if config.recompute:
        layers_of(model)  # or an error, before anything is written
    if config.compile:
        require_compiler(place.type)  # likewise
    pairs_of = partial(_pairs_of, pairs=pairs, batch_tokens=config.batch_tokens, sizes=model.config)
    first = pairs_of(0)
    _require_usable(val_pairs, config.batch_tokens, model.config)
    steps, patience, pad_id = config.steps or math.inf, config.patience or math.inf, model.config.pad_id
    deadline = time.monotonic() + 60 * (config.minutes or math.inf)
    read_every = READ_EVERY.get(place.type, 1)
    run = Checkpointer(model, adamw(model.to(place).train(), config), config, first, out, val_pairs)
    shown, signals = _progress_bar(config.steps, bar), list[int]()
    with (
        run_lock(out, prepare), activation_checkpointing(model, config.recompute), stop_signals(out, signals), shown,
        ExitStack() as thread,
    ):  # fmt: skip
        run.begin(resume=resume)
        state, module, parts = run.state, LossModule(model, config.label_smoothing), 1
        if config.compile:
            module.compile(dynamic=True)
        loss = wrap_for_ddp(module)
        made = ahead(_batches(first, pairs_of, config, pad_id, state), pin=place.type == "cuda")
        batches = thread.enter_context(closing(made))
        unread: list[tuple[TrainingState, int, Tensor]] = []  # steps whose results the loop has not looked at
        pace, late, stop = _Pace(state, config, deadline), False, False

        def told(log: list[dict[str, float]]) -> None:
            shown.clear()
            if shown.disable and state.step % config.evaluate_every == 0:
                words = [f"{name} {log[-1][name]:.3f}" for name in ("train_loss", "val_loss") if name in log[-1]]
                _LOGGER.info("step %d: %s", state.step, ", ".join([*words, pace(state)]))
            report(log)

        while not (late or stop) and state.step < steps and state.validations_since_best < patience:
            chosen = list(islice(batches, config.accumulate))
            tokens = sum(prepared.tokens for prepared in chosen)
            state.step, state.epoch, state.batch = state.step + 1, chosen[-1].epoch, chosen[-1].number
            result, parts = _step(loss, [prepared.batch for prepared in chosen], tokens, run, parts)
            unread.append((copy(state), tokens, result))
            shown.update(state.step - shown.n)
            due = state.step % config.evaluate_every == 0
            if not due and state.step % read_every and state.step < steps:
                continue
            losses, norms = torch.stack([result for *_, result in unread]).T.tolist()  # waits for the device
            for (then, tokens, _), mean, norm in zip(unread, all_reduce_sum(*losses), norms):
                if not math.isfinite(mean):
                    raise then.diverged("training loss", mean)
                if not math.isfinite(norm) and run.scaler.get_scale() <= 1:  # else that step was left out
                    raise then.diverged("gradient's norm", norm)
                state.tokens += tokens
                state.loss_sum += mean * tokens
                state.loss_tokens += tokens
            unread.clear()
            shown.set_postfix_str(f"loss {state.loss_sum / state.loss_tokens:.3f}, {pace(state)}", refresh=False)
            if due:
                run.checkpoint(val_pairs, told)
            late, stop = map(bool, all_reduce_sum(time.monotonic() + 1.2 * run.slowest > deadline, len(signals)))
        if stop and not late and state.step < steps:
            run.save()
        elif state.loss_tokens:  # since the last checkpoint
            run.checkpoint(val_pairs, told)
        if any(all_reduce_sum(len(signals))):
            raise KeyboardInterrupt(f"stopped after step {state.step}: resume goes on from there")
    return run.log
