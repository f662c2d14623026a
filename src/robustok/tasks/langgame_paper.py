"""The questions of LangGame in the paper's format, after the generator of StochasTok (Sims et al.).

A question has a head, a predicate and a list of the options, in one of two orders; every part has
several wordings, each drawn uniformly. The right option differs from the wrong ones by a margin:
"the most letter 'b's" has at least two of it and the others at most one.

    Which choice has the most letter 'b's? These are the possible option words: [ up, baby, rain,
    glad]. Answer:

The answer is a space and " baby": a lone space token and then the word with its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

PLURAL = ("options", "choices", "option words", "option strings")
SINGULAR = ("word", "", "string", "option", "choice", "option word", "option string")
ARTICLE = ("the", "the possible", "the available")
HEADS = ("Which {singular}", "What {singular}", "Which of {article} {plural}")
LISTINGS = ("{article} {plural}:", "{article} {plural} are:", "these are {article} {plural}:")
PREDICATES = {
    "most": "has the most letter '{x}'s?",
    "contains": "contains '{x}'?",
    "starts": "starts with '{x}'?",
    "ends": "ends with '{x}'?",
    "longest": "is the longest?",
    "shortest": "is the shortest?",
}
SEPARATOR = "  "  # between "Answer:" and an option: a lone space token, and the word's own space

_OPTIONS = 4
_LONGEST_PART = 3  # letters of a string to contain, to start or to end with
_TRIES = 200


class Wording(NamedTuple):
    """One choice of each part of the grammar."""

    plural: str
    singular: str
    article: str
    head: str
    listing: str
    question_first: bool

    def text(self, kind: str, letters: str, options: Sequence[str]) -> str:
        """The question in this wording, up to and with ``Answer:``."""
        parts = {"plural": self.plural, "singular": self.singular, "article": self.article}
        head = self.head.format(**parts).rstrip()
        asks = f"{head} {PREDICATES[kind].format(x=letters)}"
        lists = f"{self.listing.format(**parts)} [ {', '.join(options)}]."
        both = (asks, lists) if self.question_first else (lists, asks)
        return " ".join([*(part[0].upper() + part[1:] for part in both), "Answer:"])


def wordings() -> Iterator[Wording]:
    """Every wording of the grammar."""
    for parts in product(PLURAL, SINGULAR, ARTICLE, HEADS, LISTINGS, (True, False)):
        yield Wording(*parts)


def draw_wording(rng: random.Random) -> Wording:
    """A wording, each part uniform and independent."""
    choices = (PLURAL, SINGULAR, ARTICLE, HEADS, LISTINGS, (True, False))
    return Wording(*(rng.choice(part) for part in choices))  # type: ignore[arg-type]


def draw_options(
    words: Sequence[str], kind: str, rng: random.Random
) -> tuple[list[str], str, str] | None:
    """Four options, the right one first, the right one, and the letters of the question.

    None where this draw has no right or not enough wrong options.
    """
    right, letters, is_wrong = _RIGHT[kind](words, rng)
    if not right:
        return None
    options = [right]
    for _ in range(_TRIES):
        word = rng.choice(words)
        if is_wrong(word) and word not in options:
            options.append(word)
            if len(options) == _OPTIONS:
                return options, right, letters
    return None


Choice = tuple[str, str, Callable[[str], bool]]
"""The right option (empty for none), the letters, and whether a word is a wrong option."""


def _most(words: Sequence[str], rng: random.Random) -> Choice:
    letter = rng.choice(sorted(set("".join(words))))
    having = [word for word in words if word.count(letter) >= 2]
    return rng.choice(having) if having else "", letter, lambda word: word.count(letter) <= 1


def _part(words: Sequence[str], rng: random.Random) -> tuple[str, int]:
    """A word, and the length of the part in question."""
    word = rng.choice(words)
    return word, rng.randint(1, min(_LONGEST_PART, len(word)))


def _contains(words: Sequence[str], rng: random.Random) -> Choice:
    word, size = _part(words, rng)
    at = rng.randint(0, len(word) - size)
    part = word[at : at + size]
    return word, part, lambda other: part not in other


def _starts(words: Sequence[str], rng: random.Random) -> Choice:
    word, size = _part(words, rng)
    part = word[:size]
    return word, part, lambda other: not other.startswith(part)


def _ends(words: Sequence[str], rng: random.Random) -> Choice:
    word, size = _part(words, rng)
    part = word[-size:]
    return word, part, lambda other: not other.endswith(part)


def _longest(words: Sequence[str], rng: random.Random) -> Choice:
    long = [word for word in words if len(word) >= 7]
    return rng.choice(long) if long else "", "", lambda word: len(word) <= 4


def _shortest(words: Sequence[str], rng: random.Random) -> Choice:
    short = [word for word in words if len(word) <= 3]
    return rng.choice(short) if short else "", "", lambda word: len(word) >= 6


_RIGHT: dict[str, Callable[[Sequence[str], random.Random], Choice]] = {
    "most": _most,
    "contains": _contains,
    "starts": _starts,
    "ends": _ends,
    "longest": _longest,
    "shortest": _shortest,
}
