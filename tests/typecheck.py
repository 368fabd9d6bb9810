"""The run-time check that conftest.py puts around every function of the library's core."""

import sys
from typing import Protocol, runtime_checkable

from beartype import BeartypeConf, beartype

CORE = ("attention", "multi_head", "positions", "masks", "layers", "model", "loss", "cache", "bricks", "variants")

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int will do where a float is asked for


def typechecker(function):
    """Check arguments and results; a protocol is checked by the names of its members."""
    for thing in vars(sys.modules[function.__module__]).values():
        if getattr(thing, "_is_protocol", False) and thing is not Protocol:
            runtime_checkable(thing)
    return _check(function)
