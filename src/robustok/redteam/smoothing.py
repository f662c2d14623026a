"""Smoothed classifier: the answer that most drawn tokenizations get, with a certificate.

The smoothed classifier reads the text and draws its tokenization anew, so the ids that a client
sends do not matter: its answer is the same under every tokenization of the text. A certificate
states which answer that is, with a bound on the share of the draws that give it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.errors import RobustokError
from robustok.evaluation.intervals import clopper_pearson_upper
from robustok.evaluation.questions import Ids, as_sampler, check_options, encode_options, item_key
from robustok.ragged import Ragged
from robustok.redteam.causal import append, room
from robustok.scoring import Request, score_many

if TYPE_CHECKING:
    from robustok.samplers import Sampler
    from robustok.vocabulary import Vocabulary

_SELECTION = 100  # draws that choose the answer, independent of those that bound its share


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
        """Greatest probability that most of so many new draws do not give ``answer``.

        >>> SmoothedCertificate(0, 1.0, 1.0, True, "enumeration", 3, 1.0, (1.0, 0.0)).vote_error(5)
        0.0

        Args:
            draws: number of draws of a vote, at least 1; a tie counts as an error.
        """
        from scipy.stats import binom

        return float(binom.cdf(draws // 2, draws, self.lower))


def certify_smoothed(
    model: Any,
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
    scheme = as_sampler(sampler, vocab)
    lattice = vocab.lattice(text)
    longest = room(model, answers, prefix, suffix)

    def predicted(rows: Ragged) -> np.ndarray:
        if longest is not None and len(rows) and int(rows.lengths.max()) > longest:
            raise RobustokError(
                f"a tokenization has {int(rows.lengths.max())} tokens, and the model's longest "
                f"input leaves {longest}: shorten the text"
            )
        request = Request(append(rows, suffix), answers, prefix)
        return score_many(model, [request])[0].log_probs.argmax(axis=1)

    if lattice.count() <= limit and scheme.exact:
        rows = list(lattice.enumerate())
        chances = np.exp([scheme.log_prob(row) for row in rows])
        answered = predicted(Ragged.from_rows(rows))
        shares = np.bincount(answered, weights=chances, minlength=len(answers))
        return _certificate(shares, int(shares.argmax()), float(shares.max()), "enumeration",
                            len(rows), 1.0)  # fmt: skip
    keys = np.array([item_key(text)], np.int64)
    chosen, bounding = (
        predicted(scheme.sample_batch([text], seed=seed, draws=n, keys=keys, epoch=epoch))
        for n, epoch in ((_SELECTION, 1), (draws, 0))
    )
    answer = int(np.bincount(chosen, minlength=len(answers)).argmax())
    shares = np.bincount(bounding, minlength=len(answers)) / draws
    others = int((bounding != answer).sum())
    lower = 1 - clopper_pearson_upper(others, draws, confidence)
    return _certificate(shares, answer, lower, "sampling", draws + _SELECTION, confidence)


def _certificate(
    shares: np.ndarray, answer: int, lower: float, method: str, n_scored: int, confidence: float
) -> SmoothedCertificate:
    values = tuple(float(share) for share in shares)
    return SmoothedCertificate(
        answer, values[answer], lower, lower > 0.5, method, n_scored, confidence, values
    )
