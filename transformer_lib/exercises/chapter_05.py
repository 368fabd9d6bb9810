# Generated from chapters/05_masks.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 05."""

from collections.abc import Callable
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lib.exercises import Answer, Checks


def grade_05_2(answer: Answer) -> Checks:
    """Each pair of query and key by itself."""
    for length in (1, 2, 3, 5):
        for width in range(1, length + 1):
            mask = answer(length, width)
            wanted = torch.zeros(1, 1, length, length, dtype=torch.bool)
            shaped = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == wanted.shape
            yield "the mask is boolean, (1, 1, length, length)", shaped
            for i in range(length):
                for j in range(length):
                    wanted[0, 0, i, j] = i - width < j <= i
            yield "query i sees the keys i - width + 1 … i, and no others", torch.equal(mask, wanted)


def grade_05_3(answer: Answer) -> Checks:
    """Each pair of query and key by itself, by what the two are."""
    for length, prefixes in ((1, [0]), (2, [0]), (2, [1]), (3, [2]), (3, [3]), (2, [0, 1, 2]), (5, [3, 0, 5, 1])):
        mask = answer(torch.tensor(prefixes), length)
        shape = (len(prefixes), 1, length, length)
        shaped = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == shape
        yield "the mask is boolean, (batch, 1, length, length)", shaped
        for b, prefix in enumerate(prefixes):
            yield "every token sees the whole prefix", bool(mask[b, 0, :, :prefix].all())
            yield "no token of the prefix sees beyond it", not mask[b, 0, :prefix, prefix:].any()
            behind = mask[b, 0, prefix:, prefix:]
            past = torch.ones_like(behind).tril()
            yield "behind the prefix, the past is seen and the future is not", torch.equal(behind, past)


def _layer(mask: Tensor, norm: bool, channels: tuple[int, int] | None) -> Callable[[Tensor], Tensor]:
    """Attention of x to itself under a mask (length, length), added to x; and a leak from one channel into another."""

    def layer(x: Tensor) -> Tensor:
        y = F.layer_norm(x, x.shape[-1:], eps=0).nan_to_num() if norm else x  # blind to a constant and to a factor
        out = x + F.scaled_dot_product_attention(y, y, y, mask)  # (1, n, width)
        if channels is not None:
            out[..., channels[1]] += y[..., channels[0]] @ torch.ones_like(mask).triu(1).to(y).T
        return out

    return layer


def grade_05_4(answer: Answer) -> Checks:
    """Layers that leak and layers that do not; the answer has to tell them apart."""
    width = 4
    for length in (2, 3, 5):
        square = torch.ones(length, length, dtype=torch.bool)
        causal = square.tril()
        masks = [("causal", causal), ("diagonal", causal.triu()), ("strictly causal", square.tril(-1))]
        masks += [("no mask", square), ("one too many", square.tril(1)), ("inverted", ~causal)]
        for i in range(length):
            for j in range(i + 1, length):
                one_more = causal.clone()
                one_more[i, j] = True
                masks.append((f"causal, but {i} sees {j}", one_more))
        cases: list[tuple[str, Tensor, bool, tuple[int, int] | None]] = []
        for name, mask in masks:
            cases += [(f"plain, {name}", mask, False, None), (f"normalised, {name}", mask, True, None)]
        for a, b in product(range(width), repeat=2):
            cases.append((f"causal, but channel {a} leaks into channel {b}", causal, False, (a, b)))
        for name, mask, norm, channels in cases:
            found = answer(_layer(mask, norm, channels), length, width)
            tensor = isinstance(found, Tensor) and found.dtype == torch.bool and found.dim() == 0
            yield "the answer is True or False", tensor or isinstance(found, bool)
            leaking = channels is not None or bool(mask.triu(1).any())
            yield f"the answer is {leaking} for this layer: {name}", bool(found) == leaking
