"""Every token as bytes, and the canonical encoder.

What it does not do: sample. A vocabulary knows the tokens and the one canonical way to cut a
text into them; the other ways are in :mod:`robustok.lattice` and :mod:`robustok.samplers`.
"""

from __future__ import annotations

import hashlib
import itertools
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from robustok.checks import check_ids, check_text, check_texts
from robustok.errors import RobustokError, nearest
from robustok.kernels.batch import Tokens, spell_rows, tokens_of
from robustok.kernels.trie import Trie, build_trie
from robustok.kernels.verification import WORD, Heads, heads_of, spelled_rows
from robustok.ragged import Ragged
from robustok.runtime.environment import ForkSafeLock, computed_once, give_back_memory
from robustok.tokenizer.canonical import Canonicalizer
from robustok.tokenizer.data import Text, TokenizerData, split_at_broken
from robustok.tokenizer.gigatoken import GigatokenEncoder
from robustok.tokenizer.sources import read_tokenizer

if TYPE_CHECKING:
    from robustok.lattice import Lattice

# Texts whose ids show how a tokenizer treats spaces, numbers and other characters.
PROBES = ("hello world", " a  b ", "a\nb ", "the year 1234", "naïve 根", "I'm not…", "\t{}()=>")
END_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>", "<eos>")
T = TypeVar("T")

MOST_BYTES = (1 << 16) - 2  # of a token of text: kernels keep one more in 16 bits
# Texts that tokenizers normalize and cut in different ways, for the fingerprint.
_TEXTS = (
    "The revolution doesn't wait; we've seen ITS tokenization in 1234567 DIFFERENT words.",
    "  two  spaces\t\r\n    def f(x):\n        return x ** 2 != x_1  # once\n\n\n",
    "caf\u00e9 cafe\u0301 \ufb01 \u00bd \uff11\uff12 \u2163 \u1e9b\u0323",
    "Überraschung, naïve, Москва, Αθήνα",
    "東京都の日本語 안녕하세요 مرحبا",
    "\U0001f642\U0001f469\u200d\U0001f467 </s> <unk> [MASK] <|endoftext|>",
)
_MANY_IDS = 1024  # from which on a kernel joins the bytes of ids
# Characters that are likely unknown: unassigned ones, letters, numbers, signs and spaces.
_RARE = (
    "\U0010ffff\U0001f9ff\ue000\u0378\U000105f0\U00010330\ua66e\u1c5a\u4e8d\u9fa5\u00e9xyzjq"
    "\ua620\u1c40\u0e53789\u2e3b\u2042\u203d;%~\u2031\u3000\u2003\u2028\t\u0301\u20dd\u2260\u20b3"
)


class _Expected(NamedTuple):
    """The bytes that ids of texts spell where the tokenizer changes nothing but spaces in them."""

    text: np.ndarray  # uint8: the bytes of all texts, and `WORD` more
    starts: np.ndarray  # int64 [texts + 1]: the bytes before each text
    is_decisive: np.ndarray  # bool [texts]: whether ids that spell them are canonical


