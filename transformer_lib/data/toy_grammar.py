# Generated from chapters/09_data.md: edit the chapter, not this file, then run `make export`.

"""A small English-to-German grammar. It writes random pairs, and it translates any sentence that it covers."""

import random
import re
from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

from transformer_lib.serialization import InputError

BEINGS = {
    "man": "der Mann", "king": "der König", "boy": "der Junge/Jungen", "dog": "der Hund", "bear": "der Bär/Bären",
    "woman": "die Frau", "queen": "die Königin", "sister": "die Schwester", "cat": "die Katze", "mouse": "die Maus",
    "child": "das Kind", "girl": "das Mädchen", "horse": "das Pferd", "sheep": "das Schaf", "pig": "das Schwein",
}  # fmt: skip
THINGS = {
    "ball": "der Ball", "apple": "der Apfel", "key": "der Schlüssel", "lamp": "die Lampe",
    "flower": "die Blume", "bag": "die Tasche", "book": "das Buch", "picture": "das Bild",
}  # fmt: skip
PLACES = {
    "garden": "der Garten", "forest": "der Wald", "city": "die Stadt", "church": "die Kirche",
    "school": "die Schule", "house": "das Haus", "castle": "das Schloss",
}  # fmt: skip
NOUNS = BEINGS | THINGS | PLACES
ADJECTIVES = {
    "old": "alt", "new": "neu", "small": "klein", "big": "groß", "beautiful": "schön", "strange": "seltsam",
    "quiet": "ruhig", "famous": "berühmt", "loud": "laut", "funny": "lustig", "wet": "nass", "grey": "grau",
}  # fmt: skip
PREPOSITIONS = {
    "with": ("mit", THINGS), "in": ("in", PLACES), "behind": ("hinter", PLACES),
    "next to": ("neben", PLACES), "in front of": ("vor", PLACES),
}  # fmt: skip
CONJUNCTIONS = {"and": "und", "but": "aber"}

NO_OBJECT = {"sleeps": "schläft", "laughs": "lacht", "waits": "wartet", "gets up": "steht auf", "arrives": "kommt an"}
ANYTHING = {"sees": "sieht", "finds": "findet", "loves": "liebt", "looks at": "sieht an"}
SOMEBODY = {"calls": "ruft an", "invites": "lädt ein"}
TO_SOMEBODY = {"helps": "hilft", "follows": "folgt", "listens to": "hört zu"}
TWO_OBJECTS = {"gives": "gibt", "shows": "zeigt"}
THAT_CLAUSE = {"says": "sagt", "knows": "weiß"}
ONE_OBJECT = ANYTHING | SOMEBODY | TO_SOMEBODY
VERBS = NO_OBJECT | ONE_OBJECT | TWO_OBJECTS | THAT_CLAUSE
FRAMES: list[tuple[dict[str, str], list[tuple[str, dict[str, str]]]]] = [
    (NO_OBJECT | THAT_CLAUSE, []),
    (ANYTHING, [("accusative", BEINGS | THINGS)]),
    (SOMEBODY, [("accusative", BEINGS)]),
    (TO_SOMEBODY, [("dative", BEINGS)]),
    (TWO_OBJECTS, [("dative", BEINGS), ("accusative", THINGS)]),
]
OBJECTS = {verb: objects for verbs, objects in FRAMES for verb in verbs}

ARTICLES = {
    ("the", "nominative"): "der die das", ("a", "nominative"): "ein eine ein",
    ("the", "accusative"): "den die das", ("a", "accusative"): "einen eine ein",
    ("the", "dative"): "dem der dem", ("a", "dative"): "einem einer einem",
}  # fmt: skip
ENDINGS = {
    ("the", "nominative"): "e e e", ("a", "nominative"): "er e es",
    ("the", "accusative"): "en e e", ("a", "accusative"): "en e es",
    ("the", "dative"): "en en en", ("a", "dative"): "en en en",
}  # fmt: skip


def _inflect(article: str, adjective: str, noun: str, case: str) -> str:
    """Article, adjective (or "") and noun, given in English, as they stand in a German sentence."""
    definite, forms = NOUNS[noun].split()
    gender = _GENDERS.index(definite)
    words = [ARTICLES[article, case].split()[gender]]
    if adjective:
        words.append(ADJECTIVES[adjective] + ENDINGS[article, case].split()[gender])
    return " ".join([*words, forms.split("/")[0 if case == "nominative" else -1]])


