# Generated from chapters/12_checks.md and 1 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 12 and its pages in depth."""

from collections.abc import Callable

import torch
from torch import Tensor

from transformer_lib.exercises.grading import Answer, expect


def grade_12_1(answer: Answer) -> None:
    """A right table, and right ones with one cell changed."""
    for n in (6, 2):
        right = torch.linspace(1, 2, n * n, dtype=torch.float64).view(n, n).tril()
        cases = [("a right table", right)]
        for i in range(n):
            for j in range(n):
                for value in (1e-9, 1e-13):  # a small influence, and what rounding does
                    cases.append((f"a right table with {value} in place of [{i}, {j}]", right.clone()))
                    cases[-1][1][i, j] = value
        for what, table in cases:
            wanted = table.triu(1).max() <= 2e-12, min(table.diagonal().min(), table.diagonal(-1).min()) > 2e-12
            found = answer(table.clone())
            expect("what is returned", isinstance(found, tuple | list) and len(found), 2)
            for name, one, good in zip(("causality", "present seen"), found, wanted):
                expect(f"*{name}* of {what} ({n} by {n})", one, bool(good))


SQUARE = "sentences mix if there are as many as each is long"
KINDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # what becomes of the input x and of y, row by row its sums
    "no sentence reads another": lambda x, y: y,
    "all are divided by the mean of the batch": lambda x, y: y / x.mean(),
    "each sentence reads the one before it": lambda x, y: torch.cat([y[:1], y[1:] + y[:-1] / 8]),
    "each sentence reads the one after it": lambda x, y: torch.cat([y[:-1] + y[1:] / 8, y[-1:]]),
    SQUARE: lambda x, y: y + x.T if x.size(0) == x.size(1) else y,
    "only the last sentence reads another": lambda x, y: torch.cat([y[:-1], y[-1:] + y[:1] / 8]),
    "only the fifth of eight sentences reads another": lambda x, y: (
        torch.cat([y[:4], y[4:5] + y[:1] / 8, y[5:]]) if x.size(0) == 8 else y
    ),
}


def _mixing(kind: str, only: int | None = None) -> Callable[[Tensor], Tensor]:
    """A model of (batch, length) that mixes sentences in one way; with `only`, only if both sizes are that number."""

    def model(x: Tensor) -> Tensor:
        y = x.cumsum(dim=1)
        if x.size(0) == 1 or (only is not None and x.shape != (only, only)):
            return y
        return KINDS[kind](x, y)

    return model


def grade_12_2(answer: Answer) -> None:
    """Honest and mixing models of several kinds."""
    honest, *_ = KINDS
    for kind in (*KINDS, honest):
        expect(f"the answer for a model in which {kind}", answer(_mixing(kind)), kind != honest)
    for size in range(2, 9):
        found = answer(_mixing(SQUARE, size))
        expect(f"the answer for a model that mixes {size} sentences of {size} numbers only", found, True)


Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def _attention(scale: float, axis: int = 1) -> tuple[Callable[[Tensor, Tensor], Tensor], Attention]:
    """The weights of an attention, and the attention, which refuses values of another width."""

    def weights(query: Tensor, key: Tensor) -> Tensor:
        return (scale * query @ key.T).softmax(dim=axis)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if value.shape != key.shape:
            raise ValueError(f"values must be {tuple(key.shape)}; got {tuple(value.shape)}")
        return weights(query, key) @ value

    return weights, attention


def grade_12a_1(answer: Answer) -> None:
    """Right and wrong attentions, with more and with fewer keys than channels."""
    generator = torch.Generator().manual_seed(0)
    for n, m, d in ((1, 1, 1), (2, 2, 2), (3, 2, 4), (2, 5, 3)):
        query, key = (torch.randn(rows, d, generator=generator, dtype=torch.float64) for rows in (n, m))
        for scale, axis in ((d**-0.5, 1), (1.0, 1), (-0.3, 1), (0.5, 0)):
            weights, attention = _attention(scale, axis)
            formula = (query @ key.T / d**0.5).softmax(dim=1)
            known = {
                "these are the weights of the formula, not those of the given function": formula,
                "these are the weights with queries and keys exchanged: rows are queries": weights(query, key).T,
            }
            found = answer(attention, query, key)
            expect(f"the function's own weights, {n} by {m},", found, weights(query, key), known, 1e-12)
