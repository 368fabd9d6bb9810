"""The word aligner of the record: it must find links that a reader can check."""

from aligner import align, dictionary, words

SENTENCES = {
    "a dog runs": "ein Hund läuft", "a cat runs": "ein Kater läuft", "a dog sleeps": "ein Hund schläft",
    "the cat has slept": "der Kater hat geschlafen", "the cat has the ball": "der Kater hat den Ball",
    "the dog has the ball seen": "der Hund hat den Ball gesehen", "a dog": "ein Hund",
}  # fmt: skip
PAIRS = [(words(source), words(target)) for source, target in SENTENCES.items()]


def test_words_that_come_together_are_linked():
    links = align(PAIRS)
    assert links[0] == links[1] == links[2] == [(0, 0), (1, 1), (2, 2)]
    learnt = dictionary(PAIRS)
    for source, target in zip("a dog cat runs sleeps ball".split(), "ein Hund Kater läuft schläft Ball".split()):
        assert learnt[source] == target


def test_another_order_is_found():
    """Words are linked by what they mean, not only by where they stand."""
    pairs = [*PAIRS * 5, (words("runs a dog"), words("ein Hund läuft"))]
    assert align(pairs)[-1] == [(0, 2), (1, 0), (2, 1)]


def test_a_word_that_has_no_counterpart_stays_without():
    pairs = [*PAIRS, *[(words("a dog"), words("ja ein Hund")), (words("the cat"), words("ja der Kater"))] * 3]
    assert align(pairs)[-2:] == [[(0, 1), (1, 2)]] * 2
