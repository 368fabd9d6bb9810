# Generated from chapters/A2_files.md: edit the chapter, not this file, then run `make export`.


# chapters/A2_files.md: One kind of error for the reader's own mistakes
"""Files that are either whole or not there, weights without pickle, and errors that say what to do."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_model as _load_into
from safetensors.torch import save_file
from safetensors.torch import save_model as _save_from
from torch import Tensor, nn


# chapters/A2_files.md: One kind of error for the reader's own mistakes
class UserError(ValueError):
    """Something outside the library is wrong: the message is one line that says what, where and what to do."""


def one_line(error: BaseException) -> str:
    """Somebody else's error in one short line, to be quoted in ours."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"


# chapters/A2_files.md: Whole or not there
@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary name to write to; rename it to `path` if the block succeeds, delete it if not.

    Args:
        path: the file to create or replace. Its folder is made if it is missing.

    Raises:
        UserError: the folder or the file cannot be written (read-only, full disk, no such place).
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.touch()
            mode = part.stat().st_mode
            yield part
            part.chmod(mode)  # some writers make their files private
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, safetensors.SafetensorError) as error:  # safetensors wraps the operating system's errors
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot write {path}: {reason}; free some space or choose another place") from error


def atomic_write(path: str | Path, data: bytes | str) -> None:
    """Replace a file's content in one step; text is written as UTF-8.

    Raises:
        UserError: the file cannot be written.
    """
    with atomic_path(path) as part:
        part.write_bytes(data.encode() if isinstance(data, str) else data)


# chapters/A2_files.md: Weights without pickle
def save_weights(path: str | Path, model: nn.Module) -> None:
    """Store a model's parameters and buffers as safetensors, in one step; shared tensors are stored once.

    Raises:
        UserError: the file cannot be written.
    """
    with atomic_path(path) as part:
        _save_from(model, str(part))


def load_weights(path: str | Path, model: nn.Module) -> None:
    """Fill a model with the weights stored at `path`.

    Raises:
        UserError: the file is missing, cut short or damaged, or belongs to a model of another configuration. The model
            may then be partly filled: throw it away.
    """
    if not Path(path).is_file():
        raise UserError(f"there is no file {path}: name the directory that `train --out` wrote")
    try:
        _load_into(model, str(path))
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is damaged or cut short ({error}): copy it again, or train again") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except RuntimeError as error:
        difference = " ".join(str(error).split())[:200]
        raise UserError(f"{path} belongs to a model of another configuration: {difference}") from error


# chapters/A2_files.md: The state of a training run
def save_state(path: str | Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: dict) -> None:
    """Store in one file all that the next training step depends on.

    Args:
        path: the file.
        model: its parameters are stored.
        optimizer: its moments are stored.
        progress: what else to remember; plain numbers, strings, lists and dictionaries.

    Raises:
        UserError: the file cannot be written.
    """
    tensors: dict[str, Tensor] = {f"model.{name}": value.detach() for name, value in model.named_parameters()}
    for number, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in moments.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    with atomic_path(path) as part:
        save_file(tensors, part, metadata={"progress": json.dumps(progress)})


def load_state(path: str | Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict:
    """Fill a model, its optimiser and the random numbers from `path`; return the stored `progress`.

    Raises:
        UserError: the file is missing, damaged, or belongs to a model of another configuration.
    """
    try:
        with safetensors.safe_open(str(path), "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            progress = json.loads(file.metadata()["progress"])
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, number, kind = name.split(".")
                moments.setdefault(int(number), {})[kind] = value
        parameters = {f"model.{name}": parameter for name, parameter in model.named_parameters()}
        stored = {name: value for name, value in tensors.items() if name.startswith("model.")}
        if {n: p.shape for n, p in parameters.items()} != {n: t.shape for n, t in stored.items()}:
            raise ValueError("it belongs to a model of another configuration")
        if len(moments) != len(parameters):
            raise ValueError("moments of the optimiser are missing")
        if not all(value.isfinite().all() for value in tensors.values()):
            raise ValueError("it holds numbers that are not finite")
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(stored[name])
        optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
        torch.set_rng_state(tensors["random.cpu"])
        if torch.cuda.is_available() and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"])
    except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} is not the state of this training run ({reason}): train into another place") from error
    return progress


__all__ = ["UserError", "atomic_path", "atomic_write", "save_weights", "load_weights", "save_state", "load_state"]
