# Generated from chapters/03d_cost.md: edit it there and `make export`, or here and `make sync`.

"""The grader of chapter 03d."""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.multi_head import MultiHeadAttention


def grade_03d_1(answer: Answer) -> Checks:
    """The number equals what PyTorch counts when such a layer runs."""
    for n, m, d in ((1, 1, 2), (1, 2, 2), (2, 1, 2), (3, 5, 4), (7, 4, 16)):
        with torch.device("meta"):
            target, memory = torch.empty(1, m, d), torch.empty(1, n, d)
            self_attention, cross_attention = MultiHeadAttention(d, 2), MultiHeadAttention(d, 2)
            network = nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d))
        with FlopCounterMode(display=False) as counter:
            x, _ = self_attention(target, target, target, need_weights=True)
            x, _ = cross_attention(x, memory, memory, need_weights=True)
            network(x)
        yield f"PyTorch counts {counter.get_total_flops():,}", close(answer(n, m, d), counter.get_total_flops(), 0.0)
