# Generated from chapters/11a_toy_grammar.md: edit it there and `make export`, or here and `make sync`.

"""A small English-to-German grammar. It writes random pairs, and it translates any sentence that it covers."""

import random
import re
from collections.abc import Callable, Collection

from transformer_lib.files import InputError

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
OBJECTS: dict[str, tuple[tuple[str, dict[str, str]], ...]] = {
    **dict.fromkeys(NO_OBJECT | THAT_CLAUSE, ()),
    **dict.fromkeys(ANYTHING, (("accusative", BEINGS | THINGS),)),
    **dict.fromkeys(SOMEBODY, (("accusative", BEINGS),)),
    **dict.fromkeys(TO_SOMEBODY, (("dative", BEINGS),)),
    **dict.fromkeys(TWO_OBJECTS, (("dative", BEINGS), ("accusative", THINGS))),
}

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

ORDERS = {
    "plain": "{subject} {verb} {middle} {particle} {tail}",
    "inverted": "{verb} {subject} {middle} {particle} {tail}",
    "verb last": "{subject} {middle} {particle}{verb} {tail}",
}


def _clause(order: str, subject: str, verb: str, middle: str, tail: str = "") -> str:
    """A German clause in one of the orders; the verb is given in English, the rest in German."""
    finite, _, particle = VERBS[verb].partition(" ")
    return ORDERS[order].format(subject=subject, verb=finite, particle=particle, middle=middle, tail=tail)


class _Grammar:
    """English as a series of choices. Each method makes some of them and returns the German that they mean."""

    choose: Callable[[Collection[str]], str]  # the next English word, one of these
    comes: Callable[[Collection[str], float], bool]  # is it one of these, where something else may stand as well?

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
        objects = OBJECTS[verb]  # only the last one may have a relative clause
        return " ".join(
            self.noun_phrase(case, nouns, relative=relative and number == len(objects))
            for number, (case, nouns) in enumerate(objects, start=1)
        )

    def relative_clause(self, gender: int) -> str:
        self.choose(["that"])
        if self.comes(["the", "a"], 0.4):  # "that the cat sees"
            middle = self.noun_phrase("nominative", BEINGS)
            verb = self.choose(ONE_OBJECT)
            case = OBJECTS[verb][0][0]
        else:  # "that sees the cat"
            verb = self.choose(NO_OBJECT | ONE_OBJECT)
            case, middle = "nominative", self.objects(verb)
        return _clause("verb last", ARTICLES["the", case].split()[gender], verb, middle)

    def clause(self, order: str) -> str:
        main = order != "verb last"
        subject = self.noun_phrase("nominative", BEINGS, place=True, relative=main)
        verb = self.choose(VERBS)
        middle, tail = self.objects(verb, relative=main and " " not in VERBS[verb]), ""
        if verb in NO_OBJECT and self.comes(PREPOSITIONS, 0.4):
            middle = self.place()
        if verb in THAT_CLAUSE:
            self.choose(["that"])
            tail = f", dass {self.clause('verb last')} ,"
        return _clause(order, subject, verb, middle, tail)

    def sentence(self) -> str:
        if self.comes(["because"], 0.1):
            self.choose(["because"])
            german = f"weil {self.clause('verb last')} , "
            self.choose([","])
            german += self.clause("inverted")
        else:
            german = self.clause("plain")
            if self.comes(["because"], 0.15):
                self.choose(["because"])
                german += f" , weil {self.clause('verb last')}"
        while self.comes([","], 0.15):
            self.choose([","])
            german += f" , {CONJUNCTIONS[self.choose(CONJUNCTIONS)]} {self.clause('plain')}"
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

    def choose(self, options: Collection[str]) -> str:
        matching = [option for option in options if self.rest.startswith(option + " ")]
        if not matching:
            expected = ", ".join(map(repr, options))
            raise InputError(
                f"not a sentence of the toy grammar: expected one of {expected}; got {self.rest.strip()!r}"
            )
        self.words.append(max(matching, key=len))  # "in front of" rather than "in"
        self.rest = self.rest[len(self.words[-1]) + 1 :]
        return self.words[-1]

    def comes(self, options: Collection[str], chance: float) -> bool:
        return any(self.rest.startswith(option + " ") for option in options)


def _spell(words: list[str]) -> str:
    """English words as a sentence: a capital, "an" before a vowel, no space before comma and full stop."""
    english = re.sub(r"\ba (?=[aeiou])", "an ", re.sub(" (?=[,.])", "", " ".join(words)))
    return english[0].upper() + english[1:]


def toy_sentence(rng: random.Random, *, eagerness: float = 1.0) -> tuple[str, str]:
    """A random English sentence of the toy grammar and its German translation.

    Args:
        rng: only its `random()` is used, which is the same in every Python.
        eagerness: multiplies the chance of every adjective, place and further clause.
    """
    writer = _Writer(rng, eagerness)
    german = writer.sentence()
    return _spell(writer.words), german


def toy_oracle(english: str) -> str:
    """The German translation of a sentence of the toy grammar, found by parsing it.

    Args:
        english: spelled as the grammar spells it: capital, commas, full stop, "an" before a vowel.

    Raises:
        InputError: the sentence is not of the grammar; the message says where, or how it is spelled.
    """
    reader = _Reader(english)
    try:
        german = reader.sentence()
    except RecursionError:
        raise InputError("not a sentence of the toy grammar: expected fewer clauses inside one another") from None
    if english != _spell(reader.words):
        raise InputError(f"not a sentence of the toy grammar: expected {_spell(reader.words)!r}; got {english!r}")
    return german
