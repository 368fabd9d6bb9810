# Generated from chapters/05_masks.md and 3 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 05 and its pages in depth."""

from collections.abc import Callable, Iterator
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lib.exercises.grading import Answer, Wrong, claim, expect


def grade_05_2(answer: Answer) -> None:
    """Each pair of query and key by itself."""
    for length in (1, 2, 3, 5):
        for width in range(1, length + 1):

            def seen(past: int, future: int = 0, n: int = length) -> Tensor:
                return torch.tensor([[[[i - past <= j <= i + future for j in range(n)] for i in range(n)]]])

            known = {
                "the window is one key too wide: the query's own counts": seen(width),
                "the window is one key too narrow": seen(width - 2),
                "the past has a limit, but the future is seen": seen(width - 1, length),
                "the window reaches as far into the future as into the past": seen(width - 1, width - 1),
            }
            expect("the mask", answer(length, width), seen(width - 1), known)


def grade_05a_1(answer: Answer) -> None:
    """The entropy, term by term."""
    for row in ([1.0], [0.5, 0.5], [1.0, 0.0], [0.25, 0.75], [0.7, 0.2, 0.1, 0.0]):
        p = torch.tensor(row, dtype=torch.float64)
        own = -sum(chance * torch.log(chance) for chance in p if chance > 0)
        known = {
            "0 · ln 0 should count as 0; here it is NaN": torch.nan,
            "this is ln V, the lowest loss only where all tokens are equally likely": p.new_tensor(len(p)).log(),
            "a loss is not negative: a minus is missing": -own,
            "this is in bits, with the logarithm to the base 2": own / torch.tensor(2.0).double().log(),
        }
        expect("the lowest loss", answer(p), own, known)


def grade_05a_2(answer: Answer) -> None:
    """Left, right and both; the padding token is not always 0."""
    cases = [[[0] * left + [5, 6, 5][:real] + [0] * right] for left, real, right in (
        (0, 1, 0), (0, 2, 0), (1, 1, 0), (2, 2, 0), (0, 2, 1), (2, 3, 1), (3, 0, 0)
    )]  # fmt: skip
    for rows in (*cases, [[0, 5, 6], [5, 6, 7], [0, 0, 8]]):
        for pad in (0, 9):
            tokens = torch.tensor(rows)
            real = tokens != 0
            places = torch.tensor([[sum(map(bool, row[:i])) if row[i] else 0 for i in range(len(row))] for row in rows])
            known = {
                "the real tokens begin at 1, not at 0": (places + 1) * real,
                "padding is numbered, too; it should get 0": real.cumsum(dim=-1) - 1,
                "padding counts: the positions are those in the row": torch.arange(len(rows[0])).expand(*tokens.shape),
            }
            found = answer(tokens.masked_fill(~real, pad), pad)
            expect("the positions", found, places, known)
            claim("the positions are integers", not found.is_floating_point())


def _layer(mask: Tensor, norm: bool, channels: tuple[int, int] | None) -> Callable[[Tensor], Tensor]:
    """Attention of x to itself under a mask (length, length), added to x; and a leak from one channel into another."""

    def layer(x: Tensor) -> Tensor:
        y = F.layer_norm(x, x.shape[-1:], eps=0).nan_to_num() if norm else x  # blind to a constant and to a factor
        out = x + F.scaled_dot_product_attention(y, y, y, mask)  # (1, n, width)
        if channels is not None:
            out[..., channels[1]] += y[..., channels[0]] @ torch.ones_like(mask).triu(1).to(y).T
        return out

    return layer


def grade_05a_3(answer: Answer) -> None:
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
            leaking = channels is not None or bool(mask.triu(1).any())
            expect(f"the answer for this layer: {name},", answer(_layer(mask, norm, channels), length, width), leaking)


_ROWS = ([[1]], [[1, 1]], [[1, 2]], [[1, 0]], [[1, 1, 2]], [[1, 2, 2, 3, 0, 0], [1, 1, 1, 1, 2, 2]])


def grade_05c_1(answer: Answer) -> None:
    """Each pair of query and key by itself."""
    for rows in _ROWS:
        numbers = torch.tensor(rows)
        n = numbers.size(1)
        past = torch.tensor([[j <= i for j in range(n)] for i in range(n)])
        same = torch.tensor([[[[row[i] == row[j] for j in range(n)] for i in range(n)]] for row in rows])
        real = (numbers != 0)[:, None, None]
        known = {
            "padding sees padding: it has the same number": same & past,
            "a sentence sees the one before it": past & real,
            "a query sees the future": same & real,
        }
        expect("the mask", answer(numbers.clone()), same & past & real, known)


