# Generated from chapters/10_training.md: edit the chapter, not this file, then run `make export`.

"""Learning: the training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from transformer_lib.data import Batch, token_batches
from transformer_lib.model import Transformer
from transformer_lib.serialization import InputError, weights_of
from transformer_lib.training.checkpoints import Progress, Run, averaged, run_lock, stop_signals
from transformer_lib.training.config import TrainingConfig, adamw
from transformer_lib.training.distributed import all_reduce_sum, rank_and_world_size, wrap_for_ddp
from transformer_lib.training.loss import Pairs, real_targets, validation_loss
from transformer_lib.training.train_step import LossModule, activation_checkpointing, train_step


def _batches(pairs: Pairs, config: TrainingConfig, pad_id: int, at: Progress) -> Iterator[Batch]:
    """Batches without end from where the run stands; moves `at` along."""
    while True:
        batches = token_batches(pairs, config.batch_tokens, pad_id=pad_id, seed=config.seed, epoch=at.epoch)
        for batch in islice(batches, at.batch, None):
            at.batch += 1
            yield batch
        at.epoch, at.batch = at.epoch + 1, 0


class _Clock:
    """The seconds of a run, those before an interruption included, and whether a checkpoint still fits."""

    def __init__(self, minutes: float | None) -> None:
        self.start, self.earlier, self.slowest = time.monotonic(), 0.0, 0.0
        self.deadline = math.inf if minutes is None else self.start + 60 * minutes

    def seconds(self) -> float:
        return round(self.earlier + time.monotonic() - self.start, 1)

    def late(self) -> bool:
        """Whether the time is up, when the slowest checkpoint so far is still to come, and a fifth slower."""
        return time.monotonic() + 1.2 * self.slowest > self.deadline


def _require_usable(pairs: Pairs, batch_tokens: int, max_len: int) -> None:
    """Refuse before the first update what would stop the run in the middle."""
    for source, target in pairs:
        if max(len(source), len(target)) > batch_tokens or max(len(source), len(target) - 1) > max_len:
            limits = f"at most batch_tokens = {batch_tokens} tokens, and the model's max_len = {max_len}"
            raise InputError(f"expected pairs of {limits}; got {len(source)} and {len(target)}")
        if len(target) < 2:
            raise InputError(f"expected targets of 2 tokens or more, <bos> … <eos>; got {target}")


def _where(at: Progress) -> str:
    return f"step {at.step} (epoch {at.epoch}, batch {at.batch})"


def _require_finite(kind: str, value: float, where: str) -> None:
    if not math.isfinite(value):
        raise InputError(f"the {kind} is {value} at {where}: lower peak_lr, raise warmup_steps, or look at that batch")


def _looks_every(device: torch.device) -> int:
    """Updates until the loop looks at their results: a GPU must have finished them, and the program waits for it."""
    return 10 if device.type == "cuda" else 1


def _look(unread: list[tuple[str, int, Tensor]], at: Progress, clock: _Clock, signals: list[int]) -> list[float]:
    """Take what updates have returned into `at`; return whether any process is late, and how many signals came."""
    parts, norms = torch.stack([result for _, _, result in unread]).T.tolist()  # waits for the device
    *means, late, stop = all_reduce_sum(*parts, clock.late(), len(signals))  # of all processes: they must agree
    for (where, tokens, _), mean, norm in zip(unread, means, norms):
        _require_finite("training loss", mean, where)
        _require_finite("gradient's norm", norm, where)
        at.tokens += tokens
        at.loss_sum += mean * tokens
        at.loss_tokens += tokens
    unread.clear()
    return [late, stop]


def _checkpoint(run: Run, config: TrainingConfig, val_pairs: Pairs, clock: _Clock) -> dict[str, float]:
    """Validate, add a row to the log, keep the weights if they are the best so far, and write the state."""
    at, before, is_best = run.at, time.monotonic(), True
    row = {"step": at.step, "epoch": at.epoch, "tokens": at.tokens, "learning_rate": config.learning_rate(at.step)}
    row["train_loss"], at.loss_sum, at.loss_tokens = at.loss_sum / at.loss_tokens, 0.0, 0
    if config.average > 1:
        run.recent.append(weights_of(run.model))
    with averaged(run.model, run.recent):
        if val_pairs:
            ours = validation_loss(run.model, val_pairs, config.batch_tokens) if rank_and_world_size()[0] == 0 else 0.0
            (row["val_loss"],) = all_reduce_sum(ours)
            _require_finite("validation loss", row["val_loss"], _where(at))
            is_best = row["val_loss"] < at.best_loss
            at.best_loss, at.waited = min(at.best_loss, row["val_loss"]), 0 if is_best else at.waited + 1
        if is_best:
            run.save_model()
    row["seconds"] = at.seconds = clock.seconds()
    run.log.append(row)
    run.save()
    clock.slowest = max(clock.slowest, time.monotonic() - before)
    return row


def train(
    model: Transformer,
    pairs: Pairs,
    config: TrainingConfig,
    *,
    val_pairs: Pairs = (),
    out: str | Path | None = None,
    resume: bool = False,
    device: str | torch.device = "cpu",
) -> list[dict[str, float]]:
    """Train a model on pairs of token lists.

    Several processes that `torch.distributed` has joined train one model together: each computes its share of every
    update. With `out`, Ctrl-C and SIGTERM let the update at hand finish, and save where it stands. On a GPU the loop
    looks at losses, clock and signals once in ten updates. The global random numbers stay as they were.

    Args:
        model: the model; it is moved to `device`, changed in place, and left in training mode.
        pairs: (source, target) token lists, as `encode_pairs` gives them; at least one.
        config: how to train.
        val_pairs: pairs for validation; may be empty.
        out: directory for `model.safetensors` (the best on `val_pairs`, or the last without them), `log.jsonl` and
            `state.safetensors`; None = write nothing.
        resume: go on from the state in `out`, if there is one.
        device: where to compute.

    Returns:
        The log, one row for each validation, with step, epoch, target tokens seen, seconds, learning rate, and the
        training and validation loss in nats a token.

    Raises:
        InputError: a pair does not fit into a batch or the model or has nothing to predict, `out` cannot be written,
            another run is training there, its state does not belong to this run, or a loss or a gradient is no longer
            finite.
        ValueError: there is no pair, or `patience` without `val_pairs`.
        KeyboardInterrupt: after Ctrl-C or SIGTERM.
    """
    if not pairs:
        raise ValueError("expected at least one pair to train on; got none")
    if config.patience is not None and not val_pairs:
        raise ValueError("patience waits for a better validation loss: give val_pairs")
    _require_usable([*pairs, *val_pairs], config.batch_tokens, model.config.max_len)
    with run_lock(out):
        return _train(model, pairs, config, val_pairs, out, resume, device)


def _train(
    model: Transformer,
    pairs: Pairs,
    config: TrainingConfig,
    val_pairs: Pairs,
    out: str | Path | None,
    resume: bool,
    device: str | torch.device,
) -> list[dict[str, float]]:
    """Train, when the arguments are right and nobody else writes to `out`."""
    from tqdm import tqdm  # here, so that importing the library stays fast

    clock, pad_id = _Clock(config.minutes), model.config.pad_id
    model.to(device).train()
    run = Run(model, adamw(model, config), config, pairs, out)
    run.begin(resume=resume)
    at, clock.earlier = run.at, run.at.seconds
    steps, patience = config.steps or math.inf, config.patience or math.inf
    if at.step >= steps or at.waited >= patience:
        if at.loss_tokens:  # it was asked to stop between two checkpoints, and has nothing more to do
            _checkpoint(run, config, val_pairs, clock)
        return run.log
    loss, batches = wrap_for_ddp(LossModule(model, config.label_smoothing)), _batches(pairs, config, pad_id, at)
    unread: list[tuple[str, int, Tensor]] = []
    bar = tqdm(
        desc="train", total=config.steps, initial=at.step, unit="step", disable=bool(rank_and_world_size()[0]) or None
    )
    with bar, activation_checkpointing(model, config.recompute), stop_signals(out is not None) as signals:
        while True:
            chosen = list(islice(batches, config.accumulate))
            tokens = sum(real_targets(batch.target, pad_id) for batch in chosen)
            at.step += 1
            unread.append((_where(at), tokens, train_step(loss, chosen, tokens, run.optimizer, config, at.step)))
            bar.update()
            due = at.step == steps or at.step % config.evaluate_every == 0
            if not due and at.step % _looks_every(torch.device(device)):
                continue
            late, stop = _look(unread, at, clock, signals)
            last = late or at.step == steps
            if last or due:
                row = _checkpoint(run, config, val_pairs, clock)
                bar.set_postfix({name: f"{row[name]:.3f}" for name in ("train_loss", "val_loss") if name in row})
                late, stop = all_reduce_sum(clock.late(), len(signals))
                last = bool(last or late or at.waited >= patience)
            elif stop:
                at.seconds = clock.seconds()
                run.save()
            if stop:
                raise KeyboardInterrupt(f"stopped after step {at.step}: resume goes on from there")
            if last:
                return run.log
