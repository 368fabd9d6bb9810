# Generated from chapters/B_files.md: edit it there and `make export`, or here and `make sync`.

"""Weights without pickle, and whether they fit."""

import json
import warnings
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import save_file
from torch import Tensor, nn

from transformer_lib.files import InputError, atomic_path, one_line

EXTRA = "_extra_state"  # torch's name for what get_extra_state returns


def save_weights(path: str | Path, model: nn.Module) -> None:
    """Store a model's parameters and buffers as safetensors, in one step; shared tensors are stored once.

    What `get_extra_state` methods of its modules return is stored, too, if JSON can hold it; else a warning says so.
    The same weights give the same bytes. If `model.config` is a dataclass, the file remembers it.

    Raises:
        InputError: the file cannot be written.
    """
    tensors, names = model.state_dict(), _stored_names(model)
    entry = _config_of(model)
    if extra := extra_state_of(model):
        entry[EXTRA] = extra
    metadata = {"config": json.dumps(entry, sort_keys=True)}  # one entry: several come in any order
    save_tensors(path, {name: tensors[name] for name in sorted(set(names.values()))}, metadata)


def save_tensors(path: str | Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Store tensors as safetensors, in one step; of those that share memory, each has its own numbers in the file.

    Raises:
        InputError: the file cannot be written.
    """
    own, seen = {}, set[int]()
    for name, value in tensors.items():
        own[name] = value.contiguous()  # safetensors stores nothing else, and no two views of one memory
        if (memory := own[name].untyped_storage().data_ptr()) in seen:
            own[name] = own[name].clone()
        seen.add(memory)
    with atomic_path(path) as part:
        save_file(own, part, metadata=metadata)


def _stored_names(model: nn.Module) -> dict[str, str]:
    """The name under which each tensor of a model is stored: of a shared one, the first of its names."""
    state = model.state_dict(keep_vars=True)
    named = sorted(((name, value) for name, value in state.items() if not name.endswith(EXTRA)), reverse=True)
    first = {tensor: name for name, tensor in named}
    return {name: first[tensor] for name, tensor in named}


def extra_state_of(model: nn.Module) -> dict[str, Any]:
    """What `get_extra_state` of a model's modules returns, by their names; a warning if JSON cannot hold it."""
    found = {}
    for name, value in model.state_dict().items():
        if name.endswith(EXTRA):
            try:
                again = json.loads(json.dumps(value))
                if again != value:
                    raise TypeError(f"{again!r:.40} comes back")
                found[name.removesuffix(EXTRA).removesuffix(".")] = again
            except (TypeError, ValueError, RecursionError) as error:
                said = f"{name} cannot be stored ({one_line(error)}): a run that is resumed begins without it"
                warnings.warn(f"{said}; return what JSON can hold, or keep tensors in buffers", stacklevel=3)
    return found


def set_extra_state(model: nn.Module, extra: dict[str, Any]) -> None:
    """Give the modules back what `extra_state_of` found."""
    modules = dict(model.named_modules())
    for name, value in extra.items():
        if name in modules:
            modules[name].set_extra_state(value)


def _config_of(model: nn.Module) -> dict[str, Any]:
    """What of a model's configuration its weights depend on, as it comes back from JSON; {} if it has none."""
    config = getattr(model, "config", None)
    values = asdict(config) if is_dataclass(config) and not isinstance(config, type) else {}
    free = ("dropout", "attention_dropout", "max_len")
    return json.loads(json.dumps({name: value for name, value in values.items() if name not in free}, default=str))


def read_tensors(path: str | Path, entry: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file, and an entry of its metadata, {} if there is none; an InputError if they are damaged."""
    return _read(path, entry, tensors=True)


def _read(path: str | Path, entry: str, *, tensors: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safetensors.safe_open(str(path), "pt") as file:
            values = json.loads((file.metadata() or {}).get(entry, "{}"))
            if not isinstance(values, dict):
                raise ValueError(f"{entry} is {values!r:.60}")
            return {name: file.get_tensor(name) for name in (file.keys() if tensors else ())}, values
    except (safetensors.SafetensorError, OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged or cut short ({one_line(error)}): copy or train it again") from error


def stored_entry(path: str | Path, entry: str) -> dict[str, Any]:
    """An entry of a file's metadata as `read_tensors` gives it, without the tensors."""
    return _read(path, entry, tensors=False)[1]


def kinds_of(tensors: dict[str, Tensor]) -> dict[str, str]:
    """What tensors must have in common to be filled from each other."""
    words = {True: "floating point", False: "whole numbers"}
    return {name: f"{tuple(value.shape)} in {words[value.is_floating_point()]}" for name, value in tensors.items()}


def load_weights(path: str | Path, model: nn.Module) -> None:
    """Fill a model with the weights stored at `path`.

    Raises:
        InputError: the file is missing or cut short, its table of contents is damaged (changed numbers go unnoticed),
            it holds whole numbers for weights, it belongs to a model of another configuration, or a buffer of the model
            cannot be filled, as after `expand`. The model is then as it was.
    """
    if not Path(path).is_file():
        reason = "a training run writes it at its first validation, and one that was stopped before can be resumed"
        raise InputError(f"there is no file {path}: {reason}")
    tensors, config = read_tensors(path, "config")  # older files have no configuration
    names, extra = _stored_names(model), config.pop(EXTRA, {})
    ours = _config_of(model) | kinds_of({name: model.state_dict()[name] for name in names.values()})
    theirs = _config_of(model) | config | kinds_of(tensors)
    wrong = [f"{name} is {theirs.get(name)}, not {kind}" for name, kind in ours.items() if theirs.get(name) != kind]
    wrong += [f"{name} is unknown" for name in sorted(tensors.keys() - names.keys())]
    if wrong:
        raise InputError(f"{path} belongs to a model of another configuration: {'; '.join(wrong):.200}")
    for name in names:
        value = model.state_dict()[name]
        if any(size > 1 and stride == 0 for size, stride in zip(value.shape, value.stride())):
            raise InputError(f"{name} of the model cannot be filled: its numbers share memory; register its .clone()")
    state = model.state_dict() | {name: tensors[first] for name, first in names.items()}
    model.load_state_dict(state)
    set_extra_state(model, extra)
