# Generated from chapters/08a_bpe.md: edit it there and `make export`, or here and `make sync`.

"""The grader of chapter 08a."""

from transformer_lib.exercises import Answer, Checks


def _glued(pieces: list[str], left: str, right: str) -> list[str]:
    """One merge, from left to right."""
    if len(pieces) < 2:
        return pieces
    if pieces[0] == left and pieces[1] == right:
        return [left + right, *_glued(pieces[2:], left, right)]
    return [pieces[0], *_glued(pieces[1:], left, right)]


def grade_08a_1(answer: Answer) -> Checks:
    """Short words first; then merges that overlap, and merges whose order matters."""
    lists = [[], [("a", "b")], [("a", "a")], [("b", "c"), ("a", "b")], [("a", "b"), ("ab", "c"), ("c", "ab")]]
    words = ["", "a", "ab", "ba", "aaa", "aaaa", "abc", "abcab", "cabcabba"]
    for merges in lists:
        for word in words:
            wanted = list(word)
            for left, right in merges:
                wanted = _glued(wanted, left, right)
            pieces = answer(word, merges)
            strings = isinstance(pieces, list) and all(isinstance(piece, str) for piece in pieces)
            yield "put together, the pieces are the word", strings and "".join(pieces) == word
            yield "every merge is applied in turn, from left to right", pieces == wanted
