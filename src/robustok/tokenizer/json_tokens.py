"""The tokens of a tokenizer.json: the spelling of each id in its file, and its bytes in a text."""

from __future__ import annotations

import itertools
import json
import re
from contextlib import suppress
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from robustok.errors import RobustokError
from robustok.runtime.environment import computed_once
from robustok.tokenizer.data import USED_BYTES, byte_alphabet, library_errors
from robustok.tokenizer.spelling import Spelling
from robustok.tokenizer.stages import Stages

BYTE_NAME = re.compile(r"<0x[0-9A-F]{2}>")  # as the library writes it
_ANY_BYTE_NAME = re.compile(r"<0x[0-9A-Fa-f]{2}>")  # as its decoder reads it
_HEX = "0123456789ABCDEFabcdef"
_BYTE_NAMES = [f"<0x{a}{b}>" for a in _HEX for b in _HEX]
_HOLES = 1 << 10  # ids without a token that a small vocabulary may have
# A character of the byte-level alphabet to the one of its byte, others to one that is no byte.
_NO_BYTE = 256
_BYTES = dict.fromkeys(range(256), _NO_BYTE) | {ord(c): b for c, b in byte_alphabet().items()}


class ModelTokens:
    """The model of a tokenizer: the spelling of each id, and its settings.

    ``names``: the spellings by id, None where there is no token, ``spellings`` the same with ""
    there. ``id_of``: the id of a spelling, or None. ``scores``: those of a Unigram model.
    ``unknown_name``: that of the unknown token, which need not be in the vocabulary.
    """

    def __init__(self, tokenizer: Any, text: str) -> None:
        model = tokenizer.model
        self.kind, self.id_of = type(model).__name__, model.token_to_id
        self.names: list[str | None]
        self.scores: list[float] = []
        self.ignore_merges = False
        self._model = model
        if self.kind == "BPE":
            self.names = _names(tokenizer)
            self.ignore_merges, self.byte_fallback = model.ignore_merges, model.byte_fallback
            self.unknown_name = model.unk_token
            self.unknown = None if self.unknown_name is None else self.id_of(self.unknown_name)
            return
        spec = json.loads(text)["model"]  # what the library does not give
        self.names = [name for name, _ in spec["vocab"]]
        self.scores = [score for _, score in spec["vocab"]]
        if len({*self.names}) < len(self.names):
            check_holes(tokenizer)
            self.names = [
                name if self.id_of(name) == i else None for i, name in enumerate(self.names)
            ]
        self.byte_fallback, self.unknown = bool(spec.get("byte_fallback")), spec.get("unk_id")
        self.unknown_name = None if self.unknown is None else self.names[self.unknown]

    @computed_once
    def spellings(self) -> list[str]:
        return [name or "" for name in self.names]

    def merged(self, contents: set[str]) -> set[str]:
        """Those of some texts that the merges of a BPE bring to one token."""
        model = self._model
        model.ignore_merges = False
        merged: set[str] = set()
        for content in contents:
            with suppress(Exception):  # of the library, for an unknown character
                if [token.value for token in model.tokenize(content)] == [content]:
                    merged.add(content)
        model.ignore_merges = self.ignore_merges
        return merged


def _names(tokenizer: Any) -> list[str | None]:
    """The spellings of a BPE by id, None where there is no token.

    Raises RobustokError where two have one id, and as `check_holes` does.
    """
    size = tokenizer.get_vocab_size(with_added_tokens=False)
    names: list[str | None] = [*map(tokenizer.model.id_to_token, range(size))]
    if None not in names:
        return names
    spellings: dict[int, str] = {}
    for spelling, i in sorted(tokenizer.get_vocab(with_added_tokens=False).items()):
        if spellings.setdefault(i, spelling) != spelling:
            raise RobustokError(f"tokens {spellings[i]!r} and {spelling!r} have the same id {i}")
    check_holes(tokenizer)
    return [*map(spellings.get, range(max(spellings) + 1))]


