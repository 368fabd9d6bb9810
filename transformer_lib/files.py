# Generated from chapters/A2_files.md: edit the chapter, not this file, then run `make export`.

"""Files that are either whole or not there, weights without pickle, and errors that say what to do."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import safetensors
from safetensors.torch import load_model as _load_into
from safetensors.torch import save_model as _save_from
from torch import nn


# chapters/A2_files.md: One kind of error for the reader's own mistakes
class UserError(ValueError):
    """Something outside the library is wrong: the message is one line that says what, where and what to do."""


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
            yield part
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or error
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
        try:
            _save_from(model, str(part))
        except safetensors.SafetensorError as error:  # it wraps the operating system's errors
            raise OSError(str(error)) from error


def load_weights(path: str | Path, model: nn.Module) -> None:
    """Fill a model with the weights stored at `path`.

    Raises:
        UserError: the file is missing, cut short or damaged, or belongs to a model of another configuration.
    """
    if not Path(path).is_file():
        raise UserError(f"there is no file {path}: name the directory that `train --out` wrote")
    try:
        _load_into(model, str(path))
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is damaged or cut short ({error}): copy it again, or train again") from error
    except RuntimeError as error:
        difference = " ".join(str(error).split())[:200]
        raise UserError(f"{path} belongs to a model of another configuration: {difference}") from error


__all__ = ["UserError", "atomic_path", "atomic_write", "save_weights", "load_weights"]
