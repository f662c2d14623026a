"""Where a canonical encoder starts afresh whatever stands before, so that text falls into runs.

The encoding of a text is then the encodings of its runs in a row, and a run that was encoded once
need not be encoded again. Where nothing can be proven about a tokenizer, there is only one run.
"""

from __future__ import annotations

import re
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import numpy as np

from robustok.samplers.pieces import PieceCutter, stage_of
from robustok.vocabulary import Vocabulary

_SPACES = frozenset("\t\n\v\f\r ")
_KINDS = "LN \nso?"  # letter, number, space, line end, other space, other, part of a character
_LOCAL = {"NFC", "NFKC", "Prepend", "Replace", "Precompiled"}  # normalizers that leave ASCII to us


class Restarts(NamedTuple):
    """A run ends between tokens a and b where ``cut[last[a], first[b]]``."""

    first: np.ndarray  # uint8 [ids]: the kind of a token's first character, or its first byte
    last: np.ndarray  # uint8 [ids]
    cut: np.ndarray  # bool [kinds, kinds]


def restarts(vocab: Vocabulary) -> Restarts:
    """The places between two tokens of ``vocab`` across which nothing reaches.

    A pattern's pieces end wherever no piece holds these two kinds of characters in this order: a
    match cannot pass there, and without a look behind the rest is matched as if it stood alone.
    Without a pattern, merges end wherever no token holds the two bytes side by side.
    """
    made = vars(vocab).get("_restarts")
    if made is None:
        made = vars(vocab)["_restarts"] = _restarts(vocab)
    return made


def _restarts(vocab: Vocabulary) -> Restarts:
    normalizers, stages = _pipeline(vocab)
    if not normalizers <= _LOCAL:
        return _nowhere(vocab.size)
    cutter = PieceCutter(vocab.data)
    if cutter.pattern is not None:
        pairs = joined_kinds(cutter.pattern)
        found = _by_kind(vocab, cutter, pairs) if pairs is not None else _nowhere(vocab.size)
    elif stages <= {"Metaspace"} and not cutter.cuts:
        found = _by_byte(vocab)
    else:
        return _nowhere(vocab.size)
    if normalizers - {"Prepend", "Replace"}:
        # A combining mark changes the character before it, so that nothing ends there.
        starts = np.array([t[:1] < b"\x80" for t in vocab.tokens])
        found.first[~starts] = len(found.cut) - 1
        found.cut[:, -1] = False
    return found


def joined_kinds(pattern: re.Pattern[str]) -> set[tuple[str, str]] | None:
    """The kinds of characters that a match may hold in this order, or None where it is unclear.

    Too many pairs rather than too few: any two characters that the pattern names one after the
    other, with whatever may be left out between them.
    """
    if not all(pattern.match(chr(c)) for c in range(128)):
        return None  # what no match covers would be a piece too
    try:
        return _walk(parser.parse(pattern.pattern, pattern.flags), set())[1]
    except _Unclear:
        return None


class _Unclear(Exception):
    pass


def _walk(items: Any, before: set[str]) -> tuple[set[str], set[tuple[str, str]]]:
    """Kinds that a sequence of items can consume, and the pairs of them in this order."""
    seen: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for op, argument in items:
        name = str(op)
        if name == "ASSERT_NOT" and argument[0] == 1 and seen and seen | before <= set(" \ns"):
            continue  # asked after a space only, and no run ends there
        kinds, inner = _item(name, op, argument, before | seen)
        pairs |= inner | {(a, b) for a in seen for b in kinds}
        seen |= kinds
    return seen, pairs


def _item(name: str, op: Any, argument: Any, before: set[str]) -> Any:
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        _, most, inside = argument
        kinds, pairs = _walk(inside, before)
        return kinds, pairs | ({(a, b) for a in kinds for b in kinds} if most > 1 else set())
    if name == "SUBPATTERN":
        return _walk(argument[3], before)
    if name == "BRANCH":
        found = [_walk(branch, before) for branch in argument[1]]
        return set().union(*(k for k, _ in found)), set().union(*(p for _, p in found))
    if name in ("LITERAL", "NOT_LITERAL", "IN", "ANY"):
        # The one item as a pattern of its own: ``re`` itself says what it matches.
        one = _one(name, argument)
        return {_kind(chr(c)) for c in range(128) if one(c)}, set()
    raise _Unclear(name)


