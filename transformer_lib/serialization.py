# Generated from chapters/B_files.md: edit there and run `make export`, or edit here and run `make sync`.

"""Files that are either whole or not there, weights without pickle, and errors that say what to do."""

import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

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
            _flush_names(path.parent)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, safetensors.SafetensorError) as error:  # safetensors wraps the operating system's errors
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or error
    return InputError(f"cannot write {path}: {reason}; free some space or choose another place")


def _flush_names(folder: Path) -> None:
    """Flush a folder's list of names to the disk, where the system can: a rename is safe from a power cut only then."""
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


@contextmanager
def directory_lock(folder: str | Path) -> Iterator[None]:
    """Inside the block nobody else has this lock. When a process dies, the system takes its locks away.

    Where there are no such locks (Windows without WSL, some network file systems), nothing is locked.

    Args:
        folder: it is made if it is missing, and what killed writers left in it is deleted. Inside the block it holds a
            file `.lock`.

    Raises:
        InputError: somebody else has the lock, or the folder cannot be written.
    """
    path = Path(folder) / ".lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise _cannot_write(path, error) from error
    with file:
        try:
            if sys.platform != "win32":
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = os.fstat(file.fileno()).st_nlink == 0  # its last owner has just removed the file
        except OSError as error:
            taken = isinstance(error, BlockingIOError)
        if taken:
            raise InputError(f"another process is training into {folder}: wait for it, or take another directory")
        try:
            remove_parts(folder)
            yield
        finally:
            with suppress(OSError):
                path.unlink()


@contextmanager
def one_at_a_time(folder: str | Path) -> Iterator[None]:
    """Wait until no other process is in such a block for this folder. The folder is made if it is missing.

    Inside the block it holds a file `.lock`. Where there are no such locks (Windows without WSL, some network file
    systems), nobody waits.

    Raises:
        InputError: the folder cannot be made.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(Path(folder), error) from error
    path = Path(folder) / ".lock"
    with ExitStack() as stack:
        with suppress(OSError):
            while sys.platform != "win32":
                file = stack.enter_context(path.open("a"))  # network disks lock what is open for writing, and no folder
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.fstat(file.fileno()).st_nlink:  # otherwise its last owner has just removed it
                    stack.callback(path.unlink, missing_ok=True)
                    break
        yield


def save_weights(path: str | Path, model: nn.Module) -> None:
    """Store a model's parameters and buffers as safetensors, in one step; shared tensors are stored once.

    The same weights give the same bytes. If `model.config` is a dataclass, the file remembers it.

    Raises:
        InputError: the file cannot be written.
    """
    tensors, names = model.state_dict(), _stored_names(model)
    with atomic_path(path) as part:  # one entry of metadata: several are written in any order
        metadata = {"config": json.dumps(_config_of(model), sort_keys=True)}
        save_file({name: tensors[name].contiguous() for name in sorted(set(names.values()))}, part, metadata=metadata)


def _stored_names(model: nn.Module) -> dict[str, str]:
    """The name under which each tensor of a model is stored: of a shared one, the first of its names."""
    named = sorted(model.state_dict(keep_vars=True).items(), reverse=True)
    first = {tensor: name for name, tensor in named}
    return {name: first[tensor] for name, tensor in named}


def _config_of(model: nn.Module) -> dict[str, Any]:
    """What of a model's configuration its weights depend on, as it comes back from JSON; {} if it has none."""
    config = getattr(model, "config", None)
    values = asdict(config) if is_dataclass(config) and not isinstance(config, type) else {}
    free = ("dropout", "attention_dropout", "max_len")
    return json.loads(json.dumps({name: value for name, value in values.items() if name not in free}, default=str))


