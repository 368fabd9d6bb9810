# Generated from chapters/A_command_line.md: edit it there and `make export`, or here and `make sync`.

"""A file of yours, loaded as Python would load it, and the function that a name such as mine.py:build names."""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import logging
import os
import random
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import decode_source, find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils import _device

from transformer_lib.files import InputError, one_line

NAME = "my_transformer.py"  # the file of the exercises
_FOLDERS: dict[str, frozenset[str]] = {}  # those of loaded files, each with what was imported from it before


class Source(NamedTuple):
    """A file of Python: as it is stored, its syntax tree, and its code."""

    data: bytes
    tree: ast.Module
    code: CodeType


def read(path: str | Path) -> Source:
    """Read a file of Python in the encoding that it names, or else in UTF-8, with or without a byte-order mark.

    Raises:
        InputError: it cannot be read, or is not Python.
    """
    data = b""
    try:
        data = Path(path).read_bytes()
        if _is_notebook(path, data):
            raise InputError(f"{path} is a notebook: save its functions in a file, such as {NAME}, and name that one")
        decode_source(data)
        tree = ast.parse(data, name := str(Path(path).resolve()))
        return Source(data, tree, compile(tree, name, "exec", dont_inherit=True))
    except SyntaxError as error:
        raise InputError(f"{path}, line {error.lineno or 1}: {error.msg}; mend this line first") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: not in {error.encoding}; save the file as UTF-8") from error
    except FileNotFoundError as error:
        made = "`python -m transformer_lib start` makes one in this folder"
        what = made if Path(path).suffix else f"name a file, such as {NAME}"
        raise InputError(elsewhere(path) or f"there is no {path}: {what}") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder: name a file in it") from error
    except InputError:
        raise
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"cannot read {path} ({one_line(error)}): name a file that `start` wrote") from error


def elsewhere(path: str | Path) -> str:
    """Where the file of the exercises lies that is missing at a path: here or one folder below; "" if nowhere there."""
    if Path(path).name != NAME or not (found := [*Path().glob(NAME), *sorted(Path().glob(f"*/{NAME}"))]):
        return ""
    there = "this folder has" if found[0].parent == Path() else f"`cd {found[0].parent}` first, which has"
    return f"there is no {path}: {there} a {NAME}"


def _is_notebook(path: str | Path, data: bytes) -> bool:
    """Whether a file is a notebook, by its name or by what is in it."""
    if str(path).lower().endswith(".ipynb"):
        return True
    with suppress(ValueError, RecursionError):
        return data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and "cells" in json.loads(data)
    return False


def load(path: str | Path) -> ModuleType:
    """Run a file, and what it imports from its folder, anew each time, and return it as a module.

    A name that Python or an installed package has means that, also if a file of the folder has it.

    Raises:
        InputError: it cannot be read, is not Python, or fails when it is run.
    """
    file, source = Path(path).resolve(), read(path)
    folder, name = _imported_as(file, source.tree)
    _look_in(folder)
    if _taken(name.partition(".")[0], folder):
        name += f"_{hashlib.sha256(bytes(file)).hexdigest()[:8]}"
    spec = spec_from_file_location(name, file, loader=SourceFileLoader(name, str(file)))
    assert spec is not None  # as its loader is given
    sys.modules[name] = module = module_from_spec(spec)
    sys.dont_write_bytecode = True  # and stays so, for imports at a call: it would be taken for new in the same second
    try:
        exec(source.code, vars(module))
    except BaseException as error:
        sys.modules.pop(name, None)
        if not isinstance(error, Exception | SystemExit):
            raise
        raise InputError(f"{path} cannot be run: {one_line(error)}{place_of(error, file.parent)}") from error
    return sys.modules.get(name, module)


