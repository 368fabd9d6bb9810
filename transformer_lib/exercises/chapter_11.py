# Generated from chapters/11_translation.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 11 and its pages in depth."""

import random

from transformer_lib.exercises.grading import Answer, claim, expect


def grade_11_1(answer: Answer) -> None:
    """Short lists by hand, then a mistake that is planted."""
    cases: list[tuple[list[str], list[str], int | None]] = [
        (["a"], ["b"], 0), (["a"], ["a"], None), (["a", "b"], ["a", "c"], 1), (["a"], ["a", "b"], 1),
        (["a", "b"], ["a"], 1), ([], ["a"], 0), (["b", "a"], ["a", "b"], 0), (["a", "a"], ["a", "b"], 1),
        (["x", "b"], ["a", "b", "c"], 0), (["a", "b", "c"], ["a", "x", "c"], 1), ([], [], None),
    ]  # fmt: skip
    words = list("abcdefghij")
    cases += [([*words[:place], "x", *words[place + 1 :]], words, place) for place in range(10)]
    for said, right, expected in cases:
        pairs = [a == b for a, b in zip(said, right)]
        first = pairs.index(False) if False in pairs else None
        known = {
            "zip stops at the end of the shorter list, and what is missing is a mistake": first,
            "this is the number of equal pairs, also behind the first mistake": sum(pairs),
        }
        expect("the number of words", answer(list(said), list(right)), expected, known)


def grade_11_2(answer: Answer) -> None:
    """The batches are written down, and the answers are the sentences in capitals."""
    generator = random.Random(0)
    many = ["".join(generator.choices("abc", k=generator.randint(1, 9))) for _ in range(20)]
    for sentences, size in ((["a"], 1), (["bb", "a"], 1), (["bb", "a"], 2), (["ccc", "a", "bb", "a"], 2), (many, 7)):
        batches: list[list[str]] = []

        def upper(batch: list[str], batches: list[list[str]] = batches) -> list[str]:
            batches.append(list(batch))
            return [sentence.upper() for sentence in batch]

        given = answer(list(sentences), upper, size)
        right, by_length = ([s.upper() for s in order] for order in (sentences, sorted(sentences, key=len)))
        unsorted = {"the translations are in the order of the lengths, not in that of the sentences": by_length}
        expect("the list of translations", given, right, unsorted)
        lengths = [len(sentence) for batch in batches for sentence in batch]
        claim("the batches go from short to long", lengths == sorted(map(len, sentences)))
        most = -(-len(sentences) // size)
        few = len(batches) == most and max(map(len, batches)) <= size
        claim(f"lists of at most {size}: as few as possible are {most}", few)
