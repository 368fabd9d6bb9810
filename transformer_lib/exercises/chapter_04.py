# Generated from chapters/04_positions.md: edit the chapter, not this file, then run `make export`.

"""The graders of chapter 04."""

import math

import torch
from torch import Tensor

from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.positions import SinusoidalPositionalEncoding, sinusoidal_table


def grade_04_1(answer: Answer) -> Checks:
    """The wavelength of a channel, sine or cosine."""
    for d_model in (2, 4, 7, 64, 512):
        for channel in range(d_model):
            sine_of_one_step = sinusoidal_table(2, d_model)[1, channel - channel % 2].item()
            speed = math.asin(sine_of_one_step)
            found = answer(channel, d_model)
            kind = "cosine" if channel % 2 else "sine"
            yield f"a {kind} completes one turn", close(found, 2 * math.pi / speed, 1e-9 / speed)


def grade_04_2(answer: Answer) -> Checks:
    """Chunks with these offsets get the same positions as the whole sentence."""
    positions = SinusoidalPositionalEncoding(4, max_len=32)
    for lengths in ([1], [1, 1], [2, 1], [1, 1, 1], [4, 1, 3], [1, 5, 2, 2], [7, 7, 7, 7]):
        found = answer(list(lengths))
        whole_numbers = isinstance(found, list) and all(type(offset) is int for offset in found)
        yield "one whole number for each chunk", whole_numbers and len(found) == len(lengths)
        chunks = [torch.zeros(1, length, 4) for length in lengths]
        together = torch.cat([positions(chunk, offset=offset) for chunk, offset in zip(chunks, found)], dim=1)
        at_once = positions(torch.cat(chunks, dim=1))
        yield "the chunks together get the positions of the sentence", close(together, at_once)


def grade_04_3(answer: Answer) -> Checks:
    """A projection of [x; place] that equals the projection of x + place."""
    generator = torch.Generator().manual_seed(0)
    for d, m in ((1, 1), (1, 2), (2, 1), (3, 5), (8, 4)):
        W = torch.randint(-3, 4, (d, m), generator=generator).double()
        W[0, 0] = 2.0  # never all zeros
        found = answer(W)
        yield "a matrix of shape (2d, m)", isinstance(found, Tensor) and found.shape == (2 * d, m)
        word, place = torch.randn(2, 20, d, generator=generator, dtype=torch.float64)
        nothing = torch.zeros_like(word)
        yield (
            "with no place, the word is projected by W",
            close(torch.cat([word, nothing], dim=-1) @ found.double(), word @ W),
        )
        yield (
            "word and place side by side give what their sum gave",
            close(torch.cat([word, place], dim=-1) @ found.double(), (word + place) @ W),
        )


def grade_04_4(answer: Answer) -> Checks:
    """The smallest distance of two rows, compared with all pairs."""
    for length in (2, 3, 6, 7, 8, 45, 300):
        for d_model in (2, 4, 8, 64):
            table = sinusoidal_table(length, d_model)
            distances = torch.cdist(table, table, compute_mode="donot_use_mm_for_euclid_dist")
            expected = distances.fill_diagonal_(math.inf).min().item()
            yield "the smallest distance of two rows", close(answer(length, d_model), expected, 1e-9)
    table = sinusoidal_table(100_000, 4)
    expected = (table[1:] - table[0]).norm(dim=1).min().item()
    yield "the smallest distance among 100,000 rows", close(answer(100_000, 4), expected, 1e-9)


def grade_04_5(answer: Answer) -> Checks:
    """The signed number of positions between two rows."""
    for d_model in (4, 6, 64):
        table = sinusoidal_table(400, d_model)
        for distance in (0, 1, 2, 3, 4, 7, 44, 100):
            for p in (0, 1, 150, 299):
                for k in (distance, -distance):
                    if 0 <= p + k:
                        found = answer(table[p], table[p + k])
                        direction = "after" if k > 0 else "before" if k else "at"
                        yield f"row {p + k} is {abs(k)} positions {direction} row {p}", close(found, k, 0)


def grade_04_6(answer: Answer) -> Checks:
    """Every position has its largest score k positions back."""
    for d_model, length in ((4, 8), (4, 2000), (8, 200), (64, 2000)):
        rows = sinusoidal_table(length, d_model)
        for k in (0, 1, 3, 7):
            found = answer(k, d_model)
            yield "a square matrix", isinstance(found, Tensor) and found.shape == (d_model, d_model)
            scores = rows @ found.double() @ rows.T  # (length, length)
            yield "no score is NaN or infinite", bool(scores.isfinite().all())
            best = scores[k:].topk(2, dim=1)
            there = torch.equal(best.indices[:, 0], torch.arange(length - k))
            clearly = bool((best.values[:, 0] > best.values[:, 1]).all())
            yield f"positions {k} to {length - 1} have their largest score {k} back", there and clearly