class Vocabulary:
    """The tokens of one tokenizer and its canonical encoding.

    >>> vocab = Vocabulary.load("tokenizer.json")
    >>> vocab.encode("hello world")
    array([276, 275], dtype=int32)
    >>> vocab.decode_bytes([276, 275])
    b'hello world'

    Args:
        data: the tokenizer as plain data; :meth:`load` reads it.

    ``tokens[i]`` is the bytes of id i, ``ordinary[i]`` says whether a text may be cut into it,
    ``readable[i]`` whether it stands in texts, and ``size``, also ``len(vocab)``, is the number of
    ids (one more than the largest). :mod:`robustok.tokenizer.data` defines these kinds of ids.
    Where two ids have the same bytes the ordinary vocabulary holds one of them: the real token
    before the byte-fallback one.
    """

    def __init__(self, data: TokenizerData) -> None:
        if not isinstance(data, TokenizerData):
            raise RobustokError("make a Vocabulary with Vocabulary.load(TOKENIZER)")
        self.data = data
        self.tokens = data.tokens
        self.size = len(data.tokens)
        lengths = np.fromiter(map(len, data.tokens), np.int64, self.size)
        self.token_offsets = np.concatenate([[0], np.cumsum(lengths)])
        # A bytearray, since numba compiles anew for arrays that cannot be written.
        self.token_bytes = np.frombuffer(bytearray(b"".join(data.tokens)), np.uint8)
        self.ordinary = np.zeros(self.size, np.bool_)
        self.ordinary[np.asarray(data.ordinary, np.int64)] = True
        # A second id of the same bytes and a placed one are not in V, yet stand in texts.
        self.readable = self.ordinary.copy()
        self.readable[list(data.spelling.placed)] = True
        self.ordinary[_second_ids(data)] = False
        # A draw has at most one token a byte, so a token without bytes must stand in no text.
        self.ordinary &= lengths > 0
        self.readable &= lengths > 0
        longest = int((lengths * self.readable).max(initial=0))
        if longest > MOST_BYTES:
            raise RobustokError(
                f"the vocabulary has a token of {longest:,} bytes: at most {MOST_BYTES:,} can be"
                " drawn from"
            )
        self._derived: dict[str, Any] = {}
        self._derived_lock = ForkSafeLock()

    @classmethod
    def load(cls, source: Any) -> Vocabulary:
        """Read a tokenizer.

        Args:
            source: path of a tokenizer.json, tekken.json, SentencePiece model or published
                .tiktoken file; a folder or a hub name (``owner/name`` or
                ``owner/name@revision``), read as ``AutoTokenizer`` reads it; ``demo``, a small
                byte-level BPE in this package; or a tokenizers, transformers, tiktoken or
                sentencepiece object.

        Raises RobustokError for a tokenizer that is missing, broken, or of a kind that cannot be
        read as bytes.
        """
        if isinstance(source, Vocabulary):
            return source
        vocab = cls(read_tokenizer(source))
        give_back_memory()
        return vocab

    @computed_once
    def special(self) -> frozenset[int]:
        """Ids that are no text: special and added control tokens; they stay where they are."""
        return frozenset(np.flatnonzero(~self.readable).tolist())

    @computed_once
    def is_second(self) -> np.ndarray:
        """Ids whose bytes are those of another id of V, and which are not placed; bool [ids]."""
        return self.readable & ~self.ordinary & ~self.is_placed

    @computed_once
    def has_seconds(self) -> bool:
        """Whether canonical ids may hold one of :attr:`is_second`."""
        reached = self.is_second.copy()
        # The model takes a byte of the byte fallback only where it has no token for the character.
        reached[list(self.data.byte_fallback)] = False
        return bool(reached.any())

    @computed_once
    def token_lengths(self) -> np.ndarray:
        """The bytes of each token, int64 [ids]."""
        return np.diff(self.token_offsets)

    @computed_once
    def trie(self) -> Trie:
        """The byte trie of the ordinary tokens, as flat arrays."""
        trie = build_trie(self.token_bytes, self.token_offsets, np.flatnonzero(self.ordinary))
        give_back_memory()
        return trie

    @computed_once
    def kernel_tokens(self) -> Tokens:
        """The trie and the bytes of all tokens, as draw kernels take them."""
        return tokens_of(self.trie, self.token_bytes, self.token_offsets)

    @computed_once
    def fingerprint(self) -> str:
        """A SHA-256 of the tokens, of which are ordinary, and of the ids of some texts.

        By the texts, tokenizers of the same tokens that normalize or cut a text differently differ.
        """
        digest = hashlib.sha256(self.token_offsets.astype("<i8").tobytes())
        digest.update(self.token_bytes.tobytes())
        digest.update(self.ordinary.tobytes())
        for text in _TEXTS:
            try:
                ids = self.encode_unchecked(text).astype("<i4").tobytes()
            except RobustokError:  # not all vocabularies spell all characters
                ids = b"not spelled"
            digest.update(hashlib.sha256(ids).digest())
        return digest.hexdigest()

    def derived(self, key: str, make: Callable[[], T]) -> T:
        """What ``make`` returns, called once for this vocabulary and kept under ``key``.

        >>> vocab.derived("longest", lambda: max(map(len, vocab.tokens)))
        13

        For tables that follow from the vocabulary alone; they are not pickled with it. Safe to call
        from several threads, and from ``make`` with another key.
        """
        if key in self._derived:  # without the lock, which costs a microsecond
            return self._derived[key]
        with self._derived_lock:
            if key not in self._derived:
                self._derived[key] = make()
                if self.size > _MANY_IDS:
                    give_back_memory()
            return self._derived[key]

    def encode(self, text: Text, *, parse_special: bool = False) -> np.ndarray:
        """The canonical ids of a text, int32 [m]; no special tokens are added.

        Args:
            text: a string, or bytes. Bytes that are not UTF-8 are text too: each byte outside a
                valid sequence becomes its byte token.
            parse_special: whether a special token spelled out in the text becomes its id. By
                default it is plain text.

        Raises RobustokError for a lone surrogate, for a character that the vocabulary cannot spell,
        and for a text whose ids spell a text of other ids (see `data`).
        """
        text = _as_text(check_text(text))
        ids = self.encode_unchecked(text, parse_special=parse_special)
        if parse_special or not self._ids_spell(text, ids):
            self._check_ids([text], Ragged(ids, np.array([0, len(ids)])), parse_special)
        return ids

    def encode_unchecked(self, text: Text, *, parse_special: bool = False) -> np.ndarray:
        """What :meth:`encode` returns, also for a text that it refuses as no text of these ids.

        ``text`` and ``parse_special`` are those of :meth:`encode`.
        """
        ids = None if parse_special else self.gigatoken.encode(text)
        if ids is None:
            return np.array(self._encode_by_library([text], parse_special)[0], np.int32)
        return ids

    def encode_batch(self, texts: Iterable[Text], *, parse_special: bool = False) -> Ragged:
        """The canonical ids of many texts, a row each.

        Args:
            texts: strings or bytes, as in :meth:`encode`.
            parse_special: whether special tokens spelled out in the texts become their ids.

        gigatoken encodes where it is known to give the ids of the tokenizer's library; the library
        encodes the rest. Raises RobustokError as :meth:`encode` does.
        """
        texts = [*map(_as_text, check_texts(texts))]
        rows = self.encode_batch_unchecked(texts, parse_special)
        self._check_ids(texts, rows, parse_special)
        return rows

    @computed_once
    def spells_ordinary(self) -> bool:
        """Whether the canonical ids of each text are ordinary and spell it, by construction."""
        return self.data.spells_all and not self.has_seconds

    def encode_spelled(self, texts: Iterable[Text]) -> tuple[Ragged | None, tuple[Any, Any] | None]:
        """What :meth:`encode_batch` returns of texts, and the bytes that their ids spell.

        These, uint8, come with the bytes before each row, int64 [texts + 1]. None where other than
        ordinary ids are among them, or other bytes than those that were compared with the ids. The
        ids are None where their bytes are known without them (:attr:`spells_ordinary`).
        """
        texts = [*map(_as_text, check_texts(texts))]
        expected, rows = self._expected(texts), None
        if not (self.spells_ordinary and all(isinstance(text, str) for text in texts)):
            rows = self.encode_batch_unchecked(texts)
            is_exact = self._check_ids(texts, rows, expected=expected)
            if not (is_exact and self.ordinary.take(rows.values).all()):
                return rows, None
        return rows, (expected.text[:-WORD], expected.starts)

    def encode_batch_unchecked(self, texts: Sequence[Text], parse_special: bool = False) -> Ragged:
        """What :meth:`encode_batch` returns, also for texts that it refuses.

        ``texts`` and ``parse_special`` are those of :meth:`encode_batch`.
        """
        if parse_special:
            return Ragged.from_rows(self._encode_by_library(list(texts), True))
        fast = [self.gigatoken.encode(_as_text(text)) for text in texts]
        left = [text for text, row in zip(texts, fast, strict=True) if row is None]
        others = iter(self._encode_by_library(left, False) if left else [])
        rows = [np.array(next(others), np.int32) if row is None else row for row in fast]
        values = np.concatenate(rows) if rows else np.empty(0, np.int32)
        return Ragged(values, np.cumsum([0, *map(len, rows)]))

    def decode_bytes(self, ids: Sequence[int] | np.ndarray) -> bytes:
        """The bytes of a sequence of ids.

        Raises RobustokError for an id outside the vocabulary.
        """
        checked = check_ids(ids, self.size)
        if len(checked) < _MANY_IDS:  # faster than a call of a kernel
            return b"".join(map(self.tokens.__getitem__, checked.tolist()))
        one_row = np.array([0, len(checked)])
        return spell_rows(self.token_bytes, self.token_offsets, checked, one_row)[0].tobytes()

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of a sequence of ids, U+FFFD where its bytes are not UTF-8."""
        return self.decode_bytes(ids).decode("utf8", errors="replace")

    def canonicalize(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """The canonical ids of the text that ``ids`` spell, int32; special ids stay in place.

        >>> vocab.decode(vocab.canonicalize(vocab.encode("hello world")))
        'hello world'

        They are those of the first source of ``ids`` that spell the same text (see `data`).
        Raises RobustokError for an id outside the vocabulary and where no canonical ids spell the
        text, as where the tokenizer's normalizer changes it.
        """
        return self.canonicalizer.canonicalize(check_ids(ids, self.size))

    @computed_once
    def canonicalizer(self) -> Canonicalizer:
        """The canonical ids of any ids."""
        return Canonicalizer(self)

    @computed_once
    def frame(self) -> tuple[list[int], list[int]]:
        """The ids that the tokenizer itself puts before and after a text, such as a BOS."""
        source = self.data.library
        word = self.some_word
        if type(source).__module__.split(".")[0] != "tokenizers" or not word:
            return [], []
        ids, plain = source.encode(word).ids, self.encode_unchecked(word).tolist()
        at = next((i for i in range(len(ids)) if ids[i : i + len(plain)] == plain), len(ids))
        return ids[:at], ids[at + len(plain) :]

    @computed_once
    def is_placed(self) -> np.ndarray:
        """Ids that stand in a text where the tokenizer puts them (see `data`); bool [ids]."""
        placed = np.zeros(self.size, np.bool_)
        placed[list(self.data.spelling.placed)] = True
        return placed

    def sources(self, ids: np.ndarray) -> Iterator[bytes]:
        """The texts that should be encoded to ``ids``, which are not special (see `data`)."""
        spelling = self.data.spelling
        unknown = self._unknown_characters if spelling.unknown in spelling.placed else []
        return spelling.sources(self.tokens, ids, unknown)

    @computed_once
    def _unknown_characters(self) -> list[bytes]:
        """Characters that the tokenizer does not know, one of each category of Unicode at most."""
        unknown: dict[str, bytes] = {}
        for character in _RARE:
            category = unicodedata.category(character)
            if category not in unknown:
                with suppress(RobustokError):
                    if self.data.spelling.unknown in self.encode_unchecked(character):
                        unknown[category] = character.encode()
        return [*unknown.values()]

    def _expected(self, texts: Sequence[Text]) -> _Expected:
        """The bytes that canonical ids of texts, as `_as_text` returns them, are compared with."""
        sources = [text.encode() if isinstance(text, str) else text for text in texts]
        expected = [*map(self._expected_bytes, sources)] if self._expected_bytes else sources
        parts = [part or b"" for part in expected]
        # A bytearray, since numba compiles anew for arrays that cannot be written.
        text = np.frombuffer(bytearray().join([*parts, bytes(WORD)]), np.uint8)
        is_decisive = np.array([part is not None for part in expected], np.bool_)
        return _Expected(text, np.cumsum([0, *map(len, parts)]), is_decisive)

    def _check_ids(
        self,
        texts: Sequence[Text],
        rows: Ragged,
        parse_special: bool = False,
        expected: _Expected | None = None,
    ) -> bool:
        """Raise RobustokError where the ids of a text are not canonical as `data` defines.

        Returns whether the ids spell exactly what is :meth:`_expected` of ``texts``, which
        ``expected`` is where it is known. ``parse_special``: how the ids were encoded.
        """
        if self.data.spells_all and not parse_special and all(isinstance(t, str) for t in texts):
            return True
        text, starts, is_decisive = expected or self._expected(texts)
        spelled = spelled_rows(self._heads, text, starts, rows.values, rows.offsets)
        spelled &= is_decisive
        # A special token that is a word may have hidden another token.
        if parse_special and self.data.spelling.words:
            spelled[:] = False
        left = np.flatnonzero(~spelled).tolist()
        if left:
            self.canonicalizer.check([texts[i] for i in left], [rows[i] for i in left])
        return not left

    def _ids_spell(self, text: Text, ids: np.ndarray) -> bool:
        """Whether ids spell what is expected of one text: `_check_ids` without a kernel, for few.

        False where this does not show that they are canonical.
        """
        if self.data.spells_all and isinstance(text, str):
            return True
        if len(ids) > _MANY_IDS:
            return False
        expected = text.encode() if isinstance(text, str) else text
        if self._expected_bytes is not None:
            expected = self._expected_bytes(expected)
        tokens: list[Any] = self._literal_tokens
        try:
            return b"".join(map(tokens.__getitem__, ids.tolist())) == expected
        except TypeError:  # None
            return False

    @computed_once
    def _expected_bytes(self) -> Callable[[bytes], bytes | None] | None:
        return self.data.spelling.expected_bytes()

    @computed_once
    def _heads(self) -> Heads:
        """The tokens that stand in a text as their bytes, as the check reads them."""
        return heads_of(self.token_bytes, self.token_offsets, self._is_literal)

    @computed_once
    def _literal_tokens(self) -> list[bytes | None]:
        """The bytes of each id of :attr:`_is_literal`, None for all others."""
        return self._bytes_where(self._is_literal)

    @computed_once
    def _is_literal(self) -> np.ndarray:
        """Ids that stand in the source of a text as their bytes, bool [ids]."""
        spelling = self.data.spelling
        others = {*spelling.contents, spelling.unknown} & spelling.placed
        if spelling.prefix or spelling.suffix or spelling.adds_space:
            others = spelling.placed
        known = self.readable.copy()
        known[[*others]] = False
        return known

    def _bytes_where(self, chosen: np.ndarray) -> list[bytes | None]:
        flags = chosen.tolist()  # an array is slower to iterate
        return [t if is_one else None for t, is_one in zip(self.tokens, flags, strict=True)]

    @computed_once
    def plain_tokens(self) -> list[bytes | None]:
        """The bytes of each ordinary id, None for all others."""
        return self._bytes_where(self.ordinary)

    def plain_bytes(self, ids: list[int]) -> bytes | None:
        """The bytes of ordinary ids, None where one is not, or where there is none.

        Args:
            ids: integers; for few of them faster than a call of a kernel.
        """
        if not ids or min(ids) < 0:
            return None
        tokens: list[Any] = self.plain_tokens
        try:
            return b"".join(map(tokens.__getitem__, ids))
        except (IndexError, TypeError):
            return None

    def lattice(self, text: Text) -> Lattice:
        """All tokenizations of one text; see :class:`robustok.lattice.Lattice`."""
        from robustok.lattice import Lattice

        return Lattice(self, self.encode(text))

    def _encode_by_library(self, texts: list[Text], parse_special: bool) -> list[list[int]]:
        strings: list[str] = []
        broken: dict[int, list[tuple[bytes, bool]]] = {}
        for i, text in enumerate(texts):
            if isinstance(text, str):
                strings.append(text)
                continue
            try:
                strings.append(text.decode("utf8"))
            except UnicodeDecodeError:
                spans = _spans(text)
                starts_valid = spans[0][1]
                strings.append(spans[0][0].decode("utf8") if starts_valid else "")
                broken[i] = spans[starts_valid:]
        rows = self.data.encoder.encode_batch(strings, parse_special)
        if broken:
            rest = self._encode_spans(list(broken.values()), parse_special)
            for i, ids in zip(broken, rest, strict=True):
                rows[i] = rows[i] + ids if strings[i] else ids
        return rows

    def _encode_spans(
        self, rows: list[list[tuple[bytes, bool]]], parse_special: bool
    ) -> list[list[int]]:
        """The ids of spans amid other bytes: valid ones canonically, the rest byte by byte."""
        valid = [part for row in rows for part, is_valid in row if is_valid]
        encoded = self._encode_amid(valid, parse_special)

        def ids_of(part: bytes, is_valid: bool) -> Iterable[int]:
            return encoded[part] if is_valid else map(self._byte_id, part)

        return [[i for part, is_valid in row for i in ids_of(part, is_valid)] for row in rows]

    def _encode_amid(self, spans: list[bytes], parse_special: bool) -> dict[bytes, list[int]]:
        """The ids of spans that follow other bytes, without a space that an encoder adds."""
        encoded: dict[bytes, list[int]] = {}
        left = [*dict.fromkeys(spans)]
        normalized: dict[bytes, list[int]] = {}  # the ids of spans that a normalizer changes
        # Alone, or after something that does not grow together with its first letter.
        for before in ("", "\n", "0", "a"):
            if not left:
                break
            texts = [before, *(before + span.decode("utf8") for span in left)]
            alone, *rows = self.data.encoder.encode_batch(texts, parse_special)
            for span, row in zip(left, rows, strict=True):
                if before.isalnum() and row[: len(alone)] == alone:
                    normalized.setdefault(span, row[len(alone) :])
                ids = self._ids_behind(before.encode(), row, span)
                if ids is not None:
                    encoded[span] = ids
            left = [span for span in left if span not in encoded]
        left = [span for span in left if span not in normalized]
        return normalized | encoded | {span: [self._byte_id(b) for b in span] for span in left}

    def _ids_behind(self, before: bytes, row: list[int], span: bytes) -> list[int] | None:
        """The ids of a span at the end of a row, where they are all but those of ``before``."""
        start, size = len(row), 0
        while start and size < len(span):
            start -= 1
            size += len(self.tokens[row[start]])
        if self._joined(row[start:]) != span:
            return None
        # The encoder may write a space before the text.
        heads = [written + before for written in (b"", b" ", self.data.spelling.prefix)]
        if start and not (before and self._joined(row[:start]) in heads):
            return None
        return row[start:]

    def _joined(self, ids: list[int]) -> bytes:
        return b"".join(map(self.tokens.__getitem__, ids))

    def encode_continuations(self, texts: Iterable[Text], *, parse_special: bool = False) -> Ragged:
        """The canonical ids of texts that each continue another one, such as answers.

        >>> vocab.encode_continuations([" world"])[0].tolist() == vocab.encode(" world").tolist()
        True

        Args:
            texts: strings or bytes, as in :meth:`encode`.
            parse_special: whether special tokens spelled out in the texts become their ids.

        They differ from those of :meth:`encode_batch` where the encoder puts a space before a text.
        """
        texts = check_texts(texts)
        if not self.adds_space:
            return self.encode_batch(texts, parse_special=parse_special)
        raw = [t if isinstance(t, bytes) else t.encode() for t in map(check_text, texts)]
        return self.encode_continuations_unchecked(raw, parse_special)

    def encode_continuations_unchecked(
        self, texts: Iterable[bytes], parse_special: bool = False
    ) -> Ragged:
        """The ids of each text without an encoder's first space, also where it adds none.

        ``texts`` and ``parse_special`` are those of :meth:`encode_continuations`.
        """
        return Ragged.from_rows(self._encode_spans([_spans(text) for text in texts], parse_special))

    @computed_once
    def some_word(self) -> str:
        """A text that the tokenizer can encode: "a", else a token; empty where it has none."""
        tokens = (self.tokens[i] for i in np.flatnonzero(self.ordinary).tolist())
        for token in itertools.chain([b"a"], tokens):
            with suppress(UnicodeDecodeError, RobustokError):
                word = token.decode().strip()
                # First unchecked, since the check of special ids needs this word.
                is_text = word and self.ordinary[self.encode_unchecked(word)].all()
                if is_text and len(self.encode(word)):
                    return word
        return ""

    @computed_once
    def adds_space(self) -> bool:
        """Whether the encoder puts a space before a text."""
        return self.decode_bytes(self.encode(self.some_word)) == b" " + self.some_word.encode()

    def _byte_id(self, byte: int) -> int:
        token = self._byte_ids.get(byte)
        if token is None:
            raise RobustokError(
                f"the vocabulary has no token for byte 0x{byte:02X}: this text cannot be tokenized"
            )
        return token

    @computed_once
    def gigatoken(self) -> GigatokenEncoder:
        """The fast canonical encoder, which says itself whether it can be used."""
        return GigatokenEncoder(self.data)

    @computed_once
    def _byte_ids(self) -> dict[int, int]:
        """The id of every byte that is an ordinary token."""
        single = self.ordinary & (self.token_lengths == 1)
        return {self.tokens[i][0]: i for i in np.flatnonzero(single).tolist()}

    def __reduce__(self) -> tuple[type[Vocabulary], tuple[TokenizerData]]:
        """Pickle the data alone, from which all else is made."""
        return type(self), (self.data,)

    def __len__(self) -> int:
        """The number of ids, ``size``."""
        return self.size

    def __repr__(self) -> str:
        return (
            f"Vocabulary({self.data.family}, {self.size} ids, {int(self.ordinary.sum())} ordinary)"
        )


def _as_text(text: Text) -> Text:
    """A text as a string; bytes that are not UTF-8 stay bytes."""
    if isinstance(text, bytes):
        with suppress(UnicodeDecodeError):
            return text.decode("utf8")
    return text


def _spans(text: bytes) -> list[tuple[bytes, bool]]:
    """The spans of a text that are UTF-8 and those that are not, and whether each one is."""
    return [(text[begin:end], valid) for begin, end, valid in split_at_broken(text)]


def check_vocabulary(vocab: Any) -> Vocabulary:
    """The vocabulary itself, or a RobustokError for anything else."""
    if not isinstance(vocab, Vocabulary):
        raise RobustokError(
            f"a Vocabulary is needed here, not {type(vocab).__name__}: Vocabulary.load() makes one"
        )
    return vocab


def _second_ids(data: TokenizerData) -> list[int]:
    """The ids that are not in V: of several with the same bytes all but what the tokenizer takes.

    It takes a token before a byte of the byte fallback, and an added token before others. Of other
    twins it takes what it gives for their bytes, or the lowest id.
    """
    if len({*data.tokens}) == len(data.tokens):
        return []
    added, given = data.plain_added, set[int]()
    counted = Counter(map(data.tokens.__getitem__, data.ordinary))
    twins: dict[bytes, list[int]] = {token: [] for token in counted if counted[token] > 1}
    for i in data.ordinary if twins else ():
        if data.tokens[i] in twins:
            twins[data.tokens[i]].append(i)
    for ids in twins.values():
        if len({*ids} - {*added} - data.byte_fallback) > 1:
            with suppress(RobustokError, UnicodeDecodeError):
                text = data.tokens[ids[0]].decode()
                given |= {*data.encoder.encode_batch([text], parse_special=False)[0]}

    def rank(i: int) -> tuple[bool, bool, bool, int]:
        return i in data.byte_fallback, i not in added, i not in given, i

    return [i for ids in twins.values() for i in sorted(ids, key=rank)[1:]]


def end_of_text(vocab: Vocabulary, end: str | int | None = None) -> int:
    """The id of the token that ends a document.

    >>> from robustok.tokenizer.vocabulary import end_of_text
    >>> end_of_text(vocab)
    0

    ``end`` is a special token or an id. Without it, the first of :data:`END_TOKENS` that the
    vocabulary has as a special token. Raises RobustokError where there is no such token.
    """
    special = _special_by_text(vocab)
    if end is None:
        for token in END_TOKENS:
            if token in special:
                return special[token]
        example = next((repr(token) for token in special if token), "0")
        raise RobustokError(
            "no end-of-text token is known for this tokenizer; give it as end (in a study:"
            f" end_of_text under pretrain), such as {example}"
        )
    if str(end) in special:
        return special[str(end)]
    number = int(end) if str(end).isdecimal() else vocab.size
    if number < vocab.size:
        return number
    raise RobustokError(f"no special token '{end}' to end a text: {nearest(str(end), special)}")


def start_token_ids(vocab: Vocabulary, token: str | None) -> list[int]:
    """The ids before every text: that of a special token, by its text, or none.

    >>> from robustok.tokenizer.vocabulary import start_token_ids
    >>> start_token_ids(vocab, "<|endoftext|>"), start_token_ids(vocab, None)
    ([0], [])

    Raises RobustokError where the vocabulary has no such special token.
    """
    if token is None:
        return []
    special = _special_by_text(vocab)
    if token not in special:
        raise RobustokError(f"no special token '{token}': {nearest(token, special)}")
    return [special[token]]


def _special_by_text(vocab: Vocabulary) -> dict[str, int]:
    spelling = vocab.data.spelling
    named = vocab.special | spelling.placed | spelling.words
    return {vocab.tokens[i].decode(errors="replace"): i for i in sorted(named)}
