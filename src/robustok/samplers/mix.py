"""`mix`: a mixture of schemes; each draw comes from one of them, chosen at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.kernels.batch import Batch, gather
from robustok.kernels.numbers import uniforms
from robustok.samplers.base import Sampler, draw_texts, sampler, write_rows
from robustok.samplers.canonical import Canonical
from robustok.samplers.spec import Parts, Spec
from robustok.tokenizer.vocabulary import Vocabulary

_CHOICE = 1 << 62  # no text has a number from here on: random streams of the choices


class Mix(Sampler):
    """Each draw of a row is by one of several schemes, chosen with its weight.

    >>> Mix(vocab, parts=["0.5 canonical", "0.5 uniform-k(alpha=1)"]).spec
    'mix(0.5 canonical, 0.5 uniform-k(alpha=1))'

    Args:
        vocab: the vocabulary whose texts are tokenized.
        parts: two or more schemes, each a string of weight and spec as ``"0.5 uniform"``, or a pair
            (weight, spec or sampler). Weights are from 0 to 1 and add up to 1.

    All texts of a row (the ids between special tokens) are drawn by the same scheme. Raises
    RobustokError for fewer than two parts and for other weights.
    """

    name = "mix"
    example = "mix(0.5 canonical, 0.5 uniform)"
    parameters = {"parts": Parts()}
    strength = "weight"  # of the scheme that is mixed with canonical
    exact = True

    def __init__(
        self, vocab: Vocabulary, *, parts: Sequence[str | tuple[float, str | Spec | Sampler]]
    ) -> None:
        super().__init__(vocab, parts=parts)
        pairs = self.params["parts"]
        self.weights = np.array([weight for weight, _ in pairs])
        self.samplers = [sampler(scheme, vocab) for _, scheme in pairs]
        # A mixture inside needs another stream, or its choices would depend on these.
        levels = [scheme.stream + 1 for scheme in self.samplers if isinstance(scheme, Mix)]
        self.stream = np.int64(max(levels, default=_CHOICE))
        self.edges = np.cumsum(self.weights)  # of the intervals of [0, 1) that choose a scheme
        self.edges[np.flatnonzero(self.weights)[-1] :] = 1.0

    @classmethod
    def with_strength(cls, params: Mapping[str, Any], value: float) -> dict[str, Any]:
        """The mixture of canonical and one other scheme in which that scheme has this weight.

        Args:
            params: the parameters; ``parts`` names canonical and one other scheme.
            value: weight of the other scheme, from 0 to 1.

        Raises RobustokError for other parts.
        """
        schemes = [str(part).partition(" ")[2].strip() for part in params.get("parts", ())]
        others = [scheme for scheme in schemes if scheme != Canonical.name]
        if len(schemes) != 2 or len(others) != 1:
            raise RobustokError(
                "the strength of a mixture is the weight of what is mixed with canonical: write it "
                "as mix(0.5 canonical, 0.5 uniform), with canonical and one other scheme"
            )
        other = others[0]
        return {"parts": (f"{1 - value:.9g} {Canonical.name}", f"{value:.9g} {other}")}

    def log_prob(self, ids: Sequence[int] | np.ndarray) -> float:
        """The log of the weighted mean of the parts' probabilities; exact where theirs are.

        Args:
            ids: ids of the vocabulary, integers [n].

        Raises RobustokError as :meth:`Sampler.log_prob` does.
        """
        pairs = zip(self.weights, self.samplers, strict=True)
        terms = [np.log(weight) + scheme.log_prob(ids) for weight, scheme in pairs if weight > 0]
        return min(float(np.logaddexp.reduce(terms)), 0.0)  # rounding can pass 0

    def _draw(self, batch: Batch, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        draws = int(batch.draws)
        u = uniforms(batch.seed, batch.epoch, batch.keys[first:last], batch.draws, self.stream)
        picks = np.searchsorted(self.edges, u, side="right")  # the scheme of each draw of each text
        single_pick = picks.item(0) if picks.size == 1 else -1
        if single_pick >= 0 and len(batch.keys) == 1:  # the batch of `sample`
            self.samplers[single_pick]._draw(batch, first, last, out, ends)
            return
        samples: list[Any] = [None] * ((last - first) * draws)
        for c, scheme in enumerate(self.samplers):
            drawn_texts = np.flatnonzero((picks == c).any(axis=1))
            if not len(drawn_texts):
                continue
            rows = drawn_texts + first
            texts = np.stack([rows, rows, batch.offsets[rows], batch.offsets[rows + 1]], axis=1)
            values, offsets = gather(batch.values, texts)
            sub_batch = batch._replace(
                values=values, offsets=offsets, keys=batch.keys[rows], parts=batch.parts[rows]
            )
            token_ends = np.append(0, np.cumsum(self.vocab.token_lengths[values]))
            drawn = draw_texts(scheme, sub_batch, token_ends[offsets], 1)
            ids, bounds = drawn.values, drawn.offsets
            for row, t in enumerate(drawn_texts.tolist()):
                for d in np.flatnonzero(picks[t] == c).tolist():
                    i = row * draws + d
                    samples[t * draws + d] = ids[bounds[i] : bounds[i + 1]]
        write_rows(samples, out, ends)
