# Generated from chapters/A2_files.md: edit the chapter, not this file, then run `make export`.

"""Files that are either whole or not there, weights without pickle, and errors that say what to do."""

import copy
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_model as _load_into
from safetensors.torch import save_file
from torch import Tensor, nn

if sys.platform != "win32":
    import fcntl


class InputError(ValueError):
    """Something outside the library is wrong: the message is one line that says what, where and what to do."""


def one_line(error: BaseException) -> str:
    """Somebody else's error in one short line, to be quoted in ours."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary name to write to; rename it to `path` if the block succeeds, delete it if not.

    Args:
        path: the file to create, or to replace with its permissions kept. Its folder is made if it is missing.

    Raises:
        InputError: the folder or the file cannot be written (read-only, full disk, no such place).
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.touch()
            mode = (path if path.exists() else part).stat().st_mode
            yield part
            with part.open("rb+") as file:
                part.chmod(mode)  # some writers make their files private; and somebody may have made the old one so
                os.fsync(file.fileno())
            part.replace(path)
            _push_names(path.parent)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, safetensors.SafetensorError) as error:  # safetensors wraps the operating system's errors
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or error
    return InputError(f"cannot write {path}: {reason}; free some space or choose another place")


def _push_names(folder: Path) -> None:
    """Push a folder's list of names to the disk, where the system can: a rename is safe from a power cut only then."""
    with suppress(OSError):
        names = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(names)
        finally:
            os.close(names)


def remove_parts(folder: str | Path) -> None:
    """Delete what a writer that was killed in the middle has left in a folder, if there is such a folder."""
    for part in Path(folder).glob(".*.[0-9]*.part"):
        with suppress(OSError):  # a folder of that name, or somebody else's
            part.unlink()


def atomic_write(path: str | Path, data: bytes | str) -> None:
    """Replace a file's content in one step; text is written as UTF-8.

    Raises:
        InputError: the file cannot be written.
    """
    with atomic_path(path) as part:
        part.write_bytes(data.encode() if isinstance(data, str) else data)


_held = set[tuple[int, Path]]()  # the locks of this process: of which thread, on which file


