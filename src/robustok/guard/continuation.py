"""Which ids may follow others so that the whole stays canonical.

An id may follow if the ids with it begin the canonical encoding of some text. Only the end of the
ids decides: encoding can start again where a pre-token begins, or where no token of the vocabulary
lies across (a restart position). From the last one on, the tokenizer itself encodes the text with
each candidate, and the ids are compared. Source: "Language Models over Canonical Byte-Pair
Encodings", arXiv 2506.07956, which derives such masks for BPE without pre-tokens.

A call of an encoder costs microseconds, however short its text is. Where the pre-tokenizer cuts
between the ids and a candidate, the candidate has the ids that it has alone, which are kept. Only
the others are encoded.
"""

from __future__ import annotations

import unicodedata
from codecs import getincrementaldecoder
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from robustok.checks import check_ids
from robustok.guard.canonical import SegmentEncoder
from robustok.ragged import Ragged
from robustok.tokenizer.data import broken_spans
from robustok.tokenizer.pre_tokenizer import PreTokenizer
from robustok.tokenizer.vocabulary import Vocabulary, check_vocabulary

_KEPT = 512  # masks, of one bit an id
_WITNESSES = 8  # characters of each kind that are tried to complete the start of one
_CHARACTERS = [(0x80, 0xD800), (0xE000, 0x13000), (0x1D000, 0x1D800), (0x1F000, 0x1FB00),
               (0x20000, 0x20800), (0xE0000, 0xE0200), (0x10FF00, 0x110000)]  # fmt: skip
# What may follow a space that the encoder adds itself.
_AFTER_SPACE = [b"\n", b"0", "\u4e00".encode(), b"  "]
# First bytes of characters that no normalization composes with the character before: ASCII, Latin,
# Greek and Cyrillic letters, ideographs, Hangul syllables.
_NEVER_COMPOSED = np.zeros(256, np.bool_)
for _low, _high in ((0, 0x80), (0xC2, 0xCA), (0xCE, 0xD2), (0xE4, 0xEA), (0xEB, 0xED)):
    _NEVER_COMPOSED[_low:_high] = True
# Patterns look ahead for what ends a run of white space.
_AFTER_RUN = [b"", b"a", b" a", b"\ta", b"\na", b"\n\ta"]


class Attempts(NamedTuple):
    """Texts that are encoded after a head, each to see whether its id may follow the head's ids."""

    ids: np.ndarray  # int32 [attempts]
    ends: np.ndarray  # object [attempts]: bytes of the id and of what may follow it, never empty
    bare: np.ndarray  # bool [attempts]: nothing follows the id

    def where(self, chosen: np.ndarray) -> Attempts:
        """Some of the attempts, ``chosen``: bool [attempts]."""
        return Attempts(self.ids[chosen], self.ends[chosen], self.bare[chosen])


