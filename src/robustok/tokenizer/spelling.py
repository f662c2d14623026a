"""What an id spells and where it may stand: the one model of the ids of a tokenizer.

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
raises RobustokError. Where the stages of a tokenizer already imply it, nothing is encoded twice.

The vocabulary, the lattice, the samplers and the guard follow from this. This module does not
encode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

MARK = "▁".encode()  # SentencePiece's way to write a space


class Spelling(NamedTuple):
    """How the bytes of ids differ from the text that they come from.

    ``placed``: added tokens and the unknown token, which stand where the tokenizer puts them; ids
    with the bytes of another are not listed. ``unknown``: the unknown token. ``prefix`` and
    ``suffix``: what the tokenizer writes around each text. ``contents``: the text that the matcher
    finds, of added tokens that are decoded to another one. ``restarts``: added tokens after which
    it writes the prefix again. ``takes_left``, ``takes_right``: added tokens that take the spaces
    beside them. ``in_model``: the bytes that the model reads as a placed token, of those that it
    has, of which ``single`` are matched only where they are a word. ``marked``: "▁" in a text is a
    space. ``literal``: ids with a "▁" or a space that the model sees in no text. ``words``: special
    tokens that the model reads in a text, too. ``lossy``: beginnings of texts that the decoder
    reads in different ways.
    """

    placed: Set[int] = frozenset()
    unknown: int | None = None
    prefix: bytes = b""
    suffix: bytes = b""
    contents: Mapping[int, bytes] = {}
    restarts: Set[int] = frozenset()
    takes_left: Set[int] = frozenset()
    takes_right: Set[int] = frozenset()
    in_model: Mapping[int, bytes] = {}
    single: Set[int] = frozenset()
    marked: bool = False
    literal: Set[int] = frozenset()
    words: Set[int] = frozenset()
    lossy: tuple[bytes, ...] = ()

    def plain_source(self, text: bytes) -> bytes:
        """The first source of ids without placed ones, which spell ``text``."""
        if self.marked and MARK in text:
            text = text.replace(MARK, b" ")
        return text.removeprefix(self.prefix).removesuffix(self.suffix)

    def sources(
        self, tokens: Sequence[bytes], ids: np.ndarray, unknown: Sequence[bytes]
    ) -> Iterator[bytes]:
        """The sources of ids without special ones, each once.

        ``unknown``: characters that the tokenizer does not know.
        """
        row = ids.tolist()
        placed = self.placed & {*row}
        matched = placed - self.in_model.keys()
        choices = [placed] if len(matched) == len(placed) else [placed, matched]
        tried: set[bytes] = set()
        for character in unknown if self.unknown in placed else [b""]:
            for chosen in choices:
                takes = not chosen.isdisjoint(self.takes_left | self.takes_right)
                for spaces in (False, True)[: 1 + takes]:
                    parts = self._parts(tokens, row, chosen)
                    source = self._joined(tokens, parts, character, spaces)
                    for one in (source, source.replace(b" ", MARK) if self.marked else source):
                        if one not in tried:
                            tried.add(one)
                            yield one

    def _joined(
        self, tokens: Sequence[bytes], parts: list[Any], unknown: bytes, spaces: bool
    ) -> bytes:
        """A source of bytes and placed ids in turn.

        ``unknown``: a character for the unknown token. ``spaces``: whether added tokens that take
        spaces get one.
        """
        source = b""
        starts = True  # whether the tokenizer writes its prefix before what follows
        for number, part in enumerate(parts):
            if number % 2 and not self._is_model_token(part, source, parts[number + 1]):
                text = tokens[part]
                if part == self.unknown:
                    text = unknown
                elif part in self.contents:
                    text = self.contents[part]
                elif starts and part not in self.restarts:
                    text = text.removeprefix(self.prefix)
                starts = part in self.restarts
                if spaces:
                    text = b" " * (part in self.takes_left) + text
                    text += b" " * (part in self.takes_right)
            else:
                text = self.in_model.get(part, b"") if number % 2 else part
                text = text.replace(MARK, b" ") if self.marked else text
                if starts and text:
                    text, starts = text.removeprefix(self.prefix), False
            source += text
        return source.removesuffix(self.suffix) if parts[-1] else source

    def _is_model_token(self, token: int, before: bytes, after: bytes) -> bool:
        """Whether an added token of words stands amid a word, where the model reads it."""
        if token not in self.single:
            return False
        last = before[-4:].decode(errors="ignore")[-1:]
        in_word = last.isalnum() or last == "_"
        return in_word or (after != b"" and not after.startswith(self.prefix))

    def _parts(self, tokens: Sequence[bytes], ids: list[int], placed: Set[int]) -> list[Any]:
        """Bytes and placed ids in turn; the first and the last are bytes."""
        parts: list[Any] = []
        run: list[bytes] = []
        for i in ids:
            if i in placed:
                parts += [b"".join(run), i]
                run = []
            else:
                run.append(self.in_model.get(i, tokens[i]))
        return [*parts, b"".join(run)]
