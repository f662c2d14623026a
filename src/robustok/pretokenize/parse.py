"""Parses the subset of regular expressions that pre-tokenizers use into a syntax tree.

It knows ASCII literals, escapes, classes, ``\\p{..}``, groups, ``(?i:..)``, lookahead, alternation,
``$`` and greedy, lazy and possessive quantifiers. It refuses everything else, and everything that
Oniguruma (tokenizers) and fancy-regex (tiktoken) read in different ways.
"""

from __future__ import annotations

import re
from typing import NamedTuple

PROPERTY = re.compile(r"\\[pP]\{\w+\}|\\[sSdDwW]")
_TIMES = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_GROUP = re.compile(r"\?(?::|(-?)i:)")
_CONTROL = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
_SPECIAL = "\\^$.|?*+()[]{}"
_MOST_REPEATS = 4096  # an automaton has a state or more for each


class Unsupported(Exception):
    """The pattern has something that this parser, or the compiler, does not know."""


class Chars(NamedTuple):
    """One character of a set."""

    ranges: tuple[tuple[int, int], ...]  # first and last code point, all ASCII
    properties: tuple[str, ...]  # such as r"\p{L}" or r"\s"
    negated: bool
    fold: bool  # whether case is ignored


class Repeat(NamedTuple):
    item: Node
    least: int
    most: int | None  # None: any number
    kind: str  # "greedy", "lazy" or "possessive"


class Look(NamedTuple):
    """A lookahead: what follows must be, or must not be, ``item``."""

    item: Node
    negated: bool


class End(NamedTuple):
    """``$``"""


class Branch(NamedTuple):
    """Alternatives, tried in order."""

    branches: tuple[Sequence, ...]


class Sequence(NamedTuple):
    items: tuple[Node, ...]


Node = Chars | Repeat | Look | End | Branch | Sequence


def parse(text: str) -> Node:
    """The syntax tree of a pattern.

    >>> parse(r"a|\\s+")
    Branch(branches=(Sequence(items=(Chars(ranges=((97, 97),), ...

    Raises Unsupported.
    """
    if not text.isascii():
        raise Unsupported
    parser = _Parser(text)
    parser.fold = parser.take("(?i)")
    node = parser.alternation()
    if parser.at < len(text):
        raise Unsupported
    return node


def least_length(node: Node) -> int:
    """The fewest characters that a node matches."""
    match node:
        case Chars():
            return 1
        case Repeat():
            return node.least * least_length(node.item)
        case Branch():
            return min(map(least_length, node.branches))
        case Sequence():
            return sum(map(least_length, node.items))
    return 0


