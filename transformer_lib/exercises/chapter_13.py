# Generated from chapters/13_variants.md: edit the chapter, not this file, then run `make export`.

"""The graders of chapter 13."""

import torch

from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.variants.modern_blocks import rotary


def grade_13_1(answer: Answer) -> Checks:
    """Pair by pair."""
    for length, prefix in ((1, 0), (2, 2), (2, 0), (3, 2), (5, 2), (6, 6), (6, 1)):
        mask = answer(length, prefix)
        claim = "it is a boolean tensor of shape (1, 1, n, n)"
        yield (
            claim,
            isinstance(mask, torch.Tensor) and mask.dtype == torch.bool and mask.shape == (1, 1, length, length),
        )
        for i in range(length):
            for j in range(length):
                may = j <= i or (i < prefix and j < prefix)
                claim = f"token {i} {'may' if may else 'may not'} see token {j}"
                yield claim, bool(mask[0, 0, i, j]) == may


def grade_13_2(answer: Answer) -> Checks:
    """Make tensors of one vector each, and add up their bytes."""
    for sizes in ((1, 1, 1, 1, 1, 1, 0), (1, 2, 1, 1, 1, 2, 0), (1, 2, 2, 4, 3, 1, 2), (2, 4, 2, 3, 5, 1, 4)):
        layers, _, groups, d_k, tokens, number_bytes, scale_bytes = sizes
        numbers = {1: torch.int8, 2: torch.float16}[number_bytes]
        parts = [torch.zeros(groups, tokens, d_k, dtype=numbers) for _ in range(2 * layers)]
        stored = sum(part.numel() * part.element_size() for part in parts)
        stored += scale_bytes * sum(part[..., 0].numel() for part in parts)
        yield f"tensors of these sizes take {stored} bytes", close(answer(*sizes), stored)


def grade_13_3(answer: Answer) -> Checks:
    """Let a mark spread, layer by layer."""
    for distance in (0, 1, 2, 3, 4, 7, 12, 30):
        for width in (2, 3, 4, 8):
            reached, layers = {0}, 0  # distances that are connected so far
            while distance not in reached or layers == 0:
                reached = {old + step for old in reached for step in range(width)}
                layers += 1
            claim = f"{layers} layers connect a token with the one {distance} before it, and fewer do not"
            yield claim, close(answer(distance, width), layers)


def grade_13_4(answer: Answer) -> Checks:
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


def grade_13_5(answer: Answer) -> Checks:
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


def grade_13_6(answer: Answer) -> Checks:
    """Ends go to 0 and 255, the error is at most half a step, constants come back."""
    generator = torch.Generator().manual_seed(0)
    cases = [torch.tensor([[2.0, 2.0]]), torch.tensor([[0.0, 0.0]]), torch.tensor([[5.0, 6.0, 5.999]])]
    cases += [torch.randn(3, 4, generator=generator), torch.randn(2, 3, 64, generator=generator) + 9]
    for x in (case.double() for case in cases):
        result = answer(x.clone())
        pair = isinstance(result, tuple) and len(result) == 2 and callable(result[1])
        yield "it returns a tensor and a function", pair and isinstance(result[0], torch.Tensor)
        numbers, back = result
        yield "the tensor holds bytes, as many as x numbers", numbers.dtype == torch.uint8 and numbers.shape == x.shape
        low, high = x.amin(dim=-1, keepdim=True), x.amax(dim=-1, keepdim=True)
        ends = ((x == low) & (low < high) & (numbers != 0)) | ((x == high) & (low < high) & (numbers != 255))
        yield "the smallest becomes 0, the largest 255", not bool(ends.any())
        again = back(numbers)
        yield "the function gives floats of the shape of x", isinstance(again, torch.Tensor) and again.shape == x.shape
        within = (again.double() - x).abs() <= (high - low) / 510 + 1e-12
        yield "no entry moves by more than half a step", bool(within.all())
        for byte, end in ((0, low), (255, high)):
            claim = f"the function turns bytes {byte} into the {'smallest' if byte == 0 else 'largest'}"
            yield claim, close(back(torch.full_like(numbers, byte)).double(), end.expand(x.shape), 1e-5)
