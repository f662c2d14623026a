"""One question to attack or certify: its options, the ids around it, and the model's max_length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robustok.errors import RobustokError
from robustok.evaluation.overflow import Window
from robustok.evaluation.questions import Ids, check_options, encode_options, item_key
from robustok.ragged import Ragged
from robustok.scoring import Request

if TYPE_CHECKING:
    from robustok.tasks.item import Item
    from robustok.vocabulary import Vocabulary


class Surroundings(NamedTuple):
    """What is around the text of every question: ids that stay as they are, and the window.

    ``overflow`` is the policy of :class:`Window` for tokenizations that do not fit the model.
    """

    prefix: Ids | None = None
    suffix: Ids | None = None
    overflow: str = "error"

    def as_config(self) -> dict[str, Any]:
        """Plain lists and strings, for the configuration of a resume file."""
        prefix, suffix = (
            [] if ids is None else [int(i) for i in ids] for ids in (self.prefix, self.suffix)
        )
        return {"prefix": prefix, "suffix": suffix, "overflow": self.overflow}


@dataclass(frozen=True, eq=False)
class Problem:
    """One text, its options (ids), and the ids around it.

    ``draw_key`` is the key of the item's random draws, ``window`` the model's longest input; it
    counts the tokenizations that do not fit.
    """

    key: str
    text: str
    options: list[np.ndarray]
    label: int
    prefix: Ids | None
    suffix: Ids | None
    vocab: Vocabulary
    draw_key: int
    window: Window

    @cached_property
    def canonical(self) -> np.ndarray:
        """The canonical ids of the text, int32."""
        return np.asarray(self.vocab.encode(self.text), np.int32)

    def request(self, tokenizations: Ragged) -> Request | None:
        """A request to score these tokenizations, or None where the policy drops the item.

        Raises RobustokError where a tokenization does not fit and the policy is to raise.
        """
        (canonical,) = append(Ragged.from_rows([self.canonical]), self.suffix)
        request = Request(append(tokenizations, self.suffix), self.options, self.prefix)
        return self.window.fit(request, self.key, canonical)

    def eligible(self, rows: Sequence[np.ndarray] | Ragged) -> list[np.ndarray]:
        """The rows that a search may score: those that fit, where the policy is drop or canonical.

        Otherwise all of them: :meth:`request` cuts the others, or raises.
        """
        around = sum(0 if ids is None else len(ids) for ids in (self.prefix, self.suffix))
        limit = self.window.longest_row(self.options, around)
        if limit is None or self.window.overflow not in ("drop", "canonical"):
            return list(rows)
        fitting = [row for row in rows if len(row) <= limit]
        self.window.overflowed += len(rows) - len(fitting)
        return fitting

    def draw(self, spec: str, seed: int, draws: int, epoch: int = 0) -> Ragged:
        """Sampled tokenizations of the text."""
        from robustok.samplers import sampler

        keys = np.array([self.draw_key], np.int64)
        scheme = sampler(spec, self.vocab)
        return scheme.sample_batch([self.text], seed=seed, draws=draws, keys=keys, epoch=epoch)

    def start(self, spec: str, seed: int) -> np.ndarray:
        """The tokenization at which a search begins; the canonical one for a start too long."""
        if spec == "canonical":
            return self.canonical
        start = self.draw(spec, seed, 1)[0]
        return start if self.eligible([start]) else self.canonical

    def is_dropped(self, spec: str, seed: int) -> bool:
        """Whether the policy drops the item: its start or its canonical tokens do not fit.

        Raises RobustokError where they do not fit and the policy is neither to drop nor to cut.
        """
        rows = [self.canonical] if spec == "canonical" else [
            self.draw(spec, seed, 1)[0], self.canonical,
        ]  # fmt: skip
        counted = self.window.overflowed
        dropped = self.request(Ragged.from_rows(rows)) is None
        if not dropped:
            self.window.overflowed = counted  # these rows are counted when they are scored
        return dropped


def make_problem(
    model: Any,
    vocab: Vocabulary,
    text: str,
    options: Sequence[str | Ids],
    label: int,
    surroundings: Surroundings,
    key: str | None = None,
) -> Problem:
    """The problem of one text; raises RobustokError for fewer than two options and a bad label."""
    if not text:
        raise RobustokError("the text is empty: give a question")
    options = check_options(options)
    if not 0 <= label < len(options):
        raise RobustokError(
            f"label {label} of {len(options)} options: give at least two, and the number of one"
        )
    key, (prefix, suffix, overflow) = text if key is None else key, surroundings
    ids, window = encode_options(vocab, options), Window(model, overflow)
    return Problem(key, text, ids, label, prefix, suffix, vocab, item_key(key), window)


def problem_of(model: Any, vocab: Vocabulary, item: Item, surroundings: Surroundings) -> Problem:
    """The problem of an item."""
    return make_problem(
        model, vocab, item.question, item.choices, item.label, surroundings, item.key
    )


def append(rows: Ragged, suffix: Ids | None) -> Ragged:
    """The same rows, each followed by ``suffix``."""
    if suffix is None or not len(suffix):
        return rows
    count, extra = len(rows), len(suffix)
    values = np.empty(len(rows.values) + count * extra, np.int32)
    offsets = rows.offsets + extra * np.arange(count + 1)
    ends = (offsets[1:, None] - extra + np.arange(extra)).ravel()
    own = np.ones(len(values), bool)
    own[ends] = False
    values[own], values[ends] = rows.values, np.tile(np.asarray(suffix, np.int32), count)
    return Ragged(values, offsets)