class _Parser:
    """A recursive-descent parser of ``text``, at the position ``at``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.fold = False

    def take(self, expected: str) -> bool:
        """Skip these characters if they come next."""
        if not self.text.startswith(expected, self.at):
            return False
        self.at += len(expected)
        return True

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def _next(self) -> str:
        if self.at == len(self.text):
            raise Unsupported
        self.at += 1
        return self.text[self.at - 1]

    def alternation(self) -> Node:
        branches = [self._sequence()]
        while self.take("|"):
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        return _one_set(branches) or Branch(tuple(branches))

    def _sequence(self) -> Sequence:
        items: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            item = self._quantified(self._atom())
            items += item.items if isinstance(item, Sequence) else [item]
        return Sequence(tuple(items))

    def _quantified(self, item: Node) -> Node:
        times = self._times()
        if times is None:
            return item
        if isinstance(item, Look | End):
            raise Unsupported
        least, most, fixed = times
        kind = "possessive" if self.take("+") else "lazy" if self.take("?") else "greedy"
        if fixed and kind == "lazy":
            raise Unsupported  # to Oniguruma, a{2}? is an optional a{2}
        if self.text[self.at : self.at + 1] in ("*", "+", "?", "{"):
            raise Unsupported
        return Repeat(item, least, most, kind)

    def _times(self) -> tuple[int, int | None, bool] | None:
        """The least and most repetitions, and whether they are one number; None: no quantifier."""
        for sign, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self.take(sign):
                return least, most, False
        if self.text[self.at : self.at + 1] != "{":
            return None
        match = self._match(_TIMES)
        if match is None or max(len(x or "") for x in match.groups()) > 4:
            raise Unsupported
        least = int(match[1])
        most = least if match[2] is None else int(match[3]) if match[3] else None
        if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
            raise Unsupported
        return least, most, match[2] is None

    def _atom(self) -> Node:
        match = self._match(PROPERTY)
        if match:
            name, negated = _property(match[0])
            return self._chars([], [name], negated)
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character == ".":
            return Chars(((10, 10),), (), True, self.fold)
        if character == "$":
            return End()
        if character == "\\":
            return self._chars([self._escape()], [], False)
        if character in _SPECIAL:
            raise Unsupported
        return self._chars([(ord(character), ord(character))], [], False)

    def _group(self) -> Node:
        """What follows an opening parenthesis, to the closing one."""
        fold = self.fold
        look = "=" if self.take("?=") else "!" if self.take("?!") else ""
        if not look:
            match = self._match(_GROUP)
            if match is None and self.text[self.at : self.at + 1] == "?":
                raise Unsupported
            if match is not None and "i" in match[0]:
                self.fold = not match[1]
        node = self.alternation()
        self.fold = fold
        if not self.take(")"):
            raise Unsupported
        return Look(node, look == "!") if look else node

    def _class(self) -> Chars:
        """What follows an opening bracket, to the closing one."""
        negated = self.take("^")
        ranges: list[tuple[int, int]] = []
        properties: list[str] = []
        while not self.take("]"):
            match = self._match(PROPERTY)
            if match:
                name, without = _property(match[0])
                if without or self.text[self.at : self.at + 1] == "-":
                    raise Unsupported
                properties.append(name)
                continue
            low = self._class_character()
            high = low
            if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                self.at += 1
                high = self._class_character()
                if high < low:
                    raise Unsupported
            ranges.append((low, high))
        if not ranges and not properties:
            raise Unsupported
        return self._chars(ranges, properties, negated)

    def _class_character(self) -> int:
        for operator in ("[", "&&", "--", "~~", "||"):  # nested classes and set operators
            if self.text.startswith(operator, self.at):
                raise Unsupported
        character = self._next()
        return self._escape()[0] if character == "\\" else ord(character)

    def _escape(self) -> tuple[int, int]:
        """The character after a backslash, as a range."""
        character = self._next()
        if character == "x":
            digits = self.text[self.at : self.at + 2]
            if not re.fullmatch("[0-7][0-9a-fA-F]", digits):
                raise Unsupported
            self.at += 2
            character = chr(int(digits, 16))
        elif character in _CONTROL:
            character = _CONTROL[character]
        elif character.isalnum() or character.isspace():
            raise Unsupported
        return ord(character), ord(character)

    def _chars(self, ranges: list[tuple[int, int]], properties: list[str], negated: bool) -> Chars:
        if self.fold and properties:
            raise Unsupported  # engines differ on whether a property ignores case
        return Chars(tuple(ranges), tuple(properties), negated, self.fold)


def _property(text: str) -> tuple[str, bool]:
    r"""The property, as ``\p{L}``, and whether it is negated, as in ``\P{L}``."""
    name = text[0] + text[1].lower() + text[2:]
    return name, name != text


def _one_set(branches: list[Sequence]) -> Chars | None:
    """The branches as one set, where each is a set of characters."""
    sets = [branch.items[0] for branch in branches if len(branch.items) == 1]
    chars = [x for x in sets if isinstance(x, Chars) and not x.negated]
    if len(chars) < len(branches) or len({x.fold for x in chars}) > 1:
        return None
    ranges = tuple(r for x in chars for r in x.ranges)
    return Chars(ranges, tuple(p for x in chars for p in x.properties), False, chars[0].fold)
