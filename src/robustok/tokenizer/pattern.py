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

_ESCAPE = r"\\(?:x[0-7][0-9a-fA-F]|[nrtfv]|[^a-zA-Z0-9\s])"
_ATOM = re.compile(
    rf"""(?P<property>\\[pP]\{{\w+\}}|\\[sSdDwW])
       | (?P<group>\((?:\?(?:[:=!]|-?i:)|(?!\?)))
       | (?P<class>\[\^?)
       | (?P<any>\.)
       | (?P<end>\$)
       | (?P<character>{_ESCAPE}|[^\\^$.|?*+()\[\]{{}}])""",
    re.VERBOSE,
)
# Without what starts a nested class or an operator on sets.
_IN_CLASS = rf"(?:{_ESCAPE}|(?!\[|&&|--|~~|\|\|)[^\\\]])"
_MEMBER = re.compile(
    rf"(?P<property>\\p\{{\w+\}}|\\[sdw])(?!-)"
    rf"|(?P<low>{_IN_CLASS})(?:-(?P<high>{_IN_CLASS})|(?=-\])|(?!-))"
)
# No second quantifier follows, and the sign after it makes it possessive or lazy.
_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d{1,4})(?:(,)(\d{0,4}))?\})([+?]?)(?![*+?{])")
_TIMES = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_CONTROL = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
_TOGETHER = ("ss", "st", "ff", "fi", "fl")  # where case is ignored, ß, ﬆ, ﬀ, ﬁ and ﬂ match them
# Limits of a DFA; those of known tokenizers have about 40 instructions and 20 states.
_MOST_STATES = 4096
_MOST_INSTRUCTIONS = 4096
_MOST_STEPS = 4_000_000  # instructions visited in total


class Unsupported(Exception):
    """The pattern has something that this parser, or the compiler, does not know."""


class Chars(NamedTuple):
    """One character of a set."""

    ranges: tuple[tuple[int, int], ...]  # first and last code point, all ASCII
    properties: tuple[int, ...]  # numbers of the pattern's properties
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


class Pattern(NamedTuple):
    """A parsed pattern."""

    properties: tuple[str, ...]  # properties of a character, such as r"\p{L}" or r"\s"
    tree: Node


def read_pattern(text: str) -> Pattern | None:
    """Parse a pattern; None where it has something that is not supported.

    >>> read_pattern(r"a|\\s+")
    Pattern(properties=('\\\\s',), tree=Branch(branches=(Concat(items=(Chars(ranges=((97, 97),), ...
    """
    parser = _Parser(text)
    try:
        tree = parser.parse()
    except (Unsupported, RecursionError):
        return None
    return Pattern(tuple(parser.properties), tree)


def _least_length(node: Node) -> int:
    """The fewest characters that a node matches."""
    match node:
        case Chars():
            return 1
        case Repeat():
            return node.least * _least_length(node.item)
        case Branch():
            return min(map(_least_length, node.branches))
        case Concat():
            return sum(map(_least_length, node.items))
    return 0


class _Parser:
    """A recursive-descent parser of ``text``, at the position ``at``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.fold = False
        self.properties: dict[str, int] = {}  # their numbers

    def parse(self) -> Node:
        self.fold = self._skip("(?i)")
        node = self._alternation()
        if self.at < len(self.text) or not self.text.isascii():
            raise Unsupported
        return node

    def _skip(self, expected: str) -> bool:
        """Skip these characters if they come next."""
        if not self.text.startswith(expected, self.at):
            return False
        self.at += len(expected)
        return True

    def _match(self, token: re.Pattern[str]) -> re.Match[str] | None:
        match = token.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def _alternation(self) -> Node:
        branches = [self._sequence()]
        while self._skip("|"):
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
        match = self._match(_QUANTIFIER)
        if match is None:
            return item
        sign, low, comma, high, kind = match.groups()
        if sign:
            least, most = _TIMES[sign]
        else:
            least = int(low)
            most = int(high) if high else None if comma else least
            if kind == "?" and not comma:
                raise Unsupported  # to Oniguruma, a{2}? is an optional a{2}
        if isinstance(item, Look | End) or (most is not None and most < least):
            raise Unsupported
        return Repeat(item, least, most, {"+": "possessive", "?": "lazy"}.get(kind, "greedy"))

    def _atom(self) -> Node:
        match = self._match(_ATOM)
        if match is None:
            raise Unsupported
        text = match[0]
        match match.lastgroup:
            case "property":
                return self._chars([], [text], text[1] in "PSDW")
            case "group":
                return self._group(text)
            case "class":
                return self._class(text == "[^")
            case "any":
                return Chars(((10, 10),), (), True, self.fold)
            case "end":
                return End()
        return self._chars([(_code(text), _code(text))], [], False)

    def _group(self, opening: str) -> Node:
        """What follows an opening parenthesis, to the closing one."""
        fold = self.fold
        if opening.endswith("i:"):
            self.fold = opening == "(?i:"
        node = self._alternation()
        self.fold = fold
        if not self._skip(")"):
            raise Unsupported
        return Look(node, opening == "(?!") if opening in ("(?=", "(?!") else node

    def _class(self, negated: bool) -> Chars:
        """What follows an opening bracket, to the closing one."""
        ranges: list[tuple[int, int]] = []
        properties: list[str] = []
        while not self._skip("]"):
            member = self._match(_MEMBER)
            if member is None:
                raise Unsupported
            if member["property"]:
                properties.append(member["property"])
                continue
            low, high = _code(member["low"]), _code(member["high"] or member["low"])
            if high < low:
                raise Unsupported
            ranges.append((low, high))
        if not ranges and not properties:
            raise Unsupported
        return self._chars(ranges, properties, negated)

    def _chars(self, ranges: list[tuple[int, int]], properties: list[str], negated: bool) -> Chars:
        if self.fold and properties:
            raise Unsupported  # engines differ on whether a property ignores case
        names = [name[0] + name[1].lower() + name[2:] for name in properties]
        numbers = [self.properties.setdefault(name, len(self.properties)) for name in names]
        return Chars(tuple(ranges), tuple(numbers), negated, self.fold)


def _code(character: str) -> int:
    """The code point of a character, which may be escaped."""
    if character.startswith("\\x"):
        return int(character[2:], 16)
    return ord(_CONTROL.get(character[1:], character[-1]))


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


class _Instruction(NamedTuple):
    """A step of a thread: "match", "read" or "check" a set of symbols, or "fork"."""

    kind: str
    next: tuple[int, ...]  # of "fork" the instructions in order of priority, else one
    held: np.ndarray  # bool [symbols + 1], of "read" and "check": the set
    fold: bool  # of "read": whether case is ignored


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
    sets = np.array([instruction.held for instruction in program.instructions])
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
        self._symbols = symbols
        self.instructions: list[_Instruction] = []
        self.steps = 0  # instructions visited so far
        self.entry = self._node(pattern.tree, self._add("match"))
        if self._folds_two():
            raise Unsupported

    def step(self, threads: tuple[int, ...], held: np.ndarray) -> tuple[tuple[int, ...], bool]:
        """The threads after one more symbol, by priority, and whether a match ends before it.

        ``held``: bool [instructions], whether the symbol is in the set of each.
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
            instruction = self.instructions[number]
            if instruction.kind == "match":
                return tuple(after), True
            if instruction.kind == "fork" or (instruction.kind == "check" and held[number]):
                ahead.extend(reversed(instruction.next))
            elif instruction.kind == "read" and held[number]:
                after.setdefault(instruction.next[0])
        return tuple(after), False

    def _add(
        self,
        kind: str,
        *after: int,
        held: np.ndarray | None = None,
        at_end: bool = False,
        fold: bool = False,
    ) -> int:
        if len(self.instructions) >= _MOST_INSTRUCTIONS:
            raise Unsupported
        held = np.zeros(len(self._symbols), np.bool_) if held is None else held
        self.instructions.append(_Instruction(kind, after, np.insert(held, END, at_end), fold))
        return len(self.instructions) - 1

    def _node(self, node: Node, out: int) -> int:
        """The instruction that matches a node and continues with ``out``."""
        match node:
            case Concat():
                return self._sequence(node.items, out)
            case Branch():
                return self._add("fork", *(self._node(b, out) for b in node.branches))
            case Chars():
                return self._add("read", out, held=self._set(node), fold=node.fold)
            case Repeat():
                return self._repeat(node, out)
            case Look():
                held = self._only(node.item)
                held = ~held if node.negated else held
                return self._add("check", out, held=held, at_end=node.negated)
        raise Unsupported

    def _sequence(self, items: Sequence[Node], out: int) -> int:
        for i in range(len(items) - 1, -1, -1):
            if isinstance(items[i], End):
                # Engines disagree on "$" before a final newline. It is accepted only where all
                # newlines were read before, so that they agree.
                if not i or not self._reads_newlines(items[i - 1]):
                    raise Unsupported
                out = self._add("check", out, at_end=True)
            else:
                out = self._node(items[i], out)
        return out

    def _repeat(self, node: Repeat, out: int) -> int:
        leave = out
        if node.kind == "possessive":  # left only where no further repetition is possible
            leave = self._add("check", out, held=~self._only(node.item), at_end=True)
        if _least_length(node.item) == 0:
            raise Unsupported

        def fork(on: int) -> int:
            return self._add("fork", *((leave, on) if node.kind == "lazy" else (on, leave)))

        if node.most is None:
            start = fork(-1)  # -1 is replaced once the instructions that lead back exist
            inside = self._node(node.item, start)
            loop = self.instructions[start]
            targets = tuple(inside if x < 0 else x for x in loop.next)
            self.instructions[start] = loop._replace(next=targets)
        else:
            start = out
            for _ in range(node.most - node.least):
                start = fork(self._node(node.item, start))
        for _ in range(node.least):
            start = self._node(node.item, start)
        return start

    def _folds_two(self) -> bool:
        """Whether two reads in a row may read letters that one character equals without case."""
        for instruction in self.instructions:
            if not instruction.fold:
                continue
            letters = {b for a, b in _TOGETHER if instruction.held[ord(a)]}
            if letters and any(
                following.fold and any(following.held[ord(letter)] for letter in letters)
                for following in self._reads_after(instruction.next[0])
            ):
                return True
        return False

    def _reads_after(self, number: int) -> list[_Instruction]:
        """The reads that a thread at an instruction may do next."""
        reads = []
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
            if self.instructions[number].kind == "read":
                reads.append(self.instructions[number])
            else:
                ahead += self.instructions[number].next
        return reads

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
        """bool [symbols]: which symbols are in a set of characters."""

        def holds(symbol: Symbol) -> bool:
            c = symbol.character
            same = {c, c.casefold(), c.casefold().upper()} if chars.fold else {c}
            return any(symbol.properties[i] for i in chars.properties) or any(
                x and low <= ord(x) <= high for low, high in chars.ranges for x in same
            )

        return np.array([holds(symbol) != chars.negated for symbol in self._symbols])
