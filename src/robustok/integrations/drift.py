"""Drift of rollouts in a trainer's log: sampled ids that decoding and encoding would change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.guard import Guard
from robustok.runtime.packages import require
from robustok.tokenizer.vocabulary import Vocabulary

require("transformers")

from transformers import TrainerCallback  # noqa: E402

_DRIFT = ("drift/sequences", "drift/ids", "drift/changed")


class DriftCallback(TrainerCallback):
    """Reports how many sampled ids a decoding and encoding would change, in a trainer's logs.

    >>> drift = DriftCallback(vocab)
    >>> reward = drift.observed(lambda completions, **_: [0.0 for _ in completions])
    >>> reward(completions=["the"], completion_ids=[[*vocab.encode("t"), *vocab.encode("he")]])
    [0.0]
    >>> drift.metrics()
    {'drift/sequences': 1.0, 'drift/ids': 1.0, 'drift/changed': 1.0}

    Args:
        vocab: the vocabulary of the policy's tokenizer.

    With TRL, wrap a reward function and give the callback to the trainer::

        drift = DriftCallback(vocab)
        GRPOTrainer(..., reward_funcs=drift.observed(reward), callbacks=[drift])

    In a loop of one's own, call :meth:`add` with each batch. The metrics are shares from 0 to 1
    since the last log: ``drift/sequences`` of the sequences that are not canonical, ``drift/ids``
    of the ids that the encoder would not give, ``drift/changed`` of the sequences that decoding and
    encoding changes (those that are not canonical, not UTF-8, or spell a special token).
    """

    def __init__(self, vocab: Vocabulary) -> None:
        self._guard = Guard(vocab, allow_special=True, max_length=None, mid_text=True)
        self._totals = np.zeros((len(_DRIFT), 2), np.int64)

    def add(self, completion_ids: Iterable[Any]) -> dict[str, float]:
        """Check a batch and return its metrics.

        Args:
            completion_ids: the sampled ids of each completion.
        """
        verdicts = self._guard.check_batch([_as_list(row) for row in completion_ids])
        sequences, ids = len(verdicts), len(verdicts.given)
        not_canonical, changed = (~verdicts.canonical).sum(), (~verdicts.round_trip).sum()
        drifted = verdicts.deviates.sum()
        counts = np.array([[not_canonical, sequences], [drifted, ids], [changed, sequences]])
        self._totals += counts
        return _shares(counts)

    def metrics(self) -> dict[str, float]:
        """The metrics of all batches since the last log; empty without one."""
        return _shares(self._totals)

    def observed(self, reward: Callable[..., Any]) -> Callable[..., Any]:
        """A TRL reward function that also measures the drift of the completions.

        Args:
            reward: a reward function with TRL's signature; it is called unchanged.

        Metrics go through TRL's ``log_metric`` where the trainer passes it, so that every reporter
        has them, and into the next log otherwise.
        """

        def with_drift(*args: Any, completion_ids: Any = None, **kwargs: Any) -> Any:
            if completion_ids is None:
                raise RobustokError(
                    "the trainer passes no completion_ids to reward functions: upgrade trl, or "
                    "call DriftCallback.add in the training loop"
                )
            metrics = self.add(completion_ids)
            log_metric = kwargs.get("log_metric")
            if log_metric is not None:
                for name, value in metrics.items():
                    log_metric(name, value)
            return reward(*args, completion_ids=completion_ids, **kwargs)

        with_drift.__name__ = getattr(reward, "__name__", type(reward).__name__)
        return with_drift

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # type: ignore[override]
        metrics = self.metrics()
        self._totals[:] = 0
        for target in (logs if logs is not None else {}, *state.log_history[-1:]):
            target.update(metrics | target)


def _as_list(row: Any) -> Any:
    return row.tolist() if hasattr(row, "tolist") else row  # a tensor on any device


def _shares(counts: np.ndarray) -> dict[str, float]:
    """The metrics of counts, int64 [metrics, 2]: how many, and of how many."""
    rows = zip(_DRIFT, counts.tolist(), strict=True)
    return {name: part / whole for name, (part, whole) in rows if whole}