def _read(path: str | Path, entry: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file, and an entry of its metadata, {} if there is none; an InputError if they are damaged."""
    try:
        with safetensors.safe_open(str(path), "pt") as file:
            values = json.loads((file.metadata() or {}).get(entry, "{}"))
            if not isinstance(values, dict):
                raise ValueError(f"{entry} is {values!r:.60}")
            return {name: file.get_tensor(name) for name in file.keys()}, values
    except (safetensors.SafetensorError, OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged or cut short ({one_line(error)}): copy or train it again") from error


def _kinds(tensors: dict[str, Tensor]) -> dict[str, str]:
    """What tensors must have in common to be filled from each other."""
    words = {True: "floating point", False: "whole numbers"}
    return {name: f"{tuple(value.shape)} in {words[value.is_floating_point()]}" for name, value in tensors.items()}


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
    tensors, config = _read(path, "config")  # older files have no configuration
    names = _stored_names(model)
    ours = _config_of(model) | _kinds({name: model.state_dict()[name] for name in names.values()})
    theirs = _config_of(model) | config | _kinds(tensors)
    wrong = [f"{name} is {theirs.get(name)}, not {kind}" for name, kind in ours.items() if theirs.get(name) != kind]
    wrong += [f"{name} is unknown" for name in sorted(tensors.keys() - names.keys())]
    if wrong:
        raise InputError(f"{path} belongs to a model of another configuration: {'; '.join(wrong):.200}")
    model.load_state_dict({name: tensors[first] for name, first in names.items()})


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
    path: str | Path, model: nn.Module, optimizer: Optimizer, progress: dict, *, recent: Sequence[Weights] = ()
) -> None:
    """Store in one file, with a checksum, all that the next training step depends on.

    Args:
        path: the file.
        model: its parameters are stored, a shared one once. Its buffers are not: those of this library are constants.
        optimizer: its moments are stored, and the name of its class.
        progress: what else to remember; plain numbers, strings, lists and dictionaries.
        recent: weights of earlier checkpoints, each as `weights_of` gives them.

    Raises:
        InputError: the file cannot be written.
    """
    groups = {("model", 0): {name: parameter.detach() for name, parameter in model.named_parameters()}}
    groups |= {(type(optimizer).__name__, n): moments for n, moments in optimizer.state_dict()["state"].items()}
    groups |= {("recent", n): weights for n, weights in enumerate(recent)}
    named = [(f"{kind}/{n}/{name}", value) for (kind, n), group in groups.items() for name, value in group.items()]
    tensors = {name: value.contiguous() for name, value in named}  # safetensors stores nothing else
    state = {"progress": progress, "checksum": _checksum(tensors, progress)}
    with atomic_path(path) as part:
        save_file(tensors, part, metadata={"state": json.dumps(state)})


def _checksum(tensors: dict[str, Tensor], progress: Any) -> int:
    """The CRC-32 of the progress, and of names, types, shapes and numbers of the tensors."""
    crc = zlib.crc32(json.dumps(progress).encode())
    for name, value in sorted(tensors.items()):
        crc = zlib.crc32(f"{name} {value.dtype} {tuple(value.shape)}".encode(), crc)
        crc = zlib.crc32(value.cpu().flatten().view(torch.uint8).numpy().data, crc)
    return crc


def load_state(path: str | Path, model: nn.Module, optimizer: Optimizer) -> tuple[dict, list[Weights]]:
    """Fill a model and its optimiser from `path`; return the stored `progress` and the `recent` weights.

    Raises:
        InputError: the file is missing or damaged, or belongs to another model or another kind of optimiser. Model and
            optimiser are then as they were.
    """
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}: expected the state that a training run keeps beside its weights")
    tensors, stored = _read(path, "state")
    progress: Any = stored.get("progress")
    if stored.get("checksum") != _checksum(tensors, progress):
        raise InputError(f"{path} is damaged, or not the state of a run (wrong checksum): train into another place")
    groups: dict[str, dict[int, Weights]] = {"model": {0: {}}}
    for name, value in tensors.items():
        kind, number, rest = name.split("/", 2)
        groups.setdefault(kind, {}).setdefault(int(number), {})[rest] = value
    weights, recent, moments = (groups.pop(kind, {}) for kind in ("model", "recent", type(optimizer).__name__))
    state = optimizer.state_dict() | {"state": moments}
    fits = _kinds(weights[0]) == _kinds(dict(model.named_parameters()))
    if not fits or groups or len(moments) not in (0, sum(len(group["params"]) for group in state["param_groups"])):
        raise InputError(f"{path} belongs to another model or optimiser: use the same, or train into another place")
    optimizer.load_state_dict(state)
    set_weights(model, weights[0])
    return progress, [recent[n] for n in sorted(recent)]
