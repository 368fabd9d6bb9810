# Generated from chapters/02a_gradient.md: edit it there and `make export`, or here and `make sync`.

"""The grader of chapter 02a."""

import torch

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.exercises import Answer, Checks, close


def grade_02a_1(answer: Answer) -> Checks:
    """The three gradients are those of autograd."""
    generator = torch.Generator().manual_seed(0)
    for n, m, d_k, d_v in ((1, 1, 1, 1), (1, 2, 1, 1), (2, 2, 1, 1), (1, 2, 2, 1), (2, 3, 2, 3), (4, 6, 5, 3)):
        shapes = (n, d_k), (m, d_k), (m, d_v)
        inputs = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
        upstream = torch.randn(n, d_v, generator=generator, dtype=torch.float64)
        wanted = torch.autograd.grad(scaled_dot_product_attention(*inputs)[0], inputs, upstream)
        gradients = answer(*(tensor.detach().clone() for tensor in inputs), upstream.clone())
        yield "there are three gradients", isinstance(gradients, tuple | list) and len(gradients) == 3
        yield "the gradient by the values is autograd's", close(gradients[2], wanted[2])
        yield "the gradient by the queries is autograd's", close(gradients[0], wanted[0])
        yield "the gradient by the keys is autograd's", close(gradients[1], wanted[1])
