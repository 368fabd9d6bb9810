# Generated from chapters/15c_llama.md: edit it there and `make export`, or here and `make sync`.

"""The grader of the page on a Llama: a frozen model, adapted."""

import torch
from torch import nn

from transformer_lib.exercises import Answer, Checks, close


def grade_15c_1(answer: Answer) -> Checks:
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
        yield "the answer is a module", isinstance(module, nn.Module)
        yield "before training, the output is that of the linear map", close(module(x), was, 1e-12)
        learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
        shapes = sorted(tuple(parameter.shape) for parameter in learned)
        claim = "two matrices are learned, of shapes (r, d_in) and (d_out, r)"
        yield claim, shapes == sorted([(rank, wide), (tall, rank)])
        for _ in range(2):
            module.zero_grad()
            module(x).square().sum().backward()
            with torch.no_grad():
                for parameter in learned:
                    if parameter.grad is not None:
                        parameter -= 1e-3 * parameter.grad
        yield "two steps of gradient descent change the output", not close(module(x), was, 1e-9)
        kept = [close(parameter.detach(), old, 0) for parameter, old in zip(linear.parameters(), before)]
        yield "the weight and the bias of the linear map stay", all(kept)
        first, second = learned if learned[0].shape == (rank, wide) else learned[::-1]
        correction = alpha / rank * x @ first.T @ second.T
        yield "the correction is alpha / r times B A x", close(module(x), was + correction, 1e-9)
