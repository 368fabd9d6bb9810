# Generated from chapters/09_training.md and 3 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 09 and its pages in depth."""

import json
import math
import random

import torch
import torch.nn.functional as F

from transformer_lib.exercises.grading import Answer, claim, same


def grade_09_2(answer: Answer) -> None:
    """Inputs and labels are the target without its last and without its first column."""
    for rows in ([[1, 2]], [[1, 5, 2]], [[1, 5, 6, 2], [1, 7, 2, 0]]):
        target = torch.tensor(rows)
        result = answer(target.clone())
        claim("it returns two tensors", isinstance(result, tuple | list) and len(result) == 2)
        text = "the labels are all tokens but the start tokens, each where it is asked for"
        claim(text, same(result[1], target[:, 1:], 0.0))
        claim("at each position the input is the token before the label", same(result[0], target[:, :-1], 0.0))


def grade_09_3(answer: Answer) -> None:
    """The loss of the very probabilities that the target asks for, by torch."""
    for V in (2, 3, 20, 1000):
        for epsilon in (0.0, 0.5, 0.1):
            q = torch.full((V,), epsilon / V, dtype=torch.float64)
            q[0] += 1 - epsilon
            lowest = F.cross_entropy(q.clamp(min=1e-300).log()[None], torch.tensor([0]), label_smoothing=epsilon)
            text = f"it is the loss of the probabilities that the target asks for, V = {V} and epsilon = {epsilon}"
            claim(text, same(answer(V, epsilon), lowest, 1e-9))


def grade_09a_1(answer: Answer) -> None:
    """Three steps beside torch's AdamW: usual gradients, one that is always zero, and one as small as epsilon."""
    generator = torch.Generator().manual_seed(0)
    for sizes in ([1.0], [1.0, 1.0, 0.0, 1e-9]):
        n, size = len(sizes), torch.tensor(sizes, dtype=torch.float64)
        theta = torch.nn.Parameter(torch.randn(n, generator=generator, dtype=torch.float64) + 2)
        torchs = torch.optim.AdamW([theta], lr=0.1, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1)
        m, u = torch.zeros(2, n, dtype=torch.float64)
        for k in (1, 2, 3):
            theta.grad = size * torch.randn(n, generator=generator, dtype=torch.float64)
            before = theta.detach().clone()
            torchs.step()
            state = torchs.state[theta]
            result = answer(before, theta.grad.clone(), m.clone(), u.clone(), k)
            claim("it returns theta, m and u", isinstance(result, tuple | list) and len(result) == 3)
            claim(
                f"m and u are the running means after step {k}",
                same(tuple(result[1:]), (state["exp_avg"], state["exp_avg_sq"]), 1e-12),
            )
            claim(f"step {k} is that of torch's AdamW", same(result[0], theta.detach(), 1e-9))
            m, u = state["exp_avg"].clone(), state["exp_avg_sq"].clone()


def grade_09c_1(answer: Answer) -> None:
    """Tokens with gradients of their own, dealt out to processes."""
    generator = torch.Generator().manual_seed(0)
    for counts in ([1], [1, 1], [1, 3], [2, 0], [0, 4, 1], [5, 2, 7, 1]):
        tokens = torch.randn(sum(counts), 2, generator=generator, dtype=torch.float64)  # a gradient for each token
        gradients = [part.mean(dim=0) for part in tokens.split(counts)]
        result = answer([gradient.clone() for gradient in gradients], list(counts))
        claim("the answer is the mean over all tokens", same(result, tokens.mean(dim=0), 1e-12))
    broken = torch.full((2,), math.nan, dtype=torch.float64)
    result = answer([torch.ones(2, dtype=torch.float64), broken.clone()], [1, 3])
    claim("what is not a number shows, if it comes from tokens", same(result, broken, 1e-6))


def grade_09e_1(answer: Answer) -> None:
    """Steps in one go, in parts, and beside another run give the same number."""
    asked: list[int] = []

    def noise(k: int) -> float:
        asked.append(k)
        return random.Random(k).gauss(0, 1)

    right, v = [1.0], 0.0  # x after 0, 1, 2, … steps
    for k in range(1, 11):
        v = 0.9 * v + right[-1] + noise(k)
        right.append(right[-1] - 0.1 * v)
    files: dict[int, str] = {0: "null"}  # a state after so many steps, as the file holds it
    for start, steps in ((0, 1), (0, 2), (1, 1), (2, 3), (0, 1), (1, 4), (5, 2), (7, 3), (1, 2), (5, 5)):
        asked.clear()
        result = answer(json.loads(files[start]), steps, noise)
        claim("it returns x and a state", isinstance(result, tuple | list) and len(result) == 2)
        claim(
            f"after {start} and {steps} more steps x is what it should be",
            same(result[0], right[start + steps], 1e-12),
        )
        claim("it asks for the noise of its own steps, once each", asked == list(range(start + 1, start + steps + 1)))
        files[start + steps] = json.dumps(result[1])
