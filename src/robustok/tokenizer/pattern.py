"""Compiles a pre-tokenizer's regular expression to a DFA.

The parser reads the subset of regular expressions that pre-tokenizers use into a syntax tree: ASCII
literals, escapes, classes, ``\\p{..}``, groups, ``(?i:..)``, lookahead, alternation, ``$`` and
greedy, lazy and possessive quantifiers. It refuses everything else, and everything that Oniguruma
(tokenizers) and fancy-regex (tiktoken) read in different ways.

The compiler is a prioritized-thread (Pike) simulation of a backtracking engine, determinized. A
backtracking engine tries alternatives in order and keeps the first match. The simulation runs all
alternatives at once, in that order, and drops those after one that matched: the last match it saw
is then the engine's. A state of the DFA is an ordered set of threads. A lookahead of one character
is decided when that character is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from robustok.kernels.pre_tokens import END

PROPERTY = re.compile(r"\\[pP]\{\w+\}|\\[sSdDwW]")
_TIMES = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_GROUP = re.compile(r"\?(?::|(-?)i:)")
_CONTROL = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
_SPECIAL = "\\^$.|?*+()[]{}"
_MOST_REPEATS = 4096  # an automaton has a state or more for each
_TOGETHER = {"s": "st", "f": "fil"}  # where case is ignored, ß, ﬆ, ﬀ, ﬁ and ﬂ match two letters
# Limits of a DFA; those of known tokenizers have about 40 instructions and 20 states.
_MOST_STATES = 4096
_MOST_INSTRUCTIONS = 4096
_MOST_STEPS = 4_000_000  # instructions visited in total


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

    branches: tuple[Concat, ...]


class Concat(NamedTuple):
    items: tuple[Node, ...]


Node = Chars | Repeat | Look | End | Branch | Concat


def parse(text: str) -> Node:
    """The syntax tree of a pattern.

    >>> parse(r"a|\\s+")
    Branch(branches=(Concat(items=(Chars(ranges=((97, 97),), ...

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
        case Concat():
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

    def _sequence(self) -> Concat:
        items: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            item = self._quantified(self._atom())
            items += item.items if isinstance(item, Concat) else [item]
        return Concat(tuple(items))

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


def _one_set(branches: list[Concat]) -> Chars | None:
    """The branches as one set, where each is a set of characters."""
    sets = [branch.items[0] for branch in branches if len(branch.items) == 1]
    chars = [x for x in sets if isinstance(x, Chars) and not x.negated]
    if len(chars) < len(branches) or len({x.fold for x in chars}) > 1:
        return None
    ranges = tuple(r for x in chars for r in x.ranges)
    return Chars(ranges, tuple(p for x in chars for p in x.properties), False, chars[0].fold)


class Symbol(NamedTuple):
    """Characters that the pattern does not distinguish."""

    character: str  # compared with literals; "" if none can be equal
    properties: tuple[bool, ...]  # one for each of the pattern's


class Pattern(NamedTuple):
    """A parsed pattern."""

    properties: tuple[str, ...]  # properties of a character, such as r"\p{L}"
    tree: Node


class _Instruction(NamedTuple):
    """A step of a thread: "match", "read" or "check" a set of symbols, or "fork"."""

    kind: str
    set: int  # of "read" and "check": a row of ``_Program.sets``
    next: tuple[int, ...]  # of "fork" the instructions in order of priority, else one
    fold: bool = False  # of "read": whether case is ignored


def read_pattern(text: str) -> Pattern | None:
    """Parse a pattern; None where it has something that is not supported."""
    try:
        tree = parse(text)
    except (Unsupported, RecursionError):
        return None
    names = dict.fromkeys(match[0] for match in PROPERTY.finditer(text))
    return Pattern(tuple(dict.fromkeys(x[0] + x[1].lower() + x[2:] for x in names)), tree)


def automaton(pattern: Pattern, symbols: Sequence[Symbol]) -> np.ndarray | None:
    """int16 [states, symbols + 1]: twice the next state, plus 1 where a match ends before.

    The symbols are those of ASCII and then all others; between them in the table is :data:`END`.
    State 1 is the start, and no match is possible from state 0. None if a DFA cannot decide the
    pattern or has too many states.
    """
    try:
        program = _Program(pattern, symbols)
    except (Unsupported, RecursionError):
        return None
    sets = np.array(program.sets)
    _, some, which = np.unique(sets, axis=1, return_index=True, return_inverse=True)
    states: dict[tuple[int, ...], int] = {(): 0, (program.entry,): 1}
    rows: list[list[int]] = []
    while len(rows) < len(states):
        threads = list(states)[len(rows)]
        row = []
        for column in some.tolist():
            after, matched = program.step(threads, sets[:, column])
            row.append(2 * states.setdefault(after, len(states)) + matched)
        rows.append(row)
        if len(states) > _MOST_STATES or program.steps > _MOST_STEPS:
            return None
    return np.array(rows, np.int16)[:, which.reshape(-1)]


class _Program:
    """The pattern as instructions for threads, compiled from the end to the beginning."""

    def __init__(self, pattern: Pattern, symbols: Sequence[Symbol]) -> None:
        self._symbols, self._properties = symbols, pattern.properties
        self.sets: list[np.ndarray] = [np.zeros(len(symbols) + 1, np.bool_)]
        self._instructions = [_Instruction("match", 0, ())]
        self.steps = 0  # instructions visited so far
        self.entry = self._node(pattern.tree, 0)
        if self._folds_two():
            raise Unsupported

    def step(self, threads: tuple[int, ...], held: np.ndarray) -> tuple[tuple[int, ...], bool]:
        """The threads after one more symbol, by priority, and whether a match ends before it.

        ``held``: bool [sets], whether the symbol is in each set.
        """
        after: dict[int, None] = {}
        seen: set[int] = set()
        ahead = list(reversed(threads))
        while ahead:
            number = ahead.pop()
            self.steps += 1
            if number in seen:
                continue
            seen.add(number)
            instruction = self._instructions[number]
            if instruction.kind == "match":
                return tuple(after), True
            if instruction.kind == "fork" or (
                instruction.kind == "check" and held[instruction.set]
            ):
                ahead.extend(reversed(instruction.next))
            elif instruction.kind == "read" and held[instruction.set]:
                after.setdefault(instruction.next[0])
        return tuple(after), False

    def _add(self, kind: str, held: np.ndarray | None, *after: int, fold: bool = False) -> int:
        number = 0
        if held is not None:
            number = len(self.sets)
            self.sets.append(held)
        if len(self._instructions) >= _MOST_INSTRUCTIONS:
            raise Unsupported
        self._instructions.append(_Instruction(kind, number, after, fold))
        return len(self._instructions) - 1

    def _node(self, node: Node, out: int) -> int:
        """The instruction that matches a node and continues with ``out``."""
        match node:
            case Concat():
                return self._sequence(node.items, out)
            case Branch():
                return self._add("fork", None, *(self._node(b, out) for b in node.branches))
            case Chars():
                return self._add("read", self._set(node), out, fold=node.fold)
            case Repeat():
                return self._repeat(node, out)
            case Look():
                held = self._only(node.item)
                return self._add("check", with_end(~held, True) if node.negated else held, out)
        raise Unsupported

    def _sequence(self, items: Sequence[Node], out: int) -> int:
        for i in range(len(items) - 1, -1, -1):
            if isinstance(items[i], End):
                # Engines disagree on "$" before a final newline. It is accepted only where all
                # newlines were read before, so that they agree.
                if not i or not self._reads_newlines(items[i - 1]):
                    raise Unsupported
                out = self._add("check", with_end(np.zeros_like(self.sets[0]), True), out)
            else:
                out = self._node(items[i], out)
        return out

    def _repeat(self, node: Repeat, out: int) -> int:
        leave = out
        if node.kind == "possessive":  # left only where no further repetition is possible
            leave = self._add("check", with_end(~self._only(node.item), True), out)
        if least_length(node.item) == 0:
            raise Unsupported

        def fork(on: int) -> int:
            return self._add("fork", None, *((leave, on) if node.kind == "lazy" else (on, leave)))

        if node.most is None:
            start = fork(-1)  # -1 is replaced once the instructions that lead back exist
            inside = self._node(node.item, start)
            loop = self._instructions[start]
            targets = tuple(inside if x < 0 else x for x in loop.next)
            self._instructions[start] = loop._replace(next=targets)
        else:
            start = out
            for _ in range(node.most - node.least):
                start = fork(self._node(node.item, start))
        for _ in range(node.least):
            start = self._node(node.item, start)
        return start

    def _folds_two(self) -> bool:
        """Whether two reads in a row may read letters that one character equals without case."""
        letters = [np.array([self.sets[i.set][ord(c)] for c in "sftil"]) if i.fold else None
                   for i in self._instructions]  # fmt: skip
        index = {c: i for i, c in enumerate("sftil")}
        for instruction, first in zip(self._instructions, letters, strict=True):
            if first is None or not first[:2].any():
                continue
            for number in self._reads_after(instruction.next[0]):
                second = letters[number]
                if second is not None and any(
                    first[index[a]] and second[index[b]] for a, bs in _TOGETHER.items() for b in bs
                ):
                    return True
        return False

    def _reads_after(self, number: int) -> set[int]:
        """The reads that a thread at an instruction may do next."""
        seen: set[int] = set()
        ahead = [number]
        while ahead:
            number = ahead.pop()
            if number in seen:
                continue
            seen.add(number)
            self.steps += 1
            if self.steps > _MOST_STEPS:
                raise Unsupported
            if self._instructions[number].kind != "read":
                ahead += self._instructions[number].next
        return {x for x in seen if self._instructions[x].kind == "read"}

    def _reads_newlines(self, node: Node) -> bool:
        """Whether a node reads all newlines that come next."""
        if not isinstance(node, Repeat) or node.kind != "possessive" or node.most is not None:
            return False
        return bool(self._only(node.item)[ord("\n")])

    def _only(self, node: Node) -> np.ndarray:
        """The set that a node is, where it is a single one."""
        while isinstance(node, Concat) and len(node.items) == 1:
            node = node.items[0]
        if not isinstance(node, Chars):
            raise Unsupported
        return self._set(node)

    def _set(self, chars: Chars) -> np.ndarray:
        """bool [symbols + 1]: which symbols are in a set of characters."""
        if any(high > 127 for _, high in chars.ranges):
            raise Unsupported
        numbers = [self._properties.index(name) for name in chars.properties]

        def holds(symbol: Symbol) -> bool:
            c = symbol.character
            same = {c, c.casefold(), c.casefold().upper()} if chars.fold else {c}
            return any(symbol.properties[i] for i in numbers) or any(
                x and low <= ord(x) <= high for low, high in chars.ranges for x in same
            )

        held = np.array([holds(symbol) != chars.negated for symbol in self._symbols])
        return with_end(np.insert(held, END, False), False)


def with_end(held: np.ndarray, at_end: bool) -> np.ndarray:
    """The same set of symbols with the end of the text in it, or without."""
    held = held.copy()
    held[END] = at_end
    return held
