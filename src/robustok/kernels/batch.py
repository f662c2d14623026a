"""What every draw kernel reads and writes: vocabulary, batch of texts, output rows.

Also splits rows at fixed (special or kept) tokens before a draw and reassembles them afterwards.

Arguments of one meaning in this module: ``values``: int32, the ids of all rows; row r is
values[offsets[r]:offsets[r + 1]]. ``offsets``: int64 [rows + 1], ascending. ``fixed``: bool [ids of
all rows].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler import borrow, njit
from robustok.kernels.trie import Trie


class Tokens(NamedTuple):
    """A vocabulary; token t is ``bytes[offsets[t]:offsets[t + 1]]``."""

    trie: Trie  # the ordinary tokens
    bytes: np.ndarray  # uint8 [bytes of all tokens]
    offsets: np.ndarray  # int64 [ids + 1], ascending, the last one len(bytes)
    border: np.ndarray  # int64 [ids]: bytes << 16 | first byte << 8 | last byte; one cache miss


class Rows(NamedTuple):
    """Output of a draw kernel: draw d of text first + t ends at ``ends[t * draws + d]``.

    Invariant: a draw has at most one token for each byte of its text, and a sampler's ``_max_ids``
    bounds the tokens of all draws together, so ``ids`` never overflows.
    """

    ids: np.ndarray  # int32 [at least the tokens drawn]
    ends: np.ndarray  # int64 [texts * draws]


class Batch(NamedTuple):
    """Texts to draw for; text t is ``values[offsets[t]:offsets[t + 1]]``.

    Its values are ids below the number of tokens, each with at least one byte, or bytes (uint8)
    for kernels that need no canonical ids.
    """

    values: np.ndarray  # int32 ids or uint8 bytes
    offsets: np.ndarray  # int64 [texts + 1]
    keys: np.ndarray  # int64 [texts]: key of the row a text belongs to
    parts: np.ndarray  # int64 [texts]: number of the text within its row
    seed: np.uint64
    epoch: np.int64
    draws: np.int64


def tokens_of(trie: Trie, token_bytes: np.ndarray, token_offsets: np.ndarray) -> Tokens:
    """The `Tokens` of a vocabulary; the border of a token without bytes is 0."""
    lengths = np.diff(token_offsets)
    border = lengths << 16
    some = lengths > 0
    border[some] |= token_bytes[token_offsets[:-1][some]].astype(np.int64) << 8
    border[some] |= token_bytes[token_offsets[1:][some] - 1]
    return Tokens(trie, token_bytes, token_offsets, border)


@njit(inline="always")
def copy_to(source, size, target, at):
    """Copy the first ``size`` values of ``source`` to ``target``, from index ``at`` on.

    A loop, since numba compiles the formatted error message of an assignment to a slice: a second
    for each kernel. ``source``: int32 [at least ``size``] or of any other dtype. ``target``: int32
    [at least ``at + size``] or of any other dtype.
    """
    for i in range(size):
        target[at + i] = source[i]


@njit()
def survey(values, offsets, readable, token_offsets, byte_offsets):
    """One pass over the ids: writes the bytes before each row to ``byte_offsets``, checks the ids.

    ``readable``: bool [ids of the vocabulary], the token has a text. ``byte_offsets``: int64 [rows
    + 1]. An id is checked against len(readable) before its use as an index, so ``token_offsets``
    needs len(readable) + 1 values. Returns the position of the first id outside the vocabulary (or
    -1), and whether some id before it is not readable.
    """
    values, offsets, readable = borrow(values), borrow(offsets), borrow(readable)
    token_offsets, byte_offsets = borrow(token_offsets), borrow(byte_offsets)
    size = len(readable)
    any_fixed = False
    total = np.int64(0)
    for row in range(len(offsets) - 1):
        byte_offsets[row] = total
        for v in range(offsets[row], offsets[row + 1]):
            t = values[v]
            if t < 0 or t >= size:
                return np.int64(v), any_fixed
            any_fixed |= not readable[t]
            total += token_offsets[t + 1] - token_offsets[t]
    byte_offsets[len(offsets) - 1] = total
    return np.int64(-1), any_fixed


@njit()
def spell(token_bytes, token_offsets, values, start, end, out, at):
    """Append the bytes of values[start:end] to ``out``; returns the end.

    ``out``: uint8 [capacity], with space for all these bytes from index ``at`` on.
    """
    token_bytes, token_offsets = borrow(token_bytes), borrow(token_offsets)
    values, out = borrow(values), borrow(out)
    for v in range(start, end):
        t = values[v]
        for p in range(token_offsets[t], token_offsets[t + 1]):
            out[at] = token_bytes[p]
            at += 1
    return at


@njit()
def spell_rows(token_bytes, token_offsets, values, offsets):
    """The bytes of all rows, uint8, and where each row begins in them, int64 [rows + 1].

    The first of ``offsets`` is not always 0.
    """
    token_bytes, token_offsets = borrow(token_bytes), borrow(token_offsets)
    values, offsets = borrow(values), borrow(offsets)
    byte_offsets = np.zeros(len(offsets), np.int64)
    for row in range(len(offsets) - 1):
        size = byte_offsets[row]
        for v in range(offsets[row], offsets[row + 1]):
            size += token_offsets[values[v] + 1] - token_offsets[values[v]]
        byte_offsets[row + 1] = size
    out = np.empty(byte_offsets[-1], np.uint8)
    spell(token_bytes, token_offsets, values, offsets[0], offsets[-1], out, 0)
    return out, byte_offsets


@njit()
def split_at_fixed(offsets, fixed):
    """Texts between fixed tokens: (row, part, start, end) of each, empty ones left out.

    Returns int64 [texts, 4]; a text has at least one id that is not fixed, which bounds the number
    of texts.
    """
    count = 0
    for v in range(len(fixed)):
        if not fixed[v]:
            count += 1
    texts = np.empty((count + 1, 4), np.int64)
    n = 0
    for row in range(len(offsets) - 1):
        v = offsets[row]
        part = 0
        while v < offsets[row + 1]:
            if fixed[v]:
                v += 1
                continue
            begin = v
            while v < offsets[row + 1] and not fixed[v]:
                v += 1
            texts[n, 0], texts[n, 1], texts[n, 2], texts[n, 3] = row, part, begin, v
            n += 1
            part += 1
    return texts[:n]


@njit()
def gather(values, texts):
    """The texts' ids alone, one after another.

    ``texts``: int64 [texts, 4], from `split_at_fixed`. Returns the ids and their offsets, int64
    [texts + 1].
    """
    offsets = np.zeros(len(texts) + 1, np.int64)
    for t in range(len(texts)):
        offsets[t + 1] = offsets[t] + texts[t, 3] - texts[t, 2]
    out = np.empty(offsets[-1], values.dtype)
    for t in range(len(texts)):
        at = offsets[t]
        for v in range(texts[t, 2], texts[t, 3]):
            out[at] = values[v]
            at += 1
    return out, offsets


@njit()
def reassemble(values, offsets, fixed, texts, draws, drawn, drawn_offsets):
    """Rows with their fixed tokens back in place; text t, draw d is drawn row t * draws + d.

    ``texts``: int64 [texts, 4], from `split_at_fixed` with the same arguments. ``draws``: how many
    of each text. ``drawn``: int32 [drawn ids]; drawn row x is
    drawn[drawn_offsets[x]:drawn_offsets[x + 1]]. ``drawn_offsets``: int64 [texts * draws + 1].
    Returns the ids (int32) and their offsets (int64 [rows * draws + 1]). Each drawn id is written
    once and each fixed one once per draw, which is the size of the result.
    """
    rows = len(offsets) - 1
    fixed_ids = 0
    for v in range(len(fixed)):
        if fixed[v]:
            fixed_ids += 1
    out = np.empty(len(drawn) + draws * fixed_ids, np.int32)
    out_offsets = np.zeros(rows * draws + 1, np.int64)
    at = 0
    first = 0
    for row in range(rows):
        last = first
        while last < len(texts) and texts[last, 0] == row:
            last += 1
        for d in range(draws):
            t = first
            v = offsets[row]
            while v < offsets[row + 1]:
                if fixed[v]:
                    out[at] = values[v]
                    at += 1
                    v += 1
                else:
                    x = t * draws + d
                    for y in range(drawn_offsets[x], drawn_offsets[x + 1]):
                        out[at] = drawn[y]
                        at += 1
                    v = texts[t, 3]
                    t += 1
            out_offsets[row * draws + d + 1] = at
        first = last
    return out, out_offsets


def spelled(batch: Batch, token_bytes: np.ndarray, token_offsets: np.ndarray) -> Batch:
    """A batch of ids as one of bytes."""
    values, offsets = spell_rows(token_bytes, token_offsets, batch.values, batch.offsets)
    return batch._replace(values=values, offsets=offsets)


def texts_between(batch: Batch, first: int, last: int) -> Batch:
    """The texts first..last of a batch, on the same values."""
    return batch._replace(
        offsets=batch.offsets[first : last + 1],
        keys=batch.keys[first:last],
        parts=batch.parts[first:last],
    )
