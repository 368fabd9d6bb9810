# Generated from chapters/09_training.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 09: the loss and the step."""

import math

import torch
import torch.nn.functional as F

from transformer_lib.exercises import Answer, Checks, close


def grade_09_2(answer: Answer) -> Checks:
    """The loss of the very probabilities that the target asks for, by torch."""
    for V in (2, 3, 20, 1000):
        for epsilon in (0.0, 0.5, 0.1):
            q = torch.full((V,), epsilon / V, dtype=torch.float64)
            q[0] += 1 - epsilon
            lowest = F.cross_entropy(q.clamp(min=1e-300).log()[None], torch.tensor([0]), label_smoothing=epsilon)
            claim = f"it is the loss of the probabilities that the target asks for, V = {V} and epsilon = {epsilon}"
            yield claim, close(answer(V, epsilon), lowest, 1e-9)


def grade_09_3(answer: Answer) -> Checks:
    """Inputs and labels are the target without its last and without its first column."""
    for rows in ([[1, 2]], [[1, 5, 2]], [[1, 5, 6, 2], [1, 7, 2, 0]]):
        target = torch.tensor(rows)
        result = answer(target.clone())
        yield "it returns two tensors", isinstance(result, tuple | list) and len(result) == 2
        claim = "the labels are all tokens but the start tokens, each where it is asked for"
        yield claim, close(result[1], target[:, 1:], 0.0)
        yield "at each position the input is the token before the label", close(result[0], target[:, :-1], 0.0)


def grade_09_4(answer: Answer) -> Checks:
    """Tokens with gradients of their own, dealt out to processes."""
    generator = torch.Generator().manual_seed(0)
    for counts in ([1], [1, 1], [1, 3], [2, 0], [0, 4, 1], [5, 2, 7, 1]):
        tokens = torch.randn(sum(counts), 2, generator=generator, dtype=torch.float64)  # a gradient for each token
        gradients = [part.mean(dim=0) for part in tokens.split(counts)]
        result = answer([gradient.clone() for gradient in gradients], list(counts))
        yield "the answer is the mean over all tokens", close(result, tokens.mean(dim=0), 1e-12)
    broken = torch.full((2,), math.nan, dtype=torch.float64)
    result = answer([torch.ones(2, dtype=torch.float64), broken.clone()], [1, 3])
    yield "what is not a number shows, if it comes from tokens", close(result, broken)


def grade_09_5(answer: Answer) -> Checks:
    """All words allowed: torch's smoothing. Some: a loop over tokens and allowed words; padding and -inf left out."""
    generator = torch.Generator().manual_seed(0)
    for epsilon in (0.0, 0.3):
        for rows in ([[1]], [[1, 2]], [[1, 0], [2, 1]]):
            labels = torch.tensor(rows)
            logits = torch.randn(*labels.shape, 4, generator=generator, dtype=torch.float64)
            expected = F.cross_entropy(logits.mT, labels, ignore_index=0, label_smoothing=epsilon)
            result = answer(logits.clone(), labels.clone(), torch.ones(4, dtype=torch.bool), 0, epsilon)
            yield f"with all words allowed it is PyTorch's loss, epsilon = {epsilon}", close(result, expected, 1e-12)
    allowed = torch.tensor([False, True, True, False])
    logits = torch.randn(1, 2, 4, generator=generator, dtype=torch.float64)
    log_p = logits.log_softmax(dim=-1)[0]
    expected = -(0.7 * log_p[0, 1] + 0.15 * (log_p[0, 1] + log_p[0, 2]))  # the second label is padding
    result = answer(logits.clone(), torch.tensor([[1, 0]]), allowed, 0, 0.3)
    yield "only allowed words share epsilon = 0.3, and padding does not count", close(result, expected, 1e-12)
    logits[..., ~allowed] = -math.inf
    expected = F.cross_entropy(logits[0, :, 1:3], torch.tensor([0, 1]), label_smoothing=0.3)
    result = answer(logits.clone(), torch.tensor([[1, 2]]), allowed, 0, 0.3)
    yield "words that are not allowed may have logits of minus infinity", close(result, expected, 1e-12)
