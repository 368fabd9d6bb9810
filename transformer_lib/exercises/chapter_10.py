# Generated from chapters/10_decoding.md and 3 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 10 and its pages in depth."""

import math
from itertools import product

import torch
from torch import Tensor

from transformer_lib.exercises.grading import Answer, claim, expect, random
from transformer_lib.teaching import Chances, by_last_word, every_sentence


def grade_10_2(answer: Answer) -> None:
    """Case by case, with what decides it."""
    found = answer()
    claim(
        "it is a text of three letters, A, B or C", isinstance(found, str) and len(found) == 3 and {*found} <= {*"ABC"}
    )
    left = "A and B, with 0.67 and 0.33", "A alone, which reaches 0.7", "A and B, with 0.8 and 0.2"
    for case, letter, right, what in zip((1, 2, 3), found, "BAB", left):
        claim(f"in case {case} what is left is {what}", letter == right)


def grade_10a_1(answer: Answer) -> None:
    """Against every length that the live hypothesis may end with."""
    for length, max_length in ((1, 2), (2, 3), (2, 10), (5, 6), (5, 40)):
        for alpha in (0.0, 0.5, 1.0, 2.0):
            for live in (-1.0, -4.0, -20.0):
                reach = max(live / end**alpha for end in range(length + 1, max_length + 1))
                cases = [(reach + 0.01, True), (reach - 0.01, False)]
                if alpha == 0:  # the divisor is exactly 1, and so equal is equal
                    cases.append((reach, True))
                for finished, safe in cases:
                    found = answer(finished, live, length, alpha, max_length)
                    expect(f"the answer, if the live one can reach {reach:.4g},", found, safe)


def _hidden(words: tuple[str, ...]) -> dict[str, float]:
    """'A C C end' is the best, and twenty beginnings of three words are better than 'A C C'."""
    rows = {
        (): (0.10, 0.45, 0.449, 0.001), ("A",): (0.04, 0.03, 0.92, 0.01), ("A", "C"): (0.35, 0.33, 0.31, 0.01),
        ("A", "C", "C"): (0.01, 0.01, 0.01, 0.97),
    }  # fmt: skip
    return dict(zip(("A", "B", "C", "end"), rows.get(tuple(words), (0.34, 0.33, 0.32, 0.01))))


def grade_10a_2(answer: Answer) -> None:
    """Against all sentences of at most six tokens, and with a count of the questions."""
    generator = torch.Generator().manual_seed(5)
    models: list[Chances] = []
    for number in range(12):
        spread = 1.0 + number % 3
        rows = (spread * torch.randn(4, 4, generator=generator, dtype=torch.float64)).softmax(-1).tolist()
        table = {last: dict(zip(("A", "B", "C", "end"), row)) for last, row in zip(("start", "A", "B", "C"), rows)}
        models.append(by_last_word(table))
    for chances in (*models, _hidden):
        asked: set[tuple[str, ...]] = set()

        def next_log_probs(
            words: tuple[str, ...], chances: Chances = chances, asked: set[tuple[str, ...]] = asked
        ) -> dict[str, float]:
            """The logarithms, and a note of the question."""
            asked.add(tuple(words))
            return {word: math.log(p) for word, p in chances(words).items()}

        (best, words), *_ = every_sentence(chances, 6)
        found = answer(next_log_probs, 6)
        claim("it returns a pair", isinstance(found, tuple | list) and len(found) == 2)
        expect("the best sentence", found[1], words, {"the end token is not one of the words": (*words, "end")})
        expect("its log-probability", found[0], math.log(best), {"this is the probability, not its logarithm": best})
        claim(f"fewer than 73 of the 364 beginnings are looked at, not {len(asked)}", len(asked) < 73)


def grade_10b_1(answer: Answer) -> None:
    """Every draw of the tiny model, every decision and every replacement, one after the other."""
    cases = [
        ([1.0], [1.0], [1.0]), ([0.5, 0.5], [0.5, 0.5], [0.25, 0.75]), ([0.5, 0.5], [0.25, 0.75], [0.5, 0.5]),
        ([1.0, 0.0], [0.5, 0.5], [0.0, 1.0]), ([0.2, 0.5, 0.3], [0.5, 0.3, 0.2], [0.1, 0.1, 0.8]),
    ]  # fmt: skip
    cases += [tuple(random(3, 6, seed=seed).softmax(-1).tolist()) for seed in range(3)]
    for tiny, middle, large in cases:
        held = [q * min(1.0, p / q) if q else 0.0 for p, q in zip(middle, tiny)]  # drawn and kept by the first rule
        missing = [max(0.0, p - q) for p, q in zip(middle, tiny)]
        first = [h + (1 - sum(held)) * m / (sum(missing) or 1.0) for h, m in zip(held, missing)]
        keep = [min(1.0, p / q) if q else 0.0 for p, q in zip(large, first)]
        replaced = 1 - sum(q * k for q, k in zip(first, keep))
        missing = [max(0.0, p - q) for p, q in zip(large, first)]
        last = [q * k + replaced * m / (sum(missing) or 1.0) for q, k, m in zip(first, keep, missing)]
        both = sum(h * k for h, k in zip(held, keep))
        result = answer(list(tiny), list(middle), list(large))
        claim("it returns a pair", isinstance(result, tuple | list) and len(result) == 2)
        after = {"these come out of the first rule, not of both": middle, "these are the tiny model's": tiny}
        expect("the list of the final probabilities", list(result[1]), last, after)
        known = {
            "the second rule divides by middle, not by what the first rule kept": sum(map(min, tiny, middle, large)),
            "the tokens that the first rule keeps are not distributed like middle": sum(held)
            * sum(map(min, middle, large)),
            "this is the probability that the first rule keeps the token": sum(held),
        }
        expect("the probability that both rules keep the token", result[0], both, known)


def grade_10c_1(answer: Answer) -> None:
    """Every short prefix, for lists in which sentences begin alike, contain one another, or are empty."""
    logits = torch.randn(6, generator=torch.Generator().manual_seed(0))
    for sentences in ([(1,)], [(1, 2), (3, 4)], [(1,), (1, 2), (1, 2, 3)], [(2, 2), (2, 3), (4,)], [()], []):
        for prefix in (prefix for n in range(4) for prefix in product(range(1, 5), repeat=n)):
            given = logits.clone()
            result = answer(given, prefix, list(sentences), 5)
            whole = isinstance(result, Tensor) and result.shape == logits.shape
            claim("the answer is a tensor of the shape of the logits", whole)
            claim("the logits that were given stay as they were", torch.equal(given, logits))
            for token in range(6):
                longer = (*prefix, token)
                may = prefix in sentences if token == 5 else any(s[: len(longer)] == longer for s in sentences)
                name = "the end token" if token == 5 else f"token {token}"
                text = f"after {prefix}, with {sentences} allowed, {name} {'may' if may else 'may not'} follow"
                claim(text, float(result[token]) == (float(logits[token]) if may else -torch.inf))
