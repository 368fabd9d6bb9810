# Generated from chapters/01_recurrence.md: edit the chapter, not this file, then run `make export`.

"""The graders of chapter 01, and a ruler for them."""

import math

import torch
from torch import Tensor

from transformer_lib.exercises import Answer, Checks, close


def longest_chain(result: Tensor) -> int:
    """How many recorded operations had to run one after another to make this tensor.

    Args:
        result: a tensor that has a gradient function.

    Returns:
        The longest path through the record that PyTorch keeps for the gradient.
    """
    depth: dict[object, int] = {}
    waiting: list = [result.grad_fn]
    while waiting:
        inputs = [function for function, _ in waiting[-1].next_functions if function is not None]
        unknown = [function for function in inputs if function not in depth]
        if unknown:
            waiting += unknown
        else:
            depth[waiting.pop()] = 1 + max((depth[function] for function in inputs), default=0)
    return max(depth.values())


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


def grade_01_4(answer: Answer) -> Checks:
    """Layers are stacked until every pair is connected."""
    for n in (2, 3, 4, 5, 6, 9, 20):
        for k in (3, 5, 7):
            place = torch.arange(n)
            layer = ((place[:, None] - place[None, :]).abs() <= k // 2).double()
            seen, layers = layer, 1
            while not (seen > 0).all():
                seen, layers = ((seen @ layer) > 0).double(), layers + 1
            found = answer(n, k)
            yield "the answer is a whole number", isinstance(found, int) and not isinstance(found, bool)
            yield "with so many layers every pair is connected", found >= layers
            yield "with one layer less, some pair is not", close(found, layers)


def grade_01_5(answer: Answer) -> Checks:
    """The state is let decay, step by step."""
    for k in (1, 2, 3, 10, 100):
        bias = answer(k)
        known = isinstance(bias, int | float) and not isinstance(bias, bool) and math.isfinite(bias)
        yield "the bias is a finite number", known
        state = 1.0
        for _ in range(k):
            state = state / (1 + math.exp(-min(max(bias, -50), 50)))
        yield f"after {k} step{'s' if k > 1 else ''} half of the state is left", close(state, 0.5)


def grade_01_6(answer: Answer) -> Checks:
    """The loop's states, also where a gate is shut, by a short chain of operations."""
    generator = torch.Generator().manual_seed(0)

    def states(a: Tensor, x: Tensor) -> Tensor:
        known = [x[0]]
        for t in range(1, len(x)):
            known.append(a[t] * known[-1] + x[t])
        return torch.stack(known).detach()

    for n in (1, 2, 3, 4, 5, 8, 13):
        for shut in (False, True):
            a = torch.randint(1, 4, (n,), generator=generator).double() / 2
            x = torch.randint(-3, 4, (n,), generator=generator).double()
            if shut:
                a[n // 2] = 0.0
            expected = states(a, x)
            name = "a gate that is shut" if shut else "open gates"
            yield f"the states are the loop's, with {name}", close(answer(a, x), expected)
    a, x = (torch.rand(256, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2))
    found = answer(a.clone(), x.clone())
    yield "the states are the loop's at n = 256", close(found, states(a, x))
    yield "at n = 256 the operations are recorded", found.grad_fn is not None
    yield "at n = 256 at most 100 operations run in a row", longest_chain(found) <= 100
