# Generated from chapters/01_recurrence.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 01."""

import math

import torch

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
    """The context number by number; a wrong divisor has a sentence of its own."""
    generator = torch.Generator().manual_seed(0)
    for d in (4, 1, 9):
        for n in (1, 2, 3, 5):
            g, zero = torch.randint(-2, 3, (d,), generator=generator).double(), torch.zeros(d, dtype=torch.float64)
            states = torch.randint(-2, 3, (n, d), generator=generator).double()
            dots = [sum(g[c].item() * state[c].item() for c in range(d)) for state in states]

            def by(divisor: float, dots: list[float] = dots, states: torch.Tensor = states) -> torch.Tensor:
                shares = [math.exp(dot / divisor) for dot in dots]
                return sum((share * state for share, state in zip(shares, states)), start=0 * states[0]) / sum(shares)

            found = answer(zero, states)
            yield "the context is a tensor of shape (d,)", isinstance(found, torch.Tensor) and found.shape == (d,)
            yield "if the decoder's state is zero, all weights are equal", close(found, states.mean(dim=0))
            found, right = answer(g, states), by(math.sqrt(d))
            for claim, divisor in (
                ("the dot products are divided by the root of d", 1),
                ("the dot products are divided by the root of d, and not by d", d),
                ("the dot products are divided by the root of d, which is not always 2", 2),
            ):
                yield claim, close(by(divisor), right) or not close(found, by(divisor))
            yield "the context is the sum of the states, each times its weight", close(found, right)
