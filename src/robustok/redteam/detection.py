"""Detection of attacked tokenizations by a score, with a threshold on benign traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.errors import RobustokError
from robustok.evaluation.questions import Ids
from robustok.evaluation.sentences import sequence_log_probs, start_ids
from robustok.lattice import distance
from robustok.ragged import Ragged

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary


@dataclass(frozen=True)
class Roc:
    """How well a score separates attacks from benign inputs.

    >>> curve = roc([0, 0, 1], [4, 5, 6], false_positives=0.01)
    >>> curve.auc, curve.threshold, curve.detected
    (1.0, 1.0, 1.0)

    Args:
        auc: area under the curve: probability that an attack scores higher than a benign input,
            ties counted by half.
        threshold: inputs that score higher are flagged.
        flagged_benign: share of the benign inputs that are flagged, at most the rate allowed.
        detected: share of the attacks that are flagged.
        false_positive_rates: the curve's first coordinate, from 0 to 1.
        true_positive_rates: its second one.
    """

    auc: float
    threshold: float
    flagged_benign: float
    detected: float
    false_positive_rates: tuple[float, ...]
    true_positive_rates: tuple[float, ...]


def roc(
    benign: Sequence[float] | np.ndarray,
    attacked: Sequence[float] | np.ndarray,
    *,
    false_positives: float = 0.01,
) -> Roc:
    """The curve of a score, and the lowest threshold with few enough false positives.

    >>> roc([0, 1, 2, 3], [1, 2, 3, 4], false_positives=0.25).detected
    0.5

    Args:
        benign: scores of benign inputs; higher means more suspicious.
        attacked: scores of attacks.
        false_positives: greatest share of benign inputs that are flagged, from 0 to 1.

    Raises RobustokError where either is missing or not a number.
    """
    low, high = np.asarray(benign, np.float64), np.asarray(attacked, np.float64)
    if not len(low) or not len(high) or np.isnan(low).any() or np.isnan(high).any():
        raise RobustokError("a curve needs scores of benign inputs and of attacks, all numbers")
    if not 0 <= false_positives <= 1:
        raise RobustokError(f"false_positives {false_positives} is not between 0 and 1")
    thresholds = np.concatenate([[np.inf], np.unique(np.concatenate([low, high]))[::-1]])
    false_rates = np.array([np.mean(low > t) for t in thresholds] + [1.0])
    true_rates = np.array([np.mean(high > t) for t in thresholds] + [1.0])
    best = int(np.flatnonzero(false_rates[:-1] <= false_positives)[-1])
    above = np.mean(high[:, None] > low[None]) + np.mean(high[:, None] == low[None]) / 2
    return Roc(
        float(above), float(thresholds[best]), float(false_rates[best]), float(true_rates[best]),
        tuple(false_rates.tolist()), tuple(true_rates.tolist()),
    )  # fmt: skip


def distance_scores(vocab: Vocabulary, rows: Sequence[Ids] | Ragged) -> np.ndarray:
    """Distance of each tokenization from the canonical one of its text, float64 [rows].

    >>> distance_scores(vocab, [vocab.encode("hello")]).tolist()
    [0.0]

    Args:
        vocab: the vocabulary.
        rows: the tokenizations, of any texts.
    """
    return np.array([float(distance(vocab, _canonical(vocab, row), row)) for row in rows])


def likelihood_scores(
    model: Any, vocab: Vocabulary, rows: Sequence[Ids] | Ragged, *, prefix: Ids | None = None
) -> np.ndarray:
    """How much less likely each tokenization is than the canonical one of its text, in nats.

    >>> likelihood_scores(model, vocab, [vocab.encode("hello")]).tolist()
    [0.0]

    Args:
        model: any causal language model of transformers.
        vocab: its vocabulary.
        rows: the tokenizations, of any texts.
        prefix: ids before each, by default the model's start token.

    Costs two forward passes for each tokenization, and none for a canonical one.
    """
    start = start_ids(model) if prefix is None or not len(prefix) else prefix
    scores, cache = [], {}
    for row in rows:
        pair = [_canonical(vocab, row), np.asarray(row, np.int32)]
        if np.array_equal(*pair):
            scores.append(0.0)
            continue
        canonical, given = sequence_log_probs(model, pair, start, cache).tolist()
        scores.append(canonical - given)
    return np.array(scores)


def scheme_scores(
    vocab: Vocabulary, rows: Sequence[Ids] | Ragged, benign: str = "canonical"
) -> np.ndarray:
    """Log-likelihood ratio of ``uniform`` against the scheme of benign traffic, in nats.

    >>> bool(scheme_scores(vocab, [vocab.encode("hello")])[0] < 0)
    True

    Args:
        vocab: the vocabulary.
        rows: the tokenizations, of any texts.
        benign: spec of a scheme with exact probabilities. Against ``"canonical"``, which gives all
            other tokenizations probability 0, every other tokenization scores infinity.

    Needs no model.

    Raises RobustokError for a scheme without exact probabilities.
    """
    from robustok.samplers import sampler

    uniform, other = sampler("uniform", vocab), sampler(benign, vocab)
    return np.array([uniform.log_prob(row) - other.log_prob(row) for row in rows])


def _canonical(vocab: Vocabulary, row: Ids) -> np.ndarray:
    return np.asarray(vocab.encode(vocab.decode_bytes(np.asarray(row, np.int32))), np.int32)
