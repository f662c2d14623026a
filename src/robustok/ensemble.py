"""Answers from many tokenizations of one prompt: average the model over M draws.

The model may read a single draw badly, and an attacker may have chosen one. The mean over M draws
depends on no single draw and costs M prompts. Options and generated ids are the same for all draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.evaluation.adversarial.problem import append
from robustok.evaluation.combining import combined, vote_counts
from robustok.evaluation.intervals import clopper_pearson_upper
from robustok.evaluation.questions import as_sampler, check_options, encode_options
from robustok.ragged import Ragged
from robustok.samplers import Sampler
from robustok.scoring import Request, Scores, score_many
from robustok.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class EnsembleAnswer:
    """The answer of a model over several tokenizations, as :func:`choose` returns it.

    >>> from robustok.ensemble import choose
    >>> result = choose(model, vocab, "hello world, is 3 odd? Answer:", [" no", " yes"], "uniform",
    ...                draws=8, seed=0)
    >>> sum(result.votes), len(result.log_probs)
    (8, 2)

    Args:
        log_probs: log of the mean probability of each option, float64 [options].
        votes: number of draws that each option wins, a tuple of int [options].
        lower: Clopper-Pearson lower bound, at ``confidence``, on the share of all tokenizations
            drawn by the scheme whose answer is the one of most votes. Above 1/2 the vote is the
            majority of the distribution.
        confidence: probability that the bound holds.
        tokens_computed: positions that went through the model.
    """

    log_probs: np.ndarray
    votes: tuple[int, ...]
    lower: float
    confidence: float
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
    model: Any,
    vocab: Vocabulary,
    question: str,
    options: Sequence[str],
    scheme: str | Sampler = "uniform",
    *,
    draws: int = 8,
    seed: int,
    prefix: Sequence[int] | np.ndarray | None = None,
    confidence: float = 0.95,
) -> EnsembleAnswer:
    """Choose an option by the mean probability and by the vote of drawn tokenizations.

    >>> from robustok.ensemble import choose
    >>> choose(model, vocab, "hello", [" a", " b"], "uniform", draws=4, seed=0).confidence
    0.95

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        question: the text that is drawn.
        options: the answers, tokenized canonically.
        scheme: a spec or a sampler.
        draws: number of draws, at least 1.
        seed: any integer.
        prefix: ids before every question, [n]; by default none.
        confidence: of the bound on the share of the majority.
    """
    return choose_many(
        model, vocab, [question], [options], scheme, draws=draws, seed=seed, prefix=prefix,
        confidence=confidence,
    )[0]  # fmt: skip


def choose_many(
    model: Any,
    vocab: Vocabulary,
    questions: Sequence[str | bytes],
    options: Sequence[Sequence[str]],
    scheme: str | Sampler = "uniform",
    *,
    draws: int = 8,
    seed: int,
    keys: Sequence[int] | np.ndarray | None = None,
    prefix: Sequence[int] | np.ndarray | None = None,
    suffix: Sequence[int] | np.ndarray | None = None,
    confidence: float = 0.95,
) -> list[EnsembleAnswer]:
    """Answer many questions as :func:`choose` does, with all draws scored together.

    >>> from robustok.ensemble import choose_many
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
        confidence: of the bound on the share of the majority.
    """
    check_integer("draws", draws, 1)
    if len(questions) != len(options):
        raise RobustokError(
            f"{len(questions)} questions and {len(options)} lists of options: give each its own"
        )
    rows = as_sampler(scheme, vocab).sample_batch(
        list(questions), seed=seed, draws=draws, keys=None if keys is None else np.asarray(keys)
    )
    requests = [
        Request(
            append(Ragged.from_rows([rows[at * draws + draw] for draw in range(draws)]), suffix),
            encode_options(vocab, check_options(answers)),
            prefix,
        )
        for at, answers in enumerate(options)
    ]
    return [_answer(scores, draws, confidence) for scores in score_many(model, requests)]


def _answer(scores: Scores, draws: int, confidence: float) -> EnsembleAnswer:
    votes = vote_counts(scores.log_probs)
    return EnsembleAnswer(
        combined(scores.log_probs, "mean")[0],
        tuple(votes.tolist()),
        1 - clopper_pearson_upper(draws - int(votes.max()), draws, confidence),
        confidence,
        scores.tokens_computed,
    )


def generate(
    model: Any,
    vocab: Vocabulary,
    prompt: str,
    scheme: str | Sampler = "uniform",
    *,
    draws: int = 8,
    seed: int,
    max_new_tokens: int,
    end_id: int | None = None,
    prefix: Sequence[int] | np.ndarray | None = None,
) -> np.ndarray:
    """Continue a prompt greedily by the next-token distribution averaged over drawn prompts.

    >>> from robustok.ensemble import generate
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
    """
    import torch

    check_integer("draws", draws, 1)
    check_integer("max_new_tokens", max_new_tokens, 1)
    rows = as_sampler(scheme, vocab).sample_batch([prompt], seed=seed, draws=draws)
    ids, mask = _left_padded(rows, prefix)
    device = next(model.parameters()).device
    given, attention = torch.as_tensor(ids, device=device), torch.as_tensor(mask, device=device)
    positions = (attention.cumsum(dim=1) - 1).clamp(min=0)
    cache, written = None, []
    with torch.inference_mode():
        for _ in range(max_new_tokens):
            out = model(
                given, attention_mask=attention, position_ids=positions, past_key_values=cache,
                use_cache=True,
            )  # fmt: skip
            logits = out.logits[:, -1, : vocab.size].double()
            mean = logits.log_softmax(-1).logsumexp(0)
            written.append(int(mean.argmax()))
            if written[-1] == end_id:
                break
            cache = out.past_key_values
            given = torch.full((draws, 1), written[-1], device=device)
            attention = torch.cat([attention, attention.new_ones(draws, 1)], dim=1)
            positions = positions[:, -1:] + 1
    return np.array(written, np.int32)


def _left_padded(
    rows: Ragged, prefix: Sequence[int] | np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The prompts as int64 [draws, longest], padded on the left, and their attention mask."""
    start = [] if prefix is None else list(prefix)
    prompts = Ragged.from_rows([[*start, *row.tolist()] for row in rows])
    if not prompts.lengths.min():
        raise RobustokError("the prompt has no tokens: give a text or a prefix")
    ids = prompts.left_padded()
    mask = np.arange(ids.shape[1]) >= ids.shape[1] - prompts.lengths[:, None]
    return ids, mask.astype(np.int64)
