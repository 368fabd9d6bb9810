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


def grade_15b_2(answer: Answer) -> Checks:
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
