# Generated from chapters/15_variants.md and 2 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 15 and its pages in depth."""

from itertools import groupby, product
from typing import Any

import torch
from torch import nn

from transformer_lib.checks import Adapted, check_transformer
from transformer_lib.exercises.grading import Answer, claim, same
from transformer_lib.variants.modern_blocks import rotary


def grade_15_1(answer: Answer) -> None:
    """Hold the model and its cache to the properties of a decoder."""

    def build(vocab_size: int, pad_id: int) -> nn.Module:
        def extend(model: nn.Module, tokens: torch.Tensor, cache: Any = None) -> Any:
            return model(tokens, cache)

        model = answer(vocab_size)
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected a module; got {type(model).__name__}")
        return Adapted(model, lambda model, tokens: model(tokens)[0], extend=extend)

    for finding in check_transformer(build, family="decoder", training=False).findings:
        claim(f"`check` finds *{finding.name}* ({finding.evidence})", finding.verdict != "fail")


def grade_15_2(answer: Answer) -> None:
    """Every choice of hidden tokens among up to five."""
    for hidden in (list(flags) for n in range(1, 6) for flags in product([True, False], repeat=n)):
        tokens, sentinels = list(range(7, 7 + len(hidden))), list(range(100, 110))
        result = answer(list(tokens), list(hidden), list(sentinels))
        claim(
            "it returns two lists", isinstance(result, tuple | list) and [type(part) for part in result] == [list] * 2
        )
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
        claim("the encoder reads the visible tokens, and one sentinel for each span", result[0] == source)
        claim("every span stands in the target, each after its sentinel", result[1][: len(target)] == target)
        claim("the target ends with one sentinel more", result[1][len(target) :] == [next(names)])


def grade_15_3(answer: Answer) -> None:
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
        claim("the answer is a module", isinstance(module, nn.Module))
        claim("before training, the output is that of the linear map", same(module(x), was, 1e-12))
        learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
        shapes = sorted(tuple(parameter.shape) for parameter in learned)
        text = "two matrices are learned, of shapes (r, d_in) and (d_out, r)"
        claim(text, shapes == sorted([(rank, wide), (tall, rank)]))
        for _ in range(2):
            module.zero_grad()
            module(x).square().sum().backward()
            with torch.no_grad():
                for parameter in learned:
                    if parameter.grad is not None:
                        parameter -= 1e-3 * parameter.grad
        claim("two steps of gradient descent change the output", not same(module(x), was, 1e-9))
        kept = [same(parameter.detach(), old, 0) for parameter, old in zip(linear.parameters(), before)]
        claim("the weight and the bias of the linear map stay", all(kept))
        first, second = learned if learned[0].shape == (rank, wide) else learned[::-1]
        correction = alpha / rank * x @ first.T @ second.T
        claim("the correction is alpha / r times B A x", same(module(x), was + correction, 1e-9))


def grade_15a_1(answer: Answer) -> None:
    """The scores of their rotation with their weights are those of ours with the reordered ones."""
    generator = torch.Generator().manual_seed(0)
    for d_k in (2, 4, 6, 16):
        query, key = (torch.randn(d_k, 3, generator=generator, dtype=torch.float64) for _ in range(2))
        x = torch.randn(5, 3, generator=generator, dtype=torch.float64)
        angle = torch.arange(5.0, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, d_k, 2).double() / d_k)

        def theirs(y: torch.Tensor, angle: torch.Tensor = angle) -> torch.Tensor:
            low, high = y.chunk(2, dim=-1)
            return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], dim=-1)

        ours_q, ours_k = answer(query.clone()), answer(key.clone())
        shapes = [getattr(weight, "shape", None) for weight in (ours_q, ours_k)]
        claim("the shape stays", shapes == [query.shape, key.shape])
        pairs = ((ours_q, query), (ours_k, key))
        alike = all(sorted(ours.tolist()) == sorted(theirs.tolist()) for ours, theirs in pairs)
        claim("the rows are those of the library, in some order", alike)
        scores = rotary(x @ ours_q.double().T) @ rotary(x @ ours_k.double().T).T
        claim("all scores are those of the library", same(scores, theirs(x @ query.T) @ theirs(x @ key.T).T, 1e-9))


def grade_15b_1(answer: Answer) -> None:
    """Row by row: the mean of the heads in the group; equal heads stay."""
    generator = torch.Generator().manual_seed(0)
    for heads, groups, d_k in ((1, 1, 1), (2, 1, 1), (2, 2, 2), (4, 2, 1), (4, 2, 3), (6, 3, 2)):
        each = heads // groups
        weight = torch.randn(groups, 1, d_k, 2, generator=generator, dtype=torch.float64)
        equal = weight.expand(groups, each, d_k, 2).reshape(heads * d_k, 2)
        text = "if the heads of each group are equal, they become the group"
        claim(text, same(answer(equal.clone(), heads, groups), weight.reshape(groups * d_k, 2), 1e-12))
        weight = torch.randn(heads, d_k, 2, generator=generator, dtype=torch.float64)
        rows = [sum(weight[g * each + i] for i in range(each)) / each for g in range(groups)]
        got = answer(weight.reshape(heads * d_k, 2), heads, groups)
        claim("a group is the mean of its heads", same(got, torch.cat([torch.as_tensor(row) for row in rows]), 1e-12))
