# Generated from chapters/09a_optimisers.md: edit it there and `make export`, or here and `make sync`.

"""The grader of the page on optimisers."""

import torch

from transformer_lib.exercises import Answer, Checks, close


def grade_09a_1(answer: Answer) -> Checks:
    """Three steps beside torch's AdamW: usual gradients, one that is always zero, and one as small as epsilon."""
    generator = torch.Generator().manual_seed(0)
    for sizes in ([1.0], [1.0, 1.0, 0.0, 1e-9]):
        n, size = len(sizes), torch.tensor(sizes, dtype=torch.float64)
        theta = torch.nn.Parameter(torch.randn(n, generator=generator, dtype=torch.float64) + 2)
        torchs = torch.optim.AdamW([theta], lr=0.1, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1)
        m, u = torch.zeros(2, n, dtype=torch.float64)
        for k in (1, 2, 3):
            theta.grad = size * torch.randn(n, generator=generator, dtype=torch.float64)
            before = theta.detach().clone()
            torchs.step()
            state = torchs.state[theta]
            result = answer(before, theta.grad.clone(), m.clone(), u.clone(), k)
            yield "it returns theta, m and u", isinstance(result, tuple | list) and len(result) == 3
            yield (
                f"m and u are the running means after step {k}",
                close(tuple(result[1:]), (state["exp_avg"], state["exp_avg_sq"]), 1e-12),
            )
            yield f"step {k} is that of torch's AdamW", close(result[0], theta.detach(), 1e-9)
            m, u = state["exp_avg"].clone(), state["exp_avg_sq"].clone()
