# Generated from chapters/11_translation.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 11 and its pages in depth."""

import random

from transformer_lib.exercises.grading import Answer, claim, same


def grade_11_1(answer: Answer) -> None:
    """Short lists by hand, then a mistake that is planted."""
    for said, right, expected in (
        (["a"], ["b"], 0), (["a"], ["a"], None), (["a", "b"], ["a", "c"], 1), (["a"], ["a", "b"], 1),
        (["a", "b"], ["a"], 1), ([], ["a"], 0), (["b", "a"], ["a", "b"], 0), (["a", "a"], ["a", "b"], 1),
        (["x", "b"], ["a", "b", "c"], 0), (["a", "b", "c"], ["a", "x", "c"], 1), ([], [], None),
    ):  # fmt: skip
        given = answer(list(said), list(right))
        claim(f"it is {expected}", given is None if expected is None else same(given, expected, 0))
    words = list("abcdefghij")
    for place in range(10):
        wrong = [*words[:place], "x", *words[place + 1 :]]
        claim(f"it is {place}", same(answer(wrong, list(words)), place, 0))


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
        claim("the result is a list", isinstance(given, list))
        claim("each sentence has its own answer, in its place", given == [sentence.upper() for sentence in sentences])
        lengths = [len(sentence) for batch in batches for sentence in batch]
        claim("the batches go from short to long", lengths == sorted(map(len, sentences)))
        most = -(-len(sentences) // size)
        claim(
            f"lists of at most {size}: as few as possible are {most}",
            len(batches) == most and max(map(len, batches)) <= size,
        )