def check_holes(tokenizer: Any) -> None:
    """Raise RobustokError where ids have many holes, or lose tokens when saved and pickled."""
    vocab = tokenizer.get_vocab(with_added_tokens=False)
    largest = max(vocab.values(), default=-1)
    if largest < len(vocab):
        return
    if largest < 2 * len(vocab) + _HOLES:
        again = Tokenizer.from_str(tokenizer.to_str())
        if again.get_vocab() == tokenizer.get_vocab():
            return
    raise RobustokError(
        f"its {len(vocab)} tokens have ids up to {largest}: too many ids without a token, or more "
        "than the tokenizers library saves, or one that it gave to an added token, too"
    )


def added_tokens(tokenizer: Any, names: list[str | None]) -> dict[int, Any]:
    """The added tokens by id, as the library numbers them, which may not be as the file does."""
    added: dict[int, Any] = tokenizer.get_added_tokens_decoder()
    matched: dict[str, str] = {}  # what the library looks for in normalized text: the token
    for i, token in added.items():
        taken = names[i] if i < len(names) else None
        if taken not in (None, token.content):
            raise RobustokError(f"added token {token.content!r} gets the id {i} of token {taken!r}")
        if token.normalized and token.content and tokenizer.normalizer is not None:
            with library_errors("the tokenizers library cannot normalize an added token"):
                text = tokenizer.normalizer.normalize_str(token.content)
            if not text:
                raise RobustokError(
                    f"the normalizer leaves nothing of the added token {token.content!r}, "
                    "which the tokenizers library cannot find then: set normalized=False"
                )
            other = matched.setdefault(text, token.content)
            if other != token.content:
                raise RobustokError(
                    f"the normalizer makes one text of the added tokens {other!r} and "
                    f"{token.content!r}, of which the tokenizers library finds any: set "
                    "normalized=False"
                )
    return added


