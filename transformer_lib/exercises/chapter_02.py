# Generated from chapters/02_attention.md: edit the chapter, not this file, then run `make export`.


# chapters/02_attention.md: Exercises
"""The graders of chapter 02."""

import torch

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.exercises import Answer, Checks, close


def grade_02_1(answer: Answer) -> Checks:
    """The output follows the queries and ignores the order of keys and values."""
    generator = torch.Generator().manual_seed(0)
    for n in (2, 3, 4):
        query, key, value = (torch.randn(n, 2, generator=generator, dtype=torch.float64) for _ in range(3))
        output, _ = scaled_dot_product_attention(query, key, value)
        for orders in (torch.randperm(n, generator=generator) for _ in range(4)):
            shuffled, _ = scaled_dot_product_attention(query[orders], key, value)
            yield "the output follows the queries", close(answer(output, orders, torch.arange(n)), shuffled)
            shuffled, _ = scaled_dot_product_attention(query, key[orders], value[orders])
            yield (
                "the order of keys and values does not matter",
                close(answer(output, torch.arange(n), orders), shuffled),
            )
