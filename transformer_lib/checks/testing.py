# Generated from chapters/F_adapters.md: edit it there and `make export`, or here and `make sync`.

"""Tests for pytest, one for each property of a Transformer."""

from collections.abc import Callable
from typing import Any

import pytest

from transformer_lib.checks import check_transformer
from transformer_lib.checks.properties import PROPERTIES, TRAINED_PROPERTIES
from transformer_lib.checks.subject import Factory


def transformer_tests(factory: Factory, *, training: bool = True, **options: Any) -> Callable[[str], None]:
    """Make one test for each property; give the result a name that begins with `test`.

    Args:
        factory: as for `check_transformer`.
        training: also the two properties that train the model.
        options: the other arguments of `check_transformer`.
    """
    names = [entry.name for entry in (*PROPERTIES, *(TRAINED_PROPERTIES if training else ()))]

    @pytest.mark.parametrize("name", names, ids=[name.replace(" ", "-") for name in names])
    def test(name: str) -> None:
        (finding,) = check_transformer(factory, only=[name], **options).findings
        if finding.verdict == "not applicable":
            pytest.skip(finding.evidence)
        if finding.verdict == "fail":
            pytest.fail(f"{finding}\n{finding.traceback}", pytrace=False)

    return test
