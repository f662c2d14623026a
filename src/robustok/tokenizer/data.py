"""A tokenizer as plain data, errors of tokenizer libraries as RobustokErrors, broken UTF-8."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from robustok.errors import RobustokError
from robustok.runtime.environment import computed_once
from robustok.tokenizer.spelling import Spelling
from robustok.tokenizer.stages import Stages

USED_BYTES = frozenset(range(256)) - {0xC0, 0xC1, *range(0xF5, 256)}  # those of UTF-8
_ESCAPED = re.compile("[\udc80-\udcff]+")  # bytes that are not part of a UTF-8 character


class Encoder(Protocol):
    """Texts in, canonical ids out: no special tokens added, none parsed from the text."""

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]: ...


@dataclass(frozen=True)
class TokenizerData:
    """A tokenizer as plain data.

    ``tokens[i]`` is the bytes of id i (empty where there is no such id), ``ordinary`` the ids a
    text may be cut into (in an array, since a set takes 130 bytes an id), ``byte_fallback`` the ids
    that spell one raw byte beside the ordinary vocabulary, ``read_merges`` and ``read_scores`` read
    :attr:`merges` and :attr:`scores`, ``revision`` is the commit of a tokenizer from the hub,
    ``stages`` what comes before the model, ``added`` the added tokens of ``tokenizers`` and
    the user-defined symbols of SentencePiece by id, ``spelling`` how the bytes of ids differ from
    their text, ``spells_all`` whether the ids of each text spell it by construction: byte-level BPE
    with all bytes, and nothing that changes a text or finds other tokens in it.
    """

    tokens: list[bytes]
    ordinary: Sequence[int]
    byte_fallback: Set[int]
    encoder: Encoder
    family: str
    read_merges: Callable[[TokenizerData], np.ndarray] | None = None
    read_scores: Callable[[TokenizerData], dict[int, float]] | None = None
    source: Any = field(default=None, repr=False)
    revision: str | None = None
    stages: Stages = field(default_factory=Stages)
    added: dict[int, Any] = field(default_factory=dict, repr=False)
    spelling: Spelling = field(default_factory=Spelling)
    spells_all: bool = False

    @computed_once
    def pre_token_ends(self) -> Callable[[str], list[int]] | None:
        """Where the library ends the pre-tokens of a text, in characters; None: not known."""
        return getattr(self.encoder, "pre_token_ends", None)

    @computed_once
    def merges(self) -> np.ndarray | None:
        """The merges of a BPE with a list, in order: pairs of ids of V and of `in_model`, int32."""
        return None if self.read_merges is None else self.read_merges(self)

    @computed_once
    def scores(self) -> dict[int, float] | None:
        """The score of each token, by id, of a model that has scores."""
        return None if self.read_scores is None else self.read_scores(self)

    @property
    def plain_added(self) -> dict[int, Any]:
        """The added tokens that are looked for in any text, by id: all that are not special."""
        return {i: token for i, token in self.added.items() if not token.special}


@contextlib.contextmanager
def library_errors(meaning: str) -> Iterator[None]:
    """Turn an error of a tokenizer library into a RobustokError that begins with ``meaning``."""
    try:
        yield
    except RobustokError:
        raise
    except BaseException as e:
        raise library_error(meaning, e) from e


def library_error(meaning: str, error: BaseException) -> RobustokError:
    """An error of a tokenizer library as a RobustokError that begins with ``meaning``.

    A panic of a Rust library is a BaseException, which ``except Exception`` would miss. Others of
    this kind, such as KeyboardInterrupt, are raised.
    """
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return RobustokError(f"{meaning} ({lines[0][:200]})")


def search_of(strings: Collection[str]) -> Callable[[str], object] | None:
    """A search of a text for any of some strings; None where there is none, or an empty one.

    >>> bool(search_of(["<a>", "<b>"])("x<b>"))
    True

    One regular expression, with the common beginnings of the strings written once, so that its time
    does not grow with their number. The result is true where one is in the text.
    """
    ordered = sorted({*strings})
    if not ordered or not ordered[0]:
        return None
    try:
        return _Search(ordered).first
    except RecursionError:
        return lambda text: any(string in text for string in ordered)


def search_all(strings: Collection[str]) -> Callable[[str], Iterator[re.Match[str]]] | None:
    """All matches of some strings in a text, in order; None where there is no such search.

    >>> [match.group() for match in search_all(["a", "ab", "b"])("xabb")]
    ['ab', 'b']

    Each is the longest at the first place where there is one after the match before.
    """
    ordered = sorted({*strings})
    if not ordered or not ordered[0]:
        return None
    try:
        return _Search(ordered).all
    except RecursionError:
        return None


class _Search:
    """A search for any of sorted, distinct strings by regular expressions.

    If a text has one of their first characters, as a line break, those that begin with it are
    looked for alone, which takes a tenth of the time. Raises RecursionError where the expression is
    too deep.
    """

    def __init__(self, strings: list[str]) -> None:
        groups = itertools.groupby(strings, lambda string: string[0])
        self._of_start = {start: [*group] for start, group in groups}
        self._whole = _pattern(strings)
        self._patterns: dict[str, re.Pattern[str]] = {}

    def first(self, text: str) -> re.Match[str] | None:
        """The first match, or None."""
        pattern = self._pattern_of(text)
        return None if pattern is None else pattern.search(text)

    def all(self, text: str) -> Iterator[re.Match[str]]:
        """All matches, in order."""
        pattern = self._pattern_of(text)
        return iter(()) if pattern is None else pattern.finditer(text)

    def _pattern_of(self, text: str) -> re.Pattern[str] | None:
        """An expression with the same matches in this text as that of all strings, if any."""
        if len(self._of_start) > _MOST_STARTS:
            return self._whole
        present = [start for start in self._of_start if start in text]
        if len(present) != 1:
            return self._whole if present else None
        (start,) = present
        if start not in self._patterns:
            self._patterns[start] = _pattern(self._of_start[start])
        return self._patterns[start]


_MOST_STARTS = 64  # characters that are looked for one by one
_MOST_NESTED = 64  # groups in each other, which the compiler of `re` reads recursively


def _pattern(strings: list[str]) -> re.Pattern[str]:
    return re.compile(_one_of(strings, 0))


def _one_of(strings: list[str], depth: int) -> str:
    """A regular expression for any of sorted, distinct strings, the longest at one place.

    Raises RecursionError where it is too deep.
    """
    if len(strings) == 1:
        return re.escape(strings[0])
    shared = _shared(strings[0], strings[-1])
    rest = [string[shared:] for string in strings]
    begin = re.escape(strings[0][:shared])
    is_whole = not rest[0]  # all others begin with this one
    if depth == _MOST_NESTED:
        raise RecursionError
    groups = itertools.groupby(rest[is_whole:], lambda string: string[0])
    inner = [_one_of(list(group), depth + 1) for _, group in groups]
    return f"{begin}(?:{'|'.join(inner)}){'?' * is_whole}"


def _shared(a: str, b: str) -> int:
    """How many first characters are the same."""
    size = min(len(a), len(b))
    return next((i for i in range(size) if a[i] != b[i]), size)


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable character of each byte, as character → byte.

    >>> byte_alphabet()["Ġ"]
    32
    """
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


