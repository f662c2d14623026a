"""Cuts long texts into parts that gigatoken can encode one by one, with the ids of the whole.

A part ends where the pre-tokenizer cuts, whatever comes after it. A long pre-token is encoded in
windows that overlap. Windows are joined at a token that both have at the same place: a sequence of
BPE tokens is the canonical one of its text if each two neighbors are that of theirs, and here each
two neighbors are neighbors in a window.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from robustok.tokenizer.pre_tokenizer import PreTokenizer

PART = 1 << 16  # characters after which a text is cut where it can be
LONGEST = 1 << 18  # characters without a simple cut, after which pre-tokens are looked for
WHOLE = 1 << 20  # characters without a cut: colliding texts take time quadratic in this
OVERLAP = 1 << 11  # bytes that two windows share at least; more than the longest token
_LAST = 8  # pre-tokens at the end of a part that are compared

Encode = Callable[[str], np.ndarray | None]

# A byte-level pre-tokenizer of those that gigatoken knows always cuts here, whatever is around.
_CUT = re.compile(r"[A-Za-z](?= [A-Za-z])")


def encode_byte_level(
    text: str, encode: Encode, lengths: np.ndarray, pre_tokenizer: PreTokenizer | None
) -> np.ndarray | None:
    """The ids of a text by the ids of its parts, int32; None where it cannot be cut.

    Args:
        text: any length.
        encode: the ids of a part, or None where it fails.
        lengths: int64 [ids], the bytes of each token.
        pre_tokenizer: None where it is not known, as for a text with added tokens.
    """
    if pre_tokenizer is not None and pre_tokenizer.automaton is None:
        pre_tokenizer = None
    rows: list[np.ndarray | None] = []
    begin = 0
    while len(text) - begin > PART:
        cut = _CUT.search(text, begin + PART // 2, begin + LONGEST)
        if cut is None:
            break
        rows.append(encode(text[begin : cut.end()]))
        begin = cut.end()
    rest = text[begin:]
    if len(rest) <= LONGEST or (pre_tokenizer is None and len(rest) <= WHOLE):
        rows.append(encode(rest))
    elif pre_tokenizer is None:
        return None
    else:
        for part, is_pre_token in _pre_token_parts(rest.encode(), pre_tokenizer):
            if is_pre_token:
                rows.append(join_windows(part, encode, lengths, pre_tokenizer))
            else:
                rows.append(encode(part))
            if rows[-1] is None:
                return None
    known = [row for row in rows if row is not None]
    return np.concatenate(known) if len(known) == len(rows) else None


def _pre_token_parts(raw: bytes, pre_tokenizer: PreTokenizer) -> Iterator[tuple[str, bool]]:
    """A text cut between pre-tokens, and of each part whether it is one longer than LONGEST.

    How a text is cut depends on what follows, not on what precedes: each part is cut as in the
    whole text if its last pre-tokens are. Where they are not, the next part belongs to it.
    """
    array = np.frombuffer(raw, np.uint8)
    ends = pre_tokenizer.cut(array, np.array([0, len(raw)]))
    long = np.flatnonzero(np.diff(ends, prepend=0) > LONGEST)
    begin = first = 0  # byte, and number of the first pre-token
    while begin < len(raw):
        last = min(int(np.searchsorted(ends, begin + PART)), len(ends) - 1)
        following = long[np.searchsorted(long, first) :][:1]
        if len(following) and first <= following[0] <= last:
            last = max(first, int(following[0]) - 1)
        while not _cut_alike(array, ends, first, last, pre_tokenizer):
            last += 1
        end = int(ends[last])
        yield raw[begin:end].decode(), first == last and end - begin > LONGEST
        begin, first = end, last + 1


def _cut_alike(
    text: np.ndarray, ends: np.ndarray, first: int, last: int, pre_tokenizer: PreTokenizer
) -> bool:
    """Whether pre-tokens ``first`` to ``last`` of a text are cut alike if the text ends there."""
    some = max(first, last - _LAST)
    begin = int(ends[some - 1]) if some else 0
    if last == len(ends) - 1 or (first == last and ends[last] - begin > LONGEST):
        return True  # the end of the text, or a pre-token whose windows are compared
    end_of_part = text[begin : int(ends[last])]
    alone = pre_tokenizer.cut(end_of_part, np.array([0, len(end_of_part)]))
    return np.array_equal(alone + begin, ends[some : last + 1])


def join_windows(
    text: str, encode: Encode, lengths: np.ndarray, pre_tokenizer: PreTokenizer | None = None
) -> np.ndarray | None:
    """The ids of one pre-token from those of windows, int32; None where windows do not meet.

    Args:
        text: one pre-token.
        encode: the ids of a window, or None where it fails.
        lengths: int64 [ids], the bytes of each token.
        pre_tokenizer: must leave each window whole; None where there is none.
    """
    raw = text.encode()
    rows: list[np.ndarray] = []
    window = _encode_window(raw, 0, encode, lengths, pre_tokenizer)
    while window is not None:
        ids, starts, end = window
        if end == len(raw):
            return np.concatenate([*rows, ids])
        window = None
        for overlap in (OVERLAP, 4 * OVERLAP, 16 * OVERLAP):
            begin = _last_start(raw, starts, end - overlap)
            if begin is None:
                break
            following = _encode_window(raw, begin, encode, lengths, pre_tokenizer)
            if following is None:
                break
            first = int(np.searchsorted(starts, begin))
            last = int(np.searchsorted(following[1], starts[-1], "right"))
            _, here, after = np.intersect1d(  # where both have a token
                starts[first:], following[1][:last], True, return_indices=True
            )
            shared = np.flatnonzero(ids[first + here] == following[0][after])
            if len(shared):
                i, j = first + int(here[shared[0]]), int(after[shared[0]])
                rows.append(ids[:i])
                window = following[0][j:], following[1][j:], following[2]
                break
    return None


def _last_start(raw: bytes, starts: np.ndarray, before: int) -> int | None:
    """The last token after the first that starts a character and is not after ``before``."""
    number = int(np.searchsorted(starts, before, "right")) - 1
    while number > 0 and raw[starts[number]] & 0xC0 == 0x80:
        number -= 1
    return int(starts[number]) if number > 0 else None


def _encode_window(
    raw: bytes, begin: int, encode: Encode, lengths: np.ndarray, pre_tokenizer: PreTokenizer | None
) -> tuple[np.ndarray, np.ndarray, int] | None:
    """The ids of a window from ``begin``, where each token starts in ``raw``, and its end.

    None where it cannot be encoded alone.
    """
    end = min(begin + PART, len(raw))
    while end < len(raw) and raw[end] & 0xC0 == 0x80:
        end -= 1
    if pre_tokenizer is not None:
        array = np.frombuffer(raw[begin:end], np.uint8)
        if len(pre_tokenizer.cut(array, np.array([0, len(array)]))) != 1:
            return None
    ids = encode(raw[begin:end].decode())
    if ids is None:
        return None
    ends = np.cumsum(lengths[ids])
    if ends[-1] != end - begin:
        return None
    return ids, begin + ends - lengths[ids], end
