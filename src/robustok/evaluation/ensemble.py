"""Answers from many tokenizations of one prompt: the mean or the vote of M draws, certified.

The model may read a single draw badly, and an attacker may have chosen one. The mean over M draws
depends on no single draw and costs M prompts. Options and generated ids are the same for all draws.

Such a classifier reads the text and draws its tokenization anew, so the ids that a client sends do
not matter: :func:`certify_smoothed` states which answer it gives, with a bound on its share.
"""

from __future__ import annotations

import math
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
    check_generated_length,
    check_max_candidate_length,
    check_options,
    encode_options,
    item_keys,
    max_candidate_length,
)
from robustok.ragged import Ragged
from robustok.samplers import Sampler
from robustok.scoring import Request, Scores, score_many
from robustok.scoring.engine import check_embedded, check_no_overflow, not_a_number
from robustok.scoring.forward import quiet
from robustok.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel

METHODS = ("mean", "vote")
_SELECTION = 100  # draws that choose the answer, independent of those that bound its share


def vote_counts(log_probs: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The number of draws whose answer each option is, int64 [options], or their weight, float64.

    >>> vote_counts(np.log([[0.6, 0.4], [0.1, 0.9], [0.55, 0.45]])).tolist()
    [2, 1]

    ``log_probs`` is [draws, options], ``weights`` [draws], by default 1.
    """
    return np.bincount(log_probs.argmax(axis=1), weights, minlength=log_probs.shape[1])


def combined(log_probs: np.ndarray, method: str) -> np.ndarray:
    """The log-probabilities of one answer, float64 [1, options].

    >>> combined(np.log([[0.6, 0.4], [0.1, 0.9], [0.55, 0.45]]), "mean").argmax()
    np.int64(1)
    >>> combined(np.log([[0.6, 0.4], [0.1, 0.9], [0.55, 0.45]]), "vote").argmax()
    np.int64(0)

    From [draws, options] by the ``"mean"`` of the probabilities; or by ``"vote"``, the share of
    draws whose answer an option is. Of options with equal votes, the one of greater mean
    probability is ahead.
    """
    # The greatest is subtracted first, so that long options do not underflow.
    top = log_probs.max(axis=0)
    mean = top + np.log(np.exp(log_probs - top).mean(axis=0))
    if method == "mean":
        return mean[None, :]
    votes = vote_counts(log_probs).astype(np.float64)
    order = mean.argsort().argsort() / (2 * len(mean))  # below one vote
    return np.log((votes + order + 1e-300) / len(log_probs))[None, :]


@dataclass(frozen=True, eq=False)
class EnsembleAnswer:
    """The answer of a model over several tokenizations, as :func:`choose` returns it.

    >>> from robustok.evaluation import choose
    >>> result = choose(model, vocab, "hello world, is 3 odd? Answer:", [" no", " yes"], "uniform",
    ...                draws=8, seed=0)
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
    question: str,
    options: Sequence[str],
    scheme: str | Sampler = "uniform",
    *,
    draws: int = 8,
    seed: int,
    prefix: Ids | None = None,
    confidence: float = 0.95,
) -> EnsembleAnswer:
    """Choose an option by the mean probability and by the vote of drawn tokenizations.

    >>> from robustok.evaluation import choose
    >>> sum(choose(model, vocab, "hello", [" a", " b"], "uniform", draws=4, seed=0).votes)
    4

    Args:
        question: the text that is drawn.
        options: the answers, tokenized canonically.

    ``model``, ``vocab``, ``scheme``, ``draws``, ``seed``, ``prefix`` and ``confidence`` are those
    of :func:`choose_many`.
    """
    return choose_many(
        model,
        vocab,
        [question],
        [options],
        scheme,
        draws=draws,
        seed=seed,
        prefix=prefix,
        confidence=confidence,
    )[0]


def choose_many(
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
    """Answer many questions as :func:`choose` does, with all draws scored together.

    >>> from robustok.evaluation import choose_many
    >>> questions, options = ["hello", "world"], [[" a", " b"], [" a", " b"]]
    >>> [sum(a.votes) for a in choose_many(model, vocab, questions, options, draws=4, seed=0)]
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
        combined(scores.log_probs, "mean")[0],
        tuple(votes.tolist()),
        clopper_pearson_lower(int(votes.max()), len(scores.log_probs), of_each),
        scores.tokens_computed,
    )


def generate(
    model: PreTrainedModel,
    vocab: Vocabulary,
    prompt: str,
    scheme: str | Sampler = "uniform",
    *,
    draws: int = 8,
    seed: int,
    max_new_tokens: int,
    end_id: int | None = None,
    prefix: Ids | None = None,
) -> np.ndarray:
    """Continue a prompt greedily by the next-token distribution averaged over drawn prompts.

    >>> from robustok.evaluation import generate
    >>> len(generate(model, vocab, "hello world", draws=3, seed=0, max_new_tokens=4))
    4

    Args:
        model: a causal language model of transformers whose attention has positions and masks.
        vocab: the model's vocabulary.
        prompt: the text that is drawn.
        scheme: a spec or a sampler.
        draws: number of drawn prompts, at least 1.
        seed: any integer.
        max_new_tokens: greatest number of ids written.
        end_id: the id that ends the text; by default none.
        prefix: ids before every prompt, such as a start token; by default none.

    Returns the new ids, int32 [m], the end included. All prompts get the same new id in each step,
    with the attention cache of each kept.

    Raises RobustokError without tokens, for ids that the model has no embedding for, where prompt
    and new ids do not fit the model's longest input, and where the distribution is not a number.
    """
    import torch

    check_integer("draws", draws, 1)
    check_integer("max_new_tokens", max_new_tokens, 1)
    rows = as_sampler(scheme, vocab).sample_batch([prompt], seed=seed, draws=draws)
    start = [] if prefix is None else list(prefix)
    prompts = Ragged.from_rows([[*start, *row.tolist()] for row in rows])
    if not prompts.lengths.min():
        raise RobustokError("the prompt has no tokens: give a text or a prefix")
    check_embedded(model, prompts.values)
    check_no_overflow(model, "the prompt")
    check_generated_length(model, int(prompts.lengths.max()), max_new_tokens)
    ids = prompts.left_padded()
    mask = np.arange(ids.shape[1]) >= ids.shape[1] - prompts.lengths[:, None]
    device = next(model.parameters()).device
    input_ids = torch.as_tensor(ids, device=device)
    attention = torch.as_tensor(mask, dtype=torch.int64, device=device)
    positions = (attention.cumsum(dim=1) - 1).clamp(min=0)
    cache, written = None, []
    with quiet(model):
        for _ in range(max_new_tokens):
            out = model(
                input_ids,
                attention_mask=attention,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )
            logits = out.logits[:, -1, : vocab.size].double()
            mean = logits.log_softmax(-1).logsumexp(0)
            if not math.isfinite(float(mean.max())):  # NaN, or no id with a probability
                raise not_a_number("the prompt", "next-token distribution")
            written.append(int(mean.argmax()))
            if written[-1] == end_id:
                break
            cache = out.past_key_values
            input_ids = torch.full((draws, 1), written[-1], device=device)
            attention = torch.cat([attention, attention.new_ones(draws, 1)], dim=1)
            positions = positions[:, -1:] + 1
    return np.array(written, np.int32)


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
