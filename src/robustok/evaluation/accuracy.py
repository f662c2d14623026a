"""Random evaluation: accuracy over sampled tokenizations of each question."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.display import Progress
from robustok.errors import RobustokError, nearest
from robustok.evaluation.combining import METHODS, combined
from robustok.evaluation.intervals import clustered
from robustok.evaluation.overflow import Window
from robustok.evaluation.questions import (
    Ids,
    as_sampler,
    check_items,
    encode_options,
    item_key,
    margins,
)
from robustok.evaluation.result import Evaluation, Outcome
from robustok.evaluation.sentences import by_draw, sentence_keys, sentence_request, start_ids
from robustok.ragged import Ragged
from robustok.scoring import Request, score_many
from robustok.strength import measure

if TYPE_CHECKING:
    from robustok.samplers import Sampler
    from robustok.tasks.item import Item
    from robustok.vocabulary import Vocabulary

_BLOCK = 64  # items scored together between two calls of progress


def evaluate(
    model: Any,
    vocab: Vocabulary,
    items: Sequence[Item],
    sampler: str | Sampler,
    *,
    draws: int = 10,
    seed: int,
    ensemble: str | None = None,
    prefix: Ids | None = None,
    overflow: str = "error",
    max_batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Accuracy over ``draws`` sampled tokenizations of each item's question.

    >>> result = evaluate(model, vocab, items, "uniform", draws=3, seed=0)
    >>> result.n, result.draws, result.low <= result.accuracy <= result.high
    (8, 3, True)

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        items: the questions, each with its own key. An item without a question is scored as whole
            sentences: each choice is drawn by the sampler too, after the prefix or else the model's
            start token.
        sampler: a spec or a sampler. The canonical one is drawn once.
        draws: draws of each question, at least 1. M = 10 in the paper.
        seed: any integer. A draw depends on it, the item's key and the number of the draw alone.
        ensemble: ``"mean"`` gives each question one answer, by the mean probability of its options
            over the draws; ``"vote"`` the answer of most draws. By default each draw answers.
        prefix: ids before every question, int32 [n]; by default none.
        overflow: what to do with a draw that does not fit the model's longest input with its
            answers: ``"error"`` (default); ``"drop"``: the item is left out; ``"left"``: the start
            of the prompt is cut off; ``"canonical"``: the canonical question is used. The result
            counts such draws in ``overflowed``.
        max_batch_tokens: greatest number of tokens of one forward pass; by default 1,024 on a CPU
            and 16,384 elsewhere. Out of memory, it is halved and the pass repeated.
        progress: called with (items done, all items).

    Options are canonical, z = p(option | prefix, question), and the prediction is the option with
    the greatest z.

    Raises RobustokError without items or draws, for two items with one key, and by ``overflow``.
    Source: the paper's appendix "Random Tokenisation Robustness" (M = 10, N = 500).
    """
    began = time.perf_counter()
    check_items(items)
    if draws < 1:
        raise RobustokError(f"{draws} draws evaluate nothing: give at least 1")
    if ensemble not in (None, *METHODS):
        raise RobustokError(f"unknown ensemble '{ensemble}': {nearest(str(ensemble), METHODS)}")
    sampler = as_sampler(sampler, vocab)
    draws = 1 if sampler.deterministic else draws
    outcomes: list[Outcome] = []
    computed, naive, mode = 0, 0, ""
    window = Window(model, overflow)
    prefix_cache: dict[bytes, Any] = {}
    for begin in range(0, len(items), _BLOCK):
        block = items[begin : begin + _BLOCK]
        fitted = _fitted(window, block, vocab, sampler, draws, seed, prefix, model)
        block, requests = [item for item, _ in fitted], [request for _, request in fitted]
        scored = score_many(
            model, requests, max_batch_tokens=max_batch_tokens, prefix_cache=prefix_cache
        )
        for item, scores in zip(block, scored, strict=True):
            log_probs = scores.log_probs if item.question else by_draw(scores.log_probs, item)
            if ensemble is not None:
                log_probs = combined(log_probs, ensemble)
            outcomes.append(_outcome(item, log_probs))
            computed += scores.tokens_computed
            naive += scores.tokens_naive
            mode = scores.mode
        if progress is not None:
            progress(min(begin + _BLOCK, len(items)), len(items))
    if not outcomes:
        raise RobustokError(
            "no item fits the model's max_length: choose overflow left or canonical"
        )
    answers = draws if ensemble is None else 1
    accuracy, low, high = clustered([o.correct for o in outcomes], answers)
    return Evaluation(
        *(accuracy, low, high),
        n=len(outcomes),
        draws=draws,
        eval_scheme=sampler.spec,
        seed=seed,
        seconds=time.perf_counter() - began,
        outcomes=tuple(outcomes),
        mode=mode,
        tokens_computed=computed,
        tokens_naive=naive,
        overflowed=window.overflowed,
    )


