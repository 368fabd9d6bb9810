# Generated from chapters/09e_resuming.md: edit it there and `make export`, or here and `make sync`.

"""The training loop: where a run stands, what it keeps on its way, and how it goes on after an interruption."""

from __future__ import annotations

import json
import logging
import math
import signal
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from transformer_lib.data import Batch, PairStore, token_batches
from transformer_lib.files import InputError, atomic_write, folder_lock, one_line
from transformer_lib.model import Transformer
from transformer_lib.serialization import save_weights
from transformer_lib.training.config import TrainingConfig, adamw
from transformer_lib.training.distributed import all_reduce_sum, is_first_process, rank_and_world_size, wrap_for_ddp
from transformer_lib.training.loss import Pairs, real_targets, validation_loss
from transformer_lib.training.state import Weights, load_state, save_state, set_weights, weights_of
from transformer_lib.training.train_step import LossModule, activation_checkpointing, train_step

_LOGGER = logging.getLogger("transformer_lib.training")
READ_EVERY = {"cuda": 10}  # steps between two looks at their results, for which the program must wait


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

    def diverged(self, kind: str, value: float) -> InputError:
        """What to raise when a loss or a norm is no longer finite."""
        where = f"step {self.step} (epoch {self.epoch}, batch {self.batch})"
        return InputError(f"the {kind} is {value} at {where}: lower peak_lr, raise warmup_steps, or look at that batch")


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
    ) -> None:
        self.model, self.optimizer, self.config = model, optimizer, config
        self.folder = None if folder is None else Path(folder)
        self.state, self.log, self.settings = TrainingState(), list[dict[str, float]](), _settings(config, pairs)
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
        stored, recent = load_state(self.folder / "state.safetensors", self.model, self.optimizer)
        if stored.get("state", {}).keys() != vars(self.state).keys():
            raise InputError(f"{self.folder} holds the state of another version of this library: use another directory")
        gone = {"masked_smoothing": False, "r_drop": 0.0, "both_directions": 0}  # settings that only older states have
        wanted, settings = gone | self.settings, gone | stored.get("settings", {})
        changed = ", ".join(name for name, value in wanted.items() if settings.get(name) != value)
        if changed:
            raise InputError(f"{self.folder} was trained with another {changed}: use the same, or another directory")
        self.state = TrainingState(**stored["state"])
        self.recent_weights.extend(recent)
        self.start -= self.state.seconds
        log = self.folder / "log.jsonl"
        try:
            rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
            self.log += [row for row in rows if row["step"] <= self.state.step]
        except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
            reason = one_line(error)
            raise InputError(f"{log} is missing or damaged ({reason}): train into another place") from error

    def checkpoint(self, val_pairs: Pairs) -> dict[str, float]:
        """Validate, add a row to the log, keep the weights if they are the best so far, and save the state.

        With `config.average` above 1, what is validated and kept is the mean of these weights and the last ones'.
        """
        before, state, is_best = time.monotonic(), self.state, True
        row: dict[str, float] = {"step": state.step, "epoch": state.epoch, "tokens": state.tokens}
        row["learning_rate"] = self.config.learning_rate(state.step)
        row["train_loss"], state.loss_sum, state.loss_tokens = state.loss_sum / state.loss_tokens, 0.0, 0
        own = weights_of(self.model) if self.config.average > 1 else {}
        recent = [*self.recent_weights, own]
        mean = {name: torch.stack([weights[name] for weights in recent]).mean(dim=0) for name in own}
        set_weights(self.model, mean)
        try:
            if val_pairs:
                row["val_loss"] = validation_loss(self.model, val_pairs, self.config.batch_tokens)
                if not math.isfinite(row["val_loss"]):
                    raise state.diverged("validation loss", row["val_loss"])
                is_best = row["val_loss"] < state.best_loss
                state.best_loss = min(state.best_loss, row["val_loss"])
                state.validations_since_best = 0 if is_best else state.validations_since_best + 1
            if is_best and self.folder is not None and is_first_process():
                save_weights(self.folder / "model.safetensors", self.model)
        finally:
            set_weights(self.model, own)
        self.recent_weights.append(own)
        self.log.append(row | {"seconds": self.seconds()})
        self.save()
        self.slowest = max(self.slowest, time.monotonic() - before)
        return row

    def save(self) -> None:
        """Write the log, then the state."""
        self.state.seconds = self.seconds()
        if self.folder is not None and is_first_process():
            log, path = "".join(json.dumps(row) + "\n" for row in self.log), self.folder / "state.safetensors"
            atomic_write(self.folder / "log.jsonl", log)
            progress = {"state": asdict(self.state), "settings": self.settings}
            save_state(path, self.model, self.optimizer, progress, recent=self.recent_weights)


