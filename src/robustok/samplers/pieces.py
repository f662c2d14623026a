"""Where a tokenizer's pre-tokenizer cuts: merges stay within these pieces.

The cutting itself is the library's. For the patterns of today's byte-level tokenizers Python's own
``re`` does the same several times faster, once characters beyond ASCII have been replaced by ASCII
ones of the same class, as told by the library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from robustok.tokenizer_files import TokenizerData

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_STAND_IN = {"L": "z", "N": "0", "s": "\t", "": "\x01"}  # not one of them is spelled in a pattern
_UNKNOWN, _FOLDED = 255, 254  # among stand-ins: none looked up yet; none that would do


class PieceCutter:
    """Cuts texts as the pre-tokenizer of ``data`` does; without one, not at all."""

    def __init__(self, data: TokenizerData) -> None:
        module = type(data.source).__module__.split(".")[0]
        if module == "tiktoken":
            self._setup([{"type": "Split", "pattern": {"Regex": data.source._pat_str}}])
        elif module == "sentencepiece":
            self._setup([])
        else:
            part = stage_of(data.source, "pre_tokenizer") if data.source else None
            self._setup(_flat(part), part)

    def _setup(self, stages: list[dict], part: dict | None = None) -> None:
        pattern = _only_pattern(stages)
        self._library: Any = None
        self._fast: re.Pattern[str] | None = None
        if pattern is not None:
            part = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
                    "invert": False}  # fmt: skip
            fast = _translated(pattern)
            self._fast = fast if fast and not fast.groups else None
        if stages:
            self._library = _word_tokenizer(part)
        self._stand_ins = np.full(0x110000, _UNKNOWN, np.uint8)
        self._stand_ins[:128] = np.arange(128)
        # Letters beyond ASCII that ignore-case would hold equal to ASCII ones.
        self._stand_ins[[0x17F, 0x212A]] = _FOLDED

    @property
    def cuts(self) -> bool:
        """Whether there is a pre-tokenizer at all."""
        return self._library is not None

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """The one pattern that decides all cuts, for texts of stand-ins, if there is such."""
        return self._fast

    def stand_in(self, character: str) -> str:
        """The ASCII character that stands for this one in :attr:`pattern`."""
        return character if character.isascii() else _STAND_IN[_class_of(character)]

    def ends(self, texts: Sequence[str]) -> list[Sequence[int] | np.ndarray]:
        """Of each text the end of every piece, in characters; the last is the text's own."""
        if self._library is None:
            return [[len(text)] if text else [] for text in texts]
        found: list[Sequence[int] | np.ndarray] = [()] * len(texts)
        slow: list[int] = []
        for i, text in enumerate(texts):
            ends = self._ends(text)
            if ends is None:
                slow.append(i)
            else:
                found[i] = ends
        if slow:
            encoded = self._library.encode_batch([texts[i] for i in slow])
            for i, encoding in zip(slow, encoded, strict=True):
                cuts = {x for span in encoding.offsets for x in span} | {len(texts[i])}
                found[i] = sorted(cuts - {0})
        return found

    def _ends(self, text: str) -> np.ndarray | None:
        """The ends by :attr:`pattern`, or None where the library itself must cut."""
        plain = self.plain(text)
        if plain is None:
            return None
        pieces = self._fast.findall(plain)  # type: ignore[union-attr]
        ends = np.fromiter(map(len, pieces), np.int64, len(pieces)).cumsum()
        covered = int(ends[-1]) if len(ends) else 0
        return ends if covered == len(text) else None

    def plain(self, text: str) -> str | None:
        """The text in ASCII with every character's class kept, or None where that cannot be."""
        if self._fast is None or text.isascii():
            return None if self._fast is None else text
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        found = self._stand_ins[codes]
        new = codes[found == _UNKNOWN]
        if len(new):
            for code in np.unique(new).tolist():
                self._stand_ins[code] = ord(_STAND_IN[_class_of(chr(code))])
            found = self._stand_ins[codes]
        return None if _FOLDED in found else found.tobytes().decode("ascii")


def _class_of(character: str) -> str:
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    for name, pattern in (("L", r"\p{L}"), ("N", r"\p{N}"), ("s", r"\s")):
        if not Split(Regex(pattern), "removed").pre_tokenize_str(character):
            return name
    return ""


def stage_of(tokenizer: Any, name: str) -> dict | None:
    """A stage of a ``tokenizers`` pipeline as in its JSON, without the vocabulary written out."""
    stage = getattr(tokenizer, name)
    return None if stage is None else json.loads(stage.__getstate__())


def _flat(part: dict | None) -> list[dict]:
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [stage for inner in part["pretokenizers"] for stage in _flat(inner)]
    return [part]


def _only_pattern(stages: list[dict]) -> str | None:
    """The one pattern that decides all cuts, if there is such."""
    splits = [s for s in stages if s["type"] != "ByteLevel" or s.get("use_regex", True)]
    if len(splits) != 1:
        return None
    if splits[0]["type"] == "ByteLevel":
        return _GPT2
    if splits[0]["type"] != "Split" or splits[0].get("invert"):
        return None
    if splits[0].get("behavior", "Isolated") != "Isolated":
        return None
    return splits[0]["pattern"].get("Regex")


def _translated(pattern: str) -> re.Pattern[str] | None:
    r"""The pattern for ``re`` and ASCII text, if all its classes are \p{L}, \p{N}, \s and \S."""
    if set(re.findall(r"\\p\{[^}]*\}|\\P|\\[a-zA-Z]", pattern)) - {
        r"\p{L}", r"\p{N}", r"\s", r"\S", r"\r", r"\n"
    }:  # fmt: skip
        return None
    if "&&" in pattern or any(stand_in in pattern for stand_in in "\t\x01"):
        return None
    names = {r"\p{L}": "a-zA-Z", r"\p{N}": "0-9", r"\s": r"\t-\r ", r"\S": None}
    made, inside = "", False
    for piece in re.findall(r"\\p\{\w\}|\\.|.", pattern, re.DOTALL):
        if piece in ("[", "]"):
            inside = piece == "["
        if piece == r"\S":
            if inside:
                return None
            piece = r"[^\t-\r ]"
        elif piece in names:
            piece = names[piece] if inside else f"[{names[piece]}]"
        made += piece
    try:
        return re.compile(made)
    except re.error:
        return None


def _word_tokenizer(part: dict | None) -> Any:
    """A tokenizer whose every piece is one token, so that its offsets are the pieces'."""
    from tokenizers import Tokenizer

    model = {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}
    return Tokenizer.from_str(
        json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
                    "normalizer": None, "pre_tokenizer": part, "post_processor": None,
                    "decoder": None, "model": model})
    )  # fmt: skip


def stretches(text: bytes) -> Iterator[tuple[bytes, str | None]]:
    """The text in valid stretches, with their strings, and single bytes that are not UTF-8."""
    position = 0
    while position < len(text):
        try:
            valid, end, bad = text[position:].decode("utf8"), len(text), 0
        except UnicodeDecodeError as e:
            end, bad = position + e.start, e.end - e.start
            valid = text[position:end].decode("utf8")
        if end > position:
            yield text[position:end], valid
        for i in range(end, end + bad):
            yield text[i : i + 1], None
        position = end + bad


def byte_ends(text: bytes, ends: Sequence[int]) -> np.ndarray:
    """Ends in characters as ends in bytes, int64."""
    if text.isascii():
        return np.asarray(ends, np.int64)
    starts = np.flatnonzero((np.frombuffer(text, np.uint8) & 0xC0) != 0x80)
    return np.append(starts, len(text))[np.asarray(ends, np.int64)]
