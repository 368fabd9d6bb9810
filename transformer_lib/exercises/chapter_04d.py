# Generated from chapters/04d_relative.md: edit it there and `make export`, or here and `make sync`.

"""The grader of page 04d."""

import torch

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.exercises import Answer, Checks, close


def grade_04d_1(answer: Answer) -> Checks:
    """One bias for each distance, in float64."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    for n, d, w in ((2, 2, 1), (5, 4, 1), (4, 3, 6), (9, 4, 3)):
        q, k, v = random(n, d), random(n, d), random(n, 2 * d)
        plain = scaled_dot_product_attention(q, k, v)
        yield "a bias of zeros changes nothing", close(answer(q, k, v, torch.zeros(2 * w + 1).double()), plain, 1e-12)
        same = answer(q, k, v, torch.full((2 * w + 1,), 3.0).double())
        yield "the same number for all distances changes nothing", close(same, plain, 1e-12)
        bias = random(2 * w + 1)
        output, weights = answer(q, k, v, bias)
        added = [
            [(weights[p, r] / plain[1][p, r]).log() - (weights[p, 0] / plain[1][p, 0]).log() for r in range(n)]
            for p in range(n)
        ]
        wanted = [[bias[max(-w, min(w, r - p)) + w] - bias[max(-w, -p) + w] for r in range(n)] for p in range(n)]
        right = all(abs(added[p][r] - wanted[p][r]) < 1e-9 for p in range(n) for r in range(n))
        yield "the score of query p and key r grows by the entry for r - p", right
        yield "the output is the weighted sum of the values", close(output, weights @ v, 1e-12)
