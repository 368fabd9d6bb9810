# Generated from chapters/15_variants.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 15."""

from itertools import groupby, product
from typing import Any

import torch
from torch import nn

from transformer_lib.checks import Adapted, check_transformer
from transformer_lib.exercises import Answer, Checks


def grade_15_1(answer: Answer) -> Checks:
    """Hold the model and its cache to the properties of a decoder."""

    def build(vocab_size: int, pad_id: int) -> nn.Module:
        def extend(model: nn.Module, tokens: torch.Tensor, cache: Any = None) -> Any:
            return model(tokens, cache)

        model = answer(vocab_size)
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected a module; got {type(model).__name__}")
        return Adapted(model, lambda model, tokens: model(tokens)[0], extend=extend)

    for finding in check_transformer(build, family="decoder", training=False).findings:
        yield f"`check` finds *{finding.name}* ({finding.evidence})", finding.verdict != "fail"


def grade_15_2(answer: Answer) -> Checks:
    """Every choice of hidden tokens among up to five."""
    for hidden in (list(flags) for n in range(1, 6) for flags in product([True, False], repeat=n)):
        tokens, sentinels = list(range(7, 7 + len(hidden))), list(range(100, 110))
        result = answer(list(tokens), list(hidden), list(sentinels))
        yield "it returns two lists", isinstance(result, tuple | list) and [type(part) for part in result] == [list] * 2
        source: list[int] = []
        target: list[int] = []
        names = iter(sentinels)
        for gone, run in groupby(zip(tokens, hidden), key=lambda pair: pair[1]):
            part = [token for token, _ in run]
            if gone:
                name = next(names)
                source, target = [*source, name], [*target, name, *part]
            else:
                source = source + part
        yield "the encoder reads the visible tokens, and one sentinel for each span", result[0] == source
        yield "every span stands in the target, each after its sentinel", result[1][: len(target)] == target
        yield "the target ends with one sentinel more", result[1][len(target) :] == [next(names)]
