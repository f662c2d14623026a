"""`exactly`: the draws of a scheme, conditioned on one exact strength."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.kernels import batch as kernels
from robustok.kernels.comparison import compare_rows
from robustok.kernels.numbers import mixed
from robustok.kernels.store import DISTANCE, SEGMENTS, SPLITS
from robustok.kernels.uniform_k import Goal, draw_uniform_k
from robustok.samplers.base import Sampler, StoredSampler, sampler, write_rows
from robustok.samplers.parameters import per_token
from robustok.samplers.spec import Inner, Spec, schemes_in, spec_of
from robustok.samplers.uniform import Uniform
from robustok.tokenizer.vocabulary import Vocabulary

MEASURES = ("splits", "distance", "length_ratio")
_MODES = {"splits": SPLITS, "distance": DISTANCE, "length_ratio": SEGMENTS}
_TRIES = 1000  # draws a text gets before the nearest so far is taken


class Exactly(StoredSampler):
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
        "this strength is too rare among the tokenizations of the text to be drawn: take "
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
        super().__init__(
            vocab, scheme=scheme, splits=splits, distance=distance, length_ratio=length_ratio
        )
        self.scheme = sampler(self.params["scheme"], vocab)
        self.measure = next(measure for measure in MEASURES if measure in self.params)
        self.target = self.params[self.measure]

    @classmethod
    def _check_together(cls, params: Mapping[str, Any]) -> None:
        if _holds_exactly(params["scheme"]):
            raise RobustokError(
                f"exactly: {spec_of(params['scheme'])} already holds an exactly: each takes "
                f"up to {_TRIES} draws of the inner scheme, so give one condition"
            )
        targets = [m for m in MEASURES if m in params]
        if len(targets) != 1:
            raise RobustokError(f"exactly: give one of {', '.join(MEASURES)}, as splits=0.5")

    @cached_property
    def _kernel(self) -> Any:
        goal = Goal(np.int64(_MODES[self.measure]), np.float64(self.target), np.int64(-1))
        every = None if self.measure == "distance" else True
        return draw_uniform_k, self.vocab.kernel_tokens, (goal, every)

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        if isinstance(self.scheme, Uniform):
            super()._draw(batch, first, last, out, ends)
            return
        rows = [
            self._search(batch, t, draw)
            for t in range(first, last)
            for draw in range(int(batch.draws))
        ]
        write_rows(rows, out, ends)

    def _search(self, batch: Any, text: int, draw: int) -> np.ndarray:
        """The first draw of the scheme that fits, of up to _TRIES, or the nearest of them."""
        ids = batch.values[batch.offsets[text] : batch.offsets[text + 1]]
        wanted = ceil(self.target * len(ids) - 1e-9)
        key = mixed(batch.keys[text], draw)
        nearest, best, tries = np.inf, ids, 0
        while tries < _TRIES and nearest > 0:
            size = min(8 if tries == 0 else 64, _TRIES - tries)
            single = kernels.Batch(
                ids, np.array([0, len(ids)]), np.array([mixed(key, tries)]),
                batch.parts[text : text + 1], batch.seed, np.int64(batch.epoch), np.int64(size),
            )  # fmt: skip
            drawn, ends = self.scheme._draw_batch(single)
            gaps = np.abs(self._measured(ids, drawn, ends) - wanted)
            i = int(gaps.argmin())
            if gaps[i] < nearest:
                nearest, best = gaps[i], drawn[ends[i] : ends[i + 1]].copy()
            tries += size
        return best

    def _measured(self, ids: np.ndarray, drawn: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The measure of each draw against the canonical ids, int64 [draws]."""
        if self.measure == "length_ratio":
            return np.diff(ends)
        canonical = ids, np.array([0, len(ids)])
        splits, distance = compare_rows(self.vocab.token_offsets, *canonical, drawn, ends)
        return splits if self.measure == "splits" else distance


def _holds_exactly(scheme: Any) -> bool:
    """Whether a Spec or a sampler is an ``exactly`` or has one among its parameters."""
    inner = (s for value in scheme.params.values() for s in schemes_in(value))
    return scheme.name == Exactly.name or any(map(_holds_exactly, inner))
