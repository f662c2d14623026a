"""Constraint on an objective: candidates stay as likely, under a model, as drawn tokenizations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.errors import RobustokError
from robustok.evaluation.questions import Ids, item_key
from robustok.evaluation.sentences import sequence_log_probs, start_ids
from robustok.ragged import Ragged
from robustok.redteam.objective import Objective

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary


class WithinPerplexity:
    """Another objective, with minus infinity for candidates that the model finds too unlikely.

    >>> from robustok.redteam import as_objective
    >>> inner = as_objective(lambda rows: rows.lengths, name="length")
    >>> objective = WithinPerplexity(inner, model, vocab, "hello world", quantile=0.5, seed=0)
    >>> objective.name, objective(vocab.encode_batch(["hello world"])).tolist()
    ('length within perplexity', [2.0])

    Args:
        objective: the objective to maximize among the others.
        model: the causal language model whose perplexity counts.
        vocab: the model's vocabulary.
        text: the attacked text.
        quantile: the limit is this quantile of the perplexities of drawn tokenizations, from 0 to
            1, by default 0.95.
        spec: the scheme of these draws, by default ``"uniform"``.
        draws: number of draws, at least 1.
        prefix: ids before the text, by default the model's start token.
        seed: any integer; it decides the draws.

    All candidates spell the same text, so perplexity is compared by the negative log-likelihood
    of the whole tokenization, in nats: its exponential by byte of text is monotone in it. The
    canonical tokenization is always allowed.

    Raises RobustokError for a quantile out of range.
    """

    def __init__(
        self,
        objective: Objective,
        model: Any,
        vocab: Vocabulary,
        text: str,
        *,
        quantile: float = 0.95,
        spec: str = "uniform",
        draws: int = 64,
        prefix: Ids | None = None,
        seed: int,
    ) -> None:
        from robustok.samplers import sampler

        if not 0 <= quantile <= 1:
            raise RobustokError(f"quantile {quantile} is not between 0 and 1")
        if draws < 1:
            raise RobustokError(f"{draws} draws give no quantile: ask for at least 1")
        self.objective, self.model = objective, model
        self.prefix = prefix if prefix is not None and len(prefix) else start_ids(model)
        self.prefix_cache: dict[bytes, Any] = {}
        self.canonical = np.asarray(vocab.encode(text), np.int32)
        self.name = f"{objective.name} within perplexity"
        self.threshold, self.max_length = objective.threshold, objective.max_length
        rows = sampler(spec, vocab).sample_batch(
            [text], seed=seed, draws=draws, keys=np.array([item_key(text)], np.int64)
        )
        self.limit = float(np.quantile(self.nats(rows), quantile))

    def nats(self, rows: Ragged) -> np.ndarray:
        """Negative log-likelihood of each tokenization after the prefix, float64 [rows].

        Args:
            rows: the tokenizations.
        """
        return -sequence_log_probs(self.model, rows, self.prefix, self.prefix_cache)

    def __call__(self, rows: Ragged) -> np.ndarray:
        """The scores of the candidates within the limit, minus infinity for the others.

        Args:
            rows: the candidates.
        """
        allowed = self.nats(rows) <= self.limit
        allowed |= np.array([np.array_equal(row, self.canonical) for row in rows])
        scores = np.full(len(rows), -np.inf)
        chosen = np.flatnonzero(allowed)
        if len(chosen):
            scores[chosen] = self.objective(Ragged.from_rows([rows[i] for i in chosen.tolist()]))
        return scores
