# Generated from chapters/15b_cache.md: edit it there and `make export`, or here and `make sync`.

"""The graders of the page on the cache."""

import torch

from transformer_lib.exercises import Answer, Checks, close


def grade_15b_1(answer: Answer) -> Checks:
    """Row by row: the mean of the heads in the group; equal heads stay."""
    generator = torch.Generator().manual_seed(0)
    for heads, groups, d_k in ((1, 1, 1), (2, 1, 1), (2, 2, 2), (4, 2, 1), (4, 2, 3), (6, 3, 2)):
        each = heads // groups
        weight = torch.randn(groups, 1, d_k, 2, generator=generator, dtype=torch.float64)
        same = weight.expand(groups, each, d_k, 2).reshape(heads * d_k, 2)
        claim = "if the heads of each group are equal, they become the group"
        yield claim, close(answer(same.clone(), heads, groups), weight.reshape(groups * d_k, 2), 1e-12)
        weight = torch.randn(heads, d_k, 2, generator=generator, dtype=torch.float64)
        rows = [sum(weight[g * each + i] for i in range(each)) / each for g in range(groups)]
        got = answer(weight.reshape(heads * d_k, 2), heads, groups)
        yield "a group is the mean of its heads", close(got, torch.cat([torch.as_tensor(row) for row in rows]), 1e-12)