class TokenIds:
    """What each id of a tokenizer is (see `spelling`).

    ``tokens``: the bytes of every id. ``is_ordinary``: bool [ids], those that a draw may put
    anywhere, of which ``fallback`` are those of the byte fallback. ``complete``: every text has a
    token for each character or for each of its bytes, so that there is no unknown token in any
    text.
    """

    def __init__(
        self, tokenizer: Any, model: ModelTokens, added: dict[int, Any], stages: Stages
    ) -> None:
        self._stages, self._is_byte_level = stages, stages.byte_level
        self._model, self._falls_back = model, model.byte_fallback
        unknown, names = model.unknown, model.names
        loses_spaces = stages.first_loses_marks and stages.writes_mark
        self.tokens, apart = self._read_at_once(loses_spaces)
        apart |= {i for i in {*added, unknown} - {None} if i < len(names)}
        self.tokens += [b""] * (max(added, default=-1) + 1 - len(names))
        self.is_ordinary = np.arange(len(self.tokens)) < len(names)
        self.is_ordinary[[*apart]] = False
        self.fallback: set[int] = set()
        placed: set[int] = set()
        words = _words(model, [t for t in added.values() if t.special])
        prefix = self._decoded(_written_before(tokenizer, stages))
        in_model: dict[int, bytes] = {}
        for i in sorted(apart):
            token, spelling = added.get(i), names[i]
            if spelling is None:
                continue
            if i == unknown or (token is not None and token.special and token.content not in words):
                self.tokens[i] = spelling.encode()
                continue
            name = spelling if token is None else tokenizer.id_to_token(i) or ""
            read, shown = self._read(spelling), self._decoded(name)
            # The decoder keeps a space at the start of a text, where it leaves out a mark.
            stays = loses_spaces and " " in name
            if token is None:  # no text gives what is not in the alphabet
                stays |= self._is_byte_level and _in_alphabet(spelling) is None
            elif not token.special:
                stays |= token.lstrip or token.rstrip or not stages.joins_parts
            self.tokens[i] = shown
            if stays or shown != read:
                placed.add(i)
                in_model[i] = read
            elif shown:
                self.is_ordinary[i] = True
                if self._falls_back and BYTE_NAME.fullmatch(spelling):
                    self.fallback.add(i)
        for i, token in added.items():
            if self.is_ordinary[i] or i in placed or self.tokens[i]:
                continue
            if token.special:  # control tokens keep their text
                self.tokens[i] = token.content.encode()
                continue
            self.tokens[i] = self._decoded(tokenizer.id_to_token(i) or "")
            placed.add(i)
        self.complete = self._is_complete(added)
        if not self.complete and unknown is not None:
            placed.add(unknown)
        raw = {i: t for i, t in added.items() if not t.special}
        strips = {i: t for i, t in raw.items() if not (t.normalized and stages.metaspace)}
        self.spelling = Spelling(
            placed=frozenset(placed),
            unknown=unknown,
            prefix=prefix,
            contents=self._contents(tokenizer, raw),
            restarts=frozenset(i for i, t in raw.items() if not t.normalized),
            takes_left=frozenset(i for i, t in strips.items() if t.lstrip),
            takes_right=frozenset(i for i, t in strips.items() if t.rstrip),
            in_model=in_model,
            single=frozenset(i for i, t in raw.items() if t.single_word and i in in_model),
            marked=stages.metaspace,
            literal=self._holding(" ") - {*added} if stages.writes_mark else self._holding("▁"),
            words=frozenset(i for i, t in added.items() if t.content in words),
            lossy=self._lossy(tokenizer, placed) if stages.first_loses_marks else (),
        )
        self._check_names(tokenizer, added)

    def _check_names(self, tokenizer: Any, added: dict[int, Any]) -> None:
        """Raise RobustokError where a text of names, as those of bytes, has other ids."""
        unknown = added.get(-1 if self._model.unknown is None else self._model.unknown)
        if unknown is not None and not unknown.special:
            raise RobustokError(
                f"its unknown token {unknown.content!r} is an added token that is not special: set "
                "special=True"
            )
        if self.fallback and not self._stages.decodes_bytes:
            raise RobustokError(
                "its decoder does not read the byte tokens of the vocabulary, such as <0x0A>: "
                "drawn ids would not decode to the text"
            )
        names = [*map(tokenizer.id_to_token, added)]  # as the normalizer leaves them
        names += [token.content for token in added.values()] if self._falls_back else []
        named = [name for name in names if _ANY_BYTE_NAME.fullmatch(name or "")]
        if named and self._reads_names:
            raise RobustokError(
                f"it reads the added token {named[0]!r} as a byte: drawn ids would not decode to "
                "the text"
            )

    def _read_at_once(self, loses_spaces: bool) -> tuple[list[bytes], set[int]]:
        """The bytes of the tokens of the model by id, and the ids that have to be read one by one.

        These are names of bytes, tokens outside the byte-level alphabet, with ``loses_spaces``
        those with a space, and ids without a token.
        """
        names, spellings = self._model.names, self._model.spellings
        joined = separator = ""
        for separator in "\n\0\uffff":
            joined = separator.join(spellings)
            if joined.count(separator) == len(names) - 1:
                break
        else:
            return [b""] * len(names), {*range(len(names))}
        apart = {self._model.id_of(name) for name in _BYTE_NAMES} - {None}
        if loses_spaces and " " in joined:
            apart |= {i for i, spelling in enumerate(spellings) if " " in spelling}
        if not all(names):
            apart |= {i for i, spelling in enumerate(spellings) if not spelling}
        if not self._is_byte_level:
            text = joined.replace("▁", " ") if self._stages.metaspace else joined
            return text.encode().split(separator.encode()), apart
        codes = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
        values = _byte_values().take(codes, mode="clip")
        ends = np.flatnonzero(codes == ord(separator))
        raw, begins = values.astype(np.uint8).tobytes(), [0, *(ends + 1).tolist()]
        values[ends] = 0
        apart |= {*np.searchsorted(ends, np.flatnonzero(values == _NO_BYTE)).tolist()}
        cuts = zip(begins, [*ends.tolist(), len(codes)], strict=True)
        return [raw[begin:end] for begin, end in cuts], apart

    def _contents(self, tokenizer: Any, raw: dict[int, Any]) -> dict[int, bytes]:
        """The text that the matcher finds, of added tokens that have other bytes."""
        contents: dict[int, bytes] = {}
        for i, token in raw.items():
            if token.normalized and self._stages.metaspace:
                continue
            content = tokenizer.id_to_token(i) if token.normalized else token.content
            if content.encode() != self.tokens[i]:
                contents[i] = content.encode()
        return contents

    @property
    def _reads_names(self) -> bool:
        """Whether the decoder writes the byte that a token such as ``<0x0A>`` names."""
        return self._stages.decodes_names or self._falls_back

    def _read(self, spelling: str) -> bytes:
        """The bytes of a text that the model reads as a token."""
        if self._falls_back and BYTE_NAME.fullmatch(spelling):
            return bytes([int(spelling[3:5], 16)])
        if self._is_byte_level:
            read = _in_alphabet(spelling)
            return spelling.encode() if read is None else read
        return (spelling.replace("▁", " ") if self._stages.metaspace else spelling).encode()

    def _decoded(self, spelling: str) -> bytes:
        """What the decoder writes for a token."""
        if self._reads_names and _ANY_BYTE_NAME.fullmatch(spelling):
            return bytes([int(spelling[3:5], 16)])
        return self._read(spelling)

    def _is_complete(self, added: dict[int, Any]) -> bool:
        id_of = self._model.id_of
        if self._stages.byte_level:
            ids = {id_of(letter) for letter in byte_alphabet()} - {None}
            ones = {self.tokens[i] for i in (*ids, *added) if self.is_ordinary[i]}
            single = {token[0] for token in ones if len(token) == 1}
        elif self._falls_back:
            single = {self.tokens[i][0] for i in self.fallback}
            letters = {b: id_of(chr(b)) for b in range(128)}
            single |= {b for b, i in letters.items() if i is not None and self.is_ordinary[i]}
            if self._stages.metaspace:  # read as "▁", which is a token or three bytes
                single.add(ord(" "))
        else:
            return False
        return single >= USED_BYTES

    def _holding(self, character: str, start: int = 0) -> frozenset[int]:
        """The tokens of the model with a character at ``start`` or behind."""
        names = self._model.spellings
        if character not in "".join(names):
            return frozenset()
        last = np.fromiter(map(str.rfind, names, itertools.repeat(character)), np.int64, len(names))
        return frozenset(np.flatnonzero(last >= start).tolist())

    def _lossy(self, tokenizer: Any, placed: set[int]) -> tuple[bytes, ...]:
        """The tokens with a "▁" that the decoder leaves out at the start of a text and no other."""
        some = {*self._holding("▁", 1)}
        # It reads added tokens as the normalizer leaves them.
        added = tokenizer.get_added_tokens_decoder()
        some |= {i for i in added if "▁" in (tokenizer.id_to_token(i) or "")[1:]}
        return tuple(self.tokens[i] for i in sorted(some) if self.is_ordinary[i] or i in placed)


