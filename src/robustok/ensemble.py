"""Answers from many tokenizations of one prompt: average the model over M draws.

A single draw can be one that the model reads badly, or one that an attacker chose. The mean over
draws depends on no single one. It costs M prompts; options and generated ids are shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.evaluation.combining import combined, vote_counts
from robustok.evaluation.intervals import clopper_pearson_upper
from robustok.evaluation.questions import as_sampler, check_options, encode_options
from robustok.ragged import Ragged
from robustok.samplers import Sampler
from robustok.scoring import score
from robustok.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class EnsembleAnswer:
    """The answer of a model over several tokenizations; :func:`choose` makes it.

    >>> from robustok.ensemble import choose
    >>> result = choose(model, vocab, "hello world, is 3 odd? Answer:", [" no", " yes"], "uniform",
    ...                draws=8, seed=0)
    >>> sum(result.votes), len(result.log_probs)
    (8, 2)

    Args:
        log_probs: log of the mean probability of each option, float64 [options].
        votes: draws whose answer each option is, [options].
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
    check_integer("draws", draws, 1)
    encoded = encode_options(vocab, check_options(options))
    rows = as_sampler(scheme, vocab).sample_batch([question], seed=seed, draws=draws)
    scores = score(model, rows, encoded, prefix)
    votes = vote_counts(scores.log_probs)
    others = draws - int(votes.max())
    return EnsembleAnswer(
        combined(scores.log_probs, "mean")[0],
        tuple(votes.tolist()),
        1 - clopper_pearson_upper(others, draws, confidence),
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
    prompts = [[*start, *row.tolist()] for row in rows]
    longest = max(map(len, prompts))
    if not min(map(len, prompts)):
        raise RobustokError("the prompt has no tokens: give a text or a prefix")
    ids = np.zeros((len(prompts), longest), np.int64)
    mask = np.zeros((len(prompts), longest), np.int64)
    for number, row in enumerate(prompts):
        ids[number, longest - len(row) :] = row
        mask[number, longest - len(row) :] = 1
    return ids, mask
