# Generated from chapters/06_layers.md and 2 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 06 and its pages in depth."""

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lib.exercises.grading import Answer, claim, expect, random
from transformer_lib.layers import EncoderLayer


def grade_06_2(answer: Answer) -> None:
    """The layer is the identity in both modes, and no more than the two last maps is zero."""
    generator = torch.Generator().manual_seed(0)
    for d_model, length in ((2, 1), (2, 3), (8, 4)):
        layer = EncoderLayer(d_model, 2, 2 * d_model, dropout=0.0, norm_first=True).double()
        for parameter in layer.parameters():
            nn.init.normal_(parameter, generator=generator)
        before = {name: parameter.clone() for name, parameter in layer.named_parameters()}
        result = answer(layer)
        claim("it returns the layer that it got", result is layer)
        x = random(1, length, d_model, seed=d_model)
        for mode in (False, True):
            expect("the output (it should be the input)", result.train(mode)(x), x, tolerance=1e-12)
        touched = [name for name, parameter in layer.named_parameters() if not torch.equal(parameter, before[name])]
        claim(f"four tensors are enough; changed are {', '.join(touched)}", len(touched) <= 4)


def grade_06a_1(answer: Answer) -> None:
    """Both ways give the same numbers; checked on many tokens, because W' is not unique."""
    generator = torch.Generator().manual_seed(0)
    for d, e in ((2, 2), (3, 3), (3, 1), (5, 8)):
        shapes = ((d,), (d, e), (e,), (9, d))
        gamma, W, b, x = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in shapes)
        normalised = F.layer_norm(x, (d,))
        for beta in (torch.zeros_like(gamma), torch.randn(d, generator=generator, dtype=torch.float64)):
            weight, bias = answer(*(t.clone() for t in (gamma, beta, W, b)))
            expect("the shapes of W' and b'", [weight.shape, bias.shape], [W.shape, b.shape])
            scaled = normalised @ (gamma[:, None] * W) + b
            known = {
                "beta is forgotten: it goes through W into b'": scaled,
                "beta goes through W, but not through gamma": scaled + (gamma * beta) @ W,
                "gamma is forgotten": normalised @ W + beta @ W + b,
            }
            if d == e:
                known["gamma multiplies the rows of W, not its columns"] = normalised @ (gamma * W) + beta @ W + b
            expected = F.layer_norm(x, (d,), gamma, beta) @ W + b
            expect("what the folded map gives", normalised @ weight + bias, expected, known)


def grade_06a_2(answer: Answer) -> None:
    """The gradient is autograd's."""
    for n, d in ((1, 2), (1, 3), (1, 4), (3, 8)):
        x, g = random(2, n, d, seed=d)
        leaf = x.clone().requires_grad_()
        F.layer_norm(leaf, (d,)).backward(g)
        r = (x.var(dim=-1, keepdim=True, correction=0) + 1e-5).sqrt()
        known = {
            "the mean and the variance depend on x; here both are constants": g / r,
            "the variance depends on x; here it is a constant": (g - g.mean(dim=-1, keepdim=True)) / r,
            "the mean depends on x; here it is a constant": (leaf.grad + g.mean(dim=-1, keepdim=True) / r),
        }
        expect("the gradient", answer(x, g), leaf.grad, known)


def grade_06b_1(answer: Answer) -> None:
    """Follow the parts of the stream, one direction each."""
    for k in (0, 1, 2, 3, 12):
        for norm_first in (True, False):
            for r in (1.0, 0.5):
                parts = torch.zeros(k + 1, dtype=torch.float64)
                parts[0] = 1.0
                for number in range(1, k + 1):
                    parts[number] = r
                    if not norm_first:
                        parts /= parts.norm()
                known = {
                    "root mean squares add up only along one direction; squares do": 1 / (1 + k * r),
                    "this is the law of pre-norm": (1 + k * r**2) ** -0.5,
                    "this is the law of post-norm": (1 + r**2) ** (-k / 2),
                }
                order = "pre-norm" if norm_first else "post-norm"
                share = parts[0] / parts.norm()
                expect(f"the share after {k} sub-layers in {order}", answer(k, r, norm_first), share, known)