def _one(name: str, argument: Any) -> Any:
    if name == "ANY":
        return lambda c: True
    if name in ("LITERAL", "NOT_LITERAL"):
        return lambda c: (c == argument) == (name == "LITERAL")
    negated = str(argument[0][0]) == "NEGATE"
    ranges = []
    for op, value in argument[1 if negated else 0 :]:
        if str(op) not in ("LITERAL", "RANGE"):
            raise _Unclear(str(op))
        ranges.append((value, value) if str(op) == "LITERAL" else value)
    return lambda c: any(low <= c <= high for low, high in ranges) != negated


def _kind(character: str) -> str:
    if character in _SPACES:
        return " " if character == " " else "\n" if character in "\r\n" else "s"
    return "L" if character.isalpha() else "N" if character.isdigit() else "o"


def _by_kind(vocab: Vocabulary, cutter: PieceCutter, pairs: set[tuple[str, str]]) -> Restarts:
    numbers = {kind: i for i, kind in enumerate(_KINDS)}
    cut = np.zeros((len(_KINDS), len(_KINDS)), np.bool_)
    for a in "LNo":
        for b in "LN \nso":
            cut[numbers[a], numbers[b]] = (a, b) not in pairs
    first, last = (np.full(vocab.size, numbers["?"], np.uint8) for _ in range(2))
    for i in np.flatnonzero(vocab.readable).tolist():
        token = vocab.tokens[i]
        first[i] = numbers[_end_kind(token[:4], cutter, 0)]
        last[i] = numbers[_end_kind(token[-4:], cutter, -1)]
    return Restarts(first, last, cut)


def _end_kind(token: bytes, cutter: PieceCutter, end: int) -> str:
    """The kind of the first or last character, '?' where it is not whole."""
    if token[end] < 0x80:
        return _kind(chr(token[end]))
    starts = [i for i, byte in enumerate(token) if byte & 0xC0 != 0x80]
    if not starts or (end == 0 and starts[0] != 0):
        return "?"
    begin = starts[end]
    stop = starts[1] if end == 0 and len(starts) > 1 else len(token)
    try:
        return _kind(cutter.stand_in(token[begin:stop].decode("utf8")))
    except UnicodeDecodeError:
        return "?"


def _by_byte(vocab: Vocabulary) -> Restarts:
    """Kind 256 is of tokens without bytes, which no run ends at."""
    first, last = np.full(vocab.size, 256, np.uint16), np.full(vocab.size, 256, np.uint16)
    for i in np.flatnonzero(vocab.readable).tolist():
        first[i], last[i] = vocab.tokens[i][0], vocab.tokens[i][-1]
    cut = np.zeros((257, 257), np.bool_)
    cut[:256, :256] = ~vocab.trie.joined.reshape(256, 256)
    return Restarts(first, last, cut)


def _nowhere(size: int) -> Restarts:
    return Restarts(np.zeros(size, np.uint8), np.zeros(size, np.uint8), np.zeros((1, 1), np.bool_))


def _pipeline(vocab: Vocabulary) -> tuple[set[str], set[str]]:
    """The types of the normalizers and of the pre-tokenizers."""
    source = vocab.data.source
    module = type(source).__module__.split(".")[0]
    if module != "tokenizers":
        return ({"Precompiled"} if module == "sentencepiece" else set()), set()
    found = []
    for part, inner in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")):
        stage = stage_of(source, part)
        stages = [stage] if stage else []
        while any(s["type"] == "Sequence" for s in stages):
            stages = [t for s in stages for t in (s[inner] if s["type"] == "Sequence" else [s])]
        found.append({
            s["type"] if s["type"] != "Replace" or s["pattern"] == {"String": " "} else "replaces"
            for s in stages
        })  # fmt: skip
    return found[0], found[1]
