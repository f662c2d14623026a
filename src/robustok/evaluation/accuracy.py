"""Accuracy and perplexity over sampled tokenizations of questions and texts."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustok.checks import check_ids, check_integer, check_texts
from robustok.errors import RobustokError
from robustok.evaluation.comparison import Evaluation, Outcome
from robustok.evaluation.intervals import clustered, ratio_of_sums
from robustok.evaluation.questions import (
    NO_FIT,
    Window,
    append,
    check_keyed,
    encode_options,
    item_keys,
    margins,
)
from robustok.models.scored import CausalModel, Ids, ScoredModel
from robustok.ragged import Ragged
from robustok.runtime.display import Progress, no_progress
from robustok.samplers import Sampler, measure
from robustok.samplers import sampler as as_sampler
from robustok.samplers.strength import Strength
from robustok.scoring import Request, Scores, score_many
from robustok.scoring.engine import scored_model, text_losses
from robustok.tasks import Item
from robustok.tokenizer.chat import Prefix, after_prefix
from robustok.tokenizer.vocabulary import Vocabulary

_CHUNK = 64  # items scored together between two calls of progress
_MAX_LENGTH = 1024  # ids read at once where a model's config names no limit


def evaluate(
    model: CausalModel,
    vocab: Vocabulary,
    items: Sequence[Item],
    sampler: str | Sampler,
    *,
    draws: int = 10,
    seed: int,
    ensemble: bool = False,
    prefix: Prefix = None,
    suffix: Ids | None = None,
    overflow: str = "error",
    progress: Progress = no_progress,
) -> Evaluation:
    """Accuracy over ``draws`` sampled tokenizations of each item's question.

    >>> result = evaluate(model, vocab, items, "uniform", draws=3, seed=0)
    >>> result.n, result.draws, result.low <= result.accuracy <= result.high
    (8, 3, True)

    Args:
        model: any causal language model of transformers, or one that is served.
        vocab: the model's vocabulary.
        items: the questions, each with its own key. An item without a question is scored as whole
            sentences: each choice is drawn by the sampler too, after the prefix or else the model's
            start token.
        sampler: a spec or a sampler. The canonical one is drawn once.
        draws: draws of each question, at least 1. M = 10 in the paper.
        seed: any integer. A draw depends on it, the item's key and the number of the draw alone.
        ensemble: whether each question has one answer, by the mean probability of its options over
            the draws. By default each draw answers.
        prefix: ids before every question, int32 [n], or a function that gives those before one, as
            :func:`solved_examples` does; by default none. A question after ordinary ids continues
            their text.
        suffix: ids between a question and its options, as those of a chat template; by default
            none.
        overflow: what to do with a draw that does not fit the model's longest input with its
            answers: ``"error"`` (default); ``"drop"``: the item is left out; ``"left"``: the start
            of the prompt is cut off; ``"canonical"``: the canonical question is used. The result
            counts such draws in ``overflowed``.
        progress: called with (items done, all items).

    Options are canonical, z = p(option | prefix, question, suffix), and the prediction is the
    option with the greatest z. For ``acc_norm``, it is the option with the greatest log z per
    character, as in lm-eval.

    Raises RobustokError without items or draws, for two items with one key, by ``overflow``, and
    for an item with a score that is not a number.
    Source: the paper's appendix "Random Tokenisation Robustness" (M = 10, N = 500).
    """
    start_time = time.perf_counter()
    items = check_keyed("item", items)
    draws, seed = check_integer("draws", draws, 1), check_integer("seed", seed)
    sampler = as_sampler(sampler, vocab)
    scored = scored_model(model)
    scored.check_vocabulary(vocab)
    draws = 1 if sampler.deterministic else draws
    prefixes = _prefixes(items, prefix, scored)
    outcomes: list[Outcome] = []
    all_scores: list[Scores] = []
    strengths: list[Strength] = []
    window = Window(model, overflow)
    prefix_cache: dict[bytes, Any] = {}
    for begin in range(0, len(items), _CHUNK):
        chunk = items[begin : begin + _CHUNK]
        requests, canonical, strength = _drawn(
            chunk, prefixes[begin : begin + _CHUNK], suffix, vocab, sampler, draws, seed
        )
        fitted = [
            window.fit(request, item.key, ids)
            for item, request, ids in zip(chunk, requests, canonical, strict=True)
        ]
        strengths.append(_as_scored(strength, requests, fitted, overflow))
        left = [item for item, request in zip(chunk, fitted, strict=True) if request]
        of_chunk = score_many(model, [r for r in fitted if r], prefix_cache=prefix_cache)
        for item, scores in zip(left, of_chunk, strict=True):
            outcomes.append(_outcome(item, scores.log_probs, ensemble))
        all_scores += of_chunk
        progress(min(begin + _CHUNK, len(items)), len(items))
    if not outcomes:
        raise RobustokError(f"no item fits the model's max_length: {NO_FIT}")
    answers = 1 if ensemble else draws
    names = ("accuracy", "low", "high", "acc_norm", "acc_norm_low", "acc_norm_high")
    bounds = clustered([o.correct for o in outcomes], answers)
    bounds += clustered([o.correct_norm for o in outcomes], answers)
    return Evaluation(
        **dict(zip(names, bounds, strict=True)),
        n=len(outcomes),
        draws=draws,
        eval_scheme=sampler.spec,
        seed=seed,
        seconds=time.perf_counter() - start_time,
        outcomes=tuple(outcomes),
        mode=all_scores[-1].mode,
        tokens_computed=sum(scores.tokens_computed for scores in all_scores),
        tokens_naive=sum(scores.tokens_naive for scores in all_scores),
        overflowed=window.overflowed,
        precision=scored.precision,
        strength=Strength.joined(strengths).mean(),
    )


def _prefixes(items: Sequence[Item], prefix: Prefix, scored: ScoredModel) -> list[Prefix]:
    """What stands before each item: before sentences at least the model's start token."""
    has_sentences = not all(item.question for item in items)
    before_sentences = scored.start_ids() if prefix is None and has_sentences else prefix
    return [prefix if item.question else before_sentences for item in items]