def _settings(config: TrainingConfig, pairs: Pairs | PairStore) -> dict[str, Any]:
    """What may not change on the way, as JSON gives it back: a schedule by some of its rates, pairs by a checksum."""
    free = ("steps", "minutes", "cooldown_steps", "evaluate_every", "recompute", "average", "patience")
    settings = {name: value for name, value in vars(config).items() if name not in free}
    settings["schedule"] = [config.schedule(2**n, peak=1.0, warmup=100) for n in range(17)]
    if isinstance(pairs, PairStore):
        settings["pairs"] = pairs.checksum
    else:
        settings["pairs"] = zlib.crc32(repr([(list(source), list(target)) for source, target in pairs]).encode())
    return json.loads(json.dumps(settings))


@contextmanager
def stop_signals(folder: str | Path | None, noted: list[int]) -> Iterator[None]:
    """Inside the block SIGINT (Ctrl-C) and SIGTERM stop nothing and are noted, if there is a folder to save in.

    A second Ctrl-C interrupts at once, unless there are several processes: what launched them sends each signal again.
    """
    before: dict[int, Any] = {}

    def note(number: int, _: object) -> None:
        noted.append(number)
        if number == signal.SIGINT and rank_and_world_size()[1] == 1:
            signal.signal(number, before[number])

    if folder is not None and threading.current_thread() is threading.main_thread():  # Python allows it nowhere else
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):  # what is ignored stays ignored
                before[number] = signal.signal(number, note)
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _batches(
    first: Pairs | PairStore,
    pairs_of: Callable[[int], Pairs | PairStore],
    config: TrainingConfig,
    pad_id: int,
    state: TrainingState,
) -> Iterator[Batch]:
    """Batches without end from where the run stands; moves the state along. Epoch 0 learns the `first` pairs."""
    while True:
        pairs = pairs_of(state.epoch) if state.epoch else first
        batches_of = pairs.batches if isinstance(pairs, PairStore) else partial(token_batches, pairs)
        place = {"seed": config.seed, "epoch": state.epoch, "start": state.batch}
        for batch in batches_of(config.batch_tokens, pad_id=pad_id, **place):
            state.batch += 1
            yield batch
        state.epoch, state.batch = state.epoch + 1, 0


def _pairs_of(
    epoch: int, pairs: Pairs | PairStore | Callable[[int], Pairs], batch_tokens: int, max_len: int
) -> Pairs | PairStore:
    """What an epoch learns, or an error if that would stop the run in the middle."""
    chosen = pairs(epoch) if callable(pairs) else pairs
    if not chosen:
        raise ValueError("expected at least one pair to train on; got none")
    _require_usable(chosen, batch_tokens, max_len)
    return chosen


