"""What a page's kernel runs first: `torch._dynamo`, which takes three seconds to import, waits until a page compiles.

Every optimizer of torch imports it, for two functions that do nothing where nothing is compiled.
"""

from types import ModuleType
from typing import Any


class Unused(ModuleType):
    """`torch._dynamo` with these two functions; if anything else is asked for, the whole takes its place."""

    def disable(self, function: Any, *_: Any, **__: Any) -> Any:
        """The function as it is."""
        return function

    def graph_break(self) -> None:
        """Nothing is compiled, so no graph is broken."""

    def __getattr__(self, name: str) -> Any:
        import importlib  # here, because the names of this file are the page's
        import sys

        if name.startswith("__") and name != "__path__":  # `inspect` looks at every module
            raise AttributeError(name)
        sys.modules.pop("torch._dynamo", None)
        return getattr(importlib.import_module("torch._dynamo"), name)


__import__("sys").modules["torch._dynamo"] = Unused("torch._dynamo")
del Any, ModuleType, Unused
