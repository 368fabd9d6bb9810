# Generated from chapters/09c_devices.md: edit it there and `make export`, or here and `make sync`.

"""Several processes that train one model: who is who, and what they tell each other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from transformer_lib.precision import prepare_device


def rank_and_world_size() -> tuple[int, int]:
    """The number of this process among those that train together, from 0, and how many they are; alone: 0 and 1."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)


def is_first_process() -> bool:
    """Whether this is the process that writes files and messages: alone, or with the rank 0."""
    return rank_and_world_size()[0] == 0


@contextmanager
def process_group(device: str) -> Iterator[str]:
    """Join the processes that `torchrun` started, if it did; give this one its device, "cpu" or a GPU of its own."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield device
        return
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    if prepare_device(device).type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if device == "cpu" else "nccl")
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
    options: dict[str, Any] = {"broadcast_buffers": False, "gradient_as_bucket_view": True}  # ours are constants
    return DistributedDataParallel(module, device_ids=None if device.type == "cpu" else [device], **options)


def all_reduce_sum(*values: float) -> list[float]:
    """The sum of each value over all processes; all of them must call it, and all get the same."""
    if rank_and_world_size()[1] == 1:
        return list(values)
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"  # NCCL carries only what lies on a GPU
    sums = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    return sums.tolist()
