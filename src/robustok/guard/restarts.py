"""Where a canonical encoder starts afresh whatever stands before, so that text falls into runs.

The encoding of a text is then the encodings of its runs in a row, and a run that was encoded once
need not be encoded again. Where nothing can be proven about a tokenizer, there is only one run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.pieces.cutter import PieceCutter, stage_of
from robustok.pieces.pattern import END
from robustok.tokenizer_files import steps
from robustok.vocabulary import Vocabulary

_LOCAL = {"NFC", "NFKC", "Prepend", "Replace", "Precompiled"}  # normalizers that leave ASCII to us


class Restarts(NamedTuple):
    """A run ends between tokens a and b where ``cut[last[a], first[b]]``."""

    first: np.ndarray  # uint8 or uint16 [ids]: a token's first character or byte, by kind
    last: np.ndarray  # uint8 or uint16 [ids]
    cut: np.ndarray  # bool [kinds, kinds]; of the last kind nothing is cut


def restarts(vocab: Vocabulary) -> Restarts:
    """The places between two tokens of ``vocab`` across which nothing reaches.

    Where no match of a pattern can pass between two kinds of characters, the rest is matched as if
    it stood alone. Without a pattern, merges end where no token holds the two bytes side by side.
    """
    return vocab.derived("restarts", lambda: _restarts(vocab))


def _restarts(vocab: Vocabulary) -> Restarts:
    normalizers, cut_before = _pipeline(vocab)
    if not normalizers <= _LOCAL:
        return _nowhere(vocab.size)
    found = _by_character(vocab, PieceCutter(vocab.data)) if cut_before else _by_byte(vocab)
    if normalizers - {"Prepend", "Replace"}:
        # A combining mark changes the character before it, so that nothing ends there.
        found.first[[t[:1] >= b"\x80" for t in vocab.tokens]] = len(found.cut) - 1
    return found


def _by_character(vocab: Vocabulary, cutter: PieceCutter) -> Restarts:
    """A symbol of the automaton for each end of a token; the last one for what no run ends at."""
    if cutter.automaton is None:
        return _nowhere(vocab.size)
    ends = [(_character(t[:4], 0), _character(t[-4:], -1)) for t in vocab.tokens]
    cutter.learn({c for pair in ends for c in pair if c})
    step, symbols = cutter.automaton
    never = step.shape[1]
    first, last = (
        np.array([symbols[ord(c)] if c else never for c in side], np.uint8)
        for side in zip(*ends, strict=True)
    )
    first[~vocab.readable] = last[~vocab.readable] = never
    cut = np.zeros((never + 1, never + 1), np.bool_)
    cut[:never, :never] = _severed(step)
    return Restarts(first, last, cut)


def _severed(step: np.ndarray) -> np.ndarray:
    """Whether pieces end between two symbols whatever else is there, bool [symbols, symbols].

    They do if no way through the pattern that has read the first goes on with the second, and none
    asks what the second is: on the left side all is as if the text ended there.
    """
    after, matched = step >> 1, step & 1
    severed = np.zeros((step.shape[1], step.shape[1]), np.bool_)
    if not matched[np.delete(after[1], END)].all():
        return severed  # what no match covers would be a piece too
    for a in range(len(severed)):
        reached = np.setdiff1d(after[:, a], [0])
        as_at_end = matched[reached] == matched[reached][:, [END]]
        severed[a] = ((after[reached] == 0) & as_at_end).all(axis=0)
    severed[END] = severed[:, END] = False
    return severed


def _character(part: bytes, end: int) -> str:
    """The first or last character of the bytes at a token's end, "" where it is not whole."""
    starts = [i for i, byte in enumerate(part) if byte & 0xC0 != 0x80]
    if not starts or (end == 0 and starts[0] != 0):
        return ""
    begin = starts[end]
    stop = starts[1] if end == 0 and len(starts) > 1 else len(part)
    try:
        return part[begin:stop].decode("utf8")
    except UnicodeDecodeError:
        return ""


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


def _pipeline(vocab: Vocabulary) -> tuple[set[str], bool]:
    """The types of the normalizers, and whether texts are cut before they are encoded."""
    source = vocab.data.source
    module = type(source).__module__.split(".")[0]
    if module != "tokenizers":
        return ({"Precompiled"} if module == "sentencepiece" else set()), module == "tiktoken"
    return {
        s["type"] if s["type"] != "Replace" or s["pattern"] == {"String": " "} else "replaces"
        for s in steps(stage_of(source, "normalizer"), "normalizers")
    }, source.pre_tokenizer is not None  # fmt: skip
