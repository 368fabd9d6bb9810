# Generated from chapters/B_files.md: edit it there and `make export`, or here and `make sync`.

"""Files that are either whole or not there, one writer at a time, and errors that say what to do."""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import safetensors


class InputError(ValueError):
    """Something outside the library is wrong: the message is one line that says what, where and what to do."""


def printable(text: str) -> str:
    r"""Somebody else's text as it may go to a terminal, a table or XML: what is no letter, as \x1b, is escaped."""
    return "".join(c if c.isprintable() or c in "\t\n \xa0\u3000" else repr(c)[1:-1] for c in text)


def one_line(error: BaseException) -> str:
    """Somebody else's error in one short line, to be quoted in ours, with our notes on it."""
    said = f"{type(error).__name__}: {printable(' '.join(str(error).split()))[:120]}"
    return "; ".join([said, *getattr(error, "__notes__", [])])


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary name to write to; rename it to `path` if the block succeeds, delete it if not.

    A device or a pipe is never replaced: what the block wrote is copied into it.

    Args:
        path: the file to create, or to replace with its permissions kept, or a link to it, which stays. Its folder is
            made if it is missing.

    Raises:
        InputError: the folder or the file cannot be written (read-only, full disk, no such place, an unread pipe).
    """
    path = Path(path)
    try:
        place = _followed(path)
        if not is_plain(place):
            with TemporaryDirectory() as folder:
                part = Path(folder, "part")
                part.touch()
                yield part
                _pour(part, place)
            return
        part = part_of(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.touch(exist_ok=False)
            mode = (place if place.exists() else part).stat().st_mode
            yield part
            with part.open("rb+") as file:
                part.chmod(mode)  # some writers make their files private; and somebody may have made the old one so
                os.fsync(file.fileno())
            part.replace(place)
            _flush_names(place.parent)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, safetensors.SafetensorError) as error:  # safetensors wraps the operating system's errors
        raise _cannot_write(path, error) from error


def part_of(path: Path) -> Path:
    """A temporary name beside `path` that no other process or thread has; `remove_parts` knows it."""
    return path.with_name(f".{path.name}.{secrets.randbits(48)}.part")


def _cannot_write(path: Path, error: Exception) -> InputError:
    if isinstance(error, IsADirectoryError):
        return InputError(f"{path} is a directory; expected a file: name another place")
    reason, number = getattr(error, "strerror", None) or error, getattr(error, "errno", None)
    if number == errno.ENXIO and path.is_fifo():
        return InputError(f"nobody reads the pipe {path}: start its reader first, or name a file")
    space = "free some space or " if number in (None, errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else ""
    return InputError(f"cannot write {path}: {reason}; {space}choose another place")


def _is_open(path: Path) -> bool:
    """Whether a name is that of something a process has open, as /dev/fd/1 is."""
    folder = os.path.realpath(path.parent)
    return folder in ("/dev/fd", os.path.realpath("/dev/fd")) or folder.startswith("/proc/")


def _followed(path: Path) -> Path:
    """Where the links of a name lead, up to what a process has open: only the system follows from there."""
    for _ in range(40):
        if _is_open(path) or not path.is_symlink():
            return path
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def is_plain(path: str | Path) -> bool:
    """Whether a name is free, or that of a file or a folder: no device, pipe or socket, and nothing in /dev/fd."""
    path = _followed(Path(path))
    return not _is_open(path) and (not path.exists() or path.is_file() or path.is_dir())


def open_to_write(path: str | Path) -> int:
    """The descriptor of what is no plain file. A pipe must have its reader.

    Raises:
        InputError: it cannot be opened.
    """
    place = _followed(Path(path))
    try:
        if os.path.realpath(place.parent) == os.path.realpath("/dev/fd") and place.name.isdigit():
            return os.dup(int(place.name))  # a file that is open keeps its end, and a socket has no other way
        descriptor = os.open(place, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
        os.set_blocking(descriptor, True)
        return descriptor
    except OSError as error:
        raise _cannot_write(Path(path), error) from error


def _pour(part: Path, place: Path) -> None:
    """Copy a file into what is no plain file, or as much as its reader wants."""
    with part.open("rb") as data, suppress(BrokenPipeError), os.fdopen(open_to_write(place), "wb") as file:
        shutil.copyfileobj(data, file)


def _flush_names(folder: Path) -> None:
    """Flush a folder's list of names to the disk, where the system can: a rename is safe from a power cut only then."""
    with suppress(OSError):
        names = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(names)
        finally:
            os.close(names)


def user_cache() -> Path:
    """The user's folder for what can be fetched again: `transformer_lib` in `$XDG_CACHE_HOME` or else in `~/.cache`.

    Raises:
        InputError: there is no home directory.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "transformer_lib"
    except RuntimeError as error:
        raise InputError("there is no home directory with a cache: set XDG_CACHE_HOME to a folder for it") from error


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
def folder_lock(folder: str | Path, *, wait: bool = False) -> Iterator[None]:
    """Inside the block nobody else has this lock. When a process dies, the system takes its locks away.

    Where there are no such locks (some network file systems), nothing is locked.

    Args:
        folder: it is made if it is missing, and what killed writers left in it is deleted. Inside the block it holds a
            file `.lock`.
        wait: until the lock is free; otherwise a lock that somebody else has is an error.

    Raises:
        InputError: somebody else has the lock, or the folder cannot be written.
    """
    from filelock import FileLock, Timeout  # here, so that importing the library stays fast

    path = Path(folder) / ".lock"
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_write(path, error) from error
        try:
            stack.enter_context(FileLock(path).acquire(blocking=wait))
        except Timeout as error:
            raise InputError(f"another process is writing into {folder}: wait for it, or take another one") from error
        except PermissionError as error:
            raise _cannot_write(path, error) from error
        except (OSError, NotImplementedError):
            pass  # a file system without locks
        remove_parts(folder)
        try:
            yield
        finally:
            with suppress(OSError):  # Windows removes no open file
                path.unlink()


SHIPPED = ("multi30k-en-de",)


def shipped(name: str) -> Path:
    """The path of a file or directory that comes with the course, such as `multi30k-en-de` or `bench.json`.

    It is looked for in the checkout that this package lies in, in the package itself, then in the `user_cache`.

    Raises:
        InputError: it is in neither place.
    """
    package = Path(__file__).parent
    places = [folder / name for folder in (package.parent / "records", package / "records", user_cache())]
    for path in places:
        if path.exists():
            return path
    raise InputError(f"{name} is not in this installation: copy records/{name} of the course to {places[-1]}")
