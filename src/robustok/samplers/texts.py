"""Texts of given ids and their canonical ids, for :meth:`Sampler.log_prob`."""

from __future__ import annotations

import numpy as np

from robustok.vocabulary import Vocabulary


def texts_of(vocab: Vocabulary, ids: np.ndarray) -> list[np.ndarray]:
    """The stretches between ids that are no text, empty ones left out; int32 each."""
    plain = vocab.readable[ids]
    stretches = np.split(ids, np.flatnonzero(np.diff(plain)) + 1)
    return [s for s in stretches if len(s) and vocab.readable[s[0]]]


def is_drawable(vocab: Vocabulary, canonical: np.ndarray, ids: np.ndarray) -> bool:
    """Whether each id is in V, or the canonical id of its span.

    Where the canonical id of a span is a byte-fallback twin (same bytes as a token of V), it takes
    that token's place.
    """
    offsets = vocab.token_offsets

    def spans(row: np.ndarray) -> np.ndarray:
        lengths = offsets[row + 1] - offsets[row]
        ends = np.cumsum(lengths)
        return ends * (ends[-1] + 1) + lengths if len(row) else ends

    _, a, b = np.intersect1d(spans(canonical), spans(ids), assume_unique=True, return_indices=True)
    return bool((canonical[a] == ids[b]).all() and vocab.ordinary[np.delete(ids, b)].all())
