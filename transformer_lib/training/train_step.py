# Generated from chapters/09b_settings.md and 2 more: edit it there and `make export`, or here and `make sync`.

"""One step of the training: over one or more batches, by one or more processes."""

from __future__ import annotations

import math
import secrets
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from transformer_lib.data import Batch
from transformer_lib.files import InputError, one_line
from transformer_lib.model import Transformer
from transformer_lib.precision import mixed_precision, to_device
from transformer_lib.training.config import TrainingConfig
from transformer_lib.training.distributed import gradients_stay, rank_and_world_size
from transformer_lib.training.loss import translation_loss


def train_step(
    loss: nn.Module, batches: Sequence[Batch], tokens: int, optimizer: Optimizer, config: TrainingConfig, step: int,
    scaler: GradScaler | None = None,
) -> Tensor:  # fmt: skip
    """Change the weights once, by the mean loss of all real targets of some batches; wait for no result.

    Args:
        loss: a `LossModule`, or what `wrap_for_ddp` made of it.
        batches: the same for all processes; each computes its share of the rows.
        tokens: number of real targets in all of the batches.
        optimizer: a fused one. From the first gradient on whose norm is not finite, the weights stay as they were.
        config: how to train.
        step: the step's number, from 1; it decides the learning rate and, with the seed, the dropout.
        scaler: what scales the loss in float16. It leaves out a step whose gradient overflows, and that step only.

    Returns:
        A tensor (2,) on the model's device. It holds this process's part of the mean loss, in nats per token (the parts
        of all processes add up to it), and the norm that the whole gradient had before it was clipped.

    Raises:
        InputError: the device's memory is too small for the optimiser; weights and moments may be half of a step ahead.
            If it is too small for these batches, PyTorch's own error leaves weights and moments as they were.
    """
    rank, world = rank_and_world_size()
    device = next(loss.parameters()).device
    scaler = scaler or GradScaler(device.type, enabled=False)  # which does nothing
    optimizer.zero_grad()
    parts = []
    with randomness_of(device, config.seed, step, rank):
        for number, batch in enumerate(batches, start=1):
            empty = rank >= len(batch.source)  # no row for this process: it takes part with the first, which counts 0
            source, target = (to_device(side[:1] if empty else side[rank::world], device) for side in batch)
            with gradients_stay(loss, number < len(batches)):  # they travel once a step, with the last batch
                with mixed_precision(device, config.precision):
                    parts.append(loss(source, target) / (math.inf if empty else tokens))
                scaler.scale(parts[-1] * world).backward()  # `wrap_for_ddp` takes the mean over the processes
    with memory_for("the optimiser, whatever the batch: take a smaller model"):
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(loss.parameters(), config.clip_norm or math.inf)
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate(step)
        if not scaler.is_enabled():
            stay_if_not_finite(optimizer, norm)
        scaler.step(optimizer)
        scaler.update()
        return torch.stack([sum(part.detach() for part in parts), norm])


@contextmanager
def memory_for(what: str) -> Iterator[None]:
    """Inside the block a device that has too little memory is an `InputError`: there is no use in trying again."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise InputError(f"the memory of the device is too small for {what} ({one_line(error):.80})") from error


@cache
def require_compiler(kind: str) -> None:
    """Raise an InputError if torch.compile does not work on devices of this kind."""
    size = 2 + secrets.randbelow(2**20)  # that nobody has compiled before and kept
    try:
        torch.compile(lambda x: x.sin() + x.cos(), dynamic=False)(torch.ones(size, device=kind))
    except Exception as error:  # it has many
        remedy = "leave out compile (--compile), or install what it lacks, such as a C++ compiler"
        raise InputError(f"torch.compile does not work here: {remedy} ({one_line(error)})") from error


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The layers of a `Transformer`, or an InputError if a model has none that are known."""
    try:
        return [*model.encoder.layers, *model.decoder.layers]  # type: ignore[union-attr, misc]
    except AttributeError as error:
        got = f"got {type(model).__name__}: leave recompute out, or call torch.utils.checkpoint in the model"
        raise InputError(f"recompute=True expects the encoder and decoder layers of a Transformer; {got}") from error


@contextmanager
def activation_checkpointing(model: Transformer, wanted: bool = True) -> Iterator[None]:
    """Inside the block, if wanted, each layer keeps its input only and computes the rest again in the backward pass."""
    layers = layers_of(model) if wanted else []
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # the class's own again


def stay_if_not_finite(optimizer: Optimizer, norm: Tensor) -> None:
    """From the first norm on that is not finite, no step of a fused optimiser moves a weight."""
    bad = (~norm.isfinite()).float()
    optimizer.found_inf = bad.maximum(getattr(optimizer, "found_inf", bad))  # type: ignore[attr-defined]


class LossModule(nn.Module):
    """The summed loss of a batch, as a module: DistributedDataParallel wraps modules, and watches their `forward`."""

    def __init__(self, model: Transformer, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.label_smoothing = model, label_smoothing

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """The loss of all real targets, in nats: a scalar, from source (batch, n) and target (batch, m)."""
        return translation_loss(self.model, source, target, label_smoothing=self.label_smoothing, reduction="sum")


@contextmanager
def randomness_of(device: torch.device, seed: int, step: int, rank: int) -> Iterator[None]:
    """Inside the block these three numbers decide what is drawn; what the program draws goes on afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(zlib.crc32(f"{seed} {step} {rank}".encode()))
        yield
