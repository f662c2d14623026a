"""A tokenizer as plain data: what each id spells, and where it may stand.

**What an id spells.** ``tokens[i]`` is what the tokenizer's own decoder writes for id i in the
middle of a text, as bytes. The text of ids is the concatenation, so tokenizations of one text
decode to one text. A tokenizer whose decoder does not work like this is refused when it is loaded.

**Where an id may stand.** An id is of one of three kinds:

- *ordinary*: a token of V, one id for each byte string. A draw may put it wherever its bytes stand.
- *placed*: it stands in a text where the tokenizer itself put it, and every draw leaves it there.
  These are added tokens (a matcher finds them before the model), the unknown token (the bytes of
  its character are not known), and the second id of the same bytes.
- *special*: it is no text. The ids between two of them are texts of their own.

**The source of ids.** A tokenizer changes a text before its model reads it: normalizers, a space
before the text, a space of its own before each part that follows an added token, spaces that an
added token takes from its neighbors. A source is a text that should give the ids: their bytes, but
without the space that the tokenizer writes itself, with a character that the tokenizer does not
know for each unknown token, and with a space where an added token takes it. Several sources may be
possible; `Spelling.sources` lists them, the likeliest first. It depends on the text and the placed
ids alone, so that all draws of a text have the sources of the text.

**Canonical ids.** Ids are canonical if a source of theirs is encoded to exactly them. The canonical
ids of any ids are those of the first source whose ids spell the same text, with the placed ids at
the same places if there is one. A text is accepted if
its ids are canonical by this definition. Otherwise the text of the ids is that of other ids, too
(normalizers that change their own output, pre-tokenizers that lose characters), and encoding it
raises RobustokError.

The vocabulary, the lattice, the samplers and the guard follow from this. This module does not
encode (`tokenizers_api`, `libraries`) and does not compare (`canonical`).
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from robustok.errors import RobustokError
from robustok.runtime.environment import computed_once
from robustok.tokenizer.stages import Stages

USED_BYTES = frozenset(range(256)) - {0xC0, 0xC1, *range(0xF5, 256)}  # those of UTF-8
_SPANS = re.compile("(?P<valid>[^\udc80-\udcff]+)|[\udc80-\udcff]+")

Text = str | bytes
MARK = "▁".encode()  # SentencePiece's way to write a space


class Spelling(NamedTuple):
    """How the bytes of ids differ from the text that they come from.

    ``placed``: ids that stand where the tokenizer puts them, but no second id of the same bytes.
    ``unknown``: the unknown token. ``prefix`` and ``suffix``: what the tokenizer writes around each
    text. ``contents``: the text that the matcher finds, of added tokens that are decoded to another
    one. ``restarts``: added tokens after which it writes the prefix again. ``marked``: "▁" in a
    text is a space. ``words``: special tokens that the model reads in a text, too. ``lossy``:
    beginnings of texts that the decoder reads in different ways. ``adds_space``: it writes a space
    before a text that begins with none.
    """

    placed: Set[int] = frozenset()
    unknown: int | None = None
    prefix: bytes = b""
    suffix: bytes = b""
    contents: Mapping[int, bytes] = {}
    restarts: Set[int] = frozenset()
    marked: bool = False
    words: Set[int] = frozenset()
    lossy: tuple[bytes, ...] = ()
    adds_space: bool = False

    def plain_source(self, text: bytes) -> bytes:
        """The first source of ids without placed ones, which spell ``text``."""
        if self.marked and MARK in text:
            text = text.replace(MARK, b" ")
        if self.adds_space and _has_one_space(text):
            return text[1:]
        return text.removeprefix(self.prefix).removesuffix(self.suffix)

    def expected_bytes(self) -> Callable[[bytes], bytes | None] | None:
        """A function from a text to the bytes of its ids, if the tokenizer changes spaces alone.

        Ids with these bytes have the text as their first source. It returns None for a text of
        which this is not known. None for a tokenizer whose ids spell each text as it is.
        """
        marked, adds_space, prefix, lossy = self.marked, self.adds_space, self.prefix, self.lossy
        suffix = self.suffix
        if not (marked or adds_space or prefix or suffix or lossy):
            return None

        def expected(source: bytes) -> bytes | None:
            if marked and MARK in source:
                return None
            if adds_space and source:
                if _has_one_space(source) or source == b" ":
                    return None
                source = source if source[:1] == b" " else b" " + source
            text = prefix + source + suffix if suffix else prefix + source
            return None if lossy and text.startswith(lossy) else text

        return expected

    def sources(
        self, tokens: Sequence[bytes], ids: np.ndarray, unknown: Sequence[bytes]
    ) -> Iterator[bytes]:
        """The sources of ids without special ones, each once.

        ``unknown``: characters that the tokenizer does not know.
        """
        row = ids.tolist()
        if self.placed.isdisjoint(row):
            sources = [self.plain_source(b"".join(map(tokens.__getitem__, row)))]
        else:
            characters = unknown if self.unknown in row else [b""]
            sources = [self._around(tokens, row, character) for character in characters]
        for source in sources:
            yield source
            if self.marked and b" " in source:
                yield source.replace(b" ", MARK)

    def _around(self, tokens: Sequence[bytes], ids: list[int], unknown: bytes) -> bytes:
        """The source of ids of which some are placed; ``unknown``: that of the unknown token."""
        source = b""
        starts = True  # whether the tokenizer writes its prefix before what follows
        is_placed = False
        for is_placed, run in itertools.groupby(ids, self.placed.__contains__):
            if not is_placed:
                text = b"".join(map(tokens.__getitem__, run))
                text = text.replace(MARK, b" ") if self.marked else text
                source += text.removeprefix(self.prefix) if starts else text
                starts = False
                continue
            for i in run:
                text = unknown if i == self.unknown else self.contents.get(i, tokens[i])
                if starts and i not in self.restarts and i not in self.contents:
                    text = text.removeprefix(self.prefix)
                source += text
                starts = i in self.restarts
        return source if is_placed else source.removesuffix(self.suffix)


def _has_one_space(text: bytes) -> bool:
    """Whether a text begins with one space and something else."""
    return text[:1] == b" " and text[1:2] not in (b"", b" ")


class Encoder(Protocol):
    """Texts in, canonical ids out: no special tokens added, none parsed from the text."""

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]: ...


@dataclass(frozen=True)
class TokenizerData:
    """A tokenizer as plain data.

    ``tokens[i]`` is the bytes of id i (empty where there is no such id), ``ordinary`` the ids a
    text may be cut into (in an array, since a set takes 130 bytes an id), ``byte_fallback`` the ids
    that spell one raw byte beside the ordinary vocabulary, ``read_merges`` reads :attr:`merges`,
    ``scores`` has the score of each token of a model that has scores, ``revision`` is the commit of
    a tokenizer from the hub,
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
    scores: Mapping[int, float] | None = field(default=None, repr=False)
    library: Any = field(default=None, repr=False)
    revision: str | None = None
    stages: Stages = field(default_factory=Stages)
    added: dict[int, Any] = field(default_factory=dict, repr=False)
    spelling: Spelling = field(default_factory=Spelling)
    spells_all: bool = False

    @computed_once
    def merges(self) -> np.ndarray | None:
        """The merges of a BPE with a list, in order: left, right and result, int32 [merges, 3]."""
        return None if self.read_merges is None else self.read_merges(self)

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


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable character of each byte, as character → byte.

    >>> byte_alphabet()["Ġ"]
    32
    """
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


def split_at_broken(data: bytes) -> Iterator[tuple[int, int, bool]]:
    r"""Begin and end of the longest spans that are UTF-8 and that are not, and whether each is.

    >>> list(split_at_broken(b"a\xff\xfeb"))
    [(0, 1, True), (1, 3, False), (3, 4, True)]

    The time is linear in the length of ``data``.
    """
    try:
        data.decode("utf8")
    except UnicodeDecodeError:
        # The codec turns each invalid byte b into the lone surrogate U+DC00 + b, at C speed.
        text = data.decode("utf8", "surrogateescape")
    else:
        if data:
            yield 0, len(data), True
        return
    position = 0
    for match in _SPANS.finditer(text):
        begin, is_valid = position, match.lastgroup == "valid"
        position += len(match.group().encode("utf8", "surrogateescape"))
        yield begin, position, is_valid


def broken_spans(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    r"""Begin and end of each longest span of bytes that are not part of a UTF-8 character.

    >>> broken_spans(b"a\xff\xfeb\xc3")
    (array([1, 4]), array([3, 5]))

    Both arrays are int64, in ascending order, in bytes. They are empty for valid UTF-8.
    """
    spans = [span for *span, is_valid in split_at_broken(data) if not is_valid]
    begin, end = np.array(spans, np.int64).reshape(-1, 2).T
    return begin, end
