# Generated from chapters/03_multi_head.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 03."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.multi_head import MultiHeadAttention


def _is_like(answer: object, wanted: Tensor) -> bool:
    """True if the answer is a finite tensor of the wanted shape and dtype."""
    if not isinstance(answer, Tensor) or answer.shape != wanted.shape or answer.dtype != wanted.dtype:
        return False
    return bool(answer.isfinite().all())


def grade_03_2(answer: Answer) -> Checks:
    """With the packed weight the exported class equals a loop over heads."""
    generator = torch.Generator().manual_seed(0)
    for h, d_k in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 2)):
        d_model = h * d_k
        W_Q, W_K, W_V = torch.randint(-3, 4, (3, h, d_model, d_k), generator=generator).double()
        x = torch.randn(1, 3, d_model, generator=generator, dtype=torch.float64)
        layer = MultiHeadAttention(d_model, h, bias=False).double()
        packed = answer(W_Q, W_K, W_V)
        yield "it is a tensor of shape (3 * d_model, d_model)", _is_like(packed, layer.in_projection.weight)
        with torch.no_grad():
            layer.in_projection.weight.copy_(packed)
            layer.out_projection.weight.copy_(torch.eye(d_model))
            heads = [scaled_dot_product_attention(x @ q, x @ k, x @ v)[0] for q, k, v in zip(W_Q, W_K, W_V)]
            yield "the class equals the loop over heads", close(layer(x, x, x)[0], torch.cat(heads, dim=-1))


Reshape = Callable[[Tensor], Tensor]


def _layer(d_model: int, split: Reshape, merge: Reshape) -> Reshape:
    """Self-attention with random weights that splits and merges its heads in the given way."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(4, d_model, d_model, generator=generator, dtype=torch.float64) / math.sqrt(d_model)

    def layer(x: Tensor) -> Tensor:
        q, k, v = (split(x @ W) for W in weights[:3])
        return merge(scaled_dot_product_attention(q, k, v)[0]).reshape(x.shape) @ weights[3]

    return layer


def grade_03_3(answer: Answer) -> Checks:
    """Right layers pass the reader's test, layers that split or merge wrongly fail it."""
    for n, d_model, h in ((2, 2, 2), (3, 4, 2), (4, 6, 3), (3, 9, 3), (9, 10, 3)):

        def right_split(x: Tensor, h: int = h) -> Tensor:
            return x.unflatten(-1, (h, -1)).transpose(0, 1)

        def wrong_split(x: Tensor, h: int = h) -> Tensor:
            return x.reshape(h, len(x), -1)

        def odd_split(x: Tensor, h: int = h) -> Tensor:
            return x.reshape(-1, h, x.size(1) // h).transpose(0, 1)

        def one_head(x: Tensor) -> Tensor:
            return x[None]

        def right_merge(x: Tensor) -> Tensor:
            return x.transpose(0, 1)

        def wrong_merge(x: Tensor) -> Tensor:
            return x

        layers = [("one head", one_head, right_merge, True)]
        if d_model % h:
            layers += [(f"{h} heads that do not divide {d_model}", odd_split, right_merge, False)]
        else:
            layers += [
                (f"{h} heads", right_split, right_merge, True),
                (f"{h} heads and the wrong merge", right_split, wrong_merge, False),
                (f"{h} heads and the wrong split", wrong_split, right_merge, False),
                (f"{h} heads, the wrong split and the wrong merge", wrong_split, wrong_merge, False),
            ]
        for name, split, merge, right in layers:
            claim = f"a layer with {name} is {'' if right else 'not '}self-attention"
            yield claim, close(answer(_layer(d_model, split, merge), n, d_model), right)


def grade_03_4(answer: Answer) -> Checks:
    """The layer with the new bias alone equals the layer with both old ones."""
    generator = torch.Generator().manual_seed(0)
    for h, d_k in ((1, 1), (1, 2), (2, 1), (2, 2), (2, 4)):
        d_model = h * d_k
        layer = MultiHeadAttention(d_model, h).double()
        W_O = torch.randn(d_model, d_model, generator=generator, dtype=torch.float64).round(decimals=1)
        b_V, b_O = torch.randn(2, d_model, generator=generator, dtype=torch.float64).round(decimals=1)
        x = torch.randn(1, 3, d_model, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            layer.out_projection.weight.copy_(W_O.T)
            layer.out_projection.bias.copy_(b_O)
            layer.in_projection.bias[2 * d_model :] = b_V
            expected = layer(x, x, x)[0]
            bias = answer(W_O, b_V, b_O)
            layer.in_projection.bias[2 * d_model :] = 0
            layer.out_projection.bias.zero_()
            yield "the new bias is shaped like the old one", _is_like(bias, b_O)
            yield "the output stays the same", close(layer(x, x, x)[0] + bias, expected)
