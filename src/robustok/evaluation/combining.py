"""One answer from the answers of many tokenizations: their mean probability, or their vote."""

from __future__ import annotations

import numpy as np

METHODS = ("mean", "vote")


def vote_counts(log_probs: np.ndarray) -> np.ndarray:
    """The number of draws whose answer each option is, int64 [options].

    >>> vote_counts(np.log([[0.6, 0.4], [0.1, 0.9], [0.55, 0.45]])).tolist()
    [2, 1]

    Args:
        log_probs: natural logarithms, float64 [draws, options].
    """
    return np.bincount(log_probs.argmax(axis=1), minlength=log_probs.shape[1])


def combined(log_probs: np.ndarray, method: str) -> np.ndarray:
    """The log-probabilities of one answer, float64 [1, options].

    >>> combined(np.log([[0.6, 0.4], [0.1, 0.9], [0.55, 0.45]]), "mean").argmax()
    np.int64(1)
    >>> combined(np.log([[0.6, 0.4], [0.1, 0.9], [0.55, 0.45]]), "vote").argmax()
    np.int64(0)

    Args:
        log_probs: natural logarithms, float64 [draws, options].
        method: ``"mean"`` of the probabilities; ``"vote"``: the share of draws whose answer an
            option is. Of options with equal votes, the one of greater mean probability is ahead.
    """
    # The greatest is subtracted first, so that long options do not underflow.
    top = log_probs.max(axis=0)
    mean = top + np.log(np.exp(log_probs - top).mean(axis=0))
    if method == "mean":
        return mean[None, :]
    votes = vote_counts(log_probs).astype(np.float64)
    order = mean.argsort().argsort() / (2 * len(mean))  # below one vote
    return np.log((votes + order + 1e-300) / len(log_probs))[None, :]
