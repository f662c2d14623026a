"""Drift: how many of the completions that a model samples are not canonical.

A model that was trained on canonical ids alone can still sample others. Whatever decodes a
completion and encodes its text again, as a chat history or a rollout does, then has other ids than
the model chose. The comparison is that of :mod:`robustok.guard`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robustok.evaluation.intervals import clustered
from robustok.evaluation.questions import Ids, check_generated_length
from robustok.guard import Guard
from robustok.models.load import max_length_of
from robustok.runtime.display import Progress
from robustok.scoring.engine import check_no_overflow, not_a_number
from robustok.scoring.forward import quiet
from robustok.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class CompletionDrift:
    """The share of sampled completions that are not canonical.

    Args:
        drifted: mean over prompts of the share of completions that are not canonical.
        low: lower 95% bound of ``drifted``, with prompts as clusters.
        high: upper 95% bound.
        drifted_ids: share of all ids that the encoder would not give.
        changed: share of completions that decoding and encoding changes: those that are not
            canonical or not UTF-8.
        completions: the ids of each prompt's completions, without special ones.
    """

    drifted: float
    low: float
    high: float
    drifted_ids: float
    changed: float
    completions: list[list[list[int]]]


def completion_drift(
    model: PreTrainedModel,
    vocab: Vocabulary,
    texts: Sequence[str],
    *,
    samples: int = 4,
    tokens: int = 32,
    seed: int,
    start: Ids = (),
    progress: Progress | None = None,
) -> CompletionDrift:
    """Sample completions of canonical prompts at temperature 1, and check their ids.

    >>> from robustok.evaluation.completions import completion_drift
    >>> drift = completion_drift(model, vocab, ["the"], samples=2, tokens=3, seed=0)
    >>> len(drift.completions[0]), 0 <= drift.drifted <= 1
    (2, True)

    Each of ``texts`` has ``samples`` completions of at most ``tokens`` ids, after the ids ``start``
    and the prompt, whose start is cut off where it is too long. Completions depend on the seed and
    on the position of the prompt. ``progress`` is called with (prompts done, all prompts).

    Raises RobustokError where the tokens of a completion alone do not fit the model.
    """
    guard = Guard(vocab, allow_special=True, max_length=None)
    drifted, changed, completions = [], [], []
    ids = np.zeros(2, np.int64)  # those the encoder would not give, and all
    for done, text in enumerate(texts):
        prompt = np.concatenate([np.asarray(start, np.int64), vocab.encode(text)])
        sampled = _sampled(model, prompt, samples, tokens, seed + done)
        rest = [[i for i in row if i not in vocab.special] for row in sampled]
        # A completion of special ids alone is empty, and an empty sequence is canonical.
        verdicts = guard.check_batch(rest)
        drifted.append(float((~verdicts.canonical).mean()))
        changed.append(float((~verdicts.round_trip).mean()))
        ids += int(verdicts.deviates.sum()), len(verdicts.given)
        completions.append(rest)
        if progress is not None:
            progress(done + 1, len(texts))
    share, low, high = clustered(drifted, samples)
    rate = float(ids[0] / max(ids[1], 1))
    return CompletionDrift(share, low, high, rate, float(np.mean(changed)), completions)


def generated(model: Any, ids: np.ndarray, max_new_tokens: int, **how: object) -> list[list[int]]:
    """What the model writes after a prompt, at most so many ids in each row; ``how`` it samples.

    Raises RobustokError where prompt and answer do not fit the model's longest input, and where the
    distribution of the next token is not a number.
    """
    check_generated_length(model, len(ids), max_new_tokens)
    check_no_overflow(model, f"a prompt of {len(ids)} tokens")
    input_ids = torch.as_tensor(ids, dtype=torch.int64, device=model.device)[None]
    with quiet(model):
        output = model.generate(
            input_ids=input_ids,
            attention_mask=torch.ones_like(input_ids),
            max_new_tokens=max_new_tokens,
            pad_token_id=(end_ids(model) or [0])[0],
            logits_processor=[_checked],
            **how,
        )
    return output[:, input_ids.shape[1] :].tolist()


def _checked(ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """The logits of the next token as they are: a step of transformers' generation."""
    if not bool(torch.isfinite(logits.amax(dim=-1)).all()):  # NaN, or no token with a probability
        raise not_a_number(f"a prompt of {ids.shape[1]} tokens", "next-token distribution")
    return logits


def end_ids(model: PreTrainedModel) -> list[int]:
    """The ids that end what the model writes."""
    end = getattr(model.generation_config, "eos_token_id", None)
    return end if isinstance(end, list) else [] if end is None else [end]


def _sampled(
    model: PreTrainedModel, prompt: np.ndarray, samples: int, tokens: int, seed: int
) -> list[list[int]]:
    """The ids of each completion of one prompt, drawn without a change of the global random state.

    The rows are copies of one prompt, so that no padding enters the model.
    """
    limit = max_length_of(model)
    room = len(prompt) if limit is None else max(1, limit - tokens)
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        rows = generated(
            model,
            prompt[-room:],
            tokens,
            num_return_sequences=samples,
            do_sample=True,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            repetition_penalty=1.0,
        )
    ends = end_ids(model)
    return [list(takewhile(lambda i: i not in ends, row)) for row in rows]
