# Generated from chapters/13_variants.md: edit the chapter, not this file, then run `make export`.

"""The graders of chapter 13."""

import torch

from transformer_lib.exercises import Answer, Checks, close


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
