"""`exactly`: the draws of a scheme, conditioned on one exact strength."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np

from robustok.checks import check_strength
from robustok.errors import RobustokError
from robustok.kernels.batch import Rows
from robustok.kernels.random import mixed
from robustok.kernels.record import DISTANCE, SEGMENTS, SPLITS
from robustok.kernels.strength import compare
from robustok.kernels.uniform_k import Goal
from robustok.samplers.base import Sampler
from robustok.samplers.parameters import Inner, per_token, schemes_in
from robustok.samplers.run import room_for
from robustok.samplers.spec import Spec
from robustok.samplers.tabled import TabledSampler
from robustok.samplers.uniform import Uniform
from robustok.samplers.uniform_k import draw_at
from robustok.vocabulary import Vocabulary

MEASURES = ("splits", "distance", "length_ratio")
_MODES = {"splits": SPLITS, "distance": DISTANCE, "length_ratio": SEGMENTS}
_TRIES = 1000  # draws a text gets before the nearest so far is taken


class Exactly(TabledSampler):
    """The scheme's distribution, given that a text of m canonical tokens has exactly this strength.

    >>> two = Exactly(vocab, scheme="stochastok(alpha=1)", splits=1)
    >>> two, len(two.sample("hello world", seed=0))
    (<exactly(stochastok(alpha=1), splits=1)>, 4)

    Args:
        vocab: the vocabulary whose texts are tokenized.
        scheme: a spec or a sampler, of about this strength on average: :func:`robustok.at_strength`
            finds it.
        splits: new boundaries for each canonical token, from 0 to 10,000: ⌈splits·m⌉ of them. Give
            one of ``splits``, ``distance`` and ``length_ratio``.
        distance: distance for each canonical token, from 0 to 10,000: ⌈distance·m⌉.
        length_ratio: tokens for each canonical token, from 0 to 10,000: ⌈length_ratio·m⌉ of them.

    `uniform` is drawn at the strength directly, or at the nearest one that the text has; at a
    distance it is `uniform-k`. Any other scheme is drawn until the strength fits (rejection
    sampling). Where 1,000 draws of a text do not fit, which for many texts means that none can, the
    nearest of them is used.
    """

    name = "exactly"
    example = "exactly(uniform, splits=0.5)"
    variants = ("exactly(stochastok(alpha=1), splits=1)",)
    parameters = {"scheme": Inner(), **{measure: per_token() for measure in MEASURES}}
    repeats = True
    _too_rare = (
        "exactly: this strength is too rare among the tokenizations of the text to be drawn: take "
        "another one, or shorter texts"
    )

    def __init__(
        self,
        vocab: Vocabulary,
        *,
        scheme: str | Spec | Sampler | tuple[str, ...],
        splits: float | None = None,
        distance: float | None = None,
        length_ratio: float | None = None,
    ) -> None:
        targets = {"splits": splits, "distance": distance, "length_ratio": length_ratio}
        super().__init__(vocab, scheme=scheme, **targets)
        from robustok.samplers.registry import sampler

        self.scheme = sampler(self.params["scheme"], vocab)
        self.measure, self.target = one_measure(self.name, **{m: targets[m] for m in MEASURES})

    @classmethod
    def _check_together(cls, params: Mapping[str, Any]) -> None:
        if _holds_exactly(params["scheme"]):
            raise RobustokError(
                f"exactly: {_spec_of(params['scheme'])} already holds an exactly: each takes "
                f"up to {_TRIES} draws of the inner scheme, so give one condition"
            )
        targets = [m for m in MEASURES if m in params]
        if len(targets) != 1:
            raise RobustokError(f"exactly: give one of {', '.join(MEASURES)}, as splits=0.5")

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        if isinstance(self.scheme, Uniform):
            goal = Goal(np.int64(_MODES[self.measure]), np.float64(self.target), np.int64(-1))
            draw_at(self, goal, batch, first, last, Rows(out, ends))
            return
        draws = int(batch.draws)
        rows: list[np.ndarray] = []
        for t in range(first, last):
            ids = batch.values[batch.offsets[t] : batch.offsets[t + 1]]
            single = batch._replace(
                values=ids, offsets=np.array([0, len(ids)]), keys=batch.keys[t : t + 1],
                parts=batch.parts[t : t + 1],
            )  # fmt: skip
            room = room_for(self.vocab, ids)
            rows += [self._search(single, ids, room, d) for d in range(draws)]
        if rows:
            ends[:] = np.cumsum([len(row) for row in rows])
            out[: ends[-1]] = np.concatenate(rows)

    def _search(self, batch: Any, ids: np.ndarray, room: int, draw: int) -> np.ndarray:
        """Draw in batches, each with its own key, until one fits."""
        wanted = ceil(self.target * len(ids) - 1e-9)
        key = mixed(batch.keys[0], draw)
        batch = batch._replace(epoch=np.int64(batch.epoch))
        best, nearest, tries = ids, np.inf, 0
        while tries < _TRIES:
            size = min(8 if tries == 0 else 64, _TRIES - tries)
            part = batch._replace(keys=np.array([mixed(key, tries)]), draws=np.int64(size))
            drawn, ends = np.empty(room * size, np.int32), np.zeros(size + 1, np.int64)
            self.scheme._draw(self.scheme._prepare(part), 0, 1, drawn, ends[1:])
            gaps = np.abs(self._measured(ids, drawn, ends) - wanted)
            x = int(gaps.argmin())
            if gaps[x] < nearest:
                best, nearest = drawn[ends[x] : ends[x + 1]].copy(), gaps[x]
            if nearest == 0:
                break
            tries += size
        return best

    def _measured(self, ids: np.ndarray, drawn: np.ndarray, ends: np.ndarray) -> np.ndarray:
        if self.measure == "length_ratio":
            return np.diff(ends)
        measured = np.zeros((2, len(ends) - 1), np.int64)
        old = np.array([0, len(ids)])
        compare(
            self.vocab.token_offsets, ids, old, drawn, ends, len(ends) - 1, measured[0], measured[1]
        )
        return measured[MEASURES.index(self.measure)]


def _holds_exactly(scheme: Any) -> bool:
    """Whether a Spec or a sampler is an ``exactly`` or has one among its parameters."""
    inner = (s for value in scheme.params.values() for s in schemes_in(value))
    return scheme.name == Exactly.name or any(map(_holds_exactly, inner))


def _spec_of(scheme: Spec | Sampler) -> str:
    return scheme.spec if isinstance(scheme, Sampler) else str(scheme)


def one_measure(who: str, **targets: float | None) -> tuple[str, float]:
    """The one target that is given, checked."""
    given = [(name, value) for name, value in targets.items() if value is not None]
    if len(given) != 1:
        raise RobustokError(f"{who}: give one of {', '.join(MEASURES)}, as splits=0.5")
    name, value = given[0]
    return name, check_strength(name, value, who)
