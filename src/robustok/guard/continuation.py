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

import itertools
import unicodedata
from collections import OrderedDict
from collections.abc import Sequence
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
    ends: Ragged  # int32 bytes: those of the id and of what may follow it, never empty
    bare: np.ndarray  # bool [attempts]: nothing follows the id

    def where(self, chosen: np.ndarray) -> Attempts:
        """Some of the attempts, ``chosen``: bool [attempts]."""
        return Attempts(self.ids[chosen], _rows_where(self.ends, chosen), self.bare[chosen])

    def texts(self, head: bytes) -> list[bytes]:
        """``head`` with each end."""
        joined, offsets = self.ends.values.astype(np.uint8).tobytes(), self.ends.offsets.tolist()
        return [head + joined[begin:end] for begin, end in itertools.pairwise(offsets)]


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
        self._masks: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._candidates = np.flatnonzero(vocab.readable).astype(np.int32)

    def allowed(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """The ids that may follow, bool [vocabulary].

        Args:
            ids: canonical ids, [n]; only those after the last special id decide.

        Special ids may follow where the text does not end within a character.
        """
        given = check_ids(ids, self.vocab.size)
        tail = given[self._restart(given) :]
        key = tail.tobytes()
        if key not in self._masks:
            self._masks[key] = np.packbits(self._mask(tail))
            if len(self._masks) > _KEPT:
                self._masks.popitem(last=False)
        self._masks.move_to_end(key)
        return np.unpackbits(self._masks[key], count=self.vocab.size).astype(np.bool_)

    def is_start(self, ids: Sequence[int] | np.ndarray) -> bool:
        """Whether ids begin the canonical encoding of some text.

        Args:
            ids: integers, [n]; special ids split them, and each part is judged.
        """
        given = check_ids(ids, self.vocab.size)
        edges = np.flatnonzero(~self.vocab.readable[given])
        parts = np.split(given, edges)
        parts = [
            part[1:] if len(part) and not self.vocab.readable[part[0]] else part for part in parts
        ]
        return all(self._begins_a_text(part) for part in parts if len(part))

    def _begins_a_text(self, ids: np.ndarray) -> bool:
        head = self.vocab.decode_bytes(ids[:-1])
        return bool(self._fits(ids[:-1], head, self._attempts_with(ids[-1:], head)).any())

    def _mask(self, tail: np.ndarray) -> np.ndarray:
        """The ids that may follow ``tail``, bool [vocabulary]."""
        head = self.vocab.decode_bytes(tail)
        mask = np.zeros(self.vocab.size, np.bool_)
        if _cut_short(head):
            inside = [0x80 <= self.vocab.tokens[i][0] < 0xC0 for i in self._candidates.tolist()]
            attempts = self._attempts_with(self._candidates[np.array(inside, np.bool_)], head)
            fits = self._fits(tail, head, attempts)
        else:
            mask[~self.vocab.readable] = True
            attempts = self._attempts
            if not _is_text(head):
                attempts = attempts.where(attempts.bare)
            if self._encodes_pre_tokens and _is_text(head):
                anew = self._encoded_anew(head, attempts.ends)
                fits = anew & self._fit_alone & np.array_equal(self.vocab.encode(head), tail)
                fits[~anew] = self._fits(tail, head, attempts.where(~anew))
            else:
                fits = self._fits(tail, head, attempts)
        mask[attempts.ids[fits]] = True
        return mask

    def _fits(self, tail: np.ndarray, head: bytes, attempts: Attempts) -> np.ndarray:
        """Whether ``head`` with each end is encoded to ``tail``, its id, and more; bool [ends]."""
        texts = attempts.texts(head)
        encoded = self.vocab.encode_batch(self._encoder.without_space(texts))
        fits = _begin_with(encoded, tail, attempts)
        if self._encoder.adds_space:  # some encoders add a space only where there is none
            spaced = ~fits & np.array([text[:2] == b"  " for text in texts], np.bool_)
            whole = [texts[i] for i in np.flatnonzero(spaced).tolist()]
            encoded = self.vocab.encode_batch(whole)
            begin = _begin_with(encoded, tail, attempts.where(spaced))
            fits[spaced] = begin & self._encoder.same_text(encoded, whole)
        return fits

    def _encoded_anew(self, head: bytes, ends: Ragged) -> np.ndarray:
        """Whether each end has the ids after ``head`` that it has alone, bool [ends].

        So it is where the pre-tokenizer cuts between the two, unless a normalizer composes the
        characters that meet there, or an added token lies across.
        """
        anew = _cut_after(self._pre_tokenizer, head, ends)
        data = self.vocab.data
        if data.stages.normalizers:
            anew &= _NEVER_COMPOSED[ends.values[ends.offsets[:-1]]]
        added = (token.content.encode() for token in data.plain_added.values())
        if any(head.endswith(mark[:size]) for mark in added for size in range(1, len(mark))):
            anew[:] = False
        return anew

    def _attempts_with(self, ids: np.ndarray, head: bytes) -> Attempts:
        """What is tried to see whether one of ``ids`` may follow ``head``; none where no text can.

        An id that ends within a character, or in white space, is tried with what may follow it.
        """
        tried, ends, bare = [], [], []
        for i in ids.tolist():
            token = self.vocab.tokens[i]
            for ending in self._endings(head + token):
                tried.append(i)
                ends.append(np.frombuffer(token + ending, np.uint8).astype(np.int32))
                bare.append(not ending)
        return Attempts(np.array(tried, np.int32), Ragged.from_rows(ends), np.array(bare, np.bool_))

    def _endings(self, text: bytes) -> Sequence[bytes]:
        """What is tried after a text."""
        missing = _cut_short(text)
        if not _is_text(text[: len(text) - len(missing)]):
            return []
        if missing:
            return self._witnesses.get(missing, [])
        if self._encoder.adds_space and text == b" ":
            return [*_AFTER_RUN, *_AFTER_SPACE]
        return _AFTER_RUN if text[-1:].isspace() else [b""]

    def _restart(self, ids: np.ndarray) -> int:
        """Position of the first id that the next one may depend on."""
        special = np.flatnonzero(~self.vocab.readable[ids])
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
            if self._encoder.adds_space and text[position : position + 1] != b" ":
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
        return one_by_one and data.stages.composes and not self._encoder.adds_space

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
        return self.vocab.derived("token set", lambda: frozenset(
            self.vocab.tokens[i] for i in self._candidates.tolist()
        ))  # fmt: skip

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
        encoded = self.vocab.encode_batch(characters)
        for character, ids in zip(characters, encoded, strict=True):
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
    for size in range(1, min(4, len(text)) + 1):
        byte = text[-size]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return text[-size:] if size < length else b""
        if byte < 0x80:
            return b""
    return b""


def _cut_after(pre_tokenizer: PreTokenizer, head: bytes, ends: Ragged) -> np.ndarray:
    """Whether ``head`` with each end has the pre-tokens of ``head``, and then its own, bool [rows].

    ``ends``: bytes as int32. All texts are cut in one call, with a byte between two of them.
    """
    lengths = ends.lengths
    begins = np.concatenate([[0], np.cumsum(lengths + len(head) + 1)])
    start = np.frombuffer(bytearray(head), np.uint8)
    text = np.zeros(int(begins[-1]), np.uint8)
    heads = begins[:-1, None] + np.arange(len(head))
    text[heads] = start
    shift = begins[:-1] + len(head) - ends.offsets[:-1]
    text[np.arange(len(ends.values)) + np.repeat(shift, lengths)] = ends.values
    cuts, own = np.zeros(len(text) + 1, np.bool_), np.zeros(len(head) + 1, np.bool_)
    cuts[pre_tokenizer.cut(text, np.sort(np.concatenate([begins, begins[1:] - 1])))] = True
    own[pre_tokenizer.cut(start, np.array([0, len(head)]))] = True
    return (cuts[heads + 1] == own[1:]).all(axis=1)


def _rows_where(rows: Ragged, chosen: np.ndarray) -> Ragged:
    """Some rows of a batch, ``chosen``: bool [rows]."""
    lengths = rows.lengths
    offsets = np.concatenate([[0], np.cumsum(lengths[chosen])])
    return Ragged(rows.values[np.repeat(chosen, lengths)], offsets)
