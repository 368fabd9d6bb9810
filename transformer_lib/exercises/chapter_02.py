# Generated from chapters/02_attention.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 02."""

import torch

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