def broken_spans(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    r"""Begin and end of each longest span of bytes that are not part of a UTF-8 character.

    >>> broken_spans(b"a\xff\xfeb\xc3")
    (array([1, 4]), array([3, 5]))

    Both arrays are int64, in ascending order, in bytes. They are empty for valid UTF-8. The time is
    linear in the length of ``data``.
    """
    try:
        data.decode("utf8")
    except UnicodeDecodeError as e:
        start = e.start
    else:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # The codec turns each invalid byte b into the lone surrogate U+DC00 + b, at C speed.
    text = data[start:].decode("utf8", "surrogateescape")
    begins: list[int] = []
    ends: list[int] = []
    after = 0  # what was read of ``text``
    for match in _ESCAPED.finditer(text):
        valid = text[after : match.start()]
        begins.append(start + len(valid.encode()))
        start, after = begins[-1] + len(match.group()), match.end()
        ends.append(start)
    return np.array(begins, np.int64), np.array(ends, np.int64)


def split_at_broken(data: bytes) -> Iterator[tuple[int, int, bool]]:
    r"""Begin and end of all valid and broken spans in turn, and whether each is valid.

    >>> list(split_at_broken(b"a\xff\xfeb"))
    [(0, 1, True), (1, 3, False), (3, 4, True)]
    """
    position = 0
    for begin, end in zip(*(edges.tolist() for edges in broken_spans(data)), strict=True):
        if begin > position:
            yield position, begin, True
        yield begin, end, False
        position = end
    if position < len(data):
        yield position, len(data), True
