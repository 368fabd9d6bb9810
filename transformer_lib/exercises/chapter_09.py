# Generated from chapters/09_training.md and 3 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 09 and its pages in depth."""

import math

import torch

from transformer_lib.exercises.grading import Answer, claim, expect


def grade_09_2(answer: Answer) -> None:
    """Three steps beside torch's Adam: usual gradients, one that is always zero, and one as small as 1e-9."""
    generator = torch.Generator().manual_seed(0)
    for sizes, rate in (([1.0], 0.1), ([1.0, 1000.0, 0.0, 1e-9], 0.03)):
        n, size = len(sizes), torch.tensor(sizes, dtype=torch.float64)
        theta = torch.nn.Parameter(torch.randn(n, generator=generator, dtype=torch.float64))
        optimizer = torch.optim.Adam([theta], lr=rate, betas=(0.9, 0.98), eps=1e-9)
        m, u = torch.zeros(2, n, dtype=torch.float64)
        for k in (1, 2, 3):
            g = theta.grad = size * torch.randn(n, generator=generator, dtype=torch.float64)
            before = theta.detach().clone()
            optimizer.step()
            result = answer(before.clone(), g.clone(), m.clone(), u.clone(), k, rate)
            claim("it returns theta, m and u", isinstance(result, tuple | list) and len(result) == 3)
            m, u = (optimizer.state[theta][name].clone() for name in ("exp_avg", "exp_avg_sq"))
            by_m, by_u = m / (1 - 0.9**k), u / (1 - 0.98**k)
            stored = "m and u are returned as they are; the corrections are for this step only"
            expect(f"m after step {k}", result[1], m, {stored: by_m}, 1e-12)
            expect(f"u after step {k}", result[2], u, {stored: by_u}, 1e-7)
            known = {
                "the averages are not corrected for their start at zero": before - rate * m / (u.sqrt() + 1e-9),
                "the weight should move against its gradient": before + rate * by_m / (by_u.sqrt() + 1e-9),
                "nothing prevents a division by zero": before - rate * by_m / by_u.sqrt(),
                "the root is missing": before - rate * by_m / (by_u + 1e-9),
                "1e-9 belongs outside the root": before - rate * by_m / (by_u + 1e-9).sqrt(),
                "rate is missing": before - by_m / (by_u.sqrt() + 1e-9),
            }
            expect(f"theta after step {k}", result[0], theta.detach(), known)


def grade_09a_1(answer: Answer) -> None:
    """Three steps beside torch's AdamW: usual gradients, one that is always zero, and one as small as epsilon."""
    generator = torch.Generator().manual_seed(0)
    for sizes in ([1.0], [1.0, 1.0, 0.0, 1e-9]):
        n, size = len(sizes), torch.tensor(sizes, dtype=torch.float64)
        theta = torch.nn.Parameter(torch.randn(n, generator=generator, dtype=torch.float64) + 2)
        torchs = torch.optim.AdamW([theta], lr=0.1, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1)
        m, u = torch.zeros(2, n, dtype=torch.float64)
        for k in (1, 2, 3):
            g = theta.grad = size * torch.randn(n, generator=generator, dtype=torch.float64)
            before = theta.detach().clone()
            torchs.step()
            state = torchs.state[theta]
            result = answer(before, g.clone(), m.clone(), u.clone(), k)
            claim("it returns theta, m and u", isinstance(result, tuple | list) and len(result) == 3)
            last, (m, u) = m, (state["exp_avg"].clone(), state["exp_avg_sq"].clone())
            by_m, by_u = 1 - 0.9**k, 1 - 0.98**k
            corrected = "m and u are stored as they are; the corrections are for the step only"
            decayed = 0.9 * last + 0.1 * (g + 0.1 * before)
            penalty = {"the decay goes into the running means; it belongs to theta": decayed}
            expect(f"m after step {k}", result[1], m, penalty | {corrected: m / by_m}, 1e-12)
            expect(f"u after step {k}", result[2], u, {corrected: u / by_u}, 1e-12)
            kept, step = 0.99 * before, 0.1 * m / by_m
            known = {
                "the running means are not corrected for their start at zero": kept - 0.1 * m / (u.sqrt() + 1e-9),
                "epsilon is missing: a weight without a gradient is divided by zero": kept - step / (u / by_u).sqrt(),
                "epsilon is inside the root": kept - step / (u / by_u + 1e-9).sqrt(),
                "the decay is missing": theta.detach() + 0.01 * before,
            }
            expect(f"theta after step {k}", result[0], theta.detach(), known)


def grade_09c_1(answer: Answer) -> None:
    """Tokens with gradients of their own, dealt out to processes."""
    generator = torch.Generator().manual_seed(0)
    for counts in ([1], [1, 1], [1, 3], [2, 0], [0, 4, 1], [5, 2, 7, 1]):
        tokens = torch.randn(sum(counts), 2, generator=generator, dtype=torch.float64)  # a gradient for each token
        gradients = [part.mean(dim=0) for part in tokens.split(counts)]
        known = {
            "0 · NaN is NaN: leave out the processes without tokens": torch.full((2,), math.nan),
            "this is the mean of the means; a process with more tokens counts more": sum(gradients) / len(gradients),
            "this is the sum over all tokens, not the mean": tokens.sum(dim=0),
        }
        found = answer([gradient.clone() for gradient in gradients], list(counts))
        expect("the gradient", found, tokens.mean(dim=0), known, 1e-12)
    broken = torch.full((2,), math.nan, dtype=torch.float64)
    found = answer([torch.ones(2, dtype=torch.float64), broken.clone()], [1, 3])
    claim("the result is NaN if the gradient of a process with tokens is", bool(torch.as_tensor(found).isnan().all()))


def grade_09e_1(answer: Answer) -> None:
    """Laws with like and unlike exponents, at a small budget, a middle one and that of a large model."""
    for A, alpha, B, beta in ((482.0, 0.35, 2085.0, 0.37), (2.0, 0.9, 9.0, 0.4), (1.0, 0.5, 1.0, 0.5)):
        for C in (6e3, 6e9, 6e23):
            share, pairs, root = alpha * A / (beta * B), C / 6, 1 / (alpha + beta)
            right = (share * pairs**beta) ** root
            known = {
                "this is the best size for PD = C; a training takes 6PD": (share * C**beta) ** root,
                "the exponents are lost in the derivative: it has alpha A and beta B": (A / B * pairs**beta) ** root,
                "parameters and tokens get equal shares here; A, B and the exponents decide": pairs**0.5,
                "this is the number of tokens; the parameters are asked for": pairs / right,
                "C should have the power beta / (alpha + beta)": (share * pairs**alpha) ** root,
                "alpha A and beta B have changed places": (pairs**beta / share) ** root,
            }
            found = answer(A, alpha, B, beta, C)
            claim("the answer is a number", isinstance(found, int | float))
            near = {sentence: value / right for sentence, value in known.items()}
            expect("the answer, divided by the best size,", found / right, 1.0, near)