def _require_usable(pairs: Pairs | PairStore, batch_tokens: int, max_len: int) -> None:
    """Refuse what would stop the run in the middle."""
    shapes = pairs.shapes if isinstance(pairs, PairStore) else [(len(source), len(target)) for source, target in pairs]
    for n, m in shapes:
        if max(n, m) > batch_tokens or max(n, m - 1) > max_len:
            limits = f"at most batch_tokens = {batch_tokens} tokens, and the model's max_len = {max_len}"
            raise InputError(f"expected pairs of {limits}; got {n} and {m}")
        if m < 2:
            raise InputError(f"expected targets of 2 tokens or more, <bos> … <eos>; got {m}")


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
) -> list[dict[str, float]]:
    """Train a model on pairs of token lists.

    Several processes that `torch.distributed` has joined train one model together: each computes its share of every
    step. With `out`, Ctrl-C and SIGTERM let the step at hand finish, and save where it stands. On a GPU the loop looks
    at losses, clock and signals once in ten steps. The global random numbers stay as they were.

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
        device: where to compute.
        prepare: called by the first process as soon as no other run can write to `out`, and before this one does.

    Returns:
        The log, one row for each validation, with step, epoch, target tokens seen, seconds, learning rate, and the
        training and validation loss in nats a token.

    Raises:
        InputError: a pair does not fit into a batch or the model or has nothing to predict, `out` cannot be written,
            another run is training there, its state does not belong to this run, or a loss or a gradient is no longer
            finite.
        ValueError: there is no pair, `patience` without `val_pairs`, or `average` above 1 without `out`.
        KeyboardInterrupt: after Ctrl-C or SIGTERM.
    """
    from tqdm import tqdm  # here, so that importing the library stays fast

    if config.patience is not None and not val_pairs:
        raise ValueError("patience waits for a better validation loss: give val_pairs")
    if config.average > 1 and out is None:
        raise ValueError(f"the mean of {config.average} checkpoints is kept in a file: give out, or average=1")
    pairs_of = partial(_pairs_of, pairs=pairs, batch_tokens=config.batch_tokens, max_len=model.config.max_len)
    first = pairs_of(0)
    _require_usable(val_pairs, config.batch_tokens, model.config.max_len)
    steps, patience, pad_id = config.steps or math.inf, config.patience or math.inf, model.config.pad_id
    deadline = time.monotonic() + 60 * (config.minutes or math.inf)
    read_every = READ_EVERY.get(torch.device(device).type, 1)
    run = Checkpointer(model, adamw(model.to(device).train(), config), config, first, out)
    bar = tqdm(desc="train", total=config.steps, unit="step", disable=None if is_first_process() else True)
    signals = list[int]()
    with run_lock(out, prepare), activation_checkpointing(model, config.recompute), stop_signals(out, signals), bar:
        run.begin(resume=resume)
        state, loss = run.state, wrap_for_ddp(LossModule(model, config.label_smoothing))
        batches = _batches(first, pairs_of, config, pad_id, state)
        unread: list[tuple[TrainingState, int, Tensor]] = []  # steps whose results the loop has not looked at
        late = stop = False
        while not (late or stop) and state.step < steps and state.validations_since_best < patience:
            chosen = list(islice(batches, config.accumulate))
            tokens = sum(real_targets(batch.target, pad_id) for batch in chosen)
            state.step += 1
            result = train_step(loss, chosen, tokens, run.optimizer, config, state.step)
            unread.append((copy(state), tokens, result))
            bar.update(state.step - bar.n)
            due = state.step % config.evaluate_every == 0
            if not due and state.step % read_every and state.step < steps:
                continue
            losses, norms = torch.stack([result for *_, result in unread]).T.tolist()  # waits for the device
            for (then, tokens, _), mean, norm in zip(unread, all_reduce_sum(*losses), norms):
                for kind, value in (("training loss", mean), ("gradient's norm", norm)):
                    if not math.isfinite(value):
                        raise then.diverged(kind, value)
                state.tokens += tokens
                state.loss_sum += mean * tokens
                state.loss_tokens += tokens
            unread.clear()
            if due:
                row = run.checkpoint(val_pairs)
                shown = {name: f"{row[name]:.3f}" for name in ("train_loss", "val_loss") if name in row}
                bar.set_postfix(shown)
                if is_first_process():
                    _LOGGER.info("step %d: %s", state.step, ", ".join(map(" ".join, shown.items())))
            late, stop = map(bool, all_reduce_sum(time.monotonic() + 1.2 * run.slowest > deadline, len(signals)))
        if stop and not late and state.step < steps:
            run.save()
        elif state.loss_tokens:  # since the last checkpoint
            run.checkpoint(val_pairs)
        if any(all_reduce_sum(len(signals))):
            raise KeyboardInterrupt(f"stopped after step {state.step}: resume goes on from there")
    return run.log
