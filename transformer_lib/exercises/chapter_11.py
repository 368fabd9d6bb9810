# Generated from chapters/11_translation.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 11 and its pages in depth."""

import math
from collections import Counter

from transformer_lib.exercises.grading import Answer, claim, expect

FAULTS = {  # and where one sees it
    "A": (5, "to which noun does each adjective go?"),
    "B": (4, "what can be learned perfectly in seventy steps?"),
    "C": (3, "what keeps each token from getting a large probability?"),
    "D": (1, "the loss is right, and the words repeat: what does the decoder see in training only?"),
    "E": (2, "the words are right at first: what is missing at their end?"),
    "F": (6, "the loss falls fast, and then no further: what if each step goes too far?"),
}


def grade_11_1(answer: Answer) -> None:
    """Each training by itself; a wrong one gets a question."""
    found = answer()
    right = isinstance(found, dict) and found.keys() == FAULTS.keys()
    claim("it is a dictionary whose keys are the letters A to F", right)
    for letter, (number, question) in FAULTS.items():
        claim(f"the fault of {letter} is found ({question})", type(found[letter]) is int and found[letter] == number)


def _bleu(
    translations: list[list[str]], references: list[list[str]], *, clip: bool = True, short: bool = True
) -> float:
    """BLEU without smoothing; not clip: an n-gram counts as often as it is said; not short: there is no penalty."""
    product = 1.0
    for n in (1, 2, 3, 4):
        shared = all_of_them = 0
        for rows in zip(translations, references):
            ours, theirs = (Counter(tuple(row[i : i + n]) for i in range(len(row) - n + 1)) for row in rows)
            shared += sum(min(count, theirs[gram]) if clip else count for gram, count in ours.items() if theirs[gram])
            all_of_them += ours.total()
        product *= shared / max(1, all_of_them)
    c, r = (sum(map(len, side)) for side in (translations, references))
    return 100 * product**0.25 * (min(1.0, math.exp(1 - r / c)) if short else 1.0)


def grade_11_2(answer: Answer) -> None:
    """One pair, then several: repeated words, a short translation, one that shares nothing."""
    cases = [
        (["a b c d e f"], ["a b c d e f"]), (["a b c d x f g h"], ["a b c d e f g h"]),
        (["a b c d"], ["a b c d e f g h"]), (["a a b c d a"], ["a b c d e f"]), (["a b"], ["c d"]),
        (["a b c d e", "p q r s t u v w"], ["a b c d e", "p q r s x u y w"]),
        (["a b c d e f g", "p q"], ["a b c d e", "p q r s"]),
    ]  # fmt: skip
    for case in cases:
        ours, theirs = ([sentence.split() for sentence in side] for side in case)
        alone = [_bleu([x], [y]) for x, y in zip(ours, theirs)]
        known = {
            "this is the mean of the sentences' scores; add the counts up first": sum(alone) / len(alone),
            "the penalty for short translations is missing or has no effect (is it r / c, counted in words?)": _bleu(
                ours, theirs, short=False
            ),
            "an n-gram counts at most as often as the reference has it": _bleu(ours, theirs, clip=False),
            "BLEU is multiplied by 100": _bleu(ours, theirs) / 100,
        }
        expect("BLEU", answer(ours, theirs), _bleu(ours, theirs), known, 1e-9)