class Continuation:
    """The ids that may follow canonical ids; one object for many calls, for one thread.

    >>> follow = Continuation(vocab)
    >>> allowed = follow.allowed(vocab.encode("t"))
    >>> allowed[vocab.encode("he")[0]], allowed[vocab.encode(" world")[0]]
    (np.False_, np.True_)

    Args:
        vocab: the vocabulary.

    An allowed id is always right: with it, the ids begin the canonical encoding of a text that was
    encoded. An id may be refused that a rare text could continue: where it ends within a character,
    some characters of each kind are tried, not all; and with Llama 3's ``ignore_merges``, a longer
    pre-token can have a beginning that is not canonical by itself.
    """

    def __init__(self, vocab: Vocabulary) -> None:
        self.vocab = check_vocabulary(vocab)
        self._pre_tokenizer = vocab.pre_tokenizer
        self._encoder = SegmentEncoder(vocab)
        self._mask_bits = lru_cache(_KEPT)(self._packed_mask)
        # Ids of plain text: placed ones may follow anything, as special ones.
        self._is_text = vocab.readable & ~vocab.is_placed
        self._candidates = np.flatnonzero(self._is_text).astype(np.int32)

    def allowed(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """The ids that may follow, bool [vocabulary].

        Args:
            ids: canonical ids, [n]; only those after the last special id decide.

        Special ids may follow where the text does not end within a character.
        """
        given = check_ids(ids, self.vocab.size)
        bits = self._mask_bits(given[self._restart(given) :].tobytes())
        return np.unpackbits(bits, count=self.vocab.size).astype(np.bool_)

    def is_start(self, ids: Sequence[int] | np.ndarray) -> bool:
        """Whether ids begin the canonical encoding of some text.

        Args:
            ids: integers, [n]; special ids split them, and each part is judged.
        """
        given = check_ids(ids, self.vocab.size)
        parts = np.split(given, np.flatnonzero(~self._is_text[given]))
        return all(self._begins_a_text(part[self._is_text[part]]) for part in parts)

    def _begins_a_text(self, ids: np.ndarray) -> bool:
        head = self.vocab.decode_bytes(ids[:-1])
        attempts = self._attempts_with(ids[-1:], head)
        return not len(ids) or bool(self._fits(ids[:-1], head, attempts).any())

    def _packed_mask(self, tail: bytes) -> np.ndarray:
        return np.packbits(self._mask(np.frombuffer(tail, np.int32)))

    def _mask(self, tail: np.ndarray) -> np.ndarray:
        """The ids that may follow ``tail``, bool [vocabulary]."""
        head = self.vocab.decode_bytes(tail)
        mask = np.zeros(self.vocab.size, np.bool_)
        if _cut_short(head):
            first = self.vocab.token_bytes[self.vocab.token_offsets[self._candidates]]
            attempts = self._attempts_with(self._candidates[first & 0xC0 == 0x80], head)
            fits = self._fits(tail, head, attempts)
        else:
            mask[~self._is_text] = True
            attempts = self._attempts
            if not _is_text(head):
                attempts = attempts.where(attempts.bare)
            if self._encodes_pre_tokens and _is_text(head):
                anew = self._encoded_anew(head, attempts.ends)
                fits = (
                    anew & self._fit_alone & np.array_equal(self.vocab.encode_unchecked(head), tail)
                )
                fits[~anew] = self._fits(tail, head, attempts.where(~anew))
            else:
                fits = self._fits(tail, head, attempts)
        mask[attempts.ids[fits]] = True
        return mask

    def _fits(self, tail: np.ndarray, head: bytes, attempts: Attempts) -> np.ndarray:
        """Whether ``head`` with each end is encoded to ``tail``, its id, and more; bool [ends]."""
        texts = [head + end for end in attempts.ends.tolist()]
        encoded = self.vocab.canonicalizer.encode_batch(self._encoder.plain_sources(texts))
        fits = _begin_with(encoded, tail, attempts)
        if self.vocab.adds_space:  # some encoders add a space only where there is none
            spaced = ~fits & np.array([text[:2] == b"  " for text in texts], np.bool_)
            whole = [texts[i] for i in np.flatnonzero(spaced).tolist()]
            encoded = self.vocab.canonicalizer.encode_batch(whole)
            begin = _begin_with(encoded, tail, attempts.where(spaced))
            fits[spaced] = begin & self._encoder.same_text(encoded, whole)
        return fits

    def _encoded_anew(self, head: bytes, ends: np.ndarray) -> np.ndarray:
        """Whether each end has the ids after ``head`` that it has alone, bool [ends].

        So it is where the pre-tokenizer cuts between the two, unless a normalizer composes the
        characters that meet there, or an added token lies across.
        """
        anew = _cut_after(self._pre_tokenizer, head, ends)
        data = self.vocab.data
        if data.stages.normalizers:
            anew &= _NEVER_COMPOSED[[end[0] for end in ends]]
        added = (token.content.encode() for token in data.plain_added.values())
        if any(head.endswith(mark[:size]) for mark in added for size in range(1, len(mark))):
            anew[:] = False
        return anew

    def _attempts_with(self, ids: np.ndarray, head: bytes) -> Attempts:
        """What is tried to see whether one of ``ids`` may follow ``head``; none where no text can.

        An id that ends within a character, or in white space, is tried with what may follow it.
        """
        tokens = self.vocab.tokens
        tried = [(i, e) for i in ids.tolist() for e in self._endings(head + tokens[i])]
        return Attempts(
            np.array([i for i, _ in tried], np.int32),
            np.array([tokens[i] + ending for i, ending in tried], np.object_),
            np.array([not ending for _, ending in tried], np.bool_),
        )

    def _endings(self, text: bytes) -> Sequence[bytes]:
        """What is tried after a text."""
        missing = _cut_short(text)
        if not _is_text(text[: len(text) - len(missing)]):
            return []
        if missing:
            return self._witnesses.get(missing, [])
        if self.vocab.adds_space and text == b" ":
            return [*_AFTER_RUN, *_AFTER_SPACE]
        return _AFTER_RUN if text[-1:].isspace() else [b""]

    def _restart(self, ids: np.ndarray) -> int:
        """Position of the first id that the next one may depend on."""
        special = np.flatnonzero(~self._is_text[ids])
        first = int(special[-1]) + 1 if len(special) else 0
        tail = ids[first:]
        text = self.vocab.decode_bytes(tail)
        if not text:
            return first
        starts = np.cumsum([0, *(len(self.vocab.tokens[i]) for i in tail.tolist())])
        # The start of a character joins the pre-token before it, or begins one.
        whole = text[: len(text) - len(_cut_short(text))]
        ends = self._pre_tokenizer.cut(
            np.frombuffer(bytearray(whole), np.uint8), np.array([0, len(whole)])
        )
        last = int(ends[-2]) if len(ends) > 1 else 0
        for position in reversed(starts[:-1].tolist()):
            if self.vocab.adds_space and text[position : position + 1] != b" ":
                continue
            if position <= last or self._is_cut(text, position):
                return first + int(np.searchsorted(starts, position))
        return first

    def _is_cut(self, text: bytes, position: int) -> bool:
        """Whether no token lies across a position, whatever text follows."""
        if self._pre_tokenizer.cuts_words:
            return False  # where a pattern cuts, only its pre-tokens are safe
        longest, prefixes = self.vocab.trie.longest, token_prefixes(self.vocab)
        for start in range(max(0, position - longest + 1), position):
            for end in range(position + 1, min(len(text), start + longest) + 1):
                if text[start:end] in self._tokens:
                    return False
            if text[start:] in prefixes:
                return False
        return True

    @property
    def _encodes_pre_tokens(self) -> bool:
        """Whether pre-tokens are encoded one by one, and no space is added before a text."""
        data = self.vocab.data
        one_by_one = data.family.startswith("byte-level") and self._pre_tokenizer.cuts_words
        return one_by_one and data.stages.composes and not self.vocab.adds_space

    @property
    def _attempts(self) -> Attempts:
        """What is tried after whole characters."""
        return self.vocab.derived("attempts", lambda: self._attempts_with(self._candidates, b""))

    @property
    def _fit_alone(self) -> np.ndarray:
        """Whether the attempts fit where nothing comes before them, bool [attempts]."""
        none = np.empty(0, np.int32)
        return self.vocab.derived("fit alone", lambda: self._fits(none, b"", self._attempts))

    @property
    def _tokens(self) -> frozenset[bytes]:
        return self.vocab.derived(
            "token set", lambda: frozenset(self.vocab.tokens[i] for i in self._candidates.tolist())
        )

    @property
    def _witnesses(self) -> dict[bytes, list[bytes]]:
        """For the start of a character, ends of some characters that begin with it.

        Letters, numbers and others whose encoding has a cut there, and some of all.
        """
        return self.vocab.derived("witnesses", self._find_witnesses)

    def _find_witnesses(self) -> dict[bytes, list[bytes]]:
        characters = [chr(c).encode() for low, high in _CHARACTERS for c in range(low, high)]
        cut: dict[tuple[bytes, str], list[bytes]] = {}
        every: dict[bytes, list[bytes]] = {}
        encoded = self.vocab.canonicalizer.encode_batch(characters)
        for character, ids in zip(characters, encoded, strict=True):
            if not len(ids):  # the normalizer deletes it
                continue
            ends = np.cumsum([len(self.vocab.tokens[i]) for i in ids.tolist()])
            shift = int(ends[-1]) - len(character)  # a space that the encoder adds
            for size in range(1, len(character)):
                every.setdefault(character[:size], []).append(character[size:])
                if size + shift in ends:
                    kind = unicodedata.category(character.decode())[0]
                    cut.setdefault((character[:size], kind), []).append(character[size:])
        witnesses: dict[bytes, list[bytes]] = {}
        for (start, _), endings in cut.items():
            witnesses.setdefault(start, []).extend(endings[:_WITNESSES])
        for start, endings in every.items():
            spread = endings[:: -(-len(endings) // _WITNESSES)]
            witnesses[start] = list(dict.fromkeys([*witnesses.get(start, []), *spread]))
        return witnesses


def token_prefixes(vocab: Vocabulary) -> frozenset[bytes]:
    """All proper prefixes of the tokens that stand for text.

    >>> b"hell" in token_prefixes(vocab), b"hello " in token_prefixes(vocab)
    (True, False)
    """

    def make() -> frozenset[bytes]:
        tokens = (vocab.tokens[i] for i in np.flatnonzero(vocab.readable).tolist())
        return frozenset(token[:size] for token in tokens for size in range(1, len(token)))

    return vocab.derived("token prefixes", make)


def _begin_with(rows: Ragged, tail: np.ndarray, attempts: Attempts) -> np.ndarray:
    """Whether each row begins with ``tail`` and the id of its attempt, bool [rows].

    A bare attempt has no further ids.
    """
    size = len(tail) + 1
    fits = (rows.lengths == size) | (~attempts.bare & (rows.lengths > size))
    first = rows.values[rows.offsets[:-1][fits][:, None] + np.arange(size)]
    fits[fits] = (first[:, :-1] == tail).all(axis=1) & (first[:, -1] == attempts.ids[fits])
    return fits


def _is_text(text: bytes) -> bool:
    """Whether bytes are UTF-8."""
    return not len(broken_spans(text)[0])


def _cut_short(text: bytes) -> bytes:
    """The bytes at the end of a text that begin a character and do not end it.

    >>> _cut_short("aé".encode()[:-1])
    b'\\xc3'
    """
    decoder = getincrementaldecoder("utf8")("replace")
    decoder.decode(text[-3:])
    start = decoder.getstate()[0]
    surrogate = start[:1] == b"\xed" and start[1:2] >= b"\xa0"  # no character, but Python waits
    return b"" if surrogate else start


def _cut_after(pre_tokenizer: PreTokenizer, head: bytes, ends: np.ndarray) -> np.ndarray:
    """Whether ``head`` with each end has the pre-tokens of ``head``, and then its own, bool [ends].

    All texts are cut in one call, with a byte between two of them.
    """
    text = np.frombuffer(bytearray(head + (b"\0" + head).join(ends) + b"\0"), np.uint8)
    lengths = np.fromiter(map(len, ends), np.int64, len(ends))
    begins = np.concatenate([[0], np.cumsum(lengths + len(head) + 1)])
    cuts, own = np.zeros(len(text) + 1, np.bool_), np.zeros(len(head) + 1, np.bool_)
    cuts[pre_tokenizer.cut(text, np.sort(np.concatenate([begins, begins[1:] - 1])))] = True
    own[pre_tokenizer.cut(text[: len(head)], np.array([0, len(head)]))] = True
    return (cuts[begins[:-1, None] + np.arange(1, len(head) + 1)] == own[1:]).all(axis=1)
