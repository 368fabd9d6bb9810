"""Models as data: each line of a table is the source of a right model, some of its text replaced."""

import inspect
import linecache
from functools import cache, partial
from pathlib import Path

from transformer_lib.checks import reference_model
from transformer_lib.exercises.grading import rows

HERE = Path(__file__).parent
SOURCES = {  # what the tables of a kind change, and the name of what it makes
    "models": (inspect.getsource(reference_model), "ReferenceModel"),
    "decoders": ((HERE / "decoder.py").read_text("utf-8"), "build"),
}


@cache
def lines(kind):
    """Of all tables of a kind, by name: the table, what the line tells, and its changes behind those of its base."""
    found = {"": ("", [], [])}
    for side, columns in (("right", 2 + (kind == "models")), ("wrong", 4), ("unusual", 5)):
        if (file := HERE / f"{side}_{kind}.tsv").exists():
            for name, base, *more in rows(str(file)):
                assert name not in found, name
                found[name] = side, more[: columns - 2], [*found[base][2], *more[columns - 2 :]]
    return found


@cache
def made(kind, changes):
    """What the source makes with each old text replaced by the new one behind it, wherever it stands."""
    source, name = SOURCES[kind]
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in source, old
        source = source.replace(old, new)
    file = f"<{kind} {hash(changes)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names := {"__name__": "patched"})
    return names[name]


def patched(*changes, base="", kind="models"):
    """The factory of a right model with these changes, old and new in turn."""
    return lambda *sizes: made(kind, (*lines(kind)[base][2], *changes))(*sizes)


def table(side, kind):
    """Of a table, by name: the factory, and what else the line tells."""
    return {name: (patched(base=name, kind=kind), *told) for name, (own, told, _) in lines(kind).items() if own == side}


decoder = partial(patched, kind="decoders")
RIGHT_DECODERS, WRONG_DECODERS = table("right", "decoders"), table("wrong", "decoders")


def family(name):
    """That of a decoder or encoder of the tables."""
    return "encoder" if name.startswith("encoder") else "decoder"
