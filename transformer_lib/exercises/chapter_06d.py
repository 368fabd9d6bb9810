# Generated from chapters/06d_collapse.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 06d."""

import torch

from transformer_lib.exercises import Answer, Checks, close


def grade_06d_1(answer: Answer) -> Checks:
    """Follow the parts of the stream, one direction each."""
    for k in (0, 1, 2, 3, 12):
        for norm_first in (True, False):
            for r in (1.0, 0.5):
                parts = torch.zeros(k + 1, dtype=torch.float64)
                parts[0] = 1.0
                for number in range(1, k + 1):
                    parts[number] = r
                    if not norm_first:
                        parts /= parts.norm()
                claim = f"the share is right after {k} sub-layers in {'pre-norm' if norm_first else 'post-norm'}"
                yield claim, close(answer(k, r, norm_first), parts[0] / parts.norm())
