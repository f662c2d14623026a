"""Canonical ids by gigatoken, where they are known to equal those of ``tokenizers``.

gigatoken loads the same model, without added tokens, once enough text was encoded to repay the time
of loading. Before its first use it is compared with ``tokenizers`` on texts of many kinds. It
encodes the parts of a text between added tokens, which are found as the library finds them. A text
that it may encode differently is left to the caller, who encodes it with ``tokenizers``.

gigatoken keeps the ids of pre-tokens in a hash table that grows without limit and whose hash has no
secret seed. The table is therefore replaced when the process has grown, and gigatoken is no longer
used when texts make it slow. It does not check bytes, so it gets only str.

A long text is cut into parts, which end where the pre-tokenizer cuts whatever comes after it. A
long pre-token is encoded in windows that overlap. Windows are joined at a token that both have at
the same place: a sequence of BPE tokens is the canonical one of its text if each two neighbors are
that of theirs, and here each two neighbors are neighbors in a window.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, normalizers

from robustok.errors import RobustokError
from robustok.runtime.environment import (
    EXTRAS,
    ForkSafeLock,
    computed_once,
    give_back_memory,
    import_lock,
    missing_line,
)
from robustok.tokenizer.data import (
    TokenizerData,
    library_error,
    library_errors,
    search_all,
    search_of,
)
from robustok.tokenizer.gigatoken_check import (
    are_checked,
    check_texts,
    first_difference,
    has_unsafe,
)
from robustok.tokenizer.pre_tokenizer import PreTokenizer
from robustok.tokenizer.tokenizer_json import TokenizersEncoder

Text = str | bytes
_log = logging.getLogger(__name__)

LARGE = 1 << 20  # characters of one call without gigatoken that are worth a message
GROWTH = 512 << 20  # bytes by which the process may grow before the table is replaced
INTERVAL = 8 << 20  # characters between two looks at the size of the process
UNSEEN = 128 << 20  # characters until the table is replaced where the size is not known
SECONDS = 1e-6  # processor time that a character may take
EXCESS = 1.0  # processor seconds above that, on balance, after which gigatoken is given up
_MUCH = 2048  # characters of a call whose processor time is always measured
_LATE = 1e-3  # seconds on the clock after which the next _WINDOW calls are measured, too
_WINDOW = 64
_CALL = 64  # characters that take as long as the overhead of a call of ``tokenizers``
PART = 1 << 16  # characters after which a text is cut where it can be
LONGEST = 1 << 18  # characters without a simple cut, after which pre-tokens are looked for
WHOLE = 1 << 20  # characters without a cut: colliding texts take time quadratic in this
OVERLAP = 1 << 11  # bytes that two windows share at least; more than the longest token
_LAST = 8  # pre-tokens at the end of a part that are compared

# A byte-level pre-tokenizer of those that gigatoken knows always cuts here, whatever is around.
_CUT = re.compile(r"[A-Za-z](?= [A-Za-z])")

# gigatoken encodes a SentencePiece text word by word, unless a token goes from one to the next.
_SPAN = re.compile(r"[\t\n\r][ ▁]")
_SPANS = [before + space for before in "\t\n\r" for space in " ▁"]  # a tenth of the search's time
_WORD_END = re.compile(r"(?<=\S) ")
_ANY_SPAN = re.compile(rb"([^ \0]) ")


class GigatokenEncoder:
    """The canonical encoder of a tokenizer by gigatoken, which says itself whether it can be used.

    >>> encoder = GigatokenEncoder(vocab.data)
    >>> encoder.load()
    >>> encoder.encode(["hello world"])
    [array([276, 275], dtype=int32)]

    ``reason`` says why gigatoken is not used, or is None. Where gigatoken is not installed, the
    first call with more than `LARGE` characters logs how to install it.
    """

    def __init__(self, data: TokenizerData) -> None:
        self._data = data
        self.reason = _obstacle(data)
        self._is_missing = self.reason is None and find_spec("gigatoken") is None
        if self._is_missing:
            self.reason = missing_line("gigatoken")
        self._left = 4 * len(data.tokens)  # characters until loading is worth its time
        self._backend: Callable[[str], np.ndarray] | None = None
        self._lock = ForkSafeLock()
        self._running: list[None] = []  # an entry for each call in progress
        self._excess = 0.0  # processor seconds
        self._suspected = 0  # calls whose processor time is measured although they are short
        self._encoded = 0  # characters since the last look at the size of the process
        self._size: int | None = None  # bytes of the process when the table was new
        self._byte_level = data.family.startswith("byte-level")
        self._normalizer: Any = None
        if self.reason is None:
            encoder: Any = data.encoder
            self._ids, self._find_added, others = _added_tokens(data)
            self._has_other = search_of(others)
            self._in_normalized = any(data.added[ids[0]].normalized for ids in self._ids.values())
            self._normalizer = encoder.tokenizer.normalizer if self._byte_level else None
            stages = data.stages
            alone = stages.space_rules == ("inside",) and stages.pre_tokenizer is None
            self._spans_words = not self._byte_level and alone and _span_words(data.tokens)
            self._before = " " * (data.stages.space_rules or ()).count("before")
        _encoders.add(self)

    def encode(self, texts: Sequence[Text]) -> list[np.ndarray | None]:
        """The ids of each text, int32, or None for a text that ``tokenizers`` must encode.

        A str holds no lone surrogate.
        """
        if self._backend is None and not self._load_if_worth(texts):
            return [None] * len(texts)
        return [self.encode_one(text) for text in texts]

    def load(self) -> None:
        """Load gigatoken now, if it can be used."""
        with self._lock:
            if self._backend is not None or self.reason is not None:
                return
            try:
                with library_errors("gigatoken cannot load this tokenizer"):
                    with import_lock:
                        import gigatoken

                    backend = gigatoken.Tokenizer.from_json(self._json()).backend.encode
                    different = self._first_difference(backend)
            except RobustokError as e:
                self.reason = str(e)
                return
            if self.reason is not None:  # it failed
                return
            if different is not None:
                self.reason = f"gigatoken gives other ids for {different!r}"
                return
            give_back_memory()
            self._encoded, self._size = 0, _process_size()
            self._backend = backend

    def _load_if_worth(self, texts: Sequence[Text]) -> bool:
        """Count these texts, and load gigatoken once there were enough; whether it is loaded."""
        if self.reason is not None:
            if self._is_missing and sum(map(len, texts)) > LARGE:
                _say_missing()
            return False
        self._left -= sum(map(len, texts)) + _CALL * len(texts)
        if self._left < 0:
            self.load()
        return self._backend is not None

    def _first_difference(self, backend: Callable[[str], np.ndarray]) -> str | None:
        """The first text or character of the comparison with ``tokenizers`` that has other ids."""
        some = self._data.tokens[:: max(1, len(self._data.tokens) // 256)]
        added = [*self._ids][:64]
        texts = [*check_texts(), *(token.decode("utf8", "ignore") for token in some)]
        texts += [
            f"{a} x{a}{a}y {a}{b}\n{b}z" for a, b in zip(added, added[1:] + added, strict=False)
        ]
        expected = self._data.encoder.encode_batch(texts, parse_special=False)
        for text, ids in zip(texts, expected, strict=True):
            row = self._encode_with(backend, text)
            if row is not None and row.tolist() != ids:
                return text
        if self._byte_level and not are_checked():
            return first_difference(self._data.stages.pre_tokenizer or {})
        return None

    def _json(self) -> str:
        """A tokenizer.json of the same model, without added tokens."""
        original = self._data.encoder.tokenizer  # type: ignore[attr-defined]
        plain = Tokenizer(original.model)
        if not self._byte_level and "inside" in (self._data.stages.space_rules or ()):
            plain.normalizer = normalizers.Replace(" ", "▁")  # type: ignore[assignment]
        plain.pre_tokenizer = original.pre_tokenizer
        return _without_spanning(plain.to_str()) if self._spans_words else plain.to_str()

    # --- one text -----------------------------------------------------------------------------

    def encode_one(self, text: Text) -> np.ndarray | None:
        """One row of :meth:`encode`."""
        if self._backend is None and not self._load_if_worth([text]):
            return None
        backend = self._backend
        return None if backend is None else self._encode_with(backend, text)

    def _encode_with(self, backend: Callable[[str], np.ndarray], text: Text) -> np.ndarray | None:
        """The ids by gigatoken, None where it may give other ids than ``tokenizers``."""
        if isinstance(text, bytes):
            try:
                text = text.decode("utf8")
            except UnicodeDecodeError:
                return None
        if self._has_mark(text):
            return None
        if self._find_added is None:
            return self._encode_between(backend, text, is_normalized=False)
        # The library looks for added tokens in the text as it came, or as it became.
        if self._in_normalized and self._normalizer is not None:
            text = self._normalized(text)
            if self._has_mark(text):
                return None
        rows: list[np.ndarray | None] = []
        begin = 0
        for match in self._find_added(text):
            added = self._ids.get(match.group())
            if added is None:  # a special token, which is text
                continue
            if match.start() > begin:
                part = text[begin : match.start()]
                rows.append(self._encode_between(backend, part, self._in_normalized))
            rows.append(added)
            begin = match.end()
        if begin < len(text) or not rows:
            rows.append(self._encode_between(backend, text[begin:], self._in_normalized))
        return _joined(rows)

    def _encode_between(
        self, backend: Callable[[str], np.ndarray], text: str, is_normalized: bool
    ) -> np.ndarray | None:
        """:meth:`_encode_with` for a text between added tokens, which has none."""
        if not self._byte_level:
            # The normalizer leaves an empty text empty.
            text = self._before + text if text and not is_normalized else text
            if self._spans_words and any(span in text for span in _SPANS):
                return self._encode_around_spans(backend, text)
        else:
            if not is_normalized and self._normalizer is not None:
                normalized = self._normalized(text)
                if normalized != text and self._has_mark(normalized):
                    return None
                text = normalized
            if has_unsafe(text):
                return None
        if len(text) <= PART:
            return self._encode_part(backend, text)
        if self._byte_level:
            return self._encode_parts(backend, text)
        if self._data.stages.pre_tokenizer is not None:
            return self._encode_part(backend, text) if len(text) <= WHOLE else None
        return self._join_windows(backend, text.replace("▁", " "), None)

    def _encode_around_spans(
        self, backend: Callable[[str], np.ndarray], text: str
    ) -> np.ndarray | None:
        """The ids of a text with spans, which the library encodes with the words beside them."""
        parts = [*_parts_around_spans(text.replace("▁", " "))]
        spans = [part for part, has_span in parts if has_span]
        rows = iter(self._data.encoder.encode_batch(spans, parse_special=False))
        return _joined([
            np.array(next(rows), np.int32) if has_span
            else self._encode_between(backend, part, is_normalized=True)
            for part, has_span in parts
        ])  # fmt: skip

    def _normalized(self, text: str) -> str:
        """The text as the library normalizes it, since gigatoken has another release of Unicode."""
        if text.isascii() and self._data.stages.composes:
            return text
        normalized: str = self._normalizer.normalize_str(text)
        return normalized

    @computed_once
    def _cutter(self) -> PreTokenizer | None:
        """The pre-tokenizer, None where it has no automaton."""
        pre_tokenizer = PreTokenizer(self._data)
        return None if pre_tokenizer.automaton is None else pre_tokenizer

    @computed_once
    def _lengths(self) -> np.ndarray:
        """int64 [ids]: the bytes of each token."""
        return np.fromiter(map(len, self._data.tokens), np.int64, len(self._data.tokens))

    def _encode_part(self, backend: Callable[[str], np.ndarray], part: str) -> np.ndarray | None:
        # The clock of processor time takes microseconds, too long beside a short text.
        exact = len(part) >= _MUCH or self._suspected > 0
        clock = time.thread_time if exact else time.perf_counter
        self._running.append(None)
        try:
            started = clock()
            ids = backend(part).view(np.int32)
            seconds = clock() - started
        except BaseException as error:  # a panic of a Rust library is no Exception
            self.reason = str(library_error("gigatoken failed", error))
            self._backend = None
            return None
        finally:
            self._running.pop()
        if backend is self._backend:  # not while it is compared
            self._watch(len(part), seconds, exact)
        return ids

    def _has_mark(self, text: str) -> bool:
        """Whether an added token may be in ``text`` that gigatoken does not treat as its own."""
        if self._has_other is None:
            return False
        if not self._byte_level:  # the normalizer writes spaces as "▁", also before the text
            text = "▁" + text.replace(" ", "▁")
        return bool(self._has_other(text))

    # --- long texts ---------------------------------------------------------------------------

    def _encode_parts(self, backend: Callable[[str], np.ndarray], text: str) -> np.ndarray | None:
        """The ids of a byte-level text by the ids of its parts, None where it cannot be cut."""
        cutter = self._cutter
        rows: list[np.ndarray | None] = []
        begin = 0
        while len(text) - begin > PART:
            cut = _CUT.search(text, begin + PART // 2, begin + LONGEST)
            if cut is None:
                break
            rows.append(self._encode_part(backend, text[begin : cut.end()]))
            begin = cut.end()
        rest = text[begin:]
        if len(rest) <= LONGEST or (cutter is None and len(rest) <= WHOLE):
            rows.append(self._encode_part(backend, rest))
        elif cutter is None:
            return None
        else:
            for part, is_pre_token in _pre_token_parts(rest.encode(), cutter):
                if is_pre_token:
                    rows.append(self._join_windows(backend, part, cutter))
                else:
                    rows.append(self._encode_part(backend, part))
                if rows[-1] is None:
                    return None
        return _joined(rows)

    def _join_windows(
        self, backend: Callable[[str], np.ndarray], text: str, cutter: PreTokenizer | None
    ) -> np.ndarray | None:
        """The ids of one pre-token from those of windows, None where windows do not meet.

        ``cutter`` must leave each window whole; None where there is none.
        """
        raw = text.encode()
        rows: list[np.ndarray] = []
        window = self._encode_window(backend, raw, 0, cutter)
        while window is not None:
            ids, starts, end = window
            if end == len(raw):
                return np.concatenate([*rows, ids])
            window = None
            for overlap in (OVERLAP, 4 * OVERLAP, 16 * OVERLAP):
                begin = _last_start(raw, starts, end - overlap)
                if begin is None:
                    break
                following = self._encode_window(backend, raw, begin, cutter)
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

    def _encode_window(
        self, backend: Callable[[str], np.ndarray], raw: bytes, begin: int,
        cutter: PreTokenizer | None,
    ) -> tuple[np.ndarray, np.ndarray, int] | None:  # fmt: skip
        """The ids of a window from ``begin``, where each token starts in ``raw``, and its end.

        None where it cannot be encoded alone.
        """
        end = min(begin + PART, len(raw))
        while end < len(raw) and raw[end] & 0xC0 == 0x80:
            end -= 1
        if cutter is not None:
            array = np.frombuffer(raw[begin:end], np.uint8)
            if len(cutter.cut(array, np.array([0, len(array)]))) != 1:
                return None
        ids = self._encode_part(backend, raw[begin:end].decode())
        if ids is None:
            return None
        lengths = self._lengths[ids]
        ends = np.cumsum(lengths)
        return None if ends[-1] != end - begin else (ids, begin + ends - lengths, end)

    # --- bounds -------------------------------------------------------------------------------

    def _watch(self, characters: int, seconds: float, exact: bool) -> None:
        """Give gigatoken up where it is slow, and empty its table where the process has grown.

        ``exact``: the seconds are processor time of this thread, not time on the clock.
        """
        excess = seconds - SECONDS * characters
        if not exact:
            self._suspected = _WINDOW if excess > _LATE else 0
        else:
            self._suspected = max(0, self._suspected - 1)
            self._excess = max(0.0, self._excess + excess)
        if self._excess > EXCESS:
            self.reason = "texts made gigatoken slow: they collide in its hash table"
            self._backend = None
            return
        self._encoded += characters
        if self._encoded < INTERVAL:
            return
        size = _process_size()
        if size is None or self._size is None:
            full = self._encoded >= UNSEEN
        else:
            full = size - self._size > GROWTH
            self._encoded, self._size = 0, min(size, self._size)
        if full:
            self._backend = None
            self.load()


def _pre_token_parts(raw: bytes, cutter: PreTokenizer) -> Iterator[tuple[str, bool]]:
    """A text cut between pre-tokens, and of each part whether it is one longer than LONGEST.

    How a text is cut depends on what follows, not on what precedes: each part is cut as in the
    whole text if its last pre-tokens are. Where they are not, the next part belongs to it.
    """
    array = np.frombuffer(raw, np.uint8)
    ends = cutter.cut(array, np.array([0, len(raw)]))
    long = np.flatnonzero(np.diff(ends, prepend=0) > LONGEST)
    begin = first = 0  # byte, and number of the first pre-token
    while begin < len(raw):
        last = min(int(np.searchsorted(ends, begin + PART)), len(ends) - 1)
        following = long[np.searchsorted(long, first) :][:1]
        if len(following) and first <= following[0] <= last:
            last = max(first, int(following[0]) - 1)
        while not _cut_alike(array, ends, first, last, cutter):
            last += 1
        end = int(ends[last])
        yield raw[begin:end].decode(), first == last and end - begin > LONGEST
        begin, first = end, last + 1


def _cut_alike(
    text: np.ndarray, ends: np.ndarray, first: int, last: int, cutter: PreTokenizer
) -> bool:
    """Whether pre-tokens ``first`` to ``last`` of a text are cut alike if the text ends there."""
    some = max(first, last - _LAST)
    begin = int(ends[some - 1]) if some else 0
    if last == len(ends) - 1 or (first == last and ends[last] - begin > LONGEST):
        return True  # the end of the text, or a pre-token whose windows are compared
    end_of_part = text[begin : int(ends[last])]
    alone = cutter.cut(end_of_part, np.array([0, len(end_of_part)]))
    return np.array_equal(alone + begin, ends[some : last + 1])


def _last_start(raw: bytes, starts: np.ndarray, before: int) -> int | None:
    """The last token after the first that starts a character and is not after ``before``."""
    number = int(np.searchsorted(starts, before, "right")) - 1
    while number > 0 and raw[starts[number]] & 0xC0 == 0x80:
        number -= 1
    return int(starts[number]) if number > 0 else None


@cache
def _say_missing() -> None:
    """Log once that an installed gigatoken would encode faster."""
    _log.warning(
        "canonical ids are computed by tokenizers; gigatoken is usually 10 to 70 times as fast: %s",
        EXTRAS["gigatoken"].install("gigatoken"),
    )


def _obstacle(data: TokenizerData) -> str | None:
    """Why gigatoken cannot be used for this tokenizer, as far as its settings tell."""
    encoder = data.encoder
    if not isinstance(encoder, TokenizersEncoder) or not data.family.endswith("BPE"):
        return f"gigatoken is not used for {data.family} of this source"
    model = encoder.tokenizer.model
    if not encoder.complete:
        return "the vocabulary lacks bytes"
    if encoder.names_bytes:
        return "the model reads names of bytes in the text"
    if not data.family.startswith("byte-level"):
        if not model.byte_fallback:
            return "the model has no byte fallback"
        known = data.stages.space_rules is not None
        return None if known else "gigatoken does not know this normalizer"
    if data.stages.adds_space:
        return "the pre-tokenizer adds a space"
    known = data.stages.isolates_then_spells
    return None if known else "gigatoken does not know this pre-tokenizer"


def _span_words(tokens: list[bytes]) -> bool:
    """Whether tokens have a space after another character, and all of these are whitespace."""
    before = {*_ANY_SPAN.findall(b"\0".join(tokens))}
    return bool(before) and before <= {b"\t", b"\n", b"\r"}


def _parts_around_spans(text: str) -> Iterator[tuple[str, bool]]:
    """A text cut between words where no token goes on, and whether `_SPAN` is in each part."""
    begin = 0
    for span in _SPAN.finditer(text):
        if span.start() < begin:
            continue
        cut = text.rfind(" ", begin, span.start())
        while cut > begin and text[cut - 1].isspace():
            cut = text.rfind(" ", begin, cut)
        if cut > begin:
            yield text[begin:cut], False
        after = _WORD_END.search(text, span.end())
        end = len(text) if after is None else after.start()
        yield text[max(cut, begin) : end], True
        begin = end
    if begin < len(text):
        yield text[begin:], False


def _without_spanning(text: str) -> str:
    """A tokenizer.json without the tokens that `_SPAN` finds, which no text without it has."""
    spec = json.loads(text)
    model = spec["model"]
    model["merges"] = [merge for merge in model["merges"] if not _SPAN.search("".join(merge))]
    # Other names leave no hole in the ids.
    model["vocab"] = {
        f"\0{i}" if _SPAN.search(token) else token: i for token, i in model["vocab"].items()
    }
    return json.dumps(spec, ensure_ascii=False)


def _added_tokens(
    data: TokenizerData,
) -> tuple[dict[str, np.ndarray], Callable[[str], Iterator[re.Match[str]]] | None, list[str]]:
    """How added tokens are found.

    Returns the ids of those that are found as the library finds them, whatever is around; the
    search for them, which also finds special tokens, since they hide others although they are
    plain text; and texts of the rest, None of which may be in a text.
    """
    added, stages = data.encoder.tokenizer.get_added_tokens_decoder(), data.stages  # type: ignore
    plain = {i: token for i, token in added.items() if not token.special}
    # The library looks for tokens of both kinds one after the other.
    of_normalized = {token.normalized for token in plain.values()}
    alike = {i: token for i, token in added.items() if token.normalized in of_normalized}
    writes = "before" in (stages.space_rules or ())
    # A text on each side of an added token is cut as one of its own.
    apart = len(of_normalized) == 1 and not stages.adds_space
    apart = apart and not (writes and True in of_normalized)
    ids: dict[str, np.ndarray] = {}
    others: set[str] = set()
    hidden: set[str] = set()
    for i, token in alike.items():
        content = token.content
        matched = data.source.id_to_token(i)  # the normalized content of a normalized token
        marks = token.normalized and not stages.byte_level and bool({*content} & {" ", "▁"})
        if token.special:
            hidden.add(content)
            apart = apart and matched == content and not marks
        elif matched != content or marks or token.lstrip or token.rstrip or token.single_word:
            others |= {content, matched}
        else:
            ids[content] = np.array([i], np.int32)
    search = search_all({*ids, *hidden}) if ids and apart else None
    if search is None:
        others |= {*ids}
        ids = {}
    if not stages.byte_level:
        others = {text.replace(" ", "▁") for text in others}
    return ids, search, sorted(others - {""})


def _joined(rows: list[np.ndarray | None]) -> np.ndarray | None:
    """The ids of all parts, None where one is not known."""
    known = [row for row in rows if row is not None]
    if len(known) < len(rows):
        return None
    return known[0] if len(known) == 1 else np.concatenate(known)


def _process_size() -> int | None:
    """Bytes of memory of this process, None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


_encoders: weakref.WeakSet[GigatokenEncoder] = weakref.WeakSet()
_abandoned: list[Any] = []  # never freed, since another thread of the parent was changing them


def _forget_running() -> None:
    """In a forked child: load gigatoken anew where a thread of the parent was encoding."""
    for encoder in list(_encoders):
        if encoder._running:
            _abandoned.append(encoder._backend)
            encoder._running, encoder._backend = [], None


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forget_running)
