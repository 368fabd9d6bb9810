# Generated from chapters/15a_layer.md: edit it there and `make export`, or here and `make sync`.

"""The graders of the page on the layer of a Llama."""

import torch

from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.variants.modern_blocks import rotary


def grade_15a_1(answer: Answer) -> Checks:
    """The scores of their rotation with their weights are those of ours with the reordered ones."""
    generator = torch.Generator().manual_seed(0)
    for d_k in (2, 4, 6, 16):
        query, key = (torch.randn(d_k, 3, generator=generator, dtype=torch.float64) for _ in range(2))
        x = torch.randn(5, 3, generator=generator, dtype=torch.float64)
        angle = torch.arange(5.0, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, d_k, 2).double() / d_k)

        def theirs(y: torch.Tensor, angle: torch.Tensor = angle) -> torch.Tensor:
            low, high = y.chunk(2, dim=-1)
            return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], dim=-1)

        ours_q, ours_k = answer(query.clone()), answer(key.clone())
        shapes = [getattr(weight, "shape", None) for weight in (ours_q, ours_k)]
        yield "the shape stays", shapes == [query.shape, key.shape]
        pairs = ((ours_q, query), (ours_k, key))
        same = all(sorted(ours.tolist()) == sorted(theirs.tolist()) for ours, theirs in pairs)
        yield "the rows are those of the library, in some order", same
        scores = rotary(x @ ours_q.double().T) @ rotary(x @ ours_k.double().T).T
        yield "all scores are those of the library", close(scores, theirs(x @ query.T) @ theirs(x @ key.T).T, 1e-9)
