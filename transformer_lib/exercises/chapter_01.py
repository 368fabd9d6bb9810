# Generated from chapters/01_recurrence.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 01."""

import torch
from torch import Tensor

from transformer_lib.exercises import Answer, Checks, close


def grade_01_1(answer: Answer) -> Checks:
    """Distances by walking through the 2n steps."""
    for n in (1, 2, 3, 5, 20):
        for backwards in (False, True):
            order = list(range(n))
            read = order[::-1] if backwards else order
            happened = [("read", i) for i in read] + [("write", i) for i in order]
            expected = [happened.index(("write", i)) - happened.index(("read", i)) for i in order]
            found = answer(n, backwards)
            yield "there is one number for each token", isinstance(found, list) and len(found) == n
            yield "each number is the steps from reading to writing", close(found, expected)


def grade_01_2(answer: Answer) -> Checks:
    """Positions counted step by step."""
    for n in (1, 2, 3, 10, 128):
        for b in (1, 2, 5):
            new, again = 0, 0
            for step in range(1, n + 1):
                new, again = new + b, again + b * step
            yield "with earlier positions kept, each step processes the newest tokens", close(answer(n, b, True), new)
            yield "with nothing kept, each step processes all tokens so far", close(answer(n, b, False), again)


def grade_01_3(answer: Answer) -> Checks:
    """One real token, then padding, then the formula as a loop."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    for b, m, n, d, a in ((1, 1, 1, 2, 1), (1, 2, 2, 2, 1), (1, 1, 3, 2, 3), (2, 3, 4, 2, 5)):
        g, states, W, U, v = normal(b, m, d), normal(b, n, d), normal(d, a), normal(d, a), normal(a)
        real = torch.ones(b, n, dtype=torch.bool)
        if n > 1:
            first = real.clone()
            first[:, 1:] = False
            only = states[:, :1].expand(b, m, d)
            yield "with one real token, the context is its state", close(answer(g, states, first, W, U, v), only)
            real[-1, -1] = False
        if n > 3:
            real[0, 1] = False
        expected = torch.zeros(b, m, d, dtype=torch.float64)
        for k in range(b):
            seen = states[k][real[k]]
            for i in range(m):
                pairs = [g[k, i] @ W + state @ U for state in seen]
                weights = torch.stack([torch.tanh(pair) @ v for pair in pairs]).softmax(dim=0)
                expected[k, i] = weights @ seen
        yield "each context is the formula's", close(answer(g, states, real, W, U, v), expected)
