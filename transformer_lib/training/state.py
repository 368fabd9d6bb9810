# Generated from chapters/B_files.md: edit it there and `make export`, or here and `make sync`.

"""The state of a training run, in one file: all that the next step depends on."""

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_lib.files import InputError
from transformer_lib.weights import (
    extra_state_of,
    kinds_of,
    read_tensors,
    save_tensors,
    set_extra_state,
    stored_entry,
)

Weights = dict[str, Tensor]


def weights_of(model: nn.Module) -> Weights:
    """A copy of a model's parameters, by name, on the CPU; a shared one has one name."""
    return {name: parameter.detach().to("cpu", copy=True) for name, parameter in model.named_parameters()}


def changing_buffers(model: nn.Module) -> Weights:
    """The buffers of a model, by name, without the constants of this library: those that no weights file has."""
    ours = {
        id(b) for m in model.modules() if type(m).__module__.startswith("transformer_lib.") for b in m.buffers(False)
    }
    stored = model.state_dict(keep_vars=True)
    return {name: buffer.detach() for name, buffer in model.named_buffers() if name in stored or id(buffer) not in ours}


@torch.no_grad()
def set_weights(model: nn.Module, weights: Weights) -> None:
    """Fill a model's parameters from what `weights_of` gave; those without a name in `weights` stay as they are."""
    for name, parameter in model.named_parameters():
        if name in weights:
            parameter.copy_(weights[name])


@contextmanager
def other_weights(model: nn.Module, weights: Weights, own: Weights) -> Iterator[None]:
    """Inside the block a model has `weights`, after it `own`; both may be none."""
    set_weights(model, weights)
    try:
        yield
    finally:
        set_weights(model, own)


def save_recent(path: str | Path, weights: Weights) -> int:
    """Store weights, and return their checksum, which `load_recent` asks for.

    Raises:
        InputError: the file cannot be written.
    """
    save_tensors(path, weights)
    return _checksum(weights, None)


def load_recent(path: str | Path, checksum: int) -> Weights:
    """The weights at `path`; an InputError if they are not those that were stored."""
    weights, _ = read_tensors(path, "state")
    if _checksum(weights, None) != checksum:
        raise InputError(f"{path} is damaged, or from another run (wrong checksum): train into another place")
    return weights


def save_state(path: str | Path, model: nn.Module, optimizer: Optimizer, progress: dict) -> None:
    """Store in one file, with a checksum, all that the next training step depends on.

    Args:
        path: the file.
        model: its parameters are stored, a shared one once, and what else of it may change: its buffers (this library's
            own are constants, and left out) and what its `get_extra_state` methods return, if JSON can hold it.
        optimizer: its moments are stored, and the name of its class.
        progress: what else to remember; plain numbers, strings, lists and dictionaries.

    Raises:
        InputError: the file cannot be written.
    """
    groups = {("model", 0): {name: parameter.detach() for name, parameter in model.named_parameters()}}
    groups |= {(type(optimizer).__name__, n): moments for n, moments in optimizer.state_dict()["state"].items()}
    groups |= {("buffers", 0): changing_buffers(model)} if changing_buffers(model) else {}
    named = [(f"{kind}/{n}/{name}", value) for (kind, n), group in groups.items() for name, value in group.items()]
    tensors = dict(named)
    state = {"progress": progress, "checksum": _checksum(tensors, progress)}
    if extra := extra_state_of(model):
        state["extra"] = extra
    save_tensors(path, tensors, {"state": json.dumps(state)})


def _checksum(tensors: dict[str, Tensor], progress: Any) -> int:
    """The CRC-32 of the progress, and of names, types, shapes and numbers of the tensors."""
    crc = zlib.crc32(json.dumps(progress).encode())
    for name, value in sorted(tensors.items()):
        crc = zlib.crc32(f"{name} {value.dtype} {tuple(value.shape)}".encode(), crc)
        crc = zlib.crc32(value.cpu().contiguous().flatten().view(torch.uint8).numpy().data, crc)
    return crc


def steps_of(path: str | Path) -> int | None:
    """How many steps the run has made whose state is at `path`; None if the file does not say."""
    with suppress(InputError, TypeError, KeyError):
        return stored_entry(path, "state")["progress"]["state"]["step"]
    return None


def load_state(path: str | Path, model: nn.Module, optimizer: Optimizer) -> dict:
    """Fill a model and its optimiser from `path`; return the stored `progress`.

    Raises:
        InputError: the file is missing or damaged, or belongs to another model, another kind of optimiser or an earlier
            version of this library. Model and optimiser are then as they were.
    """
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}: expected the state that a training run keeps beside its weights")
    tensors, stored = read_tensors(path, "state")
    progress: Any = stored.get("progress")
    if stored.get("checksum") != _checksum(tensors, progress):
        raise InputError(f"{path} is damaged, or not the state of a run (wrong checksum): train into another place")
    groups: dict[str, dict[int, Weights]] = {"model": {0: {}}}
    for name, value in tensors.items():
        kind, number, rest = name.split("/", 2)
        groups.setdefault(kind, {}).setdefault(int(number), {})[rest] = value
    if "recent" in groups:  # they have files of their own now
        raise InputError(f"{path} is the state of an earlier version of this library: train into another place")
    weights, moments, buffers = (groups.pop(kind, {}) for kind in ("model", type(optimizer).__name__, "buffers"))
    state = optimizer.state_dict() | {"state": moments}
    modules, new = dict(model.named_modules()), buffers.get(0, {})
    fits = kinds_of(weights[0]) == kinds_of(dict(model.named_parameters()))
    fits = (
        fits
        and all(name.rpartition(".")[0] in modules for name in new)
        and changing_buffers(model).keys() <= new.keys()
    )
    if not fits or groups or len(moments) not in (0, sum(len(group["params"]) for group in state["param_groups"])):
        raise InputError(f"{path} belongs to another model or optimiser: use the same, or train into another place")
    optimizer.load_state_dict(state)
    set_weights(model, weights[0])
    place = next(model.parameters()).device
    for name, value in new.items():  # also of another shape, or not there before it was called
        module, _, last = name.rpartition(".")
        old = modules[module]._buffers.get(last)
        if old is not None and old.shape == value.shape and old.dtype == value.dtype:
            old.copy_(value)
        else:
            modules[module].register_buffer(last, value.to(place))
    set_extra_state(model, stored.get("extra", {}))
    return progress
