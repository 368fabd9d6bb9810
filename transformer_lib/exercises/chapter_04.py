# Generated from chapters/04_positions.md and 3 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 04 and its pages in depth."""

import math

import torch
from torch import Tensor

from transformer_lib.exercises.grading import Answer, claim, expect, random
from transformer_lib.positions import sinusoidal_table


def grade_04_2(answer: Answer) -> None:
    """The wavelength of a channel, sine or cosine."""
    for d_model in (2, 4, 7, 64, 512):
        for channel in range(d_model):
            speed = math.asin(sinusoidal_table(2, d_model)[1, channel - channel % 2].item())
            share = channel / d_model
            known = {
                "the channel is taken for 2i: a cosine has the wavelength of its sine": math.tau * 1e4**share,
                "channel 2i belongs to clock i: here it is taken for clock 2i": math.tau * 1e4 ** (2 * share),
                "this is the angle of one step; a turn is 2π": speed,
                "this is how many positions one radian takes; a turn is 2π": 1 / speed,
            }
            kind = "cosine" if channel % 2 else "sine"
            expect(f"the wavelength of a {kind}", answer(channel, d_model), math.tau / speed, known, 1e-9 / speed)


def grade_04b_1(answer: Answer) -> None:
    """The smallest distance of two rows, compared with all pairs."""
    cases = [(length, d_model) for length in (2, 3, 6, 7, 8, 45, 300) for d_model in (2, 4, 8, 64)]
    for length, d_model in (*cases, (100_000, 4)):
        table = sinusoidal_table(length, d_model)
        if length > 300:
            distances = (table[1:] - table[0]).norm(dim=1)
        else:
            distances = torch.cdist(table, table, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(math.inf)
        known = {"neighbours are not always the nearest rows": (table[1] - table[0]).norm()}
        expect(f"the smallest distance of {length:,} rows", answer(length, d_model), distances.min(), known)


def grade_04c_1(answer: Answer) -> None:
    """The signed number of positions between two rows."""
    for d_model in (4, 6, 64):
        table = sinusoidal_table(400, d_model)
        for distance in (0, 1, 2, 3, 4, 7, 44, 100):
            for p in (0, 1, 150, 299):
                for shift in (distance, -distance):
                    if 0 <= p + shift:
                        fast = round(math.remainder(shift, math.tau))
                        known = {
                            "the direction is lost": distance,
                            "the direction is the wrong one": -shift,
                            "more than half a turn of this clock: it is too fast": fast,
                        }
                        found = answer(table[p], table[p + shift])
                        expect(f"the number of positions from row {p} to row {p + shift}", found, shift, known)


def grade_04c_2(answer: Answer) -> None:
    """Every position has its largest score at the position `back` places before it."""
    for d_model, length in ((4, 8), (4, 2000), (8, 200), (64, 2000)):
        rows = sinusoidal_table(length, d_model)
        for back in (0, 1, 3, 7):
            found = answer(back, d_model)
            claim("the answer is a square matrix", isinstance(found, Tensor) and found.shape == (d_model, d_model))
            scores = rows @ found.double() @ rows.T  # (length, length)
            claim("no score is NaN or infinite", scores.isfinite().all())
            best = scores[back:].topk(2, dim=1)
            place = torch.arange(length - back)
            ahead = scores[back:].argmax(dim=1) if best.indices[0, 0] == 2 * back else -place
            known = {
                "each position has its largest score with itself": place + back,
                "the positions look ahead, not back": ahead,
            }
            expect(f"where positions {back} to {length - 1} have their largest score", best.indices[:, 0], place, known)
            claim("no second position has the same score", (best.values[:, 0] > best.values[:, 1]).all())


def grade_04d_1(answer: Answer) -> None:
    """One bias for each distance, in float64."""
    for n, d, w in ((2, 2, 1), (5, 4, 1), (4, 3, 6), (9, 4, 3)):
        q, k, v = random(n, d), random(n, d, seed=1), random(n, 2 * d, seed=2)
        entry = torch.tensor([[max(-w, min(w, r - p)) + w for r in range(n)] for p in range(n)])
        for name, bias in (("a bias of zeros", torch.zeros(2 * w + 1).double()), ("a bias", random(2 * w + 1, seed=3))):
            output, weights = answer(q, k, v, bias)
            scores = q @ k.T / d**0.5
            known = {
                "the distance is taken the other way round, p - r": (scores + bias.flip(0)[entry]).softmax(dim=-1),
                "the bias is divided by the root of d_k, too": (scores + bias[entry] / d**0.5).softmax(dim=-1),
                "the bias is added to the weights, not to the scores": scores.softmax(dim=-1) + bias[entry],
            }
            right = (scores + bias[entry]).softmax(dim=-1)
            expect(f"the weights under {name}", weights, right, known, 1e-12)
            expect(f"the output under {name}", output, right @ v, tolerance=1e-12)
