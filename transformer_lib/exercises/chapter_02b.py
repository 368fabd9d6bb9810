# Generated from chapters/02b_numerics.md: edit it there and `make export`, or here and `make sync`.

"""The grader of chapter 02b."""

import torch
from torch import Tensor

from transformer_lib.exercises import Answer, Checks, close


def grade_02b_1(answer: Answer) -> Checks:
    """Weights of small, large, unequal and masked scores; never NaN."""

    def right(scores: Tensor, mask: Tensor) -> bool:
        weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1).masked_fill(~mask, 0.0)
        return close(answer(scores.clone(), mask.clone()), weights)

    def case(rows: list[list[float]], masks: list[list[bool]] | None = None) -> bool:
        scores = torch.tensor(rows, dtype=torch.float64)
        return right(scores, torch.ones_like(scores).bool() if masks is None else torch.tensor(masks))

    yield "two equal keys share the weight", case([[0.0, 0.0]])
    yield "each row sums to one", case([[1.0, 2.0], [3.0, -1.0]])
    yield "large scores do not overflow", case([[1000.0, 999.0]])
    yield "very negative scores do not vanish", case([[-1000.0, -1001.0]])
    yield "a large row does not spoil a small one", case([[1000.0, 1000.0], [0.0, 0.0]])
    yield "a forbidden key gets nothing", case([[1.0, 2.0, 3.0]], [[True, True, False]])
    yield "a forbidden key does not count, however large", case([[0.0, 1.0, 1000.0]], [[True, True, False]])
    yield "low scores do not lose to a forbidden key", case([[-1000.0, -1001.0, 5.0]], [[True, True, False]])
    yield "a score of either sign may be 100,000 in size", case([[-1e5, 1 - 1e5, 1e5]], [[True, True, False]])
    yield "an empty row gets zeros", case([[1.0, 2.0]], [[False, False]])
    generator = torch.Generator().manual_seed(0)
    for size in (3, 5):
        scores = 1e4 * torch.randn(size, size + 1, generator=generator, dtype=torch.float64)
        yield (
            "random scores and masks give the right weights",
            right(scores, torch.rand(scores.shape, generator=generator) < 0.5),
        )
