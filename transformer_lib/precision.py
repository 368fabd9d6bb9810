# Generated from chapters/09b_settings.md: edit it there and `make export`, or here and `make sync`.

"""The devices that the library computes on, and the numbers that they multiply matrices in."""

import logging

import torch
from torch import Tensor

from transformer_lib.files import InputError

_LOGGER = logging.getLogger("transformer_lib.precision")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}  # the one with the widest range first
PRECISIONS = ("auto", *DTYPES)


def prepare_device(device: str | torch.device, precision: str = "fp32", *, tf32: bool = False) -> torch.device:
    """The device that is meant, made ready; every function that takes a device asks here first.

    On a GPU cuDNN no longer computes attention, in the whole program: it would make a new plan for each new shape of a
    batch, and sentences have many. A processor that only emulates the products of a precision gets a warning.

    Args:
        device: "cpu", "cuda", "cuda:1" and so on.
        precision: one of `PRECISIONS`.
        tf32: let a GPU round the factors of float32 products to TF32, also in the whole program.

    Raises:
        InputError: it is of another kind, or torch does not find it.
    """
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError, ValueError):  # no device at all
        place = torch.device("meta")
    if place.type not in ("cpu", "cuda"):
        raise InputError(f"got the device {device}; expected cpu or cuda, as no other can train and search: take cpu")
    if place.type == "cuda":
        if not torch.cuda.is_available():
            raise InputError(f"got the device {device}, but torch finds no GPU: take cpu, or install torch for CUDA")
        if (place.index or 0) >= max(torch.cuda.device_count(), 1):
            raise InputError(f"got the device {device}, but torch finds {torch.cuda.device_count()} GPUs: take cuda:0")
        torch.backends.cuda.enable_cudnn_sdp(False)
        if tf32:
            torch.set_float32_matmul_precision("high")
    if not is_fast(place, chosen_dtype(place, precision)):
        kind = "GPU" if place.type == "cuda" else "CPU"
        remedy = "which takes several times as long as fp32: leave the precision at auto"
        _LOGGER.warning("this %s has no instructions for %s and emulates them, %s", kind, precision, remedy)
    return place


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on the device of a model; nobody waits for a copy to a GPU."""
    return x.to(device, non_blocking=device.type == "cuda")  # elsewhere the source might be gone before it is read


def is_fast(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a device has instructions for products of this dtype; float32 has some everywhere."""
    if dtype is torch.float32:
        return True
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        return capability >= (8, 0) if dtype is torch.bfloat16 else capability >= (7, 0) or capability == (6, 0)
    if not torch.backends.mkldnn.is_available():
        return False
    known = torch.ops.mkldnn  # of oneDNN, which multiplies matrices on most processors
    return known._is_mkldnn_bf16_supported() if dtype is torch.bfloat16 else known._is_mkldnn_fp16_supported()


def chosen_dtype(device: str | torch.device, precision: str = "auto") -> torch.dtype:
    """The dtype in which a device multiplies matrices.

    "auto" is the first of bfloat16, float16 and float32 that a GPU is fast at, by its compute capability: from 8.0 on,
    from 7.0 on and at 6.0, and below. It is float32 on a CPU. "bf16", "fp16" and "fp32" are what they say.
    """
    if precision != "auto":
        return DTYPES[precision]
    place = torch.device(device)
    return next(dtype for dtype in DTYPES.values() if is_fast(place, dtype)) if place.type == "cuda" else torch.float32


def mixed_precision(device: str | torch.device, precision: str = "auto") -> torch.autocast:
    """Inside the block the device multiplies matrices in its `chosen_dtype`; float64 stays as it is."""
    dtype = chosen_dtype(device, precision)
    return torch.autocast(torch.device(device).type, dtype, enabled=dtype is not torch.float32)


def loss_scaler(device: str | torch.device, precision: str = "auto") -> torch.amp.GradScaler:
    """What scales a loss for float16 (Micikevicius et al. 2018, section 3.2); for other numbers it does nothing."""
    return torch.amp.GradScaler(torch.device(device).type, enabled=chosen_dtype(device, precision) is torch.float16)
