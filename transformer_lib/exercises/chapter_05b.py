# Generated from chapters/05b_hidden_leaks.md: edit it there and `make export`, or here and `make sync`.

"""The graders of page 05b."""

from collections.abc import Callable
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lib.exercises import Answer, Checks, close


def grade_05b_1(answer: Answer) -> Checks:
    """The entropy, as the least cross-entropy that any prediction reaches."""
    generator = torch.Generator().manual_seed(0)
    for row in ([1.0], [0.5, 0.5], [1.0, 0.0], [0.25, 0.75], [0.7, 0.2, 0.1, 0.0]):
        p = torch.tensor(row, dtype=torch.float64)
        lowest = answer(p)
        own = -sum(chance * torch.log(chance) for chance in p if chance > 0)
        yield "predicting the probabilities themselves gives this loss, to 1e-9", close(lowest, own, 1e-9)
        for _ in range(5):
            guess = torch.rand(len(p), generator=generator, dtype=torch.float64).softmax(dim=-1)
            yield "no other prediction does better", float(lowest) <= float(-(p * guess.log()).sum()) + 1e-9


def grade_05b_2(answer: Answer) -> Checks:
    """Left, right and both; the padding token is not always 0."""
    generator = torch.Generator().manual_seed(0)
    for left, real, right in ((0, 1, 0), (0, 2, 0), (1, 1, 0), (2, 2, 0), (0, 2, 1), (2, 3, 1), (3, 0, 0)):
        for pad in (0, 9):
            row = [pad] * left + torch.randint(1, 9, (real,), generator=generator).tolist() + [pad] * right
            numbers = answer(torch.tensor([row]), pad)
            whole = isinstance(numbers, Tensor) and not numbers.is_floating_point() and numbers.dtype != torch.bool
            yield "the numbers are integers, of the shape of the tokens", whole and numbers.shape == (1, len(row))
            yield "real tokens are numbered 0, 1, 2, …", numbers[0, left : left + real].tolist() == list(range(real))
            around = numbers[0, :left].tolist() + numbers[0, left + real :].tolist()
            yield "padding gets 0", around == [0] * (left + right)
    rows = torch.tensor([[0, 5, 6], [5, 6, 7], [0, 0, 8]])
    yield "each row is numbered by itself", close(answer(rows, 0), torch.tensor([[0, 0, 1], [0, 1, 2], [0, 0, 0]]))


def _layer(mask: Tensor, norm: bool, channels: tuple[int, int] | None) -> Callable[[Tensor], Tensor]:
    """Attention of x to itself under a mask (length, length), added to x; and a leak from one channel into another."""

    def layer(x: Tensor) -> Tensor:
        y = F.layer_norm(x, x.shape[-1:], eps=0).nan_to_num() if norm else x  # blind to a constant and to a factor
        out = x + F.scaled_dot_product_attention(y, y, y, mask)  # (1, n, width)
        if channels is not None:
            out[..., channels[1]] += y[..., channels[0]] @ torch.ones_like(mask).triu(1).to(y).T
        return out

    return layer


def grade_05b_3(answer: Answer) -> Checks:
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
