"""The one reader of the stages of a tokenizer.json: normalizers, pre-tokenizers and decoders.

Each kind of stage is interpreted here alone, as facts that the encoders, the pre-tokenizer and the
guard ask for. A kind without an entry is the library's own business: nothing is assumed of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from robustok.errors import RobustokError

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
NO_CUTS = r"\p{Any}+"
_KEEPING = ("Digits", "Punctuation", "FixedLength")
_DROPPING = ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "CharDelimiterSplit")
_PARTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}


class Normalizer(NamedTuple):
    """A stage that changes a text before it is cut."""

    composes: bool = False  # a Unicode normalization form, which leaves ASCII as it is
    prepends: bool = False  # writes something before a text
    writes_space: str = ""  # "before": "▁" before the text; "inside": "▁" for each space


class PreCut(NamedTuple):
    """A stage that cuts a text."""

    bytes: bool = False  # whether it spells bytes in the byte-level alphabet
    cuts: bool = True
    isolates: bool = False  # each match of a pattern that covers all text is a pre-token
    pattern: str | None = None  # the regular expression, where it has one
    keeps: bool = False  # whether it neither adds nor removes characters, beside a first space
    adds_space: bool = False  # before a text that begins with none
    mark: str | None = None  # what is written for a space
    drops: str = ""  # the name of a stage that leaves characters out, as spaces


def _normalizer(stage: dict) -> Normalizer:
    kind = stage["type"]
    if kind in ("NFC", "NFD", "NFKC", "NFKD"):
        return Normalizer(composes=True)
    if kind == "Prepend":
        return Normalizer(prepends=True, writes_space="before" if stage["prepend"] == "▁" else "")
    if kind == "Replace":
        spaces = stage["pattern"] == {"String": " "} and stage["content"] == "▁"
        return Normalizer(writes_space="inside" if spaces else "")
    return Normalizer()


def _pre_cut(stage: dict) -> PreCut:
    kind = stage["type"]
    if kind == "ByteLevel":
        cuts = stage.get("use_regex", True)
        return PreCut(
            bytes=True,
            cuts=cuts,
            isolates=cuts,
            pattern=GPT2 if cuts else None,
            keeps=True,
            adds_space=stage.get("add_prefix_space", True),
        )
    removes = stage.get("behavior") == "Removed"
    if kind == "Split":
        # A match is a pre-token where the rest between matches is removed, too (`invert`): of a
        # pattern that covers all text there is no rest.
        behavior = stage.get("behavior", "Isolated"), bool(stage.get("invert"))
        return PreCut(
            isolates=behavior in (("Isolated", False), ("Removed", True)),
            pattern=stage["pattern"].get("Regex"),
            keeps=not removes,
            drops=kind if behavior == ("Removed", False) else "",
        )
    if kind == "Metaspace":
        return PreCut(
            adds_space=stage.get("prepend_scheme", "always") != "never",
            mark=stage.get("replacement", "▁"),
            keeps=True,
        )
    return PreCut(
        keeps=kind in _KEEPING and not removes, drops=kind if kind in _DROPPING or removes else ""
    )


@dataclass(frozen=True)
class Stages:
    """What happens to a text before the model of a tokenizer, and to tokens after it.

    ``pre_tokenizer`` is the stage as in a tokenizer.json, ``decodes_mark`` whether a decoder writes
    a space for "▁".
    """

    normalizers: tuple[Normalizer, ...] = ()
    pre_cuts: tuple[PreCut, ...] = ()
    pre_tokenizer: dict | None = None
    decodes_mark: bool = False
    decodes_names: bool = False  # the decoder reads names such as <0x0A> as bytes
    decodes_bytes: bool = True  # the same, or there is no decoder
    first_loses_marks: bool = False  # the decoder leaves out every "▁" of the first token

    @classmethod
    def of_parts(cls, spec: Mapping[str, dict | None]) -> Stages:
        """The stages of a tokenizer.json: its normalizer, pre-tokenizer and decoder.

        Raises RobustokError where its ids do not give the text back.
        """
        normalizers, pre, decoders = (_flat(spec.get(part), key) for part, key in _PARTS.items())
        cuts = tuple(map(_pre_cut, pre))
        names = any(s["type"] == "ByteFallback" for s in _before_fuse(decoders))
        stages = cls(
            tuple(map(_normalizer, normalizers)),
            cuts,
            spec.get("pre_tokenizer"),
            decodes_mark="▁" in json.dumps(decoders, ensure_ascii=False),
            decodes_bytes=not decoders or names,
            decodes_names=names,
            first_loses_marks=any(
                s["type"] == "Metaspace" and s.get("prepend_scheme", "always") != "never"
                for s in _before_fuse(decoders)
            ),
        )
        _check_decoders(decoders)
        _check_drops(cuts)
        _check_bytes(normalizers, cuts, decoders)
        marks = [cut.mark for cut in cuts]
        marks += [s.get("replacement", "▁") for s in decoders if s["type"] == "Metaspace"]
        for mark in marks:
            if mark not in (None, "▁"):
                raise RobustokError(f"Metaspace with {mark!r} is not supported, only with '▁'")
        return stages

    @classmethod
    def of_pattern(cls, pattern: str) -> Stages:
        """The stages of a tiktoken ``Encoding``: its pattern cuts a text, and bytes are spelled."""
        cut = PreCut(isolates=True, pattern=pattern, keeps=True)
        return cls(pre_cuts=(cut, PreCut(bytes=True, cuts=False, keeps=True)))

    @property
    def byte_level(self) -> bool:
        """Whether the model spells tokens in the byte-level alphabet."""
        return any(cut.bytes for cut in self.pre_cuts)

    @property
    def metaspace(self) -> bool:
        """Whether "▁" in a token is a space."""
        marked = self.decodes_mark or any(cut.mark for cut in self.pre_cuts)
        return marked and not self.byte_level

    @property
    def adds_space(self) -> bool:
        """Whether the pre-tokenizer puts a space before a text that begins with none."""
        return any(cut.adds_space for cut in self.pre_cuts)

    @property
    def prepends(self) -> bool:
        """Whether a normalizer writes something before each text."""
        return any(one.prepends for one in self.normalizers)

    @property
    def joins_parts(self) -> bool:
        """Whether the parts of a text around added tokens get no space of their own."""
        return not (self.prepends or self.adds_space)

    @property
    def spells_text(self) -> bool:
        """Whether the model reads the bytes of a text: nothing adds or removes one."""
        kept = self.byte_level and not self.normalizers and not self.adds_space
        return kept and all(cut.keeps for cut in self.pre_cuts)

    @property
    def composes(self) -> bool:
        """Whether the normalizers are Unicode normalization forms, or there is none."""
        return all(one.composes for one in self.normalizers)

    @property
    def space_rules(self) -> tuple[str, ...] | None:
        """Where the normalizers write "▁", in order; None where they do anything else."""
        rules = tuple(one.writes_space for one in self.normalizers)
        return rules if all(rules) else None

    @property
    def cut_pattern(self) -> str | None:
        """The one regular expression that decides all cuts, or None."""
        if any(cut.bytes for cut in self.pre_cuts[:-1]):
            return None  # later stages see the byte alphabet, not the text
        cutting = [cut for cut in self.pre_cuts if cut.cuts]
        if not cutting:
            return NO_CUTS
        return cutting[0].pattern if len(cutting) == 1 and cutting[0].isolates else None

    @property
    def isolates_then_spells(self) -> bool:
        """Whether patterns cut the text, or GPT-2's pattern does, and bytes are spelled last."""
        *splits, last = self.pre_cuts
        return last.bytes and last.cuts == (not splits) and all(cut.isolates for cut in splits)


