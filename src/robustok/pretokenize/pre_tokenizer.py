"""Where a tokenizer's pre-tokenizer cuts: merges stay within these pre-tokens.

The cutting itself is the library's. Where one pattern decides about all of it, as in today's
byte-level tokenizers, an automaton does the same many times faster; what is a letter, a number or
a space is asked of the library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from robustok.locks import ForkSafeLock
from robustok.pretokenize.pattern import END, Pattern, Symbol, automaton, read_pattern
from robustok.tokenizer_files import TokenizerData, steps
from robustok.utf8 import split_at_broken

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_NOWHERE = r"\p{Any}+"
_UNKNOWN = 255  # among symbols: not looked up yet
_FOLDED = "\u017f\u212a"  # where case is ignored, these are equal to letters of ASCII
_TIMES = r"\{\d*,?\d*\}\+"  # possessive to tiktoken; to tokenizers, several times so many times


class Automaton(NamedTuple):
    """What finds the pre-tokens, and what it reads characters as."""

    step: np.ndarray  # int16 [states, symbols], as :func:`automaton` makes it
    symbols: np.ndarray  # uint8 [code points]: the symbol of a character, or 255: not known yet


class PreTokenizer:
    """Cuts texts as the pre-tokenizer of ``data`` does; without one, not at all."""

    def __init__(self, data: TokenizerData) -> None:
        module = type(data.source).__module__.split(".")[0]
        if module == "tiktoken":
            part: dict | None = _split(data.source._pat_str)
        elif module == "sentencepiece":
            part = None
        else:
            part = stage_of(data.source, "pre_tokenizer") if data.source else None
        found = _only_pattern(steps(part, "pretokenizers"))
        if found is not None and module != "tiktoken" and re.search(_TIMES, found):
            found = None
        self._part = _split(found) if found else part
        self._pattern = read_pattern(found) if found else None
        # The automaton and the numbers of its symbols, replaced in one assignment: other threads
        # may be cutting, and learning may be interrupted.
        self._learned: tuple[Automaton | None, dict[tuple[str, tuple[bool, ...]], int]] = None, {}
        self._lock = ForkSafeLock()
        if self._pattern is not None:
            self.learn(map(chr, range(128)))

    @property
    def automaton(self) -> Automaton | None:
        """What decides all cuts; None where only the library can cut."""
        return self._learned[0]

    def cut(self, text: np.ndarray, edges: np.ndarray, whole: np.ndarray | None = None) -> Any:
        """The ends of all pre-tokens, int64, of bytes that are cut at ``edges`` in any case.

        ``text`` is uint8, ``edges`` int64 in ascending order from 0 to its length. Where ``whole``
        is true the bytes from an edge to the next are a pre-token. A byte that is not UTF-8 is
        one too.
        """
        from robustok.kernels import pre_tokens as kernels

        edges = np.ascontiguousarray(edges, np.int64)
        if whole is None:
            whole = np.zeros(max(0, len(edges) - 1), np.bool_)
        ends = np.empty(len(text), np.int64)
        while (found := self.automaton) is not None:
            count = kernels.cut(found.step, found.symbols, text, edges, whole, ends)
            if count == kernels.STUCK:
                break
            if count >= 0:
                return ends[:count]
            # Without what is between them, broken bytes may join; whole characters stay whole.
            self.learn(set(text[text >= 128].tobytes().decode("utf8", "ignore")))
        return self._by_library(text.tobytes(), edges.tolist(), whole.tolist())

    def _by_library(self, text: bytes, edges: list[int], whole: list[bool]) -> np.ndarray:
        parts: list[tuple[int, bytes, str | None]] = []
        for begin, end, is_whole in zip(edges[:-1], edges[1:], whole, strict=True):
            if is_whole and begin < end:
                parts.append((begin, text[begin:end], None))
            else:
                parts += [(begin + at, *rest) for at, *rest in _stretches(text[begin:end])]
        strings = [string for _, _, string in parts if string is not None]
        encoded = iter(_word_tokenizer(self._part).encode_batch(strings))
        found = [np.empty(0, np.int64)]
        for begin, stretch, string in parts:
            if string is None:
                ends = np.array([len(stretch)])
            else:
                cuts = {x for span in next(encoded).offsets for x in span} | {len(string)}
                ends = _byte_ends(stretch, sorted(cuts - {0}))
            found.append(begin + ends)
        return np.concatenate(found)

    def learn(self, characters: Iterable[str]) -> None:
        """Give these characters symbols of :attr:`automaton`; a new kind of them changes it."""
        assert self._pattern is not None
        with self._lock:
            before, size = self._learned[0], len(self._learned[1])
            known = dict(self._learned[1])
            symbols = before.symbols.copy() if before else np.full(0x110000, _UNKNOWN, np.uint8)
            new = [c for c in characters if symbols[ord(c)] == _UNKNOWN]
            kinds = _properties(self._pattern, new)
            for character, kind in zip(new, kinds, strict=True):
                own = character if character.isascii() or character in _FOLDED else ""
                number = known.setdefault((own, kind), len(known))
                symbols[ord(character)] = min(number + (number >= END), _UNKNOWN)
            step: np.ndarray | None = None
            if before is not None and len(known) == size:
                step = before.step
            elif len(known) < _UNKNOWN:
                step = automaton(self._pattern, [Symbol(*key) for key in known])
            self._learned = None if step is None else Automaton(step, symbols), known


def _properties(pattern: Pattern, characters: list[str]) -> list[tuple[bool, ...]]:
    """What the library says of each character."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    held = np.ones((len(pattern.properties), len(characters)), np.bool_)
    for held_by, name in zip(held, pattern.properties, strict=True):
        split = Split(Regex(name), "removed")
        for _, (begin, end) in split.pre_tokenize_str("".join(characters)):
            held_by[begin:end] = False
    return [tuple(column) for column in held.T.tolist()]


