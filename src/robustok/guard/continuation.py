"""Which ids may follow others so that the whole stays canonical.

An id may follow if the ids with it begin the canonical encoding of some text. Only the end of the
ids decides: encoding can start again where a pre-token begins, or where no token of the vocabulary
lies across (a restart position). From the last one on, the tokenizer itself encodes the text with
each candidate, and the ids are compared. Source: "Language Models over Canonical Byte-Pair
Encodings", arXiv 2506.07956, which derives such masks for BPE without pre-tokens.
"""

from __future__ import annotations

import unicodedata
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from robustok.checks import check_ids
from robustok.guard.canonical import SegmentEncoder
from robustok.guard.joined import SEPARATORS, Joining, cut_after, encode_joined, rows_where
from robustok.pretokenize.pre_tokenizer import PreTokenizer
from robustok.ragged import Ragged
from robustok.utf8 import broken_stretches
from robustok.vocabulary import Vocabulary, check_vocabulary

_KEPT = 512  # masks, of one bit an id
_WITNESSES = 8  # characters of each kind that are tried to complete the start of one
_CHARACTERS = [(0x80, 0xD800), (0xE000, 0x13000), (0x1D000, 0x1D800), (0x1F000, 0x1FB00),
               (0x20000, 0x20800), (0xE0000, 0xE0200), (0x10FF00, 0x110000)]  # fmt: skip
_AFTER_SPACE = [b"\n", b"0", "\u4e00".encode(), b"  "]  # what may follow a space that is added
# First bytes of characters that no normalization composes with the character before: ASCII, Latin,
# Greek and Cyrillic letters, ideographs, Hangul syllables.
_NEVER_COMPOSED = np.zeros(256, np.bool_)
for _low, _high in ((0, 0x80), (0xC2, 0xCA), (0xCE, 0xD2), (0xE4, 0xEA), (0xEB, 0xED)):
    _NEVER_COMPOSED[_low:_high] = True
