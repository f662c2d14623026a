"""``tokenizers.Encoding`` objects of drawn ids: tokens, words and offsets follow the text.

The library has no constructor for them; its pickled form, JSON, is used instead. Offsets are those
of the characters that a token's bytes belong to, as the library gives them. Where the normalizer
changed the text, tokens have the offsets of the canonical token.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

Fields = dict[str, Any]


def fields_of(encoding: Any) -> Fields:
    """The contents of an Encoding, before special tokens are added."""
    return json.loads(encoding.__getstate__())


def encoding_of(fields: Fields, sequence: int) -> Any:
    """An Encoding; ``sequence`` is 1 for the second text of a pair, else 0."""
    from tokenizers import Encoding

    size = len(fields["ids"])
    encoding = Encoding()
    encoding.__setstate__(
        json.dumps(
            {
                **fields,
                "type_ids": [sequence] * size,
                "special_tokens_mask": [0] * size,
                "attention_mask": [1] * size,
                "overflowing": [],
                "sequence_ranges": {},
            }
        ).encode()
    )
    return encoding


def redrawn(
    fields: Fields,
    new: np.ndarray,
    tokens: list[bytes],
    text: str | None,
    name: Callable[[int], str],
) -> Fields:
    """The contents of an Encoding after its ids became ``new``, other ids of the same bytes.

    ``tokens`` are the bytes of every id, ``text`` is the encoded text (None: it came in words, to
    which offsets are relative), ``name`` gives the token string of an id.
    """
    old = [tokens[i] for i in fields["ids"]]
    spelled = [tokens[i] for i in new.tolist()]
    old_ends = np.cumsum([max(len(t), 1) for t in old])
    ends = np.cumsum([max(len(t), 1) for t in spelled])
    starts = ends - [max(len(t), 1) for t in spelled]
    first = np.searchsorted(old_ends, starts, side="right")
    last = np.searchsorted(old_ends, ends - 1, side="right")
    if text is not None and b"".join(old) == text.encode("utf8"):
        offsets = _offsets_of_bytes(text, starts, ends)
    else:
        offsets = _offsets_within(fields["offsets"], old, old_ends, starts, ends, first, last)
    names = [name(i) for i in new.tolist()]
    same = np.asarray(fields["ids"])[first] == new  # and the same span, where the bytes agree
    for i in np.flatnonzero(same & (ends == old_ends[first])).tolist():
        offsets[i], names[i] = (fields[field][first[i]] for field in ("offsets", "tokens"))
    return {
        "ids": new.tolist(),
        "tokens": names,
        "words": [fields["words"][i] for i in first.tolist()],
        "offsets": offsets,
    }


def _offsets_of_bytes(text: str, starts: np.ndarray, ends: np.ndarray) -> list[Any]:
    """Character offsets of byte spans of ``text`` itself."""
    raw = np.frombuffer(text.encode("utf8"), np.uint8)
    character = np.cumsum((raw & 0xC0) != 0x80) - 1
    return np.stack([character[starts], character[ends - 1] + 1], axis=1).tolist()


def _offsets_within(
    offsets: list[Any],
    old: list[bytes],
    old_ends: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
) -> list[Any]:
    """Character offsets by canonical tokens: exact where a token's characters are the text's."""
    results = []
    for start, end, a, b in zip(starts, ends, first, last, strict=True):
        low, _ = _within(old[a], offsets[a], int(start - (old_ends[a] - len(old[a]))))
        _, high = _within(old[b], offsets[b], int(end - 1 - (old_ends[b] - len(old[b]))))
        results.append([low, max(low, high)])
    return results


def _within(token: bytes, span: list[int], place: int) -> tuple[int, int]:
    """The character span of byte ``place`` of a canonical token whose characters are ``span``."""
    begin, end = span
    try:
        characters = len(token.decode("utf8"))
    except UnicodeDecodeError:
        return begin, end
    added = characters - (end - begin)  # 1 where the tokenizer put a space before the text
    if added not in (0, 1) or (added and token[:1] != b" "):
        return begin, end
    index = sum((byte & 0xC0) != 0x80 for byte in token[: place + 1]) - 1 - added
    index = max(index, 0)  # a space before the text shares the span of the first character
    return begin + index, begin + index + 1
