"""Answers from many tokenizations of one prompt: the mean or the vote of M draws.

The model may read a single draw badly, and an attacker may have chosen one. The mean over M draws
depends on no single draw and costs M prompts. Options are the same for all draws.

Such a classifier reads the text and draws its tokenization anew, so the ids that a client sends do
not matter. :func:`choose` bounds the share of all draws that give the answer of most votes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.evaluation.intervals import clopper_pearson_lower
from robustok.evaluation.questions import (
    Ids,
    append,
    as_sampler,
    check_options,
    encode_options,
)
from robustok.samplers import Sampler
from robustok.scoring import Request, Scores, score_many
from robustok.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def log_mean(log_probs: np.ndarray) -> np.ndarray:
    """The logarithm of the mean probability of each option over the draws, float64 [options].

    >>> np.exp(log_mean(np.log([[0.6, 0.4], [0.1, 0.9]]))).round(2).tolist()
    [0.35, 0.65]

    ``log_probs`` is [draws, options].
    """
    # The greatest is subtracted first, so that long options do not underflow.
    top = log_probs.max(axis=0)
    return top + np.log(np.exp(log_probs - top).mean(axis=0))


@dataclass(frozen=True, eq=False)
class EnsembleAnswer:
    """The answer of a model over several tokenizations, as :func:`choose` returns it.

    >>> from robustok.evaluation import choose
    >>> questions, options = ["hello world, is 3 odd? Answer:"], [[" no", " yes"]]
    >>> (result,) = choose(model, vocab, questions, options, draws=8, seed=0)
    >>> sum(result.votes), len(result.log_probs)
    (8, 2)

    Args:
        log_probs: log of the mean probability of each option, float64 [options].
        votes: number of draws that each option wins, a tuple of int [options].
        lower: Clopper-Pearson lower bound on the share of all tokenizations drawn by the scheme
            whose answer is the one of most votes. It holds for all options at once (Bonferroni),
            since the draws also choose the answer. Above 1/2 the vote is the majority of the
            distribution.
        tokens_computed: positions that went through the model.
    """

    log_probs: np.ndarray
    votes: tuple[int, ...]
    lower: float
    tokens_computed: int

    @property
    def answer(self) -> int:
        """The option of the greatest mean probability."""
        return int(self.log_probs.argmax())

    @property
    def majority(self) -> int:
        """The option of most votes, the first one of several."""
        return int(np.argmax(self.votes))


def choose(
    model: PreTrainedModel,
    vocab: Vocabulary,
    questions: Sequence[str | bytes],
    options: Sequence[Sequence[str]],
    scheme: str | Sampler = "uniform",
    *,
    draws: int = 8,
    seed: int,
    keys: Sequence[int] | np.ndarray | None = None,
    prefix: Ids | None = None,
    suffix: Ids | None = None,
    confidence: float = 0.95,
) -> list[EnsembleAnswer]:
    """Answer questions by the mean probability and by the vote of drawn tokenizations.

    >>> from robustok.evaluation import choose
    >>> questions, options = ["hello", "world"], [[" a", " b"], [" a", " b"]]
    >>> [sum(a.votes) for a in choose(model, vocab, questions, options, draws=4, seed=0)]
    [4, 4]

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        questions: the texts that are drawn, [n].
        options: the answers of each question, tokenized canonically, [n].
        scheme: a spec or a sampler.
        draws: number of draws of each question, at least 1.
        seed: any integer.
        keys: key of each question's draws, integers, [n]; by default its position.
        prefix: ids before every question, [m]; by default none.
        suffix: ids between every question and its options, [l]; by default none.
        confidence: probability that the bound on the share of the majority holds.
    """
    check_integer("draws", draws, 1)
    if len(questions) != len(options):
        raise RobustokError(
            f"{len(questions)} questions and {len(options)} lists of options: give each its own"
        )
    rows = as_sampler(scheme, vocab).sample_batch(questions, seed=seed, draws=draws, keys=keys)
    requests = [
        Request(
            append(rows.between(at * draws, (at + 1) * draws), suffix),
            encode_options(vocab, check_options(answers)),
            prefix,
            f"question {at}",
        )
        for at, answers in enumerate(options)
    ]
    return [_answer(scores, confidence) for scores in score_many(model, requests)]


def _answer(scores: Scores, confidence: float) -> EnsembleAnswer:
    count, options = scores.log_probs.shape
    votes = np.bincount(scores.log_probs.argmax(axis=1), minlength=options)
    of_each = 1 - (1 - confidence) / len(votes)
    return EnsembleAnswer(
        log_mean(scores.log_probs),
        tuple(votes.tolist()),
        clopper_pearson_lower(int(votes.max()), count, of_each),
        scores.tokens_computed,
    )
