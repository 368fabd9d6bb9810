# Generated from chapters/10_training.md: edit the chapter, not this file, then run `make export`.


# chapters/10_training.md: A learning rate that warms up
"""Learning: the learning-rate schedule and the training loop."""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from transformer_lib.data import Batch, token_batches
from transformer_lib.files import UserError, atomic_write, load_state, one_line, save_state, save_weights
from transformer_lib.loss import Pairs, real_targets, translation_loss, validation_loss
from transformer_lib.model import Transformer


# chapters/10_training.md: A learning rate that warms up
def inverse_sqrt_schedule(step: int, *, peak: float, warmup: int) -> float:
    """The learning rate of a step: up linearly, then down as 1 / √step (Vaswani et al. 2017, section 5.3).

    Args:
        step: the step's number, from 1.
        peak: the highest rate, reached at step `warmup`.
        warmup: number of steps on the way up, at least 1.

    Raises:
        ValueError: `step` or `warmup` is below 1.
    """
    if step < 1 or warmup < 1:
        raise ValueError(f"step and warmup count from 1; got step {step} and warmup {warmup}")
    return peak * min(step / warmup, math.sqrt(warmup / step))


# chapters/10_training.md: The training loop
@dataclass(frozen=True)
class TrainingConfig:
    """How to train. Give `steps`, `minutes` or both; the run ends with the first that is reached.

    Args:
        batch_tokens: size of a batch: rows times its longest side.
        peak_lr: highest learning rate.
        warmup_steps: steps until it is reached.
        label_smoothing: share of the target probability spread over all words.
        weight_decay: AdamW's decay, for matrices only.
        clip_norm: longest gradient.
        steps: number of updates, counted from the very beginning.
        minutes: time for this call, validation and saving included.
        evaluate_every: updates between two validations, each followed by a checkpoint.
        seed: decides the order of the batches and the dropout.

    Raises:
        ValueError: a value is out of its range, or neither `steps` nor `minutes` is given.
    """

    batch_tokens: int = 4096
    peak_lr: float = 2e-3
    warmup_steps: int = 1000
    label_smoothing: float = 0.1
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    steps: int | None = None
    minutes: float | None = None
    evaluate_every: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps is None and self.minutes is None:
            raise ValueError("give steps, minutes or both: how long to train")
        for name in ("batch_tokens", "peak_lr", "warmup_steps", "clip_norm", "steps", "minutes", "evaluate_every"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite; got {value}")
        for name in ("batch_tokens", "warmup_steps", "steps", "evaluate_every"):
            if not isinstance(getattr(self, name), int | None):
                raise ValueError(f"{name} must be a whole number; got {getattr(self, name)}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1; got {self.label_smoothing}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be at least 0 and finite; got {self.weight_decay}")


# chapters/10_training.md: Going on after an interruption
@dataclass
class _Progress:
    """Where a run stands: all that the next step depends on, besides weights, moments and random numbers."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_loss: float = math.inf

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            kinds = (int, float) if name in ("seconds", "best_loss") else (int,)
            if type(value) not in kinds or not value >= 0:
                raise ValueError(f"{name} cannot be {value!r}")


def _optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW with the betas and epsilon of Vaswani et al. 2017, section 5.3; only matrices decay."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    groups: list[dict] = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9, weight_decay=config.weight_decay, fused=True)


def _batches(pairs: Pairs, config: TrainingConfig, pad_id: int, at: _Progress) -> Iterator[Batch]:
    """Batches without end from where the run stands; moves `at` along."""
    while True:
        batches = token_batches(pairs, config.batch_tokens, pad_id=pad_id, seed=config.seed, epoch=at.epoch)
        while at.batch < len(batches):
            at.batch += 1
            yield batches[at.batch - 1]
        at.epoch, at.batch = at.epoch + 1, 0


def _resume(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, settings: dict
) -> tuple[_Progress, list[dict[str, float]]]:
    """Fill model and optimiser from a folder's state; return where the run stood, and its log up to there."""
    stored = load_state(folder / "state.safetensors", model, optimizer)
    try:
        changed = [name for name in settings if settings[name] != stored["settings"].get(name)]
        at = _Progress(**stored["progress"])
        rows = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
        log = [row for row in rows if row["step"] <= at.step]
    except (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"state.safetensors or log.jsonl in {folder} is missing or damaged ({one_line(error)}): "
            "train into another place"
        ) from error
    if changed:
        raise UserError(f"{folder} was trained with another {', '.join(changed)}: use the same, or another directory")
    return at, log


# chapters/10_training.md: Going on after an interruption
def _update(
    model: Transformer, batch: Batch, optimizer: torch.optim.Optimizer, config: TrainingConfig, rate: float
) -> float:
    """Change the model by one batch, and return its loss in nats a token."""
    device = model.output_projection.weight.device
    source, target = batch.source.to(device), batch.target.to(device)
    for group in optimizer.param_groups:
        group["lr"] = rate
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        loss = translation_loss(model, source, target, label_smoothing=config.label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
    optimizer.step()
    return loss.item()


def _demand_finite(kind: str, loss: float, at: _Progress) -> None:
    if not math.isfinite(loss):
        where = f"step {at.step} (epoch {at.epoch}, batch {at.batch})"
        raise UserError(f"the {kind} loss is {loss} at {where}: lower peak_lr, or raise warmup_steps")


# chapters/10_training.md: Going on after an interruption
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

    Args:
        model: the model; it is moved to `device` and changed in place.
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
        UserError: `out` cannot be written, its state does not belong to this run, or a loss is no longer finite.
        ValueError: there is no pair.
    """
    from tqdm import tqdm  # here, so that importing the library stays fast

    if not pairs:
        raise ValueError("expected at least one pair to train on; got none")
    start, slowest = time.monotonic(), 0.0
    deadline = math.inf if config.minutes is None else start + 60 * config.minutes
    folder = None if out is None else Path(out)
    settings = {k: v for k, v in asdict(config).items() if k not in ("steps", "minutes", "evaluate_every")}
    settings["corpus"] = zlib.crc32(repr(list(pairs)).encode())
    torch.manual_seed(config.seed)
    model.to(device).train()
    optimizer = _optimizer(model, config)
    at, log = _Progress(), list[dict[str, float]]()
    if resume and folder is not None and (folder / "state.safetensors").exists():
        at, log = _resume(folder, model, optimizer, settings)
    if config.steps is not None and at.step >= config.steps:
        return log
    earlier, loss_sum, loss_tokens = at.seconds, 0.0, 0
    with tqdm(desc="train", total=config.steps, initial=at.step, unit="step", disable=None) as bar:
        for batch in _batches(pairs, config, model.config.pad_id, at):
            at.step += 1
            rate = inverse_sqrt_schedule(at.step, peak=config.peak_lr, warmup=config.warmup_steps)
            loss, tokens = (
                _update(model, batch, optimizer, config, rate),
                real_targets(batch.target, model.config.pad_id),
            )
            _demand_finite("training", loss, at)
            at.tokens, loss_sum, loss_tokens = at.tokens + tokens, loss_sum + loss * tokens, loss_tokens + tokens
            bar.update()
            last = at.step == config.steps or time.monotonic() + 1.2 * slowest > deadline
            if not last and at.step % config.evaluate_every:
                continue
            before = time.monotonic()
            row = {"step": at.step, "epoch": at.epoch, "tokens": at.tokens, "learning_rate": rate}
            row["train_loss"], loss_sum, loss_tokens = loss_sum / loss_tokens, 0.0, 0
            if val_pairs:
                row["val_loss"] = validation_loss(model, val_pairs, config.batch_tokens)
                _demand_finite("validation", row["val_loss"], at)
            row["seconds"] = at.seconds = round(earlier + time.monotonic() - start, 1)
            log.append(row)
            bar.set_postfix({name: f"{row[name]:.3f}" for name in ("train_loss", "val_loss") if name in row})
            is_best = not val_pairs or row["val_loss"] < at.best_loss
            at.best_loss = min(at.best_loss, row.get("val_loss", math.inf))
            if folder is not None:
                if is_best:
                    save_weights(folder / "model.safetensors", model)
                atomic_write(folder / "log.jsonl", "".join(json.dumps(row) + "\n" for row in log))
                save_state(
                    folder / "state.safetensors", model, optimizer, {"progress": asdict(at), "settings": settings}
                )
            slowest = max(slowest, time.monotonic() - before)
            if last or time.monotonic() + 1.2 * slowest > deadline:
                break
    return log


__all__ = ["TrainingConfig", "inverse_sqrt_schedule", "translation_loss", "train"]
