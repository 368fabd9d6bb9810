# Generated from chapters/09_training.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 09: the loss and the step."""

import torch
import torch.nn.functional as F

from transformer_lib.exercises import Answer, Checks, close


def grade_09_2(answer: Answer) -> Checks:
    """Inputs and labels are the target without its last and without its first column."""
    for rows in ([[1, 2]], [[1, 5, 2]], [[1, 5, 6, 2], [1, 7, 2, 0]]):
        target = torch.tensor(rows)
        result = answer(target.clone())
        yield "it returns two tensors", isinstance(result, tuple | list) and len(result) == 2
        claim = "the labels are all tokens but the start tokens, each where it is asked for"
        yield claim, close(result[1], target[:, 1:], 0.0)
        yield "at each position the input is the token before the label", close(result[0], target[:, :-1], 0.0)


def grade_09_3(answer: Answer) -> Checks:
    """The loss of the very probabilities that the target asks for, by torch."""
    for V in (2, 3, 20, 1000):
        for epsilon in (0.0, 0.5, 0.1):
            q = torch.full((V,), epsilon / V, dtype=torch.float64)
            q[0] += 1 - epsilon
            lowest = F.cross_entropy(q.clamp(min=1e-300).log()[None], torch.tensor([0]), label_smoothing=epsilon)
            claim = f"it is the loss of the probabilities that the target asks for, V = {V} and epsilon = {epsilon}"
            yield claim, close(answer(V, epsilon), lowest, 1e-9)