# Patterns look ahead for what ends a run of white space.
_AFTER_RUN = [b"", b"a", b" a", b"\ta", b"\na", b"\n\ta"]


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
        self._pre_tokenizer = vocab.derived("pre-tokenizer", lambda: PreTokenizer(vocab.data))
        self._adds_space = SegmentEncoder(vocab).adds_space
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
        return all(bool(self._viable([part])[0]) for part in parts if len(part))

    def _mask(self, tail: np.ndarray) -> np.ndarray:
        """The ids that may follow ``tail``, bool [vocabulary]."""
        head = self.vocab.decode_bytes(tail)
        if self._joins and not _cut_short(head) and not len(broken_stretches(head)[0]):
            return self._joined_mask(tail, head)
        mask = np.zeros(self.vocab.size, np.bool_)
        whole = np.zeros_like(mask)
        if not _cut_short(head):
            mask[~self.vocab.readable] = True
        if not _cut_short(head) and (head or not self._adds_space):
            whole = self._is_text
            mask[whole] = self._follow(tail, head, np.flatnonzero(whole))
            whole = whole & (mask | ~self._ends_in_space)
        others = self._candidates[~whole[self._candidates]]
        if _cut_short(head):
            others = others[[0x80 <= self.vocab.tokens[i][0] < 0xC0 for i in others.tolist()]]
        else:
            unfinished = [bool(_cut_short(self.vocab.tokens[i])) for i in others.tolist()]
            others = others[
                np.array(unfinished, np.bool_) | self._ends_in_space[others] | (not head)
            ]
        mask[others] = self._viable([np.append(tail, i) for i in others])
        return mask

    def _joined_mask(self, tail: np.ndarray, head: bytes) -> np.ndarray:
        """:meth:`_mask` after whole characters, with the texts encoded together.

        Where the pre-tokenizer cuts at the end of ``head``, what follows is encoded as if it were
        alone; only the other texts are encoded.
        """
        ids, ends, bare = self._attempts
        empty = np.empty(0, np.int32)
        alone = self.vocab.derived(
            "attempts alone", lambda: self._begun(empty, b"", ids, ends, bare)
        )
        anew = cut_after(self._pre_tokenizer, head, ends)
        rules = self._joining
        if rules.normalizes:
            anew &= _NEVER_COMPOSED[ends.values[ends.offsets[:-1]]]
        if any(head.endswith(mark[:size]) for mark in rules.added for size in range(1, len(mark))):
            anew[:] = False
        fits = anew & alone & np.array_equal(self.vocab.encode(head), tail)
        left = ~anew
        fits[left] = self._begun(tail, head, ids[left], rows_where(ends, left), bare[left])
        mask = ~self.vocab.readable
        mask[ids[fits]] = True
        return mask

    def _begun(
        self, tail: np.ndarray, head: bytes, ids: np.ndarray, ends: Ragged, bare: np.ndarray
    ) -> np.ndarray:
        """Whether the ids of ``head`` with each end begin with ``tail`` and its id, bool [ends].

        ``bare``: bool [ends], nothing else may follow.
        """

        def compared(rows: Ragged, chosen: np.ndarray) -> np.ndarray:
            counts, size = rows.lengths, len(tail)
            fits = (counts == size + 1) | (~bare[chosen] & (counts > size))
            first = rows.values[rows.offsets[:-1][fits][:, None] + np.arange(size + 1)]
            fits[fits] = (first[:, :-1] == tail).all(axis=1) & (first[:, -1] == ids[chosen][fits])
            return fits

        fits = np.zeros(len(ids), np.bool_)
        left = np.arange(len(ids))
        for separator in SEPARATORS:
            some = np.zeros(len(ids), np.bool_)
            some[left] = True
            encoded, known = encode_joined(
                self.vocab, self._pre_tokenizer, head, rows_where(ends, some), separator
            )
            fits[left] = known & compared(encoded, left)
            left = left[~known]
        texts = [head + ends[at].astype(np.uint8).tobytes() for at in left.tolist()]
        fits[left] = compared(self.vocab.encode_batch(texts), left)
        return fits

    def _follow(self, tail: np.ndarray, head: bytes, ids: np.ndarray) -> np.ndarray:
        """Whether the tail and each id are canonical, for ids that are text, bool [ids]."""
        texts = [head + self.vocab.tokens[i] for i in ids.tolist()]
        encoded = self.vocab.encode_batch(self._stripped(texts))
        fits = encoded.lengths == len(tail) + 1
        rows = encoded.values[encoded.offsets[:-1][fits][:, None] + np.arange(len(tail) + 1)]
        fits[fits] = (rows[:, :-1] == tail).all(axis=1) & (rows[:, -1] == ids[fits])
        return fits

    def _viable(self, rows: list[np.ndarray]) -> np.ndarray:
        """Whether each row begins the canonical encoding of some text, bool [rows]."""
        texts = [self.vocab.decode_bytes(row) for row in rows]
        attempts: list[tuple[int, bytes]] = []
        for number, text in enumerate(texts):
            missing = _cut_short(text)
            if len(broken_stretches(text[: len(text) - len(missing)])[0]):
                continue
            endings = self._witnesses.get(missing, []) if missing else [b""]
            if text[-1:].isspace():
                endings = _AFTER_RUN
            if self._adds_space and text == b" ":
                endings = _AFTER_SPACE
            attempts += [(number, text + ending) for ending in endings]
        viable = np.zeros(len(rows), np.bool_)
        encoded = self.vocab.encode_batch(self._stripped([text for _, text in attempts]))
        for (number, text), ids in zip(attempts, encoded, strict=True):
            size = len(rows[number])
            begins = len(ids) >= size and np.array_equal(ids[:size], rows[number])
            viable[number] |= begins and (len(ids) == size or len(text) > len(texts[number]))
        return viable

    def _stripped(self, texts: list[bytes]) -> list[bytes]:
        if not self._adds_space:
            return texts
        return [text[1:] if text[:1] == b" " else text for text in texts]

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
            if self._adds_space and text[position : position + 1] != b" ":
                continue
            if position <= last or self._is_cut(text, position):
                return first + int(np.searchsorted(starts, position))
        return first

    def _is_cut(self, text: bytes, position: int) -> bool:
        """Whether no token lies across a position, whatever text follows."""
        if len(self._pre_tokenizer.cut(np.frombuffer(b"a b", np.uint8), np.array([0, 3]))) > 1:
            return False  # where a pattern cuts, only its pre-tokens are safe
        longest = self._longest
        for start in range(max(0, position - longest + 1), position):
            for end in range(position + 1, min(len(text), start + longest) + 1):
                if text[start:end] in self._tokens:
                    return False
            if text[start:] in self._prefixes:
                return False
        return True

    @property
    def _joins(self) -> bool:
        """Whether texts can be encoded together: pre-tokens one by one, without a space before."""
        return not self._adds_space and self._joining.possible

    @property
    def _joining(self) -> Joining:
        return self.vocab.derived("joining", lambda: Joining.of(self.vocab, self._pre_tokenizer))

    @property
    def _attempts(self) -> tuple[np.ndarray, Ragged, np.ndarray]:
        """What is tried after whole characters: id, its bytes with an ending, and if it has none.

        int32 [attempts], bytes as int32, bool [attempts]. Ids that are text have at least the
        attempt without an ending; ids that end within a character or in white space have others.
        """

        def make() -> tuple[np.ndarray, Ragged, np.ndarray]:
            ids, texts, bare = [], [], []
            for i in self._candidates.tolist():
                token = self.vocab.tokens[i]
                missing = _cut_short(token)
                if len(broken_stretches(token[: len(token) - len(missing)])[0]):
                    continue
                endings = self._witnesses.get(missing, []) if missing else [b""]
                for ending in _AFTER_RUN if token[-1:].isspace() else endings:
                    ids.append(i)
                    texts.append(np.frombuffer(token + ending, np.uint8).astype(np.int32))
                    bare.append(not ending)
            return np.array(ids, np.int32), Ragged.from_rows(texts), np.array(bare, np.bool_)

        return self.vocab.derived("attempts", make)

    @property
    def _is_text(self) -> np.ndarray:
        """Ordinary ids whose bytes are UTF-8, bool [vocabulary]."""

        def make() -> np.ndarray:
            is_text = self.vocab.readable.copy()
            for i in self._candidates.tolist():
                is_text[i] = not len(broken_stretches(self.vocab.tokens[i])[0])
            return is_text

        return self.vocab.derived("ids of text", make)

    @property
    def _ends_in_space(self) -> np.ndarray:
        """Ids whose last byte is white space, bool [vocabulary]."""
        return self.vocab.derived("ids that end in space", lambda: np.array(
            [token[-1:].isspace() for token in self.vocab.tokens], np.bool_
        ))  # fmt: skip

    @property
    def _tokens(self) -> frozenset[bytes]:
        return self.vocab.derived("token set", lambda: frozenset(
            self.vocab.tokens[i] for i in self._candidates.tolist()
        ))  # fmt: skip

    @property
    def _longest(self) -> int:
        return self.vocab.derived("longest token", lambda: max(map(len, self._tokens)))

    @property
    def _prefixes(self) -> frozenset[bytes]:
        """All proper prefixes of tokens."""
        return token_prefixes(self.vocab)

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
