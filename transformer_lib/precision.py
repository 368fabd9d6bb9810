# Generated from chapters/09b_settings.md: edit it there and `make export`, or here and `make sync`.

"""The numbers that matrices are multiplied in: which ones a device is fast at, and how to compute with them."""

import torch

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
PRECISIONS = ("auto", *DTYPES)


def chosen_dtype(device: str | torch.device, precision: str = "auto") -> torch.dtype:
    """The dtype in which a device multiplies matrices.

    "auto" is bfloat16 on a GPU of compute capability 8.0 or higher, float16 on an older one, and float32 on a CPU;
    "bf16", "fp16" and "fp32" are what they say, on every device.
    """
    if precision != "auto":
        return DTYPES[precision]
    if torch.device(device).type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16


def mixed_precision(device: str | torch.device, precision: str = "auto") -> torch.autocast:
    """Inside the block the device multiplies matrices in its `chosen_dtype`; float64 stays as it is."""
    dtype = chosen_dtype(device, precision)
    return torch.autocast(torch.device(device).type, dtype, enabled=dtype is not torch.float32)


def loss_scaler(device: str | torch.device, precision: str = "auto") -> torch.amp.GradScaler:
    """What scales a loss for float16 (Micikevicius et al. 2018, section 3.2); for other numbers it does nothing."""
    return torch.amp.GradScaler(torch.device(device).type, enabled=chosen_dtype(device, precision) is torch.float16)
