"""The most probable tokenizations of a text under a scheme, by an n-best Viterbi pass.

Schemes that walk the lattice have a probability for each edge, so the n best paths to every node
follow from those to the nodes before it. Schemes that are uniform give their first tokenizations.
Of other schemes with an exact probability all tokenizations are compared.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from math import log
from operator import itemgetter
from typing import Any

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.lattice import Lattice
from robustok.samplers import MaxMatchDropout, Sampler, Uniform, UniformK
from robustok.samplers.base import runs_of, texts_of
from robustok.samplers.walk import WalkSampler
from robustok.tokenizer.vocabulary import Text

_MAX_COMPARED = 4096  # tokenizations whose probabilities are computed one by one

Step = tuple[float, int, Any]  # log-probability of a path, its last id, the path before it
Best = list[tuple[np.ndarray, float]]


def most_probable(scheme: Sampler, text: Text, n: int) -> Best:
    """The ``n`` most probable tokenizations of a text and their natural log-probabilities.

    >>> from robustok.analysis.most_probable import most_probable
    >>> best = most_probable(rt.Grampa(vocab, temperature=2), "the", 2)
    >>> [([vocab.tokens[i] for i in ids], round(log_prob, 2)) for ids, log_prob in best]
    [([b'the'], -0.88), ([b't', b'he'], -1.23)]

    Args:
        scheme: a sampler with an exact ``log_prob``.
        text: a string or bytes; special tokens spelled out in it are text.
        n: number of tokenizations, at least 1; fewer where the text has fewer.

    Best first. Equally probable ones have a fixed order. Ids are int32 [tokens]. Exact for
    `unigram`, `grampa`, `maxmatch-dropout`, `uniform`, `uniform-k` and `canonical` and a text of
    any length, in O(n · edges); for other schemes all tokenizations are compared. Raises
    RobustokError for a scheme without exact probabilities and for one of the latter with a text of
    more than 4,096 tokenizations.
    """
    n = check_integer("n", n, 1)
    ids = scheme.vocab.encode(text)
    if not len(ids):
        return [(ids, 0.0)]
    if scheme.deterministic:
        return [(scheme.sample(ids, seed=0), 0.0)]
    if isinstance(scheme, WalkSampler) and not (
        isinstance(scheme, MaxMatchDropout) and scheme.p == 0.0
    ):
        return _best_paths(scheme, ids, n)
    lattice = Lattice(scheme.vocab, ids)
    if isinstance(scheme, Uniform):
        return [(path, -lattice.log_count()) for path in lattice.enumerate(limit=n)]
    if isinstance(scheme, UniformK):
        return _at_distance(scheme, lattice, n)
    return _compared(scheme, lattice, n)


def _at_distance(scheme: UniformK, lattice: Lattice, n: int) -> Best:
    if len(texts_of(scheme.vocab, lattice.reference)) > 1:
        raise RobustokError(
            "uniform-k: this text has unknown characters, between which each part has a distance "
            "of its own: give the parts one by one"
        )
    k = lattice.feasible(scheme.distance_of(len(lattice.reference)))
    log_prob = -lattice.log_count(distance=k)
    return [(path, log_prob) for path in lattice.enumerate(distance=k, limit=n)]


def _compared(scheme: Sampler, lattice: Lattice, n: int) -> Best:
    """Every tokenization by its probability."""
    scheme.log_prob(lattice.reference)  # refuses a scheme without one
    if lattice.log_count() > log(_MAX_COMPARED) + 1e-9:
        raise RobustokError(
            f"{scheme.name}: the text has over {_MAX_COMPARED} tokenizations to compare: give a "
            "shorter text"
        )
    scored = [(path, scheme.log_prob(path)) for path in lattice.enumerate()]
    possible = [one for one in scored if one[1] > -np.inf]
    return sorted(possible, key=itemgetter(1), reverse=True)[:n]


def _best_paths(scheme: WalkSampler, ids: np.ndarray, n: int) -> Best:
    vocab = scheme.vocab
    best: list[Step] = [(0.0, -1, None)]
    for run in runs_of(vocab, ids):
        if vocab.ordinary[run[0]]:
            best = _through(scheme, vocab.decode_bytes(run), best, n)
        else:
            for token in run.tolist():
                best = [(step[0], token, step) for step in best]
    if not best:
        raise RobustokError(f"{scheme.name}: the text has no tokenization that this scheme allows")
    return [(np.array(_path(step), np.int32), step[0]) for step in best]


def _through(scheme: WalkSampler, text: bytes, before: list[Step], n: int) -> list[Step]:
    """The ``n`` best paths through a text that continue those of ``before``, best first."""
    arriving: list[list[Iterator[Step]]] = [[] for _ in range(len(text) + 1)]
    arriving[0].append(iter(before))
    best: list[Step] = []
    for i, edges in enumerate([*scheme.step_log_probs(text), []]):
        merged = heapq.merge(*arriving[i], key=lambda step: -step[0])
        best = list(itertools.islice(merged, n))
        arriving[i] = []
        for token, size, log_prob in edges:
            arriving[i + size].append(_continued(best, token, log_prob))
    return best


def _continued(best: list[Step], token: int, log_prob: float) -> Iterator[Step]:
    return ((step[0] + log_prob, token, step) for step in best)


def _path(step: Step) -> list[int]:
    ids = []
    while step[2] is not None:
        ids.append(step[1])
        step = step[2]
    return ids[::-1]