def _imported_as(file: Path, tree: ast.Module) -> tuple[Path, str]:
    """The folder in which the import of a file begins, and its name; a part of a package if it imports relatively."""
    folder = file.parent
    levels = max([node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)], default=0)
    levels = max(levels, int(file.stem == "__init__"))
    while levels > 0 or (folder != file.parent and (folder / "__init__.py").exists()):
        folder, levels = folder.parent, levels - 1
    words = [re.sub(r"\W", "_", word) for word in file.relative_to(folder).with_suffix("").parts]
    return folder, ".".join(words).removesuffix(".__init__")


def _look_in(folder: Path) -> None:
    """Let imports find a folder, behind what is installed and before the working directory, and find it anew."""
    mine = {"", os.getcwd(), str(folder), *_FOLDERS}
    first, last = ([place for place in sys.path if (place in mine) == own] for own in (False, True))
    sys.path[:] = [*first, str(folder), *(place for place in last if place != str(folder))]
    importlib.invalidate_caches()
    never = {"__main__", __name__.partition(".")[0]}
    tops = ({path.stem for path in folder.iterdir()} & sys.modules.keys()) - never
    of_it = {top for top in tops if _lies_in(folder, top, getattr(sys.modules[top], "__spec__", None))}
    shared = _FOLDERS.setdefault(str(folder), frozenset(of_it)) & of_it
    for top in tops - shared:
        if _lies_in(folder, top, PathFinder.find_spec(top)):
            names = [name for name in sys.modules if f"{name}.".startswith(f"{top}.")]
            if any(getattr(sys.modules[name].__spec__, "_initializing", False) for name in names):
                continue  # one of these is being imported, and asks for this
            for name in names:
                del sys.modules[name]


def _lies_in(folder: Path, top: str, spec: ModuleSpec | None) -> bool:
    """Whether a module or package is one of a folder."""
    places = [] if spec is None else [*(spec.submodule_search_locations or [spec.origin or ""])]
    return str(folder / top) in [place.removesuffix(".py") for place in places]


def _taken(top: str, folder: Path) -> bool:
    """Whether a name means a module that is not of this folder."""
    try:
        spec = find_spec(top)
    except ValueError:  # such as __main__
        return True
    return spec is not None and not _lies_in(folder, top, spec)


def place_of(error: BaseException, folder: Path) -> str:
    """Where in the files of a folder an error was raised, as " (mine.py:7)"; "" if nowhere there."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((place for frame in frames if (place := place_in(folder, frame.filename, frame.lineno))), "")


def place_in(folder: Path, filename: str, line: int | None) -> str:
    """A line as " (mine.py:7)" if its file is one of somebody's in a folder, else ""."""
    file = Path(filename)
    theirs = file.is_relative_to(Path(__file__).parent) or "site-packages" in file.parts
    return f" ({file.relative_to(folder)}:{line})" if file.is_relative_to(folder) and not theirs else ""


def _modes(new: tuple[list[Any], Any, Any] | None = None) -> tuple[list[Any], Any, Any]:
    """What changes calls of torch, as a default device does: taken away, or replaced by another such state."""
    taken = [_pop_mode() for _ in _get_current_function_mode_stack()][::-1]
    old = (taken, getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None), _device.CURRENT_DEVICE)
    modes, torch._GLOBAL_DEVICE_CONTEXT.device_context, _device.CURRENT_DEVICE = new or ([], None, None)
    for mode in modes:
        _push_mode(mode)
    return old


def _handlers(new: dict[int, Any] | None = None) -> dict[int, Any]:
    """What Python does at each signal; those that differ are put back."""
    now: dict[int, Any] = {number: signal.getsignal(number) for number in signal.valid_signals()}
    for number, handler in (new or {}).items():
        if handler is not None and handler != now[number]:
            with suppress(ValueError, OSError):  # in a thread
                signal.signal(number, handler)
    return now


def _autocasts(new: int | None = None) -> int:
    """How many blocks of autocast are open; torch keeps its copies of weights until the last one ends."""
    torch.autocast_increment_nesting()
    now = torch.autocast_decrement_nesting()
    while new is not None and now != new:
        now = torch.autocast_decrement_nesting() if now > new else torch.autocast_increment_nesting()
    if new == 0:
        torch.clear_autocast_cache()
    return now


