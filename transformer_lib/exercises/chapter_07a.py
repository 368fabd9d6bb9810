# Generated from chapters/07a_scale.md: edit it there and `make export`, or here and `make sync`.

"""The grader of page 07a."""

import torch
from torch import nn

from transformer_lib.exercises import Answer, Checks, close


def grade_07a_1(answer: Answer) -> Checks:
    """Within 2 % of what is measured on a table; its sampling error is below 0.5 %."""
    for vocab_size, d_model in ((200, 200), (50, 400), (1000, 64), (20_000, 16)):
        table = torch.empty(vocab_size, d_model, dtype=torch.float64)
        nn.init.xavier_uniform_(table, generator=torch.Generator().manual_seed(0))
        measured = (table * d_model**0.5).square().mean().sqrt().item()
        yield f"tokens enter at {measured:.2f}", close(answer(vocab_size, d_model), measured, 0.02 * measured)
