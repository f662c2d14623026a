"""`mix`: one of several schemes, by chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robustok.checks import check_list, check_number, shown
from robustok.errors import RobustokError
from robustok.samplers.base import Sampler
from robustok.vocabulary import Vocabulary

_COIN = np.int64(1 << 62)  # a part of the row that no text has: the coin has its own stream


class Mix(Sampler):
    """Each draw of a row is by one of the schemes, picked with the weight it is given.

    >>> Mix(vocab, parts=["0.5 canonical", "0.5 uniform-k(alpha=1)"]).spec
    'mix(0.5 canonical, 0.5 uniform-k(alpha=1))'

    All texts of a row (the stretches between special tokens) go by the same scheme. Raises
    RobustokError unless there are two parts or more whose weights add up to 1.
    """

    name = "mix"
    example = "mix(0.5 canonical, 0.5 uniform)"
    inner = "parts"

    def __init__(
        self, vocab: Vocabulary, *, parts: Sequence[str | tuple[float, str | Sampler]]
    ) -> None:
        super().__init__(vocab)
        read = [_read(part) for part in check_list("mix: parts", parts)]
        if len(read) < 2:
            raise RobustokError("mix: give two schemes or more, as mix(0.5 canonical, 0.5 uniform)")
        weights = np.array([weight for weight, _ in read])
        if abs(weights.sum() - 1) >= 1e-6:
            raise RobustokError(f"mix: the weights must add up to 1, not {weights.sum():g}")
        from robustok.samplers.registry import sampler

        self.weights = weights
        self.samplers = [sampler(scheme, vocab) for _, scheme in read]

    @property
    def inner_samplers(self) -> Sequence[Sampler]:
        return self.samplers

    @property
    def spec(self) -> str:
        pairs = zip(self.weights, self.samplers, strict=True)
        return f"{self.name}({', '.join(f'{w:.9g} {s.spec}' for w, s in pairs)})"

    def log_prob(self, ids: Sequence[int] | np.ndarray) -> float:
        """The log of the weighted mean of the parts' probabilities; exact where theirs are."""
        pairs = [(w, s) for w, s in zip(self.weights, self.samplers, strict=True) if w > 0]
        terms = [np.log(w) + s.log_prob(ids) for w, s in pairs]
        return min(float(np.logaddexp.reduce(terms)), 0.0)  # rounding can pass 0

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        from robustok.kernels.batch import gather
        from robustok.samplers.run import room_for

        draws = int(batch.draws)
        picks = self._picks(batch, first, last)
        found: list[Any] = [None] * ((last - first) * draws)
        for c, scheme in enumerate(self.samplers):
            wanted = np.flatnonzero((picks == c).any(axis=1))
            if not len(wanted):
                continue
            rows = wanted + first
            texts = np.stack([rows, rows, batch.offsets[rows], batch.offsets[rows + 1]], axis=1)
            values, offsets = gather(batch.values, texts)
            part = batch._replace(
                values=values, offsets=offsets, keys=batch.keys[rows], parts=batch.parts[rows]
            )
            drawn = np.empty(room_for(self.vocab, values) * draws, np.int32)
            drawn_ends = np.zeros(len(rows) * draws + 1, np.int64)
            scheme._draw(scheme._prepare(part), 0, len(rows), drawn, drawn_ends[1:])
            for x, t in enumerate(wanted.tolist()):
                for d in np.flatnonzero(picks[t] == c).tolist():
                    i = x * draws + d
                    found[t * draws + d] = drawn[drawn_ends[i] : drawn_ends[i + 1]]
        if found:
            ends[:] = np.cumsum([len(row) for row in found])
            out[: ends[-1]] = np.concatenate(found)

    def _picks(self, batch: Any, first: int, last: int) -> np.ndarray:
        """Which scheme each draw of texts first..last goes by, int64 of shape [texts, draws]."""
        from robustok.kernels.random import coins

        u = coins(batch.seed, batch.epoch, batch.keys[first:last], batch.draws, _COIN)
        edges = np.cumsum(self.weights)
        edges[np.flatnonzero(self.weights)[-1] :] = 1.0
        return np.searchsorted(edges, u, side="right")


def _read(part: str | tuple[float, str | Sampler]) -> tuple[float, str | Sampler]:
    if isinstance(part, str):
        weight, _, scheme = part.partition(" ")
        try:
            part = float(weight), scheme.strip()
        except ValueError:
            part = ()  # type: ignore[assignment]
    if not isinstance(part, (tuple, list)) or len(part) != 2:
        raise RobustokError(
            f"mix: write each part as a weight and a scheme, as '0.5 uniform', not {shown(part)}"
        )
    return check_number("mix: a weight", part[0], 0.0, 1.0), part[1]
