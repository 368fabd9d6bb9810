# Generated from chapters/09e_resuming.md: edit it there and `make export`, or here and `make sync`.

"""The grader of the page on interruptions."""

import json
import random

from transformer_lib.exercises import Answer, Checks, close


def grade_09e_1(answer: Answer) -> Checks:
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
        yield "it returns x and a state", isinstance(result, tuple | list) and len(result) == 2
        yield (
            f"after {start} and {steps} more steps x is what it should be",
            close(result[0], right[start + steps], 1e-12),
        )
        yield "it asks for the noise of its own steps, once each", asked == list(range(start + 1, start + steps + 1))
        files[start + steps] = json.dumps(result[1])
