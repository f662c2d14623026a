"""Compiles a pre-tokenizer's regular expression to a DFA.

Prioritized-thread (Pike) simulation of a backtracking engine, determinized. A backtracking engine
tries alternatives in order and keeps the first match. The simulation runs all alternatives at once,
in that order, and drops those after one that matched: the last match it saw is then the engine's. A
state of the DFA is an ordered set of threads. A lookahead of one character is decided when that
character is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from robustok.pretokenize import parse
from robustok.pretokenize.parse import Branch, Chars, End, Look, Node, Repeat, Unsupported

END = 128  # the symbol of the end of a text; smaller ones are ASCII, larger ones other classes
_TOGETHER = {"s": "st", "f": "fil"}  # where case is ignored, ß, ﬆ, ﬀ, ﬁ and ﬂ match two letters
# Limits of a DFA; those of known tokenizers have about 40 instructions and 20 states.
_MOST_STATES = 4096
_MOST_INSTRUCTIONS = 4096
_MOST_STEPS = 4_000_000  # instructions visited in total


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
        tree = parse.parse(text)
    except (Unsupported, RecursionError):
        return None
    names = dict.fromkeys(match[0] for match in parse.PROPERTY.finditer(text))
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
            case parse.Sequence():
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
        if parse.least_length(node.item) == 0:
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
        while isinstance(node, parse.Sequence) and len(node.items) == 1:
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
