# Generated from chapters/10d_minimum_bayes_risk.md: edit it there and `make export`, or here and `make sync`.

"""The grader of the page on minimum Bayes risk and constrained decoding."""

from itertools import product

import torch
from torch import Tensor

from transformer_lib.exercises import Answer, Checks


def grade_10d_1(answer: Answer) -> Checks:
    """Every short prefix, for lists in which sentences begin alike, contain one another, or are empty."""
    logits = torch.randn(6, generator=torch.Generator().manual_seed(0))
    for sentences in ([(1,)], [(1, 2), (3, 4)], [(1,), (1, 2), (1, 2, 3)], [(2, 2), (2, 3), (4,)], [()], []):
        for prefix in (prefix for n in range(4) for prefix in product(range(1, 5), repeat=n)):
            given = logits.clone()
            result = answer(given, prefix, list(sentences), 5)
            whole = isinstance(result, Tensor) and result.shape == logits.shape
            yield "the answer is a tensor of the shape of the logits", whole
            yield "the logits that were given stay as they were", torch.equal(given, logits)
            for token in range(6):
                longer = (*prefix, token)
                may = prefix in sentences if token == 5 else any(s[: len(longer)] == longer for s in sentences)
                name = "the end token" if token == 5 else f"token {token}"
                claim = f"after {prefix}, with {sentences} allowed, {name} {'may' if may else 'may not'} follow"
                yield claim, float(result[token]) == (float(logits[token]) if may else -torch.inf)
