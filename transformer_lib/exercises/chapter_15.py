# Generated from chapters/15_variants.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 15."""

from itertools import groupby, product
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.checks import Adapted, check_transformer
from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.exercises.grading import no_plain_list


def grade_15_1(answer: Answer) -> Checks:
    """Hold the model and its cache to the properties of a decoder."""

    def build(vocab_size: int, pad_id: int) -> nn.Module:
        def extend(model: nn.Module, tokens: torch.Tensor, cache: Any = None) -> Any:
            return model(tokens, cache)

        return Adapted(answer(vocab_size), lambda model, tokens: model(tokens)[0], extend=extend)

    model, tokens = answer(29), torch.arange(20)[None]
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a module; got {type(model).__name__}")
    no_plain_list(model)
    answered = model(tokens)
    yield "it returns two things, the logits and a cache", isinstance(answered, tuple | list) and len(answered) == 2
    shape = "the logits have shape (batch, new, vocabulary): one row for each new token"
    yield shape, isinstance(answered[0], torch.Tensor) and answered[0].shape == (1, 20, 29)
    for fault in check_transformer(build, family="decoder", training=False).faults:
        yield f"`check` finds *{fault.name}*; likely, {fault.cause} ({fault.evidence})", False
    cache = model(tokens[:, :-1])[1]
    with FlopCounterMode(display=False) as whole:
        model(tokens)
    with FlopCounterMode(display=False) as step:
        model(tokens[:, -1:], cache)
    spared = step.get_total_flops() < 0.45 * whole.get_total_flops()
    yield "one token with a cache costs less than half of the whole text (else old tokens are computed again)", spared


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


def grade_15_3(answer: Answer) -> Checks:
    """Nothing changes at first, two steps change something, and the change is the scaled product."""
    generator = torch.Generator().manual_seed(0)
    for wide, tall, rank, alpha in ((3, 2, 1, 1.0), (6, 5, 2, 8.0), (4, 7, 3, 2.0)):
        linear = nn.Linear(wide, tall, dtype=torch.float64)
        for parameter in linear.parameters():
            nn.init.normal_(parameter, generator=generator)
        before = [parameter.detach().clone() for parameter in linear.parameters()]
        x = torch.randn(20, wide, generator=generator, dtype=torch.float64)
        was = linear(x).detach()
        module = answer(linear, rank, alpha)
        yield "the answer is a module", isinstance(module, nn.Module)
        yield "before training, the output is that of the linear map", close(module(x), was, 1e-12)
        learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
        shapes = sorted(tuple(parameter.shape) for parameter in learned)
        claim = "two matrices are learned, of shapes (r, d_in) and (d_out, r)"
        yield claim, shapes == sorted([(rank, wide), (tall, rank)])
        for _ in range(2):
            module.zero_grad()
            module(x).square().sum().backward()
            with torch.no_grad():
                for parameter in learned:
                    if parameter.grad is not None:
                        parameter -= 1e-3 * parameter.grad
        yield "two steps of gradient descent change the output", not close(module(x), was, 1e-9)
        kept = [close(parameter.detach(), old, 0) for parameter, old in zip(linear.parameters(), before)]
        yield "the weight and the bias of the linear map stay", all(kept)
        first, second = learned if learned[0].shape == (rank, wide) else learned[::-1]
        correction = alpha / rank * x @ first.T @ second.T
        yield "the correction is alpha / r times B A x", close(module(x), was + correction, 1e-9)