def drawn_strength(
    vocab: Vocabulary, items: Sequence[Item], sampler: str | Sampler, *, draws: int = 10, seed: int
) -> dict[str, float]:
    """How strongly :func:`evaluate` perturbs these items: a mean per canonical token.

    >>> round(drawn_strength(vocab, items, "uniform-k(alpha=1)", draws=4, seed=0)["distance"], 2)
    0.52

    Args:
        vocab: the vocabulary of the sampler.
        items: the questions. Of an item without a question, the sentences are measured.
        sampler: a spec or a sampler. The canonical one is drawn once.
        draws: draws of each question, at least 1.
        seed: seed of the evaluation; the same arguments give the same draws.

    Returns ``splits``, ``distance`` and ``length_ratio``, as :meth:`robustok.Strength.mean` gives
    them over all draws.
    """
    sampler = as_sampler(sampler, vocab)
    draws = 1 if sampler.deterministic else draws
    texts, keys = [], []
    for item in items:
        own = [(item.question, item.key)] if item.question else sentence_keys(item)
        texts += [text for text, _ in own]
        keys += [item_key(key) for _, key in own]
    drawn = sampler.sample_batch(texts, seed=seed, draws=draws, keys=np.array(keys, np.int64))
    return measure(vocab, vocab.encode_batch(texts), drawn).mean()


def _fitted(
    window: Window,
    block: Sequence[Item],
    vocab: Vocabulary,
    sampler: Sampler,
    draws: int,
    seed: int,
    prefix: Ids | None,
    model: Any,
) -> list[tuple[Item, Request]]:
    """The items that are scored, and their requests cut or replaced to fit the model."""
    requests = _requests(block, vocab, sampler, draws, seed, prefix, model)
    fitted = []
    for item, request in zip(block, requests, strict=True):
        fitting = window.fit(request, item.key, vocab.encode(item.question))
        if fitting is not None:
            fitted.append((item, fitting))
    return fitted


def _requests(
    block: Sequence[Item],
    vocab: Vocabulary,
    sampler: Sampler,
    draws: int,
    seed: int,
    prefix: Ids | None,
    model: Any,
) -> list[Request]:
    keys = np.array([item_key(item.key) for item in block], np.int64)
    texts = [item.question for item in block]
    questions = sampler.sample_batch(texts, seed=seed, draws=draws, keys=keys)
    sentence_prefix: Any = prefix
    if prefix is None and not all(texts):
        sentence_prefix = start_ids(model)
    return [
        Request(_slice(questions, i * draws, draws), encode_options(vocab, item.choices), prefix)
        if item.question
        else sentence_request(item, vocab, sampler, draws, seed, sentence_prefix)
        for i, item in enumerate(block)
    ]


def _slice(rows: Ragged, begin: int, count: int) -> Ragged:
    offsets = rows.offsets[begin : begin + count + 1]
    return Ragged(rows.values[offsets[0] : offsets[-1]], offsets - offsets[0])


def _outcome(item: Item, log_probs: np.ndarray) -> Outcome:
    return Outcome(
        key=item.key,
        kind=item.kind,
        label=item.label,
        predictions=tuple(log_probs.argmax(axis=1).tolist()),
        margins=tuple(margins(log_probs, item.label).tolist()),
    )
