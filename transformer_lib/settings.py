# Generated from chapters/B_files.md: edit it there and `make export`, or here and `make sync`.

"""Settings of the types that their annotations say."""

from collections.abc import Callable
from numbers import Integral, Real
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints


def require_types(record: Any) -> None:
    """Hold the values of a dataclass to its annotations, and turn NumPy's numbers and lists into Python's and tuples.

    Raises:
        ValueError: a value is of another type. True and False are no numbers; a float may be given as an int.
    """
    for name, kind in get_type_hints(type(record)).items():
        value = _plain(getattr(record, name))
        if not _fits(value, kind):
            shown = kind.__name__ if isinstance(kind, type) else kind
            raise ValueError(f"{name} must be of type {shown}; got {getattr(record, name)!r}")
        object.__setattr__(record, name, value)  # the record may be frozen


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _fits(value: Any, kind: Any) -> bool:
    parts = get_args(kind)
    if get_origin(kind) is Callable:
        return callable(value)
    if isinstance(kind, UnionType):
        return any(_fits(value, part) for part in parts)
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_fits, value, parts))
    return type(value) is kind or (kind is float and type(value) is int)
