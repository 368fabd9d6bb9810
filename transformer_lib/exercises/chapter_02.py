# Generated from chapters/02_attention.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 02."""

import torch
from torch import Tensor

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.exercises import Answer, Checks, close


def grade_02_2(answer: Answer) -> Checks:
    """The output follows the queries and ignores the order of keys and values."""
    generator = torch.Generator().manual_seed(0)
    for n in (2, 3, 4):
        query, key, value = (torch.randn(n, 2, generator=generator, dtype=torch.float64) for _ in range(3))
        output, _ = scaled_dot_product_attention(query, key, value)
        unmoved = torch.arange(n)
        for _ in range(4):
            first, second = (torch.randperm(n, generator=generator) for _ in range(2))
            for claim, query_order, key_order in (
                ("the output follows the queries", first, unmoved),
                ("the order of keys and values does not matter", unmoved, first),
                ("the output follows the queries and nothing else", first, second),
            ):
                wanted, _ = scaled_dot_product_attention(query[query_order], key[key_order], value[key_order])
                yield claim, close(answer(output.clone(), query_order.clone(), key_order.clone()), wanted)


def grade_02_3(answer: Answer) -> Checks:
    """The limits agree with attention at a very high and a very low temperature, ties included."""
    generator = torch.Generator().manual_seed(0)
    rows = [[[0.0, 1.0]], [[1.0, 1.0]], [[2.0, 1.0, 2.0]]]
    cases = [torch.tensor(row) for row in rows]
    cases += [torch.randint(-2, 3, (n, m), generator=generator).float() for n, m in ((2, 3), (3, 4), (4, 8))]
    for products in cases:
        value = torch.randint(0, 10, (products.size(1), 2), generator=generator).float()
        outputs = answer(products.clone(), value.clone())
        yield "there are two outputs", isinstance(outputs, tuple | list) and len(outputs) == 2
        hot, cold = ((products.double() / t).softmax(dim=-1) @ value.double() for t in (1e9, 1e-9))
        yield "as t grows without end, all keys weigh the same", close(outputs[0], hot, 1e-5)
        yield "as t falls to zero, the best keys share all the weight", close(outputs[1], cold, 1e-5)


def grade_02_4(answer: Answer) -> Checks:
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