_GENDERS = ["der", "die", "das"]


class _Clause(NamedTuple):
    """A German clause in parts, before its word order is chosen."""

    subject: str
    verb: str
    particle: str  # "an" in "ruft … an", or ""
    middle: str  # objects and places
    tail: str  # a clause with "dass", or ""

    def plain(self) -> str:
        return f"{self.subject} {self.verb} {self.middle} {self.particle} {self.tail}"

    def inverted(self) -> str:
        return f"{self.verb} {self.subject} {self.middle} {self.particle} {self.tail}"

    def verb_last(self) -> str:
        return f"{self.subject} {self.middle} {self.particle}{self.verb} {self.tail}"


class _Grammar:
    """English as a series of choices. Each method makes some of them and returns the German that they mean."""

    def choose(self, options: Collection[str]) -> str:
        """The next English word, one of `options`."""
        raise NotImplementedError

    def comes(self, options: Collection[str], chance: float) -> bool:
        """Whether the next English word is one of `options`, where something else may stand as well."""
        raise NotImplementedError

    def noun_phrase(self, case: str, nouns: dict[str, str], *, place: bool = False, relative: bool = False) -> str:
        article = self.choose(["the", "a"])
        adjective = self.choose(ADJECTIVES) if self.comes(ADJECTIVES, 0.4) else ""
        noun = self.choose(nouns)
        german = _inflect(article, adjective, noun, case)
        if place and self.comes(PREPOSITIONS, 0.12):
            return f"{german} {self.place()}"
        if relative and noun in BEINGS and self.comes(["that"], 0.15):
            return f"{german} , {self.relative_clause(_GENDERS.index(NOUNS[noun][:3]))} ,"
        return german

    def place(self) -> str:
        preposition, nouns = PREPOSITIONS[self.choose(PREPOSITIONS)]
        return f"{preposition} {self.noun_phrase('dative', nouns)}"

    def objects(self, verb: str, *, relative: bool = False) -> str:
        phrases = [self.noun_phrase(case, nouns) for case, nouns in OBJECTS[verb][:-1]]
        for case, nouns in OBJECTS[verb][-1:]:
            phrases.append(self.noun_phrase(case, nouns, relative=relative))
        return " ".join(phrases)

    def relative_clause(self, gender: int) -> str:
        self.choose(["that"])
        if self.comes(["the", "a"], 0.4):  # "that the cat sees"
            subject = self.noun_phrase("nominative", BEINGS)
            verb = self.choose(ONE_OBJECT)
            case, middle = OBJECTS[verb][0][0], subject
        else:  # "that sees the cat"
            verb = self.choose(NO_OBJECT | ONE_OBJECT)
            case, middle = "nominative", self.objects(verb)
        finite, _, particle = VERBS[verb].partition(" ")
        return _Clause(ARTICLES["the", case].split()[gender], finite, particle, middle, "").verb_last()

    def clause(self, *, main: bool) -> _Clause:
        subject = self.noun_phrase("nominative", BEINGS, place=True, relative=main)
        verb = self.choose(VERBS)
        finite, _, particle = VERBS[verb].partition(" ")
        middle, tail = self.objects(verb, relative=main and not particle), ""
        if verb in NO_OBJECT and self.comes(PREPOSITIONS, 0.4):
            middle = self.place()
        if verb in THAT_CLAUSE:
            self.choose(["that"])
            tail = f", dass {self.clause(main=False).verb_last()} ,"
        return _Clause(subject, finite, particle, middle, tail)

    def sentence(self) -> str:
        if self.comes(["because"], 0.1):
            self.choose(["because"])
            german = f"weil {self.clause(main=False).verb_last()} , "
            self.choose([","])
            german += self.clause(main=True).inverted()
        else:
            german = self.clause(main=True).plain()
            if self.comes(["because"], 0.15):
                self.choose(["because"])
                german += f" , weil {self.clause(main=False).verb_last()}"
        while self.comes([","], 0.15):
            self.choose([","])
            german += f" , {CONJUNCTIONS[self.choose(CONJUNCTIONS)]} {self.clause(main=True).plain()}"
        self.choose(["."])
        german = re.sub(r"[ ,]*,[ ,]*", ", ", " ".join(german.split())).rstrip(", ")  # one comma where two clauses end
        german = re.sub(r"\bin dem\b", "im", german)
        return german[0].upper() + german[1:] + "."


