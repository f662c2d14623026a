"""Answers from many tokenizations of one prompt: the mean or the vote of M draws, certified.

The model may read a single draw badly, and an attacker may have chosen one. The mean over M draws
depends on no single draw and costs M prompts. Options and generated ids are the same for all draws.

Such a classifier reads the text and draws its tokenization anew, so the ids that a client sends do
not matter: :func:`certify_smoothed` states which answer it gives, with a bound on its share.
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
    check_candidate_length,
    check_max_candidate_length,
    check_options,
    encode_options,
    item_keys,
    max_candidate_length,
)
from robustok.ragged import Ragged
from robustok.samplers import Sampler
from robustok.scoring import Request, Scores, score_many
from robustok.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_SELECTION = 100  # draws that choose the answer, independent of those that bound its share


def vote_counts(log_probs: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The number of draws whose answer each option is, int64 [options], or their weight, float64.

    >>> vote_counts(np.log([[0.6, 0.4], [0.1, 0.9], [0.55, 0.45]])).tolist()
    [2, 1]

    ``log_probs`` is [draws, options], ``weights`` [draws], by default 1.
    """
    return np.bincount(log_probs.argmax(axis=1), weights, minlength=log_probs.shape[1])


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
    votes = vote_counts(scores.log_probs)
    of_each = 1 - (1 - confidence) / len(votes)
    return EnsembleAnswer(
        log_mean(scores.log_probs),
        tuple(votes.tolist()),
        clopper_pearson_lower(int(votes.max()), len(scores.log_probs), of_each),
        scores.tokens_computed,
    )


@dataclass(frozen=True)
class SmoothedCertificate:
    """The answer of a smoothed classifier, and how certain it is.

    >>> options = [" no", " yes"]
    >>> done = certify_smoothed(model, vocab, "hello", options, "uniform", seed=0)
    >>> done.method, done.shares[done.answer] == done.share, done.certified
    ('enumeration', True, True)

    Args:
        answer: index of the option that most tokenizations get.
        share: probability of this answer under the scheme: exact for "enumeration", the share of
            the draws for "sampling".
        lower: probability of this answer, at least: ``share`` for "enumeration", and for "sampling"
            a Clopper-Pearson bound at ``confidence``.
        certified: whether ``lower`` exceeds 1/2, so no other answer can be the most frequent one.
            Otherwise the smoothed classifier abstains.
        method: ``"enumeration"`` or ``"sampling"``.
        n_scored: number of tokenizations scored.
        confidence: probability that the bound holds; 1 for "enumeration".
        shares: share of each option.
    """

    answer: int
    share: float
    lower: float
    certified: bool
    method: str
    n_scored: int
    confidence: float
    shares: tuple[float, ...]

    def vote_error(self, draws: int) -> float:
        """Greatest probability that most of so many new ``draws``, at least 1, give no ``answer``.

        >>> SmoothedCertificate(0, 1.0, 1.0, True, "enumeration", 3, 1.0, (1.0, 0.0)).vote_error(5)
        0.0

        A tie counts as an error.
        """
        from scipy.stats import binom  # not in the core install

        return float(binom.cdf(draws // 2, draws, self.lower))


def certify_smoothed(
    model: PreTrainedModel,
    vocab: Vocabulary,
    text: str,
    options: Sequence[str | Ids],
    sampler: str | Sampler = "uniform",
    *,
    draws: int = 1000,
    limit: int = 2000,
    confidence: float = 0.95,
    prefix: Ids | None = None,
    suffix: Ids | None = None,
    seed: int,
) -> SmoothedCertificate:
    """Certify the answer of the classifier that votes over drawn tokenizations.

    >>> certify_smoothed(model, vocab, "hello", [" no", " yes"], draws=50, limit=1, seed=0).method
    'sampling'

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        text: the question, not empty.
        options: the options, at least two: strings, which are tokenized canonically, or ids.
        sampler: the scheme of the draws, by default ``"uniform"``.
        draws: draws that bound the share, at least 1; 100 others choose the answer.
        limit: greatest number of tokenizations that are enumerated. A text with more, or a scheme
            without exact probabilities, is sampled.
        confidence: probability that the bound holds, between 0 and 1.
        prefix: ids before the text that stay as they are, such as a chat template; by default none.
        suffix: ids after the text that stay as they are; by default none.
        seed: any integer; it decides the draws.

    Raises RobustokError for fewer than two options, for settings out of range, and for a
    tokenization that does not fit the model.
    Source: Cohen, Rosenfeld and Kolter (2019), algorithm Certify, with draws of tokenizations in
    place of Gaussian noise.
    """
    if not text:
        raise RobustokError("the text is empty: give a question")
    if draws < 1 or limit < 1 or not 0 < confidence < 1:
        raise RobustokError("draws and limit must be at least 1, and confidence between 0 and 1")
    answers = encode_options(vocab, check_options(options))
    scheme, lattice = as_sampler(sampler, vocab), vocab.lattice(text)
    longest = max_candidate_length(model, answers, prefix, suffix)
    check_max_candidate_length(model, longest)

    def votes(rows: Ragged, weights: np.ndarray | None = None) -> np.ndarray:
        """How many of the rows have each answer, or their weight."""
        check_candidate_length("a tokenization", int(rows.lengths.max(initial=0)), longest)
        (scores,) = score_many(model, [Request(append(rows, suffix), answers, prefix, "the text")])
        return vote_counts(scores.log_probs, weights)

    def draw(count: int, epoch: int) -> Ragged:
        keys = item_keys([text])
        return scheme.sample_batch([text], seed=seed, draws=count, keys=keys, epoch=epoch)

    if lattice.count() <= limit and scheme.exact:
        rows = list(lattice.enumerate())
        shares = votes(Ragged.from_rows(rows), np.exp([scheme.log_prob(row) for row in rows]))
        answer, n_scored = int(shares.argmax()), len(rows)
        method, lower, confidence = "enumeration", float(shares.max()), 1.0
    else:
        answer = int(votes(draw(_SELECTION, 1)).argmax())
        bounding = votes(draw(draws, 0))
        shares, n_scored = bounding / draws, draws + _SELECTION
        method, lower = "sampling", clopper_pearson_lower(int(bounding[answer]), draws, confidence)
    values = tuple(shares.tolist())
    return SmoothedCertificate(
        answer, values[answer], lower, lower > 0.5, method, n_scored, confidence, values
    )