def grade_05c_2(answer: Answer) -> None:
    """Each token by itself: how many of its sentence stand before it."""
    for rows in (*_ROWS, [[2, 2, 1, 1, 1]], [[3, 0, 7, 7]]):
        numbers = torch.tensor(rows)
        counted = torch.tensor([[row[:i].count(row[i]) for i in range(len(row))] for row in rows])
        places = counted * (numbers > 0)
        known = {
            "the positions run on through the row; each sentence begins at 0": ((numbers != 0).cumsum(-1) - 1).clamp(0),
            "each sentence begins at 1, not at 0": (places + 1) * (numbers != 0),
            "padding is numbered, too; it should get 0": counted,
            "padding gets -1; it should get 0": places - (numbers == 0).long(),
        }
        found = answer(numbers.clone())
        expect("the positions", found, places, known)
        claim("the positions are integers", not found.is_floating_point())


def grade_05c_3(answer: Answer) -> None:
    """Each pair of query and key by itself."""
    for n, prefixes in ((1, [0]), (2, [0]), (2, [1]), (3, [2]), (3, [3]), (2, [0, 1, 2]), (5, [3, 0, 5, 1])):
        past = torch.tensor([[j <= i for j in range(n)] for i in range(n)])
        key = (torch.arange(n) < torch.tensor(prefixes)[:, None])[:, None, None]  # (b, 1, 1, n)
        known = {
            "this asks whether the query belongs to the prefix; ask it of the key": past | key.mT,
            "only the past is seen: the prefix attends in both directions": past.expand(len(prefixes), 1, n, n),
            "a key needs one reason, the past or the prefix, not both": past & key,
        }
        expect("the mask", answer(torch.tensor(prefixes), n), past | key, known)


class _Pieces:
    """Each piece once, in the same memory as the one before it."""

    def __init__(self, k: torch.Tensor, v: torch.Tensor, sizes: tuple[int, ...]) -> None:
        self.k, self.v, self.sizes, self.taken = k, v, sizes, False

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        if self.taken:
            raise Wrong("the pieces are taken twice, and each comes once: shrink z and y when the maximum grows")
        self.taken = True
        room = [torch.empty(max(self.sizes), part.size(1), dtype=part.dtype) for part in (self.k, self.v)]
        for own in zip(self.k.split(self.sizes), self.v.split(self.sizes)):
            yield tuple(place[: len(part)].copy_(part) for place, part in zip(room, own))

    def __repr__(self) -> str:
        return f"pieces of {self.sizes} keys"


def grade_05d_1(answer: Answer) -> None:
    """The largest score comes in the first piece, in a middle one and in the last, and may be larger than exp can."""
    for sizes in ((1,), (3, 4), (4, 1, 2), (2, 3, 2)):
        for largest in range(len(sizes)):
            generator = torch.Generator().manual_seed(7 * len(sizes) + largest)
            q, k, v = (torch.randn(n, generator=generator, dtype=torch.float64) for n in (4, 28, 21))
            k, v = k.view(7, 4)[: sum(sizes)], v.view(7, 3)[: sum(sizes)]
            k[sum(sizes[: largest + 1]) - 1] += 2 * q
            scores = k @ q / 2
            means = torch.stack([s.softmax(0) @ u for s, u in zip(scores.split(sizes), v.split(sizes))])
            top = torch.stack([s.max() for s in scores.split(sizes)]).cummax(0).values
            terms = (scores - top.repeat_interleave(torch.tensor(sizes))).exp()
            z = [(s.sum(), s @ u) for s, u in zip(terms.split(sizes), v.split(sizes))]
            known = {
                "each piece counts alike: weigh it by the sum of its exponentials": means.mean(0),
                "only the last piece counts: z and y go on from piece to piece": means[-1],
                "z and y are not shrunk when the maximum grows": sum(y for _, y in z) / sum(n for n, _ in z),
                "y is not shrunk when the maximum grows": sum(y for _, y in z) / (scores - scores.max()).exp().sum(),
                "a piece was kept, and its memory used again: use each before you take the next": _kept(k, v, sizes, q),
                "the scores are not divided by the root of d": (k @ q).softmax(0) @ v,
            }
            expect(
                f"the output for pieces of {sizes}", answer(q, _Pieces(k, v, sizes)), scores.softmax(0) @ v, known, 1e-6
            )
    q = torch.full((4,), 40.0, dtype=torch.float64)
    k = torch.tensor([[1.0], [50.0], [2.0]], dtype=torch.float64).expand(3, 4).contiguous()
    found = answer(q, _Pieces(k, torch.eye(3, dtype=torch.float64), (1, 1, 1)))
    claim("scores of 4,000 do not overflow: subtract the largest score so far", bool(found.isfinite().all()))


def _kept(k: torch.Tensor, v: torch.Tensor, sizes: tuple[int, ...], q: torch.Tensor) -> torch.Tensor:
    """What comes out if the pieces are put together afterwards."""
    kept = list(_Pieces(k, v, sizes))
    keys, values = (torch.cat(column) for column in zip(*kept))
    return (keys @ q / 2).softmax(0) @ values
