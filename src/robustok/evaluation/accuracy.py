"""Accuracy over sampled tokenizations of each question."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from robustok.checks import check_ids, check_integer
from robustok.errors import RobustokError
from robustok.evaluation.comparison import Evaluation, Outcome
from robustok.evaluation.intervals import clustered
from robustok.evaluation.questions import (
    NO_FIT,
    Ids,
    Prefix,
    Window,
    after_prefix,
    append,
    as_sampler,
    check_keyed,
    encode_options,
    item_keys,
    margins,
)
from robustok.models.scored import CausalModel, ScoredModel
from robustok.ragged import Ragged
from robustok.runtime.display import Progress, no_progress
from robustok.samplers import Sampler, measure
from robustok.samplers.strength import Strength
from robustok.scoring import Request, Scores, score_many
from robustok.scoring.engine import scored_model
from robustok.tasks import Item
from robustok.tokenizer.vocabulary import Vocabulary

_CHUNK = 64  # items scored together between two calls of progress


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
    asked = scored_model(model)
    asked.check_vocabulary(vocab)
    draws = 1 if sampler.deterministic else draws
    prefixes = _prefixes(items, prefix, asked)
    outcomes: list[Outcome] = []
    scored: list[Scores] = []
    strengths: list[Strength] = []
    window = Window(model, overflow)
    prefix_cache: dict[bytes, Any] = {}
    for begin in range(0, len(items), _CHUNK):
        chunk = items[begin : begin + _CHUNK]
        requests, canonical, strength = _drawn(
            chunk, prefixes[begin : begin + _CHUNK], suffix, vocab, sampler, draws, seed
        )
        strengths.append(strength)
        fitting = _fitting(window, chunk, requests, canonical)
        fitted = [request for _, request in fitting]
        of_chunk = score_many(model, fitted, prefix_cache=prefix_cache)
        for (item, _), scores in zip(fitting, of_chunk, strict=True):
            outcomes.append(_outcome(item, scores.log_probs, ensemble))
        scored += of_chunk
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
        mode=scored[-1].mode,
        tokens_computed=sum(scores.tokens_computed for scores in scored),
        tokens_naive=sum(scores.tokens_naive for scores in scored),
        overflowed=window.overflowed,
        precision=asked.precision,
        strength=Strength.joined(strengths).mean(),
    )


def _prefixes(items: Sequence[Item], prefix: Prefix, asked: ScoredModel) -> list[Prefix]:
    """What stands before each item: before sentences at least the model's start token."""
    has_sentences = not all(item.question for item in items)
    before_sentences = asked.start_ids() if prefix is None and has_sentences else prefix
    return [prefix if item.question else before_sentences for item in items]


def _fitting(
    window: Window, items: Sequence[Item], requests: Sequence[Request], canonical: Ragged
) -> list[tuple[Item, Request]]:
    """The items whose requests fit the model's longest input, with what of these fits."""
    return [
        (item, fitted)
        for item, request, ids in zip(items, requests, canonical, strict=True)
        if (fitted := window.fit(request, item.key, ids)) is not None
    ]


def _drawn(
    chunk: Sequence[Item],
    prefixes: Sequence[Prefix],
    suffix: Ids | None,
    vocab: Vocabulary,
    sampler: Sampler,
    draws: int,
    seed: int,
) -> tuple[list[Request], Ragged, Strength]:
    """All draws of each item after its prefix: of its question, or else of its sentences.

    With them the canonical ids of each question, none of an item without one, and the strength of
    the draws. The suffix follows every question.
    """
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
