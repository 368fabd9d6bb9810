# Generated from chapters/A_command_line.md: edit it there and `make export`, or here and `make sync`.

"""The graders of the appendix on the command line."""

from transformer_lib.data import read_lines
from transformer_lib.exercises.grading import Answer, claim, expect
from transformer_lib.files import InputError


def _shout(sentence: str) -> str:
    if not sentence.strip():
        raise ValueError("there is nothing to translate")
    return " ".join(sentence.upper().replace("?", "").split())


def grade_A_1(answer: Answer) -> None:
    """Lines as the library reads them."""
    for text in (
        "", "a\n", "a", "\n", "a\nb", "a\n\nb\n", "\n\n", "a\r\nb\r\n", " \na\n", "?\na\n", "a\u2028b\n", "a\fb\rc\n",
    ):  # fmt: skip
        lines = read_lines("the text", text.encode())
        expected = "".join((_shout(line) if line.strip() else "") + "\n" for line in lines)
        known = {
            "blank lines are lost, and all that follows is out of step": expected.replace("\n\n", "\n").removeprefix(
                "\n"
            ),
            "splitlines cuts at characters that do not end a line": "".join(
                (_shout(line) if line.strip() else "") + "\n" for line in text.splitlines()
            ),
            "the last line ends with a newline, too": expected.removesuffix("\n"),
        }
        expect("the output", answer(text, _shout), expected, known)


def _raises(error: BaseException) -> Answer:
    def command() -> bool:
        raise error

    command.__name__ = f"a command that raises {type(error).__name__}"
    return command


def grade_A_2(answer: Answer) -> None:
    """A command for each row of the table, and the exceptions that look like another."""
    for status, command, words in (
        (0, lambda: True, ""),
        (1, lambda: False, ""),
        (2, _raises(InputError("no file x")), "error: no file x"),
        (2, _raises(InputError("no file x\n  of yours\n")), "error: no file x of yours"),
        (0, _raises(BrokenPipeError()), ""),
        (130, _raises(KeyboardInterrupt()), "stopped"),
        (2, _raises(ZeroDivisionError("by\nzero")), "ZeroDivisionError"),
        (2, _raises(ValueError("x")), "ValueError"),  # an InputError is one, too
        (2, _raises(FileNotFoundError("x")), "FileNotFoundError"),  # an OSError, as a broken pipe is
    ):
        try:
            ended, line = answer(command)
        except KeyboardInterrupt:
            claim("Ctrl-C ends in a status and a line", False)
            return
        expect("the status", ended, status)
        claim("the second value is a string of at most one line", isinstance(line, str) and len(line.splitlines()) <= 1)
        if status == 130:
            claim("the line is not empty", bool(line.strip()))
        elif words.startswith("error: ") or not words:
            expect("the line", line, words)
        else:
            claim(f"the line begins with 'error: ' and names {words}", line.startswith("error: ") and words in line)
