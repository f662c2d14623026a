"""A pre-tokenizer's pattern as an automaton, which finds its matches one character at a time.

A matcher that tracks back tries the ways through a pattern in their order and keeps the first that
fits. The automaton follows all of them at once, in that order, and gives up those that come after
one that is through: the match it saw last is then the one that the other would have kept. What a
pattern asks about the character ahead, as in ``(?!\\S)``, is answered when that one is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import numpy as np

END = 128  # the symbol after the last; those before it are ASCII's, those behind it other classes
_PROPERTY = r"\\[pP]\{\w+\}|\\[sSdDwW]"  # what the library is asked about a character
_FIRST = 0xE000  # the character that stands for the first property of a pattern
_ONE = ("LITERAL", "NOT_LITERAL", "IN", "ANY")  # what reads one character
_TOGETHER = {"s": "st", "f": "fil"}  # where case is ignored, ß, ﬆ, ﬀ, ﬁ and ﬂ match two letters
# Limits of an automaton; those of known tokenizers have about 40 places and 20 states.
_MOST = 4096  # states
_MOST_PLACES = 4096
_MOST_STEPS = 4_000_000  # places that are visited while the states are made


class Symbol(NamedTuple):
    """Characters that the pattern does not tell apart."""

    character: str  # what literals are held against; "" where none can be equal
    properties: tuple[bool, ...]


class Pattern(NamedTuple):
    """A pattern that is understood: what to ask the library about a character, and the rest."""

    properties: tuple[str, ...]
    tree: Any


class _Unclear(Exception):
    """Something of the pattern that this file does not know."""


def read_pattern(text: str) -> Pattern | None:
    """The parts of a pattern, or None where it cannot be read."""
    properties: list[str] = []
    made, inside = "", False
    if not text.isascii() or "&&" in text or "[[" in text:
        return None
    for piece in re.findall(rf"{_PROPERTY}|\\.|.", text, re.DOTALL):
        if piece in ("[", "]"):
            inside = piece == "["
        if re.fullmatch(_PROPERTY, piece):
            name = piece[0] + piece[1].lower() + piece[2:]
            if name not in properties:
                properties.append(name)
            negated = name != piece
            if negated and inside:
                return None
            piece = chr(_FIRST + properties.index(name))
            piece = f"[^{piece}]" if negated else piece
        made += piece
    try:
        tree = parser.parse(made)
    except (re.error, OverflowError, RecursionError):
        return None
    other = tree.state.flags & ~(re.IGNORECASE | re.UNICODE)
    return None if other else Pattern(tuple(properties), tree)


def automaton(pattern: Pattern, symbols: Sequence[Symbol]) -> np.ndarray | None:
    """int16 [states, symbols + 1]: twice the next state, and 1 more where a match ends before.

    The symbols are those of ASCII and then all others; between them in the table stands
    :data:`END`. State 1 is the first, and in state 0 nothing can match any more. None where the
    pattern holds what an automaton, or this one, cannot do.
    """
    try:
        program = _Program(pattern, symbols)
    except (_Unclear, RecursionError):
        return None
    sets = np.array(program.sets)
    _, some, which = np.unique(sets, axis=1, return_index=True, return_inverse=True)
    states: dict[tuple[int, ...], int] = {(): 0, (program.entry,): 1}
    rows: list[list[int]] = []
    while len(rows) < len(states):
        places = list(states)[len(rows)]
        row = []
        for column in some.tolist():
            after, matched = program.follow(places, sets[:, column])
            row.append(2 * states.setdefault(after, len(states)) + matched)
        rows.append(row)
        if len(states) > _MOST or program.steps > _MOST_STEPS:
            return None
    return np.array(rows, np.int16)[:, which.reshape(-1)]


class _Program:
    """The pattern as places to be in, each leading to others in the order they are tried."""

    def __init__(self, pattern: Pattern, symbols: Sequence[Symbol]) -> None:
        self._symbols = symbols
        self.sets: list[np.ndarray] = [np.zeros(len(symbols) + 1, np.bool_)]
        self._places: list[tuple[str, int, tuple[int, ...]]] = [("match", 0, ())]
        self.steps = 0  # places visited so far
        self.entry = self._sequence(pattern.tree, 0, pattern.tree.state.flags)

    def follow(self, places: tuple[int, ...], held: np.ndarray) -> tuple[tuple[int, ...], bool]:
        """The places after one more symbol, in order, and whether a match ends before it.

        ``held`` tells of every set whether the symbol is in it.
        """
        after: dict[int, None] = {}
        seen: set[int] = set()
        ahead = list(reversed(places))
        while ahead:
            place = ahead.pop()
            self.steps += 1
            if place in seen:
                continue
            seen.add(place)
            kind, number, following = self._places[place]
            if kind == "match":
                return tuple(after), True
            if kind == "fork" or (kind == "ask" and held[number]):
                ahead.extend(reversed(following))
            elif kind == "read" and held[number]:
                after.setdefault(following[0])
        return tuple(after), False

    def _place(self, kind: str, held: np.ndarray | None, *following: int) -> int:
        number = 0
        if held is not None:
            number = len(self.sets)
            self.sets.append(held)
        if len(self._places) >= _MOST_PLACES:
            raise _Unclear
        self._places.append((kind, number, following))
        return len(self._places) - 1

    def _sequence(self, items: Any, out: int, flags: int) -> int:
        """The place from which these items are read before ``out``."""
        for i in range(len(items) - 1, -1, -1):
            name, argument = str(items[i][0]), items[i][1]
            if flags & re.IGNORECASE and self._as_one(items[i : i + 2], flags):
                raise _Unclear
            if name == "AT":
                # Of what "$" means before a last line's end there are three views. Where all that
                # could be such an end was read, they agree.
                if str(argument) != "AT_END" or not i or not self._takes_lines(items[i - 1], flags):
                    raise _Unclear
                out = self._place("ask", self._ends(np.zeros_like(self.sets[0]), True), out)
            else:
                out = self._item(name, argument, out, flags)
        return out

    def _item(self, name: str, argument: Any, out: int, flags: int) -> int:
        if name in _ONE:
            return self._place("read", self._set(name, argument, flags), out)
        if name == "BRANCH":
            return self._place("fork", None, *(self._sequence(b, out, flags) for b in argument[1]))
        if name == "SUBPATTERN":
            _, more, fewer, inner = argument
            if (more | fewer) & ~re.IGNORECASE:
                raise _Unclear
            return self._sequence(inner, out, (flags | more) & ~fewer)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            return self._repeat(name, argument, out, flags)
        if name in ("ASSERT", "ASSERT_NOT") and argument[0] == 1:
            held = self._only(argument[1], flags)
            held = held if name == "ASSERT" else self._ends(~held, True)
            return self._place("ask", held, out)
        raise _Unclear

    def _repeat(self, name: str, argument: Any, out: int, flags: int) -> int:
        least, most, inner = argument
        leave = out
        if name == "POSSESSIVE_REPEAT":  # it is left only where it cannot go on
            leave = self._place("ask", self._ends(~self._only(inner, flags), True), out)
        if inner.getwidth()[0] == 0:
            raise _Unclear

        def fork(on: int) -> int:
            return self._place(
                "fork", None, *((leave, on) if name == "MIN_REPEAT" else (on, leave))
            )

        if most == parser.MAXREPEAT:
            again = fork(-1)  # itself, until what it leads to is there
            inside = self._sequence(inner, again, flags)
            kind, number, following = self._places[again]
            self._places[again] = kind, number, tuple(inside if p < 0 else p for p in following)
            place = again
        else:
            place = out
            for _ in range(most - least):
                place = fork(self._sequence(inner, place, flags))
        for _ in range(least):
            place = self._sequence(inner, place, flags)
        return place

    def _as_one(self, pair: Any, flags: int) -> bool:
        """Whether two items in a row may read letters that one character is equal to."""
        if len(pair) < 2 or any(str(item[0]) not in _ONE for item in pair):
            return False
        first, second = (self._only([item], flags) for item in pair)
        return any(
            first[ord(a)] and second[ord(b)] for a, others in _TOGETHER.items() for b in others
        )

    def _takes_lines(self, item: Any, flags: int) -> bool:
        """Whether an item reads all line ends there are."""
        name, argument = str(item[0]), item[1]
        if name != "POSSESSIVE_REPEAT" or argument[1] != parser.MAXREPEAT:
            return False
        return bool(self._only(argument[2], flags)[ord("\n")])

    def _only(self, items: Any, flags: int) -> np.ndarray:
        """The set that the items are, where they are just one."""
        if len(items) != 1 or str(items[0][0]) not in _ONE:
            raise _Unclear
        return self._set(str(items[0][0]), items[0][1], flags)

    def _set(self, name: str, argument: Any, flags: int) -> np.ndarray:
        holds, negated = _holder(name, argument, bool(flags & re.IGNORECASE))
        held = np.array([holds(symbol) != negated for symbol in self._symbols])
        return self._ends(np.insert(held, END, False), False)

    @staticmethod
    def _ends(held: np.ndarray, at_end: bool) -> np.ndarray:
        """The same set with the end of the text in it, or without."""
        held = held.copy()
        held[END] = at_end
        return held


def _holder(name: str, argument: Any, fold: bool) -> tuple[Callable[[Symbol], bool], bool]:
    """Whether a symbol is named by an item, and whether the item means all others."""
    if name == "ANY":
        ranges, negated = [(10, 10)], True
    elif name in ("LITERAL", "NOT_LITERAL"):
        ranges, negated = [(argument, argument)], name == "NOT_LITERAL"
    else:
        negated = str(argument[0][0]) == "NEGATE"
        ranges = []
        for op, value in argument[1 if negated else 0 :]:
            if str(op) not in ("LITERAL", "RANGE"):
                raise _Unclear
            ranges.append((value, value) if str(op) == "LITERAL" else value)
    if any(low < _FIRST <= high or 127 < high < _FIRST for low, high in ranges):
        raise _Unclear  # a character beyond ASCII by name
    if fold and any(high >= _FIRST for _, high in ranges):
        raise _Unclear  # a property is then more, or not, depending on where it stands

    def holds(symbol: Symbol) -> bool:
        c = symbol.character
        same = {c, c.casefold(), c.casefold().upper()} if fold else {c}
        return any(
            symbol.properties[low - _FIRST] if low >= _FIRST
            else any(x and low <= ord(x) <= high for x in same)
            for low, high in ranges
        )  # fmt: skip

    return holds, negated
