# Generated from chapters/04_positions.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 04."""

import math

import torch
from torch import Tensor

from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.positions import sinusoidal_table


def grade_04_2(answer: Answer) -> Checks:
    """The wavelength of a channel, sine or cosine."""
    for d_model in (2, 4, 7, 64, 512):
        for channel in range(d_model):
            sine_of_one_step = sinusoidal_table(2, d_model)[1, channel - channel % 2].item()
            speed = math.asin(sine_of_one_step)
            found = answer(channel, d_model)
            kind = "cosine" if channel % 2 else "sine"
            yield f"a {kind} completes one turn", close(found, 2 * math.pi / speed, 1e-9 / speed)


def grade_04_3(answer: Answer) -> Checks:
    """A projection of [x; place] that equals the projection of x + place."""
    generator = torch.Generator().manual_seed(0)
    for d, k in ((1, 1), (1, 2), (2, 1), (3, 5), (8, 4)):
        W = torch.randint(-3, 4, (d, k), generator=generator).double()
        W[0, 0] = 2.0  # never all zeros
        found = answer(W)
        yield "the answer is a matrix of shape (2d, k)", isinstance(found, Tensor) and found.shape == (2 * d, k)
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
