# Generated from chapters/13_gallery.md and 1 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 13 and its pages in depth."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from transformer_lib.exercises.grading import Answer, expect
from transformer_lib.teaching import MUTANTS, RIGHT


def _loss(kind: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Losses that leave padding out, or let it in by one door."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        each = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")  # (b, m)
        real = (labels != 0).to(each.dtype)
        if kind == "the mean of real tokens":
            return (each * real).sum() / real.sum()
        if kind == "the sum of real tokens":
            return (each * real).sum()
        if kind == "the mean of all positions":
            return each.mean()
        if kind == "the mean of all positions but columns of padding":
            return each[:, real.any(dim=0)].mean()
        if kind == "real tokens, divided by all positions":
            return (each * real).sum() / real.numel()
        return (each * real).sum() / real.sum() + 1e-3 * (logits.logsumexp(-1) ** 2).mean()  # a penalty on all

    return loss


def grade_13_1(answer: Answer) -> None:
    """Two honest losses, and four that padding gets into."""
    honest = ("the mean of real tokens", "the sum of real tokens")
    others = (
        "the mean of all positions", "the mean of all positions but columns of padding",
        "real tokens, divided by all positions", "a penalty on all logits",
    )  # fmt: skip
    for kind in (*honest, *others, *honest):
        counts = kind not in honest
        known = f"the loss is {kind}; padding has {'an' if counts else 'no'} influence, but the answer is {not counts}"
        expect("the answer", answer(_loss(kind)), counts, {known: not counts})


def grade_13a_1(answer: Answer) -> None:
    """Right functions first, then each mutant."""
    for kind, attention in RIGHT.items():
        expect(f"the answer for an attention {kind}", answer(attention), True)
    for mistake, attention in MUTANTS.items():
        expect(f"the answer for an attention that {mistake}", answer(attention), False)
