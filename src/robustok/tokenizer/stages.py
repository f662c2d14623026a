"""The one reader of the stages of a tokenizer.json: normalizers, pre-tokenizers and decoders.

Each kind of stage is interpreted here alone, as facts that the encoders, the pre-tokenizer and the
guard ask for. A kind without an entry is the library's own business: nothing is assumed of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from robustok.errors import RobustokError
from robustok.runtime.environment import computed_once

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
NO_CUTS = r"\p{Any}+"
_KEEPING = ("ByteLevel", "Metaspace", "Split", "Digits", "Punctuation", "FixedLength")
_DROPPING = ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "CharDelimiterSplit")
_PARTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}

Stage = dict[str, Any]  # as in a tokenizer.json
MARK_BEFORE: Stage = {"type": "Prepend", "prepend": "▁"}
MARK_FOR_SPACE: Stage = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def _cuts(stage: Stage) -> bool:
    """Whether a pre-tokenizer cuts a text."""
    return stage["type"] != "ByteLevel" or stage.get("use_regex", True)


def _isolates(stage: Stage) -> bool:
    """Whether each match of a pattern that covers all text is a pre-token."""
    if stage["type"] == "ByteLevel":
        return _cuts(stage)
    # Also where the rest between matches is removed: of such a pattern there is no rest.
    behavior = stage.get("behavior", "Isolated"), bool(stage.get("invert"))
    return stage["type"] == "Split" and behavior in (("Isolated", False), ("Removed", True))


def _adds_space(stage: Stage) -> bool:
    """Whether a pre-tokenizer or decoder has a space before a text that begins with none."""
    if stage["type"] == "ByteLevel":
        return stage.get("add_prefix_space", True)
    return stage["type"] == "Metaspace" and stage.get("prepend_scheme", "always") != "never"


def _drops(stage: Stage) -> bool:
    """Whether a pre-tokenizer leaves characters out, as spaces."""
    removes = stage.get("behavior") == "Removed"
    if stage["type"] == "Split":
        return removes and not stage.get("invert")
    return removes or stage["type"] in _DROPPING


@dataclass(frozen=True)
class Stages:
    """What happens to a text before the model of a tokenizer, and to tokens after it."""

    normalizers: Sequence[Stage] = ()
    pre_tokenizers: Sequence[Stage] = ()
    decoders: Sequence[Stage] = ()

    @classmethod
    def of_parts(cls, spec: Mapping[str, Stage | None]) -> Stages:
        """The stages of a tokenizer.json: its normalizer, pre-tokenizer and decoder.

        Raises RobustokError where its ids do not give the text back.
        """
        stages = cls(*(_flat(spec.get(part), key) for part, key in _PARTS.items()))
        _check_decoders(stages.decoders)
        _check_drops(stages.pre_tokenizers)
        _check_bytes(stages)
        for stage in (*stages.pre_tokenizers, *stages.decoders):
            mark = stage.get("replacement", "▁") if stage["type"] == "Metaspace" else "▁"
            if mark != "▁":
                raise RobustokError(f"Metaspace with {mark!r} is not supported, only with '▁'")
        return stages

    @classmethod
    def of_pattern(cls, pattern: str) -> Stages:
        """The stages of a tiktoken ``Encoding``: its pattern cuts a text, and bytes are spelled."""
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
        return cls(pre_tokenizers=[split, spelling_bytes()])

    @computed_once
    def byte_level(self) -> bool:
        """Whether the model spells tokens in the byte-level alphabet."""
        return any(stage["type"] == "ByteLevel" for stage in self.pre_tokenizers)

    @computed_once
    def metaspace(self) -> bool:
        """Whether "▁" in a token is a space."""
        marked = any(stage["type"] == "Metaspace" for stage in self.pre_tokenizers)
        in_decoders = "▁" in json.dumps(self.decoders, ensure_ascii=False)
        return (marked or in_decoders) and not self.byte_level

    @computed_once
    def decodes_names(self) -> bool:
        """Whether the decoder reads names such as <0x0A> as bytes."""
        return any(stage["type"] == "ByteFallback" for stage in _before_fuse(self.decoders))

    @computed_once
    def first_loses_marks(self) -> bool:
        """Whether the decoder leaves out every "▁" of the first token."""
        separate = _before_fuse(self.decoders)
        return any(stage["type"] == "Metaspace" and _adds_space(stage) for stage in separate)

    @property
    def adds_space(self) -> bool:
        """Whether the pre-tokenizer puts a space before a text that begins with none."""
        return any(map(_adds_space, self.pre_tokenizers))

    @property
    def prepends(self) -> bool:
        """Whether a normalizer writes something before each text."""
        return any(stage["type"] == "Prepend" for stage in self.normalizers)

    @property
    def spells_text(self) -> bool:
        """Whether the model reads the bytes of a text: nothing adds or removes one."""
        kept = self.byte_level and not self.normalizers and not self.adds_space
        return kept and all(
            stage["type"] in _KEEPING and stage.get("behavior") != "Removed"
            for stage in self.pre_tokenizers
        )

    @property
    def composes(self) -> bool:
        """Whether normalizers are Unicode forms alone, which leave ASCII as it is."""
        return all(stage["type"] in ("NFC", "NFD", "NFKC", "NFKD") for stage in self.normalizers)

    @property
    def writes_marks(self) -> bool:
        """Whether normalizers do nothing but write "▁" before a text and for each space."""
        return all(stage in (MARK_BEFORE, MARK_FOR_SPACE) for stage in self.normalizers)

    @property
    def cut_pattern(self) -> str | None:
        """The one regular expression that decides all cuts, or None."""
        if any(stage["type"] == "ByteLevel" for stage in self.pre_tokenizers[:-1]):
            return None  # later stages see the byte alphabet, not the text
        cutting = [stage for stage in self.pre_tokenizers if _cuts(stage)]
        if not cutting:
            return NO_CUTS
        if len(cutting) > 1 or not _isolates(cutting[0]):
            return None
        return cutting[0]["pattern"].get("Regex") if "pattern" in cutting[0] else GPT2

    @property
    def isolates_then_spells(self) -> bool:
        """Whether patterns cut the text, or GPT-2's pattern does, and bytes are spelled last."""
        *splits, last = self.pre_tokenizers
        is_bytes = last["type"] == "ByteLevel" and _cuts(last) == (not splits)
        return is_bytes and all(map(_isolates, splits))


