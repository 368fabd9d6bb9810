# Generated from chapters/17c_heads.md: edit it there and `make export`, or here and `make sync`.

"""The graders of the page on the heads of the trained translator."""

import torch

from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.multi_head import MultiHeadAttention


def grade_17c_1(answer: Answer) -> Checks:
    """Rows sum to one, and every entry is the mean of sums."""
    generator = torch.Generator().manual_seed(0)
    for target_word, source_word in (([0], [0]), ([0], [0, 1]), ([0], [0, 0, 1]), ([0, 0, 1], [0, 1]),
                                     ([0, 1, 1, 2], [0, 0, 0, 1, 2, 2])):  # fmt: skip
        weights = torch.rand(len(target_word), len(source_word), generator=generator, dtype=torch.float64)
        weights /= weights.sum(dim=1, keepdim=True)
        expected = torch.zeros(max(target_word) + 1, max(source_word) + 1, dtype=torch.float64)
        for i, t in enumerate(target_word):
            for j, s in enumerate(source_word):
                expected[t, s] += weights[i, j] / target_word.count(t)
        given = answer(weights.clone(), list(target_word), list(source_word))
        if len(target_word) == 1:
            yield "the row still sums to one", close(given, given, 1) and close(given.sum(), 1.0, 1e-9)
        yield "an entry is the mean over target tokens of sums over source tokens", close(given, expected, 1e-9)


def grade_17c_2(answer: Answer) -> Checks:
    """Shapes, then: the smaller attention computes what the whole one does with that head's columns at zero."""
    generator = torch.Generator().manual_seed(0)
    for d, heads, head in ((2, 2, 0), (2, 2, 1), (6, 3, 1), (8, 4, 3)):
        in_weight, out_weight, x = (
            torch.randn(size, generator=generator, dtype=torch.float64) for size in ((3 * d, d), (d, d), (1, 3, d))
        )
        whole = MultiHeadAttention(d, heads, bias=False).double()
        width = d // heads
        with torch.no_grad():
            whole.in_projection.weight.copy_(in_weight)
            whole.out_projection.weight.copy_(out_weight)
            whole.out_projection.weight[:, head * width : (head + 1) * width] = 0
            expected = whole(x, x, x)[0]
        given = answer(in_weight, out_weight, heads, head)
        sizes = (3 * (d - width), d), (d, d - width)
        fits = isinstance(given, tuple | list) and len(given) == 2
        fits = fits and all(isinstance(m, torch.Tensor) and m.shape == size for m, size in zip(given, sizes))
        yield f"the shapes are {sizes[0]} and {sizes[1]}", fits
        q, k, v = (x @ given[0].T).unflatten(-1, (3, heads - 1, width)).permute(2, 0, 3, 1, 4)  # (1, heads-1, 3, d_k)
        small = (q @ k.mT / width**0.5).softmax(dim=-1) @ v
        output = small.transpose(1, 2).flatten(2) @ given[1].T
        yield "the output is that of the other heads", close(output, expected, 1e-9)
