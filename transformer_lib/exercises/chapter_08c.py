# Generated from chapters/08c_corpora.md: edit it there and `make export`, or here and `make sync`.

"""The grader of chapter 08c."""

from transformer_lib.exercises import Answer, Checks


def grade_08c_1(answer: Answer) -> Checks:
    """Ends of lines of all kinds; characters that look like ends and are none."""
    cases: list[tuple[str, list[str]]] = [
        ("", []), ("a", ["a"]), ("a\n", ["a"]), ("\n", [""]), ("a\n\n", ["a", ""]), ("\na", ["", "a"]),
        ("a\r\nb\r\n", ["a", "b"]), ("a\r", ["a"]), ("a\r\r\n", ["a\r"]), ("a\rb", ["a\rb"]), ("\r\n\r\n", ["", ""]),
        ("\ufeffa\nb", ["a", "b"]), ("a\n\ufeffb", ["a", "\ufeffb"]), (" a \n\tb\n", [" a ", "\tb"]),
        ("größer\n", ["größer"]),
    ]  # fmt: skip
    cases += [(f"a{odd}b\n{odd}\n", [f"a{odd}b", odd]) for odd in "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\xa0\0"]
    for text, wanted in cases:
        yield f"the lines are {wanted!r}", answer(text.encode()) == wanted