def stage_of(tokenizer: Any, name: str) -> dict | None:
    """A stage of a ``tokenizers`` pipeline as in its JSON, without the vocabulary written out."""
    stage = getattr(tokenizer, name)
    return None if stage is None else json.loads(stage.__getstate__())


def _split(pattern: str) -> dict:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _only_pattern(stages: list[dict]) -> str | None:
    """The one pattern that decides all cuts, if there is such."""
    if any(s["type"] == "ByteLevel" for s in stages[:-1]):
        return None  # what comes after it sees other characters than the text's
    splits = [s for s in stages if s["type"] != "ByteLevel" or s.get("use_regex", True)]
    if not splits:
        return _NOWHERE
    if len(splits) > 1:
        return None
    if splits[0]["type"] == "ByteLevel":
        return _GPT2
    if splits[0]["type"] != "Split" or splits[0].get("invert"):
        return None
    if splits[0].get("behavior", "Isolated") != "Isolated":
        return None
    return splits[0]["pattern"].get("Regex")


def _word_tokenizer(part: dict | None) -> Any:
    """A tokenizer whose every pre-token is one token, so that its offsets are the pre-tokens'."""
    from tokenizers import Tokenizer

    model = {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}
    return Tokenizer.from_str(
        json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
                    "normalizer": None, "pre_tokenizer": part, "post_processor": None,
                    "decoder": None, "model": model})
    )  # fmt: skip


def _stretches(text: bytes) -> Iterator[tuple[int, bytes, str | None]]:
    """The text in valid stretches, with their strings, and single bytes that are not UTF-8."""
    for begin, end, valid in split_at_broken(text):
        if valid:
            yield begin, text[begin:end], text[begin:end].decode("utf8")
        else:
            yield from ((i, text[i : i + 1], None) for i in range(begin, end))


def _byte_ends(text: bytes, ends: list[int]) -> np.ndarray:
    """Ends in characters as ends in bytes, int64."""
    starts = np.flatnonzero((np.frombuffer(text, np.uint8) & 0xC0) != 0x80)
    return np.append(starts, len(text))[ends]
