# Generated from chapters/01_recurrence.md and 2 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 01 and its pages in depth."""

import math

import torch
from torch import Tensor

from transformer_lib.exercises.grading import Answer, claim, expect
from transformer_lib.teaching import longest_chain


def grade_01_1(answer: Answer) -> None:
    """The context; a wrong divisor has a sentence of its own."""
    generator = torch.Generator().manual_seed(0)
    for d in (4, 1, 9):
        for n in (1, 2, 3, 5):
            g, zero = torch.randint(-2, 3, (d,), generator=generator).double(), torch.zeros(d, dtype=torch.float64)
            states = torch.randint(-2, 3, (n, d), generator=generator).double()
            right, undivided, by_d, by_2 = ((states @ g / by).softmax(dim=0) @ states for by in (d**0.5, 1, d, 2))
            known = {
                "the dot products are not divided by the root of d": undivided,
                "the dot products are divided by d, not by its root": by_d,
                "the dot products are divided by 2; the root of d is 2 only if d is 4": by_2,
            }
            unweighted = {"the weights do not sum to one": states.sum(dim=0)}
            expect("the context for a state of zeros", answer(zero, states), states.mean(dim=0), unweighted)
            expect("the context", answer(g, states), right, known)


def grade_01_2(answer: Answer) -> None:
    """Distances by walking through the 2n steps."""
    for n in (1, 2, 3, 5, 20):
        for backwards in (False, True):
            order = list(range(n))
            read = order[::-1] if backwards else order
            happened = [("read", i) for i in read] + [("write", i) for i in order]
            expected = [happened.index(("write", i)) - happened.index(("read", i)) for i in order]
            known = {
                "this counts from reading to the vector only": [i + 1 if backwards else n - i for i in order],
                "reading a token and writing the next one is 1 step, not 0": [steps - 1 for steps in expected],
            }
            expect("the steps from reading to writing each token", answer(n, backwards), expected, known)


def grade_01a_1(answer: Answer) -> None:
    """From z^k = 1/2 and z = sigmoid(b)."""
    for k in (1, 2, 3, 10, 100):
        z = 0.5 ** (1 / k)
        known = {
            "1 - 1/k to the power of k is near 1/e for large k, not 1/2": math.log(k - 1) if k > 1 else -math.inf,
            "this is the share z of one step, not the bias": z,
        }
        expect(f"the bias for {k} step{'s' if k > 1 else ''}", answer(k), math.log(z / (1 - z)), known)


def grade_01b_1(answer: Answer) -> None:
    """Layers are stacked until every pair is connected."""
    for n in (2, 3, 4, 5, 6, 9, 20):
        for k in (3, 5, 7):
            place = torch.arange(n)
            layer = ((place[:, None] - place[None, :]).abs() <= k // 2).double()
            seen, layers = layer, 1
            while not (seen > 0).all():
                seen, layers = ((seen @ layer) > 0).double(), layers + 1
            known = {
                "this is n / k, an order of growth and not a number of layers": math.ceil(n / k),
                "one layer carries a token (k - 1) / 2 places, not k - 1": math.ceil((n - 1) / (k - 1)),
                "from the first token to the last it is n - 1 places, not n": math.ceil(2 * n / (k - 1)),
            }
            expect("the number of layers", answer(n, k), layers, known)


def grade_01b_2(answer: Answer) -> None:
    """The loop's states, also where a gate is shut, by a short chain of operations."""
    generator = torch.Generator().manual_seed(0)

    def states(a: Tensor, x: Tensor) -> Tensor:
        known = [x[0]]
        for t in range(1, len(x)):
            known.append(a[t] * known[-1] + x[t])
        return torch.stack(known).detach()

    for n in (1, 2, 3, 4, 5, 8, 13):
        for shut, gates in enumerate(("open gates", "a gate that is shut")):
            a = torch.randint(1, 4, (n,), generator=generator).double() / 2
            x = torch.randint(-3, 4, (n,), generator=generator).double()
            if shut:
                a[n // 2] = 0.0
            product = a.cumprod(dim=0)
            divided = {"a gate is shut, and the product of the gates is zero": product * (x / product).cumsum(dim=0)}
            expect(f"the states with {gates}", answer(a, x), states(a, x), divided)
    a, x = (torch.rand(256, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2))
    found = answer(a.clone(), x.clone())
    expect("the states at n = 256", found, states(a, x))
    claim("at n = 256 the operations are recorded", found.grad_fn is not None)
    claim("at n = 256 at most 100 operations run in a row", longest_chain(found) <= 100)


def grade_01b_3(answer: Answer) -> None:
    """Positions counted step by step."""
    for n in (1, 2, 3, 10, 128):
        for b in (1, 2, 5):
            new, again = 0, 0
            for step in range(1, n + 1):
                new, again = new + b, again + b * step
            one = {"this is the number for one sentence, not for b": again // b}
            known = one | {"a step processes the sentence so far, not all n tokens": b * n * n}
            each = {"each of the b sentences counts": n}
            expect("the positions if earlier ones are kept", answer(n, b, True), new, each)
            expect("the positions if nothing is kept", answer(n, b, False), again, known)
