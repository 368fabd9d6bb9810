# Generated from chapters/03_multi_head.md and 2 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 03 and its pages in depth."""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.exercises.grading import Answer, claim, expect
from transformer_lib.multi_head import MultiHeadAttention


def grade_03_2(answer: Answer) -> None:
    """What the layer adds to each output; each mistake has a sentence of its own."""
    generator = torch.Generator().manual_seed(0)
    for d in (1, 2, 4, 8):
        W_O = torch.randn(d, d, generator=generator, dtype=torch.float64).round(decimals=1)
        b_V, b_O = torch.randn(2, d, generator=generator, dtype=torch.float64).round(decimals=1)
        known = {
            "b_V goes through W_O, like all that the heads return": b_V + b_O,
            "W_O @ b_V is the product with the transpose of W_O": W_O @ b_V + b_O,
            "b_O is forgotten": b_V @ W_O,
            "b_O comes after W_O and does not go through it": (b_V + b_O) @ W_O,
            "b_V is forgotten": b_O,
        }
        expect("the new bias", answer(W_O, b_V, b_O), b_V @ W_O + b_O, known)


def grade_03a_1(answer: Answer) -> None:
    """With the packed weight the library's class equals a loop over heads."""
    generator = torch.Generator().manual_seed(0)
    for h, d_k in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 2)):
        d_model = h * d_k
        weights = torch.randint(-3, 4, (3, h, d_model, d_k), generator=generator).double()
        right = torch.cat([head.T for W in weights for head in W])
        by_head = torch.cat([W.T for head in zip(*weights) for W in head])
        formula = torch.cat([torch.cat(list(W), dim=1) for W in weights])
        known = {
            "each head's query, key and value follow one another; all queries come first": by_head,
            "these are the matrices of the formula; nn.Linear stores them transposed": formula,
            "a reshape does not transpose: the numbers stay in their order": weights.reshape(3 * d_model, d_model),
        }
        expect("the packed weight", answer(*weights), right, known)


def grade_03c_1(answer: Answer) -> None:
    """Token i gives more than 0.99 of its weight to token i - 1."""
    for n in range(2, 33):
        W_Q, W_K = answer(n)
        for name, W in (("W_Q", W_Q), ("W_K", W_K)):
            expect(f"the shape of {name}", W.shape, (n, 2))
            expect(f"the dtype of {name}", W.dtype, torch.float64)
            claim(f"{name} is finite", W.isfinite().all())
        _, weights = scaled_dot_product_attention(W_Q, W_K, torch.eye(n, dtype=torch.float64))
        back = weights.diagonal(-1)  # token i at token i - 1
        i = int(back.argmin()) + 1
        claim(f"token {i} gives more than 0.99 to token {i - 1}, not {float(back[i - 1]):.4f}", back.min() > 0.99)


def grade_03c_2(answer: Answer) -> None:
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
        flops = counter.get_total_flops()
        twice = 2 * (8 * m * d**2 + 4 * m**2 * d) + 16 * m * d**2
        known = {
            "cross-attention is counted like self-attention; its keys and values are n tokens": twice,
            "a multiply-add is two FLOPs": flops // 2,
        }
        expect("the number of FLOPs", answer(n, m, d), flops, known)