def _set_environment(old: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(old)


SWITCHES: dict[Callable[[], Any], Callable[[Any], object]] = {  # how each is read, and how it is set
    _modes: _modes,
    torch.is_grad_enabled: torch.set_grad_enabled,
    lambda: torch.is_autocast_enabled("cpu"): lambda on: torch.set_autocast_enabled("cpu", on),
    _autocasts: _autocasts,
    torch.get_default_dtype: torch.set_default_dtype,
    torch.get_deterministic_debug_mode: torch.set_deterministic_debug_mode,
    torch.is_anomaly_enabled: torch.set_anomaly_enabled,
    torch.get_float32_matmul_precision: torch.set_float32_matmul_precision,
    torch.get_num_threads: torch.set_num_threads,
    torch.get_rng_state: torch.set_rng_state,
    random.getstate: random.setstate,
    np.random.get_state: np.random.set_state,
    np.geterr: lambda how: np.seterr(**how),
    lambda: logging.root.manager.disable: logging.disable,
    sys.getrecursionlimit: lambda old: sys.setrecursionlimit(max(old, sys.getrecursionlimit())),
}  # fmt: skip
FIRST = [([], None, None), True, False, 0, torch.float32, 0, False, "highest"]  # of these, as a process begins
NEEDED: dict[Callable[[], Any], Callable[[Any], object]] = {  # those of Python that functions of the file may rely on
    sys.getrecursionlimit: sys.setrecursionlimit,
    os.getcwd: os.chdir,
    lambda: [*sys.path]: lambda old: sys.path.__setitem__(slice(None), old),
    lambda: dict(os.environ): _set_environment,
    lambda: dict(vars(torch._tensor_str.PRINT_OPTS)): lambda old: torch.set_printoptions(**old),
    np.get_printoptions: lambda old: np.set_printoptions(**old),
    lambda: (sys.stdin, sys.stdout, sys.stderr, sys.argv): lambda old: vars(sys).update(
        zip(("stdin", "stdout", "stderr", "argv"), old)
    ),
    _handlers: _handlers,
}  # fmt: skip


@contextmanager
def as_before(*, needed: bool = False) -> Iterator[None]:
    """Inside the block torch is switched as when it begins; behind it, it is as it was before, whatever ran inside.

    Args:
        needed: put back also what functions of a file may rely on, such as the working directory.
    """
    switches = SWITCHES | (NEEDED if needed else {})
    with torch.inference_mode(False), warnings.catch_warnings():
        old = [read() for read in switches]
        try:
            for write, first in zip(switches.values(), FIRST):
                write(first)
            yield
        finally:
            for write, value in zip(switches.values(), old):
                write(value)


def function_of(name: str) -> Callable[..., Any]:
    """The function that a name such as mine.py:build or my_module:build names; the file or module is run.

    Raises:
        InputError: there is no such file, module or function, or it cannot be run.
    """
    place, colon, function = name.rpartition(":")
    if not (place and colon and function):
        raise InputError(f"expected module:factory, such as mymodel:build, or mymodel.py:build; got {name!r}")
    path = Path(*place.split("."))
    here = [file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()]
    try:
        if file := place if place.endswith((".py", ".ipynb")) else next(iter(here), None):
            return getattr(load(file), function)
        _look_in(Path.cwd())
        return getattr(importlib.import_module(place), function)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"cannot import {name}: {one_line(error)}") from error


def source_of(name: str) -> bytes:
    """The content of the file that a name such as my_transformer.py:build names.

    Raises:
        InputError: there is no such file, or the name is not that of a file.
    """
    place = name.rpartition(":")[0]
    if not place.endswith((".py", ".ipynb")):
        raise InputError(f"expected FILE.py:FUNCTION, such as my_transformer.py:build; got {name!r}")
    return read(place).data
