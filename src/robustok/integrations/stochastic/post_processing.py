"""Truncation, special tokens and padding of drawn encodings, as the wrapped tokenizer sets them.

`tokenizers` does this to encodings of its own kind alone. Where its post-processor puts special
tokens, and which types it gives, is read from what it makes of one token. What it does not treat:
a post-processor whose result depends on the tokens, of which the library has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tokenizers import Encoding, Tokenizer, processors
from tokenizers.processors import PostProcessor

from robustok.errors import RobustokError
from robustok.integrations.stochastic.encoding import Drawn, DrawnEncoding, Fixed, Trim

_TRIMMING = (processors.ByteLevel, processors.RobertaProcessing)


class Place(NamedTuple):
    """Where a sequence stands, and the type of its tokens."""

    sequence: int
    type_id: int


class Probes(NamedTuple):
    """Canonical encodings of one token, which show what a post-processor does."""

    alone: Encoding
    first: Encoding  # has a window more, as truncation makes it
    second: Encoding  # the same of type 1


class PostProcessing:
    """What a tokenizer does to encodings, with its settings of this moment.

    Args:
        tokenizer: a `tokenizers.Tokenizer`.
        probes: those of its model.
        add_special_tokens: whether the post-processor adds its special tokens.
    """

    def __init__(self, tokenizer: Tokenizer, probes: Probes, add_special_tokens: bool) -> None:
        self._probes, self._adds = probes, add_special_tokens
        self._processor, self._truncation = tokenizer.post_processor, tokenizer.truncation
        self._trims = _keeps_prefix(self._processor)
        self._templates: dict[int, list[Fixed | Place]] = {}

    def __call__(self, *sequences: DrawnEncoding) -> DrawnEncoding:
        """The encoding of one sequence or a pair; their own encodings are changed."""
        n = len(sequences)
        template = self._templates.get(n)
        if template is None:
            template = self._templates[n] = self._template(n)
        if self._truncation is not None:
            fixed = sum(part.size for part in template if isinstance(part, Fixed))
            truncate(sequences, self._truncation, fixed)
        has_windows = any(one.overflowing for one in sequences)
        return (self._with_windows if has_windows else self._alone)(sequences, template)

    def _template(self, n: int) -> list[Fixed | Place]:
        """What the result of ``n`` sequences consists of, in order."""
        if self._processor is None:
            return [Place(i, i) for i in range(n)]
        alone, first, second = self._probes
        probe = (alone, None) if n == 1 else (first, second)
        one = self._processor.process(*probe, self._adds)
        rows = zip(one.sequence_ids, one.type_ids, one.ids, one.tokens, strict=True)
        return [
            Fixed([token], [name], type_id, 1) if sequence is None else Place(sequence, type_id)
            for sequence, type_id, token, name in rows
        ]

    def _window_types(self, n: int) -> list[list[int]]:
        """The types of all places in a window of each sequence."""
        if self._processor is None:
            return [[i] * n for i in range(n)]
        # Windows have the types that their texts were encoded with, or those of the processor.
        _, first, second = self._probes
        one = self._processor.process(first, second if n == 2 else None, self._adds)
        return [one.overflowing[i].type_ids for i in (0, -1)]

    def _alone(
        self, sequences: Sequence[DrawnEncoding], template: Sequence[Fixed | Place]
    ) -> DrawnEncoding:
        """The result for sequences that were not cut."""
        parts: list[Drawn | Fixed] = []
        ranges, at = {}, 0
        for place in template:
            if isinstance(place, Fixed):
                parts.append(place)
                at += place.size
                continue
            begin = at
            for part in sequences[place.sequence].parts:
                parts.append(self._placed(part, place.type_id, at == begin))
                at += part.size
            ranges[place.sequence] = begin, at
        is_bare = self._processor is None and len(sequences) == 1
        return DrawnEncoding(parts, {} if is_bare else ranges)

    def _with_windows(
        self, sequences: Sequence[DrawnEncoding], template: Sequence[Fixed | Place]
    ) -> DrawnEncoding:
        """The result for sequences with windows: each window is combined with all of the others."""
        types = self._window_types(len(sequences))
        placed = []
        for number, place in enumerate(template):
            if isinstance(place, Fixed):
                placed.append(DrawnEncoding([place]))
                continue
            main = sequences[place.sequence]
            whole = self._changed(main, place.type_id)
            type_id = types[place.sequence][number]
            windows = [self._changed(window, type_id) for window in main.overflowing]
            if self._processor is not None or len(sequences) == 2:
                whole.set_sequence_id(place.sequence)
            if self._processor is not None:
                for window in windows:
                    window.set_sequence_id(place.sequence)
            whole.overflowing = windows
            placed.append(whole)
        return DrawnEncoding.merge(placed, growing_offsets=False)

    def _changed(self, one: DrawnEncoding, type_id: int) -> DrawnEncoding:
        """The tokens of an encoding with other types, and offsets as the processor cuts them."""
        return DrawnEncoding(
            [self._placed(part, type_id, i == 0) for i, part in enumerate(one.parts)]
        )

    def _placed(self, part: Drawn | Fixed, type_id: int, is_first: bool) -> Drawn | Fixed:
        if isinstance(part, Fixed):
            return part._replace(type_id=type_id)
        trim = part.trim
        if self._trims is not None:
            trim = Trim(self._trims, part.begin if is_first else -1)
        return Drawn(part.text, part.begin, part.end, type_id, trim, part.shift)


def truncate(sequences: Sequence[DrawnEncoding], settings: dict[str, Any], fixed: int) -> None:
    """Cut one sequence or a pair to ``settings``, those of `tokenizers.Tokenizer.truncation`.

    ``fixed``: how many special tokens are added afterwards. Raises RobustokError where nothing of a
    sequence would be left.
    """
    limit = settings["max_length"] - fixed
    sizes = [len(one) for one in sequences]
    excess = sum(sizes) - limit
    options = settings["stride"], settings["direction"]
    if limit < 0 or excess <= 0:  # the library too leaves a text whose special tokens do not fit
        return
    if limit == 0:
        for one in sequences:
            one.truncate(0, *options)
    elif settings["strategy"] == "longest_first":
        for one, size in zip(sequences, _shares(sizes, limit), strict=True):
            one.truncate(size, *options)
    else:
        which = int(settings["strategy"] == "only_second")
        if which >= len(sequences):
            raise RobustokError("Truncation error: Second sequence not provided")
        if sizes[which] <= excess:
            raise RobustokError(
                "Truncation error: Sequence to truncate too short to respect the provided "
                "max_length"
            )
        sequences[which].truncate(sizes[which] - excess, *options)


def _shares(sizes: Sequence[int], limit: int) -> list[int]:
    """How many tokens of each sequence stay: the longest is cut first."""
    if len(sizes) == 1:
        return [limit]
    short, long = min(sizes), max(sizes)
    long = short if short > limit else max(short, limit - short)
    if short + long > limit:
        short, long = limit // 2, limit // 2 + limit % 2
    return [long, short] if sizes[0] > sizes[1] else [short, long]


def pad(encodings: Sequence[DrawnEncoding], settings: dict[str, Any] | None) -> None:
    """Pad to ``settings``, those of `tokenizers.Tokenizer.padding`; by default to the longest."""
    if settings is None or not encodings:
        return
    length = settings["length"] or max(map(len, encodings))
    length += -length % (settings["pad_to_multiple_of"] or 1)
    names = ("direction", "pad_id", "pad_type_id", "pad_token")
    for one in encodings:
        one.pad(length, **{name: settings[name] for name in names})


def _keeps_prefix(processor: PostProcessor | None) -> bool | None:
    """Whether a first space counts where white space is cut off offsets; None where it is not."""
    if isinstance(processor, processors.Sequence):
        return next((k for k in map(_keeps_prefix, processor) if k is not None), None)  # type: ignore
    if isinstance(processor, _TRIMMING) and processor.trim_offsets:
        return bool(processor.add_prefix_space)
    return None