def _as_scored(
    strength: Strength, requests: Sequence[Request], fitted: Sequence[Request | None], overflow: str
) -> Strength:
    """The strength of the draws that are scored, of those of ``requests``.

    Without the draws of dropped items, and 0 where a question is canonical since its draw is long.
    """
    kept, is_drawn = [], []
    for request, fits in zip(requests, fitted, strict=True):
        has_question = len(request.questions.values) > 0
        count = len(request.questions) if has_question else len(request.options)
        kept.append(np.full(count, fits is not None))
        is_drawn.append(np.ones(count, np.bool_))
        if fits is not None and has_question and overflow == "canonical":
            is_drawn[-1] = fits.questions.lengths == request.questions.lengths
    rows, drawn = np.concatenate(kept), np.concatenate(is_drawn)
    tokens = np.where(drawn, strength.tokens, strength.canonical)
    columns = strength.splits * drawn, strength.distance * drawn, tokens, strength.canonical
    return Strength(*(column[rows] for column in columns))


def _drawn(
    chunk: Sequence[Item],
    prefixes: Sequence[Prefix],
    suffix: Ids | None,
    vocab: Vocabulary,
    sampler: Sampler,
    draws: int,
    seed: int,
) -> tuple[list[Request], Ragged, Strength]:
    """The draws of each item, the canonical ids of its question, and the strength of the draws."""
    keyed = [pair for item in chunk for pair in item.drawn_texts.items()]
    keys = item_keys(key for key, _ in keyed)
    placed = [_canonical(vocab, item, prefix) for item, prefix in zip(chunk, prefixes, strict=True)]
    canonical = Ragged.from_rows([ids for _, texts in placed for ids in texts])
    rows = sampler.sample_batch(canonical, seed=seed, draws=draws, keys=keys)
    requests, begin = [], 0
    for item, (before, texts) in zip(chunk, placed, strict=True):
        end = begin + draws * len(texts)
        drawn, name = rows[begin:end], f"item '{item.key}'"
        if item.question:
            options = encode_options(vocab, item.choices)
            request = Request(append(drawn, suffix), options, before, name)
        else:  # as options after one prefix: draw by draw, choice by choice
            sentences = [row for d in range(draws) for row in list(drawn)[d::draws]]
            request = Request(Ragged.from_rows([[]]), sentences, before, name)
        requests.append(request)
        begin = end
    questions = [
        texts[0] if item.question else np.zeros(0, np.int32)
        for item, (_, texts) in zip(chunk, placed, strict=True)
    ]
    return requests, append(Ragged.from_rows(questions), suffix), measure(vocab, canonical, rows)


def _canonical(
    vocab: Vocabulary, item: Item, prefix: Prefix
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The ids before an item, and the canonical ids of its question, or else of each sentence."""
    texts = list(item.drawn_texts.values())
    ids_before = prefix(texts[0]) if callable(prefix) else prefix
    placed = [after_prefix(vocab, ids_before, text) for text in texts]
    if item.question:
        before, ids = placed[0]
        return before, [ids]
    # The sentences share a prefix, so none of its tokens goes to one of them.
    before = max((before for before, _ in placed), key=len)
    n_before = len(before) if ids_before is None else len(ids_before)
    separate = vocab.encode_continuations(texts)
    pairs = zip(placed, separate, strict=True)
    rows = [continued if len(b) == n_before else ids for (b, continued), ids in pairs]
    return (before if ids_before is None else check_ids(ids_before)), rows


def _outcome(item: Item, log_probs: np.ndarray, ensemble: bool) -> Outcome:
    # Of an item without a question the choices are sentences, and one row has all draws.
    log_probs = log_probs.reshape(-1, len(item.choices))
    if ensemble:
        # The greatest is subtracted first, so that long options do not underflow.
        top = log_probs.max(axis=0)
        log_probs = (top + np.log(np.exp(log_probs - top).mean(axis=0)))[None]
    # Characters of each option: lm-eval adds the space before them itself.
    lengths = np.array([len(choice.lstrip()) or len(choice) for choice in item.choices], np.float64)
    return Outcome(
        item=item,
        predictions=tuple(log_probs.argmax(axis=1).tolist()),
        margins=tuple(margins(log_probs, item.label).tolist()),
        norm_predictions=tuple((log_probs / lengths).argmax(axis=1).tolist()),
    )


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
    scored = scored_model(model)
    scored.check_vocabulary(vocab)
    draws = 1 if sampler.deterministic else draws
    rows = sampler.sample_batch(texts, seed=seed, draws=draws)
    # Bytes after the tokenizer's normalizer, equal for all draws of a text.
    sizes = [len(vocab.decode_bytes(rows[i])) for i in range(0, len(rows), draws)]
    if not sum(sizes):
        raise RobustokError("there is no text to measure the perplexity of: give some")
    nats = text_losses(
        model,
        rows,
        max_length=scored.max_length or _MAX_LENGTH,
        start=scored.start_ids()[0] if start is None else start,
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
