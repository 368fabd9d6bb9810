# Generated from chapters/04_positions.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 04."""

import math

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
