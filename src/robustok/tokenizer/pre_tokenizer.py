"""Cut texts into pre-tokens exactly as a tokenizer's library does.

If one regular expression decides all cuts, as in byte-level BPE tokenizers, a DFA cuts the text
(see `pattern`), many times faster than the library. The library decides which characters are
letters, numbers or spaces. It also runs every other pre-tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import Split

from robustok.kernels import pre_tokens as kernels
from robustok.kernels.pre_tokens import END, UNKNOWN
from robustok.runtime.environment import ForkSafeLock
from robustok.tokenizer.data import TokenizerData, split_at_broken
from robustok.tokenizer.pattern import Pattern, Symbol, automaton, read_pattern
from robustok.tokenizer.stages import NO_CUTS, isolating, tokenizer_json

_FOLDED = "\u017f\u212a"  # equal to ASCII letters if case is ignored


class Automaton(NamedTuple):
    """A DFA that finds pre-tokens, and the classes of characters that it reads."""

    step: np.ndarray  # int16 [states, symbols], see :func:`automaton`
    symbols: np.ndarray  # uint8 [code points]: the symbol of a character, or UNKNOWN


class PreTokenizer:
    """Cuts texts as the pre-tokenizer of ``data`` does; without one, a text is one pre-token."""

    def __init__(self, data: TokenizerData) -> None:
        pattern = data.stages.cut_pattern
        self._part = isolating(pattern) if pattern else data.stages.pre_tokenizer
        self._pattern = read_pattern(pattern) if pattern else None
        self.cuts = pattern != NO_CUTS  # whether it cuts any text that is UTF-8
        # The automaton and the numbers of its symbols. Replaced in one assignment: other threads
        # may read it, and an interrupt may end `add_characters` early.
        self._compiled: tuple[Automaton | None, dict[tuple[str, tuple[bool, ...]], int]] = None, {}
        self._lock = ForkSafeLock()
        if self._pattern is not None:
            self.add_characters(map(chr, range(128)))

    @property
    def automaton(self) -> Automaton | None:
        """The DFA that decides all cuts; None where only the library can cut."""
        return self._compiled[0]

    def cut(
        self, text: np.ndarray, edges: np.ndarray, whole: np.ndarray | None = None
    ) -> np.ndarray:
        """The ends of all pre-tokens of a text, int64, in bytes.

        ``text``: uint8. ``edges``: int64, ascending from 0 to the length of ``text``: each span
        between two edges is cut on its own. ``whole``: bool, one for each span: true where the
        span is one pre-token. A byte that is not UTF-8 is a pre-token too.
        """
        edges = np.ascontiguousarray(edges, np.int64)
        if whole is None:
            whole = np.zeros(max(0, len(edges) - 1), np.bool_)
        ends = np.empty(len(text), np.int64)
        while (dfa := self.automaton) is not None:
            count = kernels.cut(dfa.step, dfa.symbols, text, edges, whole, ends)
            if count == kernels.STUCK:
                break
            if count >= 0:
                return ends[:count]
            # Bytes that are not UTF-8 may join once ASCII is removed; characters stay whole.
            self.add_characters(set(text[text >= 128].tobytes().decode("utf8", "ignore")))
        return self._by_library(text.tobytes(), edges.tolist(), whole.tolist())

    def _by_library(self, text: bytes, edges: list[int], whole: list[bool]) -> np.ndarray:
        ends: list[int] = []
        spans: list[tuple[int, bytes]] = []  # valid ones, and where they begin
        for begin, end, is_whole in zip(edges[:-1], edges[1:], whole, strict=True):
            if is_whole and begin < end:
                ends.append(end)
                continue
            for first, last, valid in split_at_broken(text[begin:end]):
                if valid:
                    spans.append((begin + first, text[begin + first : begin + last]))
                else:
                    ends += range(begin + first + 1, begin + last + 1)
        # One token for each pre-token, whose offsets are those of the pre-token.
        model = {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}
        cutter: Any = Tokenizer.from_str(tokenizer_json(model, self._part))
        encoded = cutter.encode_batch([span.decode("utf8") for _, span in spans])
        for (begin, span), one in zip(spans, encoded, strict=True):
            starts = np.flatnonzero((np.frombuffer(span, np.uint8) & 0xC0) != 0x80)
            cuts = {x for offsets in one.offsets for x in offsets} | {len(starts)}
            ends += (begin + np.append(starts, len(span))[sorted(cuts - {0})]).tolist()
        return np.sort(np.array(ends, np.int64))

    def add_characters(self, characters: Iterable[str]) -> None:
        """Add characters to :attr:`automaton`; a new class of characters changes its table."""
        assert self._pattern is not None
        with self._lock:
            before, size = self._compiled[0], len(self._compiled[1])
            numbers = dict(self._compiled[1])
            symbols = before.symbols.copy() if before else np.full(0x110000, UNKNOWN, np.uint8)
            new = [c for c in characters if symbols[ord(c)] == UNKNOWN]
            kinds = _properties(self._pattern, new)
            for character, kind in zip(new, kinds, strict=True):
                own = character if character.isascii() or character in _FOLDED else ""
                number = numbers.setdefault((own, kind), len(numbers))
                symbols[ord(character)] = min(number + (number >= END), UNKNOWN)
            step: np.ndarray | None = None
            if before is not None and len(numbers) == size:
                step = before.step
            elif len(numbers) < UNKNOWN:
                step = automaton(self._pattern, [Symbol(*key) for key in numbers])
            self._compiled = None if step is None else Automaton(step, symbols), numbers


def _properties(pattern: Pattern, characters: list[str]) -> list[tuple[bool, ...]]:
    """Whether each character has each property of the pattern, by the library."""
    held = np.ones((len(pattern.properties), len(characters)), np.bool_)
    for held_by, name in zip(held, pattern.properties, strict=True):
        split = Split(Regex(name), "removed")
        for _, (begin, end) in split.pre_tokenize_str("".join(characters)):
            held_by[begin:end] = False
    return [tuple(column) for column in held.T.tolist()]
