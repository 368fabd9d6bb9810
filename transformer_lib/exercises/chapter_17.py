# Generated from chapters/17_multi30k.md and 2 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 17 and its pages in depth."""

import random

import torch

from transformer_lib.exercises.grading import Answer, claim, same
from transformer_lib.multi_head import MultiHeadAttention


def grade_17_1(answer: Answer) -> None:
    """Small cases by hand, then sums over columns."""
    generator = random.Random(1)
    small = [(1, 2), (3, 10)], [(2, 2), (1, 10)]  # by sentences B is ahead; by sums A is
    cases: list[tuple[list[tuple[int, int]], list[tuple[int, int]], list[list[int]], float]] = [
        ([(1, 2)], [(0, 2)], [[0]], 1.0), ([(1, 2)], [(1, 2)], [[0]], 0.0), ([(0, 2)], [(1, 2)], [[0]], 0.0),
        ([(3, 10)], [(2, 4)], [[0]], 0.0),
        (*small, [[0, 1]], 1.0), (*small, [[0, 0, 1]], 0.0), (*small, [[0, 1], [0, 0, 1], [1, 1], [0, 0]], 0.5),
    ]  # fmt: skip
    for a, b, draws, expected in cases:
        claim(f"the proportion is {expected}", same(answer(list(a), list(b), draws), expected, 1e-9))
    a, b = ([(generator.randint(0, most), most) for most in generator.choices(range(5, 30), k=20)] for _ in "ab")
    draws = [generator.choices(range(20), k=20) for _ in range(50)]
    ahead = 0
    for draw in draws:
        (shared_a, all_a), (shared_b, all_b) = ([sum(system[k][n] for k in draw) for n in (0, 1)] for system in (a, b))
        ahead += shared_a * all_b > shared_b * all_a
    claim(f"the proportion is {ahead / 50}", same(answer(a, b, draws), ahead / 50, 1e-9))


def grade_17_2(answer: Answer) -> None:
    """By hand, then lists of different lengths, then by the definition."""
    generator = random.Random(3)
    cases: list[tuple[list[float], list[float], float, float]] = [
        ([1.0, 3.0], [2.0, 4.0], 1.0, 2**0.5),
        ([2.0, 2.0], [2.0, 2.0], 0.0, 0.0),
        ([1.0, 3.0], [5.0, 5.0, 5.0], 3.0, 1.0),
        ([1.0, 2.0, 3.0], [0.0, 4.0], 0.0, (1 / 3 + 4) ** 0.5),
    ]
    plain, changed = ([generator.gauss(1.6, 0.1) for _ in range(n)] for n in (5, 8))
    means = [sum(losses) / len(losses) for losses in (plain, changed)]
    squared = sum(
        sum((loss - mean) ** 2 for loss in losses) / (len(losses) - 1) / len(losses)
        for losses, mean in zip((plain, changed), means)
    )
    cases += [(plain, changed, means[1] - means[0], squared**0.5)]
    for first, second, difference, error in cases:
        pair = difference, error
        holds = same(answer(list(first), list(second)), pair, 1e-9)
        claim(f"the difference is {difference:.4g} and its standard error {error:.4g}", holds)


def grade_17c_1(answer: Answer) -> None:
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
            claim("the row still sums to one", same(given, given, 1) and same(given.sum(), 1.0, 1e-9))
        claim("an entry is the mean over target tokens of sums over source tokens", same(given, expected, 1e-9))


def grade_17c_2(answer: Answer) -> None:
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
        claim(f"the shapes are {sizes[0]} and {sizes[1]}", fits)
        q, k, v = (x @ given[0].T).unflatten(-1, (3, heads - 1, width)).permute(2, 0, 3, 1, 4)  # (1, heads-1, 3, d_k)
        small = (q @ k.mT / width**0.5).softmax(dim=-1) @ v
        output = small.transpose(1, 2).flatten(2) @ given[1].T
        claim("the output is that of the other heads", same(output, expected, 1e-9))


def grade_17d_1(answer: Answer) -> None:
    """Against the definition, bin by bin."""
    generator = random.Random(0)
    cases: list[tuple[list[float], list[bool], int]] = [
        ([0.75], [True], 1), ([0.75, 0.75], [True, False], 1), ([0.5, 0.25], [True, True], 2), ([1.0], [False], 4),
        ([0.5, 0.4], [False, True], 2), ([1.0, 0.9], [False, True], 2),
        ([0.9, 0.9, 0.9, 0.9, 0.5], [True, True, False, True, True], 10),
    ]  # fmt: skip
    cases += [([generator.random() for _ in range(40)], [generator.random() < 0.6 for _ in range(40)], 8)]
    for confidence, right, bins in cases:
        expected = 0.0
        for place in range(bins):
            inside = [n for n, c in enumerate(confidence) if c * bins // 1 == place or (c == 1 and place == bins - 1)]
            if inside:
                share = sum(right[n] for n in inside) / len(inside)
                mean = sum(confidence[n] for n in inside) / len(inside)
                expected += len(inside) / len(right) * abs(share - mean)
        claim(f"the error is {expected:.4g}", same(answer(list(confidence), list(right), bins), expected, 1e-9))