def spelling_bytes() -> Stage:
    """The pre-tokenizer that spells bytes and cuts nothing."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }


def _before_fuse(decoders: Sequence[Stage]) -> Sequence[Stage]:
    """The decoders that see tokens one by one, up to the first that joins them to one text."""
    joining = ("Fuse", "ByteLevel")
    ends = [i for i, stage in enumerate(decoders) if stage["type"] in joining]
    return decoders[: ends[0]] if ends else decoders


def _check_decoders(decoders: Sequence[Stage]) -> None:
    """Raise RobustokError for a decoder whose text depends on how the text is cut into tokens."""
    separate = _before_fuse(decoders)
    if any(stage["type"] == "ByteFallback" for stage in separate[:-1]):
        raise RobustokError(
            'its decoder reads "▁" after the bytes of the byte fallback, so that the bytes of a "▁"'
            " would be a space: drawn ids would not decode to the text"
        )
    for stage in separate:
        kind, pattern = stage["type"], stage.get("pattern")
        reads_mark = pattern == {"String": "▁"} and stage["content"] == " "
        if kind not in ("ByteFallback", "Metaspace") and not reads_mark:
            raise RobustokError(
                f"its {kind} decoder gives another text for each cut into tokens: drawn ids would "
                "not decode to the text"
            )


def _check_bytes(stages: Stages) -> None:
    """Raise RobustokError where bytes are not spelled once and read once."""
    parts = stages.normalizers, stages.pre_tokenizers, stages.decoders
    writes, spells, reads = (sum(s["type"] == "ByteLevel" for s in part) for part in parts)
    if writes:
        raise RobustokError("a ByteLevel normalizer is not supported")
    if spells > 1:
        raise RobustokError("two ByteLevel pre-tokenizers are not supported")
    if reads and not spells:
        raise RobustokError(
            "it has a ByteLevel decoder and no ByteLevel pre-tokenizer, so that its "
            "ids do not give the text back"
        )


def _check_drops(pre_tokenizers: Sequence[Stage]) -> None:
    """Raise RobustokError where characters between pre-tokens are lost."""
    for number, stage in enumerate(pre_tokenizers):
        if _drops(stage) and not any(map(_adds_space, pre_tokenizers[number + 1 :])):
            raise RobustokError(
                f"its {stage['type']} pre-tokenizer leaves out characters, such as spaces, that no "
                "token spells: its ids do not give the text back"
            )


def _flat(stage: Stage | None, key: str) -> list[Stage]:
    """A stage as a flat list: a Sequence is opened, None is empty."""
    if stage is None:
        return []
    if stage["type"] == "Sequence":
        return [part for one in stage[key] for part in _flat(one, key)]
    return [stage]