def spelling_bytes() -> dict:
    """The pre-tokenizer stage, as in a tokenizer.json, that spells bytes and cuts nothing."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }


def _before_fuse(decoders: list[dict]) -> list[dict]:
    """The decoders that see tokens one by one, up to the first that joins them to one text."""
    joining = ("Fuse", "ByteLevel")
    ends = [i for i, stage in enumerate(decoders) if stage["type"] in joining]
    return decoders[: ends[0]] if ends else decoders


def _check_decoders(decoders: list[dict]) -> None:
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


def _check_bytes(normalizers: list[dict], cuts: Sequence[PreCut], decoders: list[dict]) -> None:
    """Raise RobustokError where bytes are not spelled once and read once."""
    if any(s["type"] == "ByteLevel" for s in normalizers):
        raise RobustokError("a ByteLevel normalizer is not supported")
    count = sum(cut.bytes for cut in cuts)
    if count > 1:
        raise RobustokError("two ByteLevel pre-tokenizers are not supported")
    if any(s["type"] == "ByteLevel" for s in decoders) and not count:
        raise RobustokError(
            "it has a ByteLevel decoder and no ByteLevel pre-tokenizer, so that its "
            "ids do not give the text back"
        )


def _check_drops(cuts: Sequence[PreCut]) -> None:
    """Raise RobustokError where characters between pre-tokens are lost."""
    for number, cut in enumerate(cuts):
        if cut.drops and not any(later.adds_space for later in cuts[number + 1 :]):
            raise RobustokError(
                f"its {cut.drops} pre-tokenizer leaves out characters, such as spaces, that no "
                "token spells: its ids do not give the text back"
            )


def _flat(stage: dict | None, key: str) -> list[dict]:
    """A stage as a flat list: a Sequence is opened, None is empty."""
    if stage is None:
        return []
    if stage["type"] == "Sequence":
        return [part for one in stage[key] for part in _flat(one, key)]
    return [stage]
