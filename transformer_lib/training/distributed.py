# Generated from chapters/09c_devices.md: edit it there and `make export`, or here and `make sync`.

"""Several processes that train one model: who is who, and what they tell each other."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from transformer_lib.files import InputError, one_line
from transformer_lib.precision import prepare_device
from transformer_lib.training.state import changing_buffers

_LOGGER = logging.getLogger("transformer_lib")


def rank_and_world_size() -> tuple[int, int]:
    """The number of this process among those that train together, from 0, and how many they are; alone: 0 and 1."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)


def is_first_process() -> bool:
    """Whether this is the process that writes files and messages: alone, or with the rank 0."""
    return rank_and_world_size()[0] == 0


def _started_as() -> tuple[int, int]:
    """Rank and world size that the environment names; a WORLD_SIZE that stands alone is somebody else's."""
    given = {name: os.environ.get(name) for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")}
    if given["WORLD_SIZE"] in (None, "", "1"):
        return 0, 1
    said = "the environment has " + ", ".join(f"{name}={value}" for name, value in given.items() if value)
    remedy = "start the processes with torchrun, or unset WORLD_SIZE to train in one"
    if not (given["RANK"] or given["MASTER_ADDR"] or given["MASTER_PORT"]):
        _LOGGER.warning("%s and nothing else of torchrun's: this process trains alone", said)
        return 0, 1
    if lacking := [name for name, value in given.items() if not value]:
        raise InputError(f"{said}, but no {' and no '.join(lacking)}: {remedy}")
    try:
        rank, world = int(given["RANK"] or ""), int(given["WORLD_SIZE"] or "")
        if not (0 <= rank < world and 0 <= int(given["MASTER_PORT"] or "") < 2**16):
            raise ValueError
    except ValueError as error:
        raise InputError(f"{said}; expected whole numbers, RANK below WORLD_SIZE: {remedy}") from error
    return rank, world


@contextmanager
def process_group(device: str) -> Iterator[str]:
    """Join the processes that `torchrun` started, if it did; give this one its device, "cpu" or a GPU of its own.

    Raises:
        InputError: some of the variables that `torchrun` sets are missing or wrong, or the processes do not meet.
    """
    rank, world = _started_as()
    if world == 1:
        yield device
        return
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK') or rank % torch.cuda.device_count()}"
    if prepare_device(device).type == "cuda":
        torch.cuda.set_device(device)
    try:
        dist.init_process_group("gloo" if device == "cpu" else "nccl")
    except (RuntimeError, ValueError, OSError) as error:
        raise InputError(f"the {world} processes do not meet ({one_line(error)}): start them with torchrun") from error
    try:
        yield device
    finally:
        dist.destroy_process_group()


def gradients_stay(module: nn.Module, wanted: bool) -> AbstractContextManager[None]:
    """Inside the block, if wanted, the gradients of what `wrap_for_ddp` made stay in their process and add up."""
    return module.no_sync() if wanted and isinstance(module, DistributedDataParallel) else nullcontext()


def wrap_for_ddp(module: nn.Module) -> nn.Module:
    """The module, such that after its backward pass every process has the mean of all processes' gradients."""
    if rank_and_world_size()[1] == 1:
        return module
    device = next(module.parameters()).device
    options: dict[str, Any] = {"broadcast_buffers": bool(changing_buffers(module)), "gradient_as_bucket_view": True}
    return DistributedDataParallel(module, device_ids=None if device.type == "cpu" else [device], **options)


def all_reduce_sum(*values: float) -> list[float]:
    """The sum of each value over all processes; all of them must call it, and all get the same."""
    if rank_and_world_size()[1] == 1:
        return list(values)
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"  # NCCL carries only what lies on a GPU
    sums = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    return sums.tolist()
