"""Perplexity of text under drawn tokenizations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robustok.checks import check_texts
from robustok.errors import RobustokError
from robustok.evaluation.intervals import ratio_of_sums
from robustok.evaluation.questions import as_sampler
from robustok.models.scored import CausalModel
from robustok.runtime.display import Progress, no_progress
from robustok.samplers import Sampler, measure
from robustok.scoring.engine import scored_model, text_losses
from robustok.tokenizer.vocabulary import Vocabulary

_MAX_LENGTH = 1024  # ids read at once where a model's config names no limit


@dataclass(frozen=True)
class TextPerplexity:
    """The perplexity of text that is tokenized by a scheme.

    >>> result = perplexity(model, vocab, texts, "canonical", seed=0)
    >>> result.tokens, result.bytes
    (4, 25)

    Args:
        eval_scheme: spec of the scheme that drew the tokenizations.
        perplexity: per token of the drawn sequences, as in the paper. Longer tokenizations spread
            the same text over more tokens, so compare schemes by ``bits_per_byte``.
        bits_per_byte: negative log₂-likelihood for each byte of text.
        low: lower 95% bound of ``bits_per_byte``, with the texts as the sample; 0 for one text.
        high: upper 95% bound; infinity for one text.
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
    model: CausalModel,
    vocab: Vocabulary,
    texts: Sequence[str | bytes],
    sampler: str | Sampler,
    *,
    draws: int = 1,
    seed: int,
    start: int | None = None,
    progress: Progress = no_progress,
) -> TextPerplexity:
    """Perplexity of texts whose tokenization is drawn, each after the model's start token.

    >>> result = perplexity(model, vocab, texts, "stochastok(alpha=0.5)", seed=0)
    >>> result.texts, result.bytes, result.perplexity > 1
    (2, 25, True)

    Args:
        model: any causal language model of transformers, or one that is served.
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
    asked = scored_model(model)
    asked.check_vocabulary(vocab)
    draws = 1 if sampler.deterministic else draws
    rows = sampler.sample_batch(texts, seed=seed, draws=draws)
    # Bytes after the tokenizer's normalizer, equal for all draws of a text.
    sizes = [len(vocab.decode_bytes(rows[i])) for i in range(0, len(rows), draws)]
    if not sum(sizes):
        raise RobustokError("there is no text to measure the perplexity of: give some")
    nats = text_losses(
        model,
        rows,
        max_length=asked.max_length or _MAX_LENGTH,
        start=asked.start_ids()[0] if start is None else start,
        draws=draws,
        progress=progress,
    )
    tokens = len(rows.values)
    bits = nats.reshape(len(texts), draws).mean(axis=1) / math.log(2)
    rate, low, high = ratio_of_sums(bits, np.array(sizes, np.float64))
    return TextPerplexity(
        sampler.spec,
        math.exp(min(float(nats.sum()) / tokens, 700.0)),
        rate,
        low,
        high,
        texts=len(texts),
        tokens=tokens,
        bytes=sum(sizes),
        draws=draws,
        seed=seed,
        strength=measure(vocab, vocab.encode_batch(texts), rows).mean(),
    )
