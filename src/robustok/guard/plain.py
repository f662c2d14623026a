"""The verdict on one short row of plain text, computed in Python lists.

For a short row, creating arrays takes longer than the comparison itself. Returns the verdict that
:class:`robustok.guard.check.Guard` computes for blocks of rows, or None for a row with special or
unknown ids, bytes that are not UTF-8, the text of a special token, or a text that the tokenizer
changes: such a row is left to the blocks.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from robustok.guard.findings import KINDS, NO_FINDINGS, NOT_CANONICAL, Findings, FindingTable
from robustok.guard.verdict import Verdict
from robustok.vocabulary import Vocabulary

SHORT = 2048  # ids of a row that is judged here
_KIND = np.full(SHORT, KINDS.index(NOT_CANONICAL), np.uint8)


class PlainText(NamedTuple):
    """What the verdict on a row of plain text needs of a vocabulary."""

    vocab: Vocabulary
    special: re.Pattern[bytes] | None  # the text of any special token
    adds_space: bool  # the encoder puts a space before a text
    head: list[int]  # the ids that the tokenizer itself puts before a text
    tail: list[int]  # and after it


def check_plain(plain: PlainText, ids: list[int]) -> Verdict | None:
    """The verdict on a row of at most SHORT integers, or None where only a block can tell."""
    head, tail = plain.head, plain.tail
    begin = len(head) if head and ids[: len(head)] == head else 0
    end = len(ids) - (len(tail) if tail and ids[-len(tail) :] == tail else 0)
    body = ids[begin:end] if begin or end < len(ids) else ids
    spelled = plain.vocab.plain_bytes(body)
    if spelled is None:
        return None
    try:
        text = spelled.decode()
    except UnicodeDecodeError:
        return None
    if plain.special is not None and plain.special.search(spelled):
        return None
    if plain.adds_space and text[0] == " ":
        text = text[1:]
    encoded = plain.vocab.encode(text)
    canonical = encoded.tolist()
    repaired = encoded
    if len(body) < len(ids):
        repaired = np.array([*ids[:begin], *canonical, *ids[end:]], np.int32)
    if canonical == body:
        return Verdict(True, 0, 0, True, Findings(NO_FINDINGS, repaired, repaired), repaired)
    if b"".join([plain.vocab.tokens[i] for i in canonical]) != spelled:
        return None
    distance, splits, runs = _compare(plain.vocab.tokens, body, canonical)
    if begin:
        runs = [position + begin for position in runs]
    table = FindingTable(_KIND[: len(runs) // 4], runs[::4], runs[1::4], runs[2::4], runs[3::4])
    findings = Findings(table, ids.copy(), repaired)
    return Verdict(False, distance, splits, False, findings, repaired)


def _compare(
    tokens: list[bytes], ids: list[int], canonical: list[int]
) -> tuple[int, int, list[int]]:
    """Distance, splits, and four numbers for each run of ids without a counterpart.

    These are begin and end in ``ids``, and those of the ids in its place in ``canonical``. Both
    spell the same bytes, and an id matches where both have it at the same byte.
    """
    index, at = {}, 0
    for j, i in enumerate(canonical):
        index[at] = j
        at += len(tokens[i])
    index[at] = len(canonical)
    canonical = [*canonical, -1]  # the end of the text has no id
    runs: list[int] = []
    distance = splits = at = after = 0  # ``after`` the last match in ``canonical``
    first = -1  # of the current run
    for k, i in enumerate(ids):
        j = index.get(at, -1)
        at += len(tokens[i])
        splits += at not in index
        if canonical[j] != i:
            distance += 1
            if first < 0:
                first = k
            continue
        if first >= 0:
            runs += first, k, after, j
            first = -1
        after = j + 1
    if first >= 0:
        runs += first, len(ids), after, len(canonical) - 1
    return distance, splits, runs