class _Writer(_Grammar):
    """Decides at random; `eagerness` multiplies the chance of everything that may be left out."""

    def __init__(self, rng: random.Random, eagerness: float) -> None:
        self.rng, self.eagerness, self.words = rng, eagerness, list[str]()

    def choose(self, options: Collection[str]) -> str:
        self.words.append(list(options)[int(self.rng.random() * len(options))])
        return self.words[-1]

    def comes(self, options: Collection[str], chance: float) -> bool:
        return self.rng.random() < chance * self.eagerness


class _Reader(_Grammar):
    """Decides as a given English sentence does."""

    def __init__(self, english: str) -> None:
        apart = re.sub(r"\b([Aa])n ", r"\1 ", re.sub("(?=[,.])", " ", english))
        self.rest, self.words = apart[:1].lower() + apart[1:] + " ", list[str]()

    def _matching(self, options: Collection[str]) -> list[str]:
        return [option for option in options if self.rest.startswith(option + " ")]

    def choose(self, options: Collection[str]) -> str:
        if not self._matching(options):
            raise InputError(
                f"not a sentence of the toy grammar: expected one of {', '.join(map(repr, options))}; "
                f"got {self.rest.strip()!r}"
            )
        self.words.append(max(self._matching(options), key=len))  # "in front of" rather than "in"
        self.rest = self.rest[len(self.words[-1]) + 1 :]
        return self.words[-1]

    def comes(self, options: Collection[str], chance: float) -> bool:
        return bool(self._matching(options))


def _spell(words: list[str]) -> str:
    """English words as a sentence: a capital, "an" before a vowel, no space before comma and full stop."""
    english = re.sub(r"\ba (?=[aeiou])", "an ", re.sub(" (?=[,.])", "", " ".join(words)))
    return english[0].upper() + english[1:]


def toy_sentence(rng: random.Random, *, eagerness: float = 1.0) -> tuple[str, str]:
    """Write a random sentence of the toy grammar.

    Args:
        rng: where the random numbers come from; only its `random()` is used, which is the same in every Python.
        eagerness: multiplies the chance of every adjective, place and further clause.

    Returns:
        The English sentence and its German translation.
    """
    writer = _Writer(rng, eagerness)
    german = writer.sentence()
    return _spell(writer.words), german


def toy_oracle(english: str) -> str:
    """Translate a sentence of the toy grammar by parsing it.

    Args:
        english: one sentence, spelled as the grammar spells it: capital, commas, full stop, "an" before a vowel.

    Returns:
        The German translation that the grammar defines.

    Raises:
        InputError: the sentence is not of the grammar; the message says where, or how it is spelled.
    """
    reader = _Reader(english)
    try:
        german = reader.sentence()
    except RecursionError:  # of the grammar, but nobody could follow it
        raise InputError("not a sentence of the toy grammar: expected fewer clauses inside one another") from None
    if english != _spell(reader.words):
        raise InputError(f"not a sentence of the toy grammar: expected {_spell(reader.words)!r}; got {english!r}")
    return german


HELD_OUT = {
    (adjective, noun) for i, adjective in enumerate(ADJECTIVES) for j, noun in enumerate(NOUNS) if (2 * i + j) % 7 == 0
}
LONGEST_IN_TRAIN, LONGEST = 14, 24  # words


def toy_split(english: str) -> str | None:
    """Say to which split a sentence of the toy grammar belongs; None if to none, since it is too hard for all."""
    words = re.findall(r"\w+", english)
    new, long = bool(set(pairwise(words)) & HELD_OUT), len(words) > LONGEST_IN_TRAIN
    if len(words) > LONGEST or (new and long):
        return None
    if new or long:
        return "test" if new else "long"
    return "val" if crc32(english.encode()) % 10 == 0 else "train"