def _byte_values() -> np.ndarray:
    """By code point: the byte of a character of the byte-level alphabet, else `_NO_BYTE`; uint16.

    The last entry stands for all code points above.
    """
    values = np.full(max(_BYTES) + 2, _NO_BYTE, np.uint16)
    values[[*_BYTES]] = [*_BYTES.values()]
    return values


def _in_alphabet(spelling: str) -> bytes | None:
    """The bytes of a spelling in the byte-level alphabet; None for one with another character."""
    try:
        return spelling.translate(_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return None


def _words(model: ModelTokens, special: list[Any]) -> frozenset[str]:
    """The special tokens that the model was trained to read in a text, such as a padding "!".

    Of a Unigram model, those of letters and digits, or of one character, with a score.
    """
    contents = {token.content for token in special if token.content}
    inside = {content for content in contents if model.id_of(content) is not None}
    if model.kind == "BPE":
        return frozenset(model.merged(inside))
    words = {c for c in inside if len(c) == 1 or c.isalnum()}
    return frozenset(c for c in words if model.scores[model.id_of(c)] < 0.0)


def _written_before(tokenizer: Any, stages: Stages) -> str:
    """What the normalizer writes before each text."""
    if not stages.prepends:
        return ""
    with library_errors("the tokenizers library cannot normalize a text"):
        return tokenizer.normalizer.normalize_str("a")[:-1]
