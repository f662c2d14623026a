"""Perplexity of text under drawn tokenizations, and its marginal over all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from robustok.checks import check_texts
from robustok.errors import RobustokError
from robustok.evaluation.questions import as_sampler, sequence_log_probs, start_ids
from robustok.models.load import max_length_of
from robustok.runtime.display import Z95, Progress
from robustok.samplers import Sampler, measure
from robustok.scoring.engine import check_embedded, text_losses
from robustok.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_MAX_LENGTH = 1024  # ids read at once where a model's config names no limit


@dataclass(frozen=True)
class TextPerplexity:
    """How well a model predicts text that is tokenized by a scheme.

    >>> result = perplexity(model, vocab, texts, "canonical", seed=0)
    >>> result.tokens, result.bytes
    (4, 25)

    Args:
        eval_scheme: spec of the scheme that drew the tokenizations.
        perplexity: per token of the drawn sequences, as in the paper. Longer tokenizations spread
            the same text over more tokens, so compare schemes by ``bits_per_byte``.
        bits_per_byte: negative log₂-likelihood for each byte of text.
        low: lower 95% bound of ``bits_per_byte``, with the texts as the sample.
        high: upper 95% bound.
        texts: number of texts.
        tokens: tokens predicted, over all draws.
        bytes: size of the texts, each counted once, after the tokenizer's normalizer.
        draws: draws of each text.
        seed: seed of the draws.
        strength: how far the draws are from canonical: ``splits``, ``distance`` and
            ``length_ratio`` per canonical token, as :meth:`robustok.Strength.mean` gives them.
    """

    eval_scheme: str
    perplexity: float
    bits_per_byte: float
    low: float
    high: float
    texts: int
    tokens: int
    bytes: int
    draws: int
    seed: int
    strength: dict[str, float]


def perplexity(
    model: PreTrainedModel,
    vocab: Vocabulary,
    texts: Sequence[str | bytes],
    sampler: str | Sampler,
    *,
    draws: int = 1,
    seed: int,
    start: int | None = None,
    progress: Progress | None = None,
) -> TextPerplexity:
    """Perplexity of texts whose tokenization is drawn, each after the model's start token.

    >>> result = perplexity(model, vocab, texts, "stochastok(alpha=0.5)", seed=0)
    >>> result.texts, result.bytes, result.perplexity > 1
    (2, 25, True)

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        texts: the texts. One longer than the model's longest input is scored in chunks.
        sampler: a spec or a sampler. The canonical one is drawn once.
        draws: draws of each text, at least 1.
        seed: any integer. A draw depends on it, the position of the text and the number of the
            draw.
        start: id of the token before each text; by default the model's own (its ``bos_token_id``,
            else its ``eos_token_id``).
        progress: called with (drawn sequences done, all of them).

    Raises RobustokError if all texts are empty, for ids that the model has no embedding for, and
    for a likelihood that is not a number or zero.
    Source: the paper's table of perplexities.
    """
    texts, sampler = check_texts(texts), as_sampler(sampler, vocab)
    draws = 1 if sampler.deterministic else draws
    rows = sampler.sample_batch(texts, seed=seed, draws=draws)
    # What the ids decode to, after the tokenizer's normalizer; every draw of a text is as long.
    sizes = [len(vocab.decode_bytes(rows[i])) for i in range(0, len(rows), draws)]
    if not sum(sizes):
        raise RobustokError("there is no text to measure the perplexity of: give some")
    max_length = max_length_of(model) or _MAX_LENGTH
    first = start_ids(model)[0] if start is None else start
    check_embedded(model, rows.values, np.array([first]))
    nats = text_losses(
        model, rows, max_length=max_length, start=first, draws=draws, progress=progress
    )
    tokens = len(rows.values)
    bits = nats.reshape(len(texts), draws).mean(axis=1) / math.log(2)
    rate, error = _ratio_of_sums(bits, np.array(sizes))
    return TextPerplexity(
        sampler.spec,
        math.exp(min(float(nats.sum()) / tokens, 700.0)),
        rate,
        rate - Z95 * error,
        rate + Z95 * error,
        texts=len(texts),
        tokens=tokens,
        bytes=sum(sizes),
        draws=draws,
        seed=seed,
        strength=measure(vocab, vocab.encode_batch(texts), rows).mean(),
    )


def _ratio_of_sums(parts: np.ndarray, wholes: np.ndarray) -> tuple[float, float]:
    """The sum of ``parts`` over that of ``wholes``, and its standard error by linearization."""
    n, total = len(parts), max(float(wholes.sum()), 1.0)
    ratio = float(parts.sum()) / total
    squares = float(((parts - ratio * wholes) ** 2).sum())
    return ratio, float(np.sqrt(squares * n / max(n - 1, 1)) / total)


@dataclass(frozen=True)
class Marginal:
    """The probability of a text over all its tokenizations, estimated.

    >>> result = marginal(model, vocab, ["the"], draws=64, seed=0)[0]
    >>> result.tokenizations, result.draws
    (3, 64)

    Args:
        log_marginal: estimated log-probability of the text over all tokenizations, in nats.
        log_canonical: log-probability of the canonical tokenization, in nats.
        error: standard error of ``log_marginal``; infinite if at most one draw is not canonical and
            the text has other tokenizations.
        tokenizations: exact number of tokenizations of the text.
        draws: number of draws.
        effective: effective number of draws that are not canonical. Near 1, a single draw dominates
            and ``error`` is too small.
    """

    log_marginal: float
    log_canonical: float
    error: float
    tokenizations: int
    draws: int
    effective: float


def marginal(
    model: PreTrainedModel,
    vocab: Vocabulary,
    texts: Sequence[str | bytes],
    *,
    draws: int = 256,
    seed: int,
    start: int | None = None,
    progress: Progress | None = None,
) -> list[Marginal]:
    """Sum a model's probability over all tokenizations of each text, by importance sampling.

    >>> result = marginal(model, vocab, ["the"], draws=64, seed=0)[0]
    >>> result.log_marginal > result.log_canonical
    True

    Args:
        texts: the texts, none empty. The variance grows fast with their length: give sentences, not
            pages, and check ``effective``.
        draws: draws of each text, at least 1. Draws that are canonical count nothing.
        progress: called with (texts done, all texts).

    ``model``, ``vocab``, ``seed`` and ``start`` are those of :func:`perplexity`.

    The canonical tokenization, which mostly has the greatest share, is counted exactly. The others
    are drawn uniformly and weighted by their probability times their number, so the estimate of the
    probability is unbiased.

    Raises RobustokError for an empty text.
    """
    texts = check_texts(texts)
    uniform = as_sampler("uniform", vocab)
    prefix = None if start is None else [start]
    marginals = []
    for number, text in enumerate(texts):
        canonical = vocab.encode(text)
        if not len(canonical):
            raise RobustokError(f"text {number} is empty: leave it out")
        # Text by text, since the draws of all may be larger than memory.
        rows = uniform.sample_batch([text], seed=seed, draws=draws, keys=np.array([number]))
        others = [row for row in rows if not np.array_equal(row, canonical)]
        scored = sequence_log_probs(model, [canonical, *others], prefix, name=f"text {number}")
        marginals.append(_sum(float(scored[0]), scored[1:], vocab.lattice(text).count(), draws))
        if progress is not None:
            progress(number + 1, len(texts))
    return marginals


def _sum(canonical: float, others: np.ndarray, count: int, draws: int) -> Marginal:
    if count == 1:
        return Marginal(canonical, canonical, 0.0, count, draws, float(draws))
    if not len(others):
        return Marginal(canonical, canonical, math.inf, count, draws, 0.0)
    # In logarithms throughout, relative to the greatest: a long text's other tokenizations are
    # less likely than the canonical one by factors that underflow.
    weights = np.exp(others - others.max())
    log_rest = math.log(count - 1) + float(others.max()) + math.log(weights.mean())
    log_marginal = float(np.logaddexp(canonical, log_rest))
    error = math.inf
    if len(weights) > 1:
        spread = float(weights.std(ddof=1) / weights.mean())
        error = math.exp(log_rest - log_marginal) * spread / math.sqrt(len(weights))
    return Marginal(
        log_marginal=log_marginal,
        log_canonical=canonical,
        error=error,
        tokenizations=count,
        draws=draws,
        effective=float(weights.sum() ** 2 / (weights**2).sum()),
    )
