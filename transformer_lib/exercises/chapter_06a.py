# Generated from chapters/06a_norm.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 06a."""

import torch
import torch.nn.functional as F

from transformer_lib.exercises import Answer, Checks, close


def grade_06a_1(answer: Answer) -> Checks:
    """Both ways give the same numbers; checked on many tokens, because W' is not unique."""
    generator = torch.Generator().manual_seed(0)
    for d, e in ((2, 2), (3, 3), (3, 1), (5, 8)):
        shapes_of_inputs = ((d,), (d, e), (e,), (9, d))
        gamma, W, b, x = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in shapes_of_inputs)
        normalised = F.layer_norm(x, (d,))
        for beta in (torch.zeros_like(gamma), torch.randn(d, generator=generator, dtype=torch.float64)):
            result = answer(*(t.clone() for t in (gamma, beta, W, b)))
            shapes = [getattr(part, "shape", None) for part in result] if isinstance(result, tuple | list) else []
            yield "it returns W' and b' in the shapes of W and b", shapes == [W.shape, b.shape]
            expected = F.layer_norm(x, (d,), gamma, beta) @ W + b
            yield "the folded map gives what norm and map gave", close(normalised @ result[0] + result[1], expected)


def grade_06a_2(answer: Answer) -> Checks:
    """The gradient is autograd's."""
    generator = torch.Generator().manual_seed(0)
    for n, d in ((1, 2), (1, 3), (1, 4), (3, 8)):
        x, g = (torch.randn(n, d, generator=generator, dtype=torch.float64) for _ in range(2))
        leaf = x.clone().requires_grad_()
        F.layer_norm(leaf, (d,)).backward(g)
        got = answer(x, g)
        yield (
            "a constant in all channels changes nothing: the gradient's channels sum to zero",
            close(got.sum(dim=-1), torch.zeros(n)),
        )
        yield "the answer is the gradient that autograd finds", close(got, leaf.grad, 1e-9)
