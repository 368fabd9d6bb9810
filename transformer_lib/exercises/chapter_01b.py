# Generated from chapters/01b_counting.md: edit it there and `make export`, or here and `make sync`.

"""The graders of the page on counting."""

import torch
from torch import Tensor

from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.teaching import longest_chain


def grade_01b_1(answer: Answer) -> Checks:
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


def grade_01b_2(answer: Answer) -> Checks:
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


def grade_01b_3(answer: Answer) -> Checks:
    """Positions counted step by step."""
    for n in (1, 2, 3, 10, 128):
        for b in (1, 2, 5):
            new, again = 0, 0
            for step in range(1, n + 1):
                new, again = new + b, again + b * step
            yield "with earlier positions kept, each step processes the newest tokens", close(answer(n, b, True), new)
            yield "with nothing kept, each step processes all tokens so far", close(answer(n, b, False), again)