@contextmanager
def directory_lock(folder: str | Path) -> Iterator[None]:
    """Inside the block no other process has this lock. When a process dies, the system takes its locks away.

    A thread that holds the lock may take it again. Where there are no such locks (Windows without WSL, some network
    file systems), nothing is locked.

    Args:
        folder: it is made if it is missing. Inside the block it holds a file `.lock`.

    Raises:
        InputError: another process or thread has the lock, or the folder cannot be written.
    """
    path = Path(folder) / ".lock"
    key = threading.get_ident(), path.resolve()
    if sys.platform == "win32" or key in _held:
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise _cannot_write(path, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = os.fstat(file.fileno()).st_nlink == 0  # who had it has just ended, and removed the file
        except OSError as error:
            taken = isinstance(error, BlockingIOError)
        if taken:
            raise InputError(
                f"another process is training into {folder}: wait for its end, or choose another directory"
            )
        _held.add(key)
        try:
            yield
        finally:
            _held.remove(key)
            with suppress(OSError):
                path.unlink()


def save_weights(path: str | Path, model: nn.Module) -> None:
    """Store a model's parameters and buffers as safetensors, in one step; shared tensors are stored once.

    The same weights give the same bytes. If `model.config` is a dataclass, the file remembers it.

    Raises:
        InputError: the file cannot be written.
    """
    named = sorted(model.state_dict(keep_vars=True).items(), reverse=True)
    names = {tensor: name for name, tensor in named}  # of a shared tensor, the first
    tensors = {name: tensor.detach().contiguous() for tensor, name in names.items()}
    with atomic_path(path) as part:  # one entry of metadata: several are written in any order
        save_file(tensors, part, metadata={"config": json.dumps(_config_of(model), sort_keys=True)})


def _config_of(model: nn.Module) -> dict[str, Any]:
    """What of a model's configuration its weights depend on, as it comes back from JSON; {} if it has none."""
    config = getattr(model, "config", None)
    values = asdict(config) if is_dataclass(config) and not isinstance(config, type) else {}
    free = ("dropout", "attention_dropout", "max_len")
    return json.loads(json.dumps({name: value for name, value in values.items() if name not in free}, default=str))


def load_weights(path: str | Path, model: nn.Module) -> None:
    """Fill a model with the weights stored at `path`.

    Raises:
        InputError: the file is missing or cut short, its table of contents is damaged (changed numbers go unnoticed),
            it holds whole numbers for weights, or it belongs to a model of another configuration. The model is then as
            it was.
    """
    if not Path(path).is_file():
        raise InputError(
            f"there is no file {path}: name the directory that `train --out` wrote; if a run there was stopped before "
            "its first validation, go on with `train --resume`"
        )
    trial = copy.deepcopy(model)  # what does not fit must not leave half of itself behind
    try:
        _require_fit(path, trial)
        _load_into(trial, str(path))
    except (safetensors.SafetensorError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is damaged or cut short ({error}): copy it again, or train again") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except RuntimeError as error:
        difference = " ".join(str(error).split())[:200]
        raise InputError(f"{path} belongs to a model of another configuration: {difference}") from error
    model.load_state_dict(trial.state_dict())


def _require_fit(path: str | Path, model: nn.Module) -> None:
    """Raise a RuntimeError if the weights have the right shapes and are wrong all the same."""
    with safetensors.safe_open(str(path), "pt") as file:
        stored = json.loads((file.metadata() or {}).get("config", "{}"))  # older files have none
        kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}
    for name, value in _config_of(model).items():
        if stored.get(name, value) != value:
            raise RuntimeError(f"it was trained with {name} = {stored[name]}, not {value}")
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not kinds.get(name, "F").startswith(("F", "BF")):
            raise RuntimeError(f"{name} is stored as {kinds[name]}, not in floating point")


Weights = dict[str, Tensor]


def weights_of(model: nn.Module) -> Weights:
    """A copy of a model's parameters, by name, on the CPU; a shared one has one name."""
    return {name: parameter.detach().to("cpu", copy=True) for name, parameter in model.named_parameters()}


@torch.no_grad()
def set_weights(model: nn.Module, weights: Weights) -> None:
    """Fill a model's parameters from what `weights_of` gave; those without a name in `weights` stay as they are."""
    for name, parameter in model.named_parameters():
        if name in weights:
            parameter.copy_(weights[name])


def save_state(
    path: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: dict,
    *,
    recent: Sequence[Weights] = (),
) -> None:
    """Store in one file all that the next training step depends on.

    Args:
        path: the file.
        model: its parameters are stored, a shared one once. Its buffers are not: those of this library are constants.
        optimizer: its moments are stored.
        progress: what else to remember; plain numbers, strings, lists and dictionaries.
        recent: weights of earlier checkpoints, each as `weights_of` gives them.

    Raises:
        InputError: the file cannot be written.
    """
    tensors = {f"model.{name}": parameter.detach() for name, parameter in model.named_parameters()}
    for number, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in moments.items()}
    for number, weights in enumerate(recent):
        tensors |= {f"recent.{number}.{name}": value for name, value in weights.items()}
    tensors = {name: value.contiguous() for name, value in tensors.items()}  # the only form that safetensors stores
    with atomic_path(path) as part:
        save_file(tensors, part, metadata={"progress": json.dumps(progress)})


def _numbered(tensors: dict[str, Tensor], prefix: str) -> dict[int, dict[str, Tensor]]:
    """The tensors named PREFIX NUMBER . NAME, as {number: {name: tensor}}."""
    groups: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith(prefix):
            number, _, rest = name.removeprefix(prefix).partition(".")
            groups.setdefault(int(number), {})[rest] = value
    return groups


def load_state(path: str | Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict, list[Weights]]:
    """Fill a model and its optimiser from `path`; return the stored `progress` and the `recent` weights.

    The optimiser must be of the kind whose moments are stored: some kinds take the moments of another in silence.

    Raises:
        InputError: the file is missing, damaged, or belongs to a model of another configuration. Model and optimiser
            are then as they were.
    """
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}: expected the state that a training run keeps beside its weights")
    try:
        with safetensors.safe_open(str(path), "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            progress = json.loads(file.metadata()["progress"])
        weights = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
        recent = [group for _, group in sorted(_numbered(tensors, "recent.").items())]
        shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
        for stored in (weights, *recent):
            if {name: value.shape for name, value in stored.items()} != shapes:
                raise ValueError("it belongs to a model of another configuration")
        moments = _numbered(tensors, "optimizer.")  # none before the first step
        moved = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        fit = all(v.shape in ((), moved[n].shape) for n, values in moments.items() for v in values.values())
        if not fit or len(moments) not in (0, len(moved)) or len({frozenset(names) for names in moments.values()}) > 1:
            raise ValueError("moments of the optimiser are missing")
        if not all(value.isfinite().all() for value in tensors.values()):
            raise ValueError("it holds numbers that are not finite")
        state = {"state": moments, "param_groups": optimizer.state_dict()["param_groups"]}
        copy.deepcopy(optimizer).load_state_dict(state)  # it may raise when it has changed half of itself
        optimizer.load_state_dict(state)
        set_weights(model, weights)
    except (OSError, safetensors.SafetensorError, IndexError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path} is not the state of this training run ({reason}): train into another place"
        ) from error
    return progress, recent
