"""Accuracy over sampled tokenizations of each question."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError, check_choice
from robustok.evaluation.ensemble import METHODS, combined
from robustok.evaluation.intervals import clustered
from robustok.evaluation.questions import (
    NO_FIT,
    Ids,
    Window,
    as_sampler,
    check_keyed,
    encode_options,
    item_keys,
    margins,
    sentence_keys,
    sentence_request,
    start_ids,
)
from robustok.evaluation.results import Evaluation, Outcome
from robustok.models.devices import precision_of
from robustok.runtime.display import Progress
from robustok.samplers import Sampler, measure
from robustok.scoring import Request, Scores, score_many
from robustok.tasks import Item
from robustok.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_BLOCK = 64  # items scored together between two calls of progress


def evaluate(
    model: PreTrainedModel,
    vocab: Vocabulary,
    items: Sequence[Item],
    sampler: str | Sampler,
    *,
    draws: int = 10,
    seed: int,
    ensemble: str | None = None,
    prefix: Ids | None = None,
    overflow: str = "error",
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
        progress: called with (items done, all items).

    Options are canonical, z = p(option | prefix, question), and the prediction is the option with
    the greatest z. For ``acc_norm``, it is the option with the greatest log z per character, as in
    lm-eval.

    Raises RobustokError without items or draws, for two items with one key, by ``overflow``, and
    for an item with a score that is not a number.
    Source: the paper's appendix "Random Tokenisation Robustness" (M = 10, N = 500).
    """
    began = time.perf_counter()
    items = check_keyed("item", items)
    draws, seed = check_integer("draws", draws, 1), check_integer("seed", seed)
    if ensemble is not None:
        check_choice("ensemble", str(ensemble), METHODS)
    sampler = as_sampler(sampler, vocab)
    draws = 1 if sampler.deterministic else draws
    has_sentences = not all(item.question for item in items)
    before_sentences = start_ids(model) if prefix is None and has_sentences else prefix
    outcomes: list[Outcome] = []
    scored: list[Scores] = []
    window = Window(model, overflow)
    prefix_cache: dict[bytes, Any] = {}
    for begin in range(0, len(items), _BLOCK):
        block = items[begin : begin + _BLOCK]
        requests = _requests(block, vocab, sampler, draws, seed, prefix, before_sentences)
        fitting = [
            (item, fitted)
            for item, request in zip(block, requests, strict=True)
            if (fitted := window.fit(request, item.key, vocab.encode(item.question))) is not None
        ]
        requests = [request for _, request in fitting]
        scores = score_many(model, requests, prefix_cache=prefix_cache)
        for (item, _), one in zip(fitting, scores, strict=True):
            outcomes.append(_outcome(item, one.log_probs, ensemble))
        scored += scores
        if progress is not None:
            progress(min(begin + _BLOCK, len(items)), len(items))
    if not outcomes:
        raise RobustokError(f"no item fits the model's max_length: {NO_FIT}")
    answers = 1 if ensemble else draws
    accuracy, low, high = clustered([o.correct for o in outcomes], answers)
    acc_norm, acc_norm_low, acc_norm_high = clustered([o.correct_norm for o in outcomes], answers)
    return Evaluation(
        accuracy=accuracy,
        low=low,
        high=high,
        acc_norm=acc_norm,
        acc_norm_low=acc_norm_low,
        acc_norm_high=acc_norm_high,
        n=len(outcomes),
        draws=draws,
        eval_scheme=sampler.spec,
        seed=seed,
        seconds=time.perf_counter() - began,
        outcomes=tuple(outcomes),
        mode=scored[-1].mode,
        tokens_computed=sum(one.tokens_computed for one in scored),
        tokens_naive=sum(one.tokens_naive for one in scored),
        overflowed=window.overflowed,
        precision=precision_of(model),
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

    ``sampler``, ``draws`` and ``seed`` are those of the evaluation, which give the same draws.

    Returns ``splits``, ``distance`` and ``length_ratio``, as :meth:`robustok.Strength.mean` gives
    them over all draws.
    """
    sampler = as_sampler(sampler, vocab)
    draws = 1 if sampler.deterministic else draws
    pairs: list[tuple[str, str]] = []
    for item in items:
        pairs += [(item.question, item.key)] if item.question else sentence_keys(item)
    texts = [text for text, _ in pairs]
    keys = item_keys(key for _, key in pairs)
    samples = sampler.sample_batch(texts, seed=seed, draws=draws, keys=keys)
    return measure(vocab, vocab.encode_batch(texts), samples).mean()


def _requests(
    block: Sequence[Item],
    vocab: Vocabulary,
    sampler: Sampler,
    draws: int,
    seed: int,
    prefix: Ids | None,
    before_sentences: Ids | None,
) -> list[Request]:
    """All draws of each item: of its question after the prefix, or else of its sentences."""
    keys = item_keys(item.key for item in block)
    texts = [item.question for item in block]
    questions = sampler.sample_batch(texts, seed=seed, draws=draws, keys=keys)
    return [
        Request(
            questions.between(i * draws, (i + 1) * draws),
            encode_options(vocab, item.choices),
            prefix,
            f"item '{item.key}'",
        )
        if item.question
        else sentence_request(item, sampler, draws, seed, before_sentences)
        for i, item in enumerate(block)
    ]


def _outcome(item: Item, log_probs: np.ndarray, ensemble: str | None) -> Outcome:
    # Of an item without a question the choices are sentences, and one row has all draws.
    log_probs = log_probs.reshape(-1, len(item.choices))
    # Characters of each option: lm-eval adds the space before them itself.
    lengths = np.array([len(one.lstrip()) or len(one) for one in item.choices], np.float64)
    normalized = log_probs / lengths
    if ensemble is not None:
        # The vote is taken among the answers of the draws; the mean is one of probabilities.
        voted = ensemble == "vote"
        normalized = (
            combined(normalized, ensemble) if voted else combined(log_probs, ensemble) / lengths
        )
        log_probs = combined(log_probs, ensemble)
    return Outcome(
        key=item.key,
        kind=item.kind,
        label=item.label,
        predictions=tuple(log_probs.argmax(axis=1).tolist()),
        margins=tuple(margins(log_probs, item.label).tolist()),
        norm_predictions=tuple(normalized.argmax(axis=1).tolist()),
    )
