"""Scores of a model behind a server: the same questions, asked by ids.

An option of several tokens is a chain: after the question the first token is wanted, after both the
second, and so on. Prompts that several options share are asked once. This form can use the server's
prefix cache. Losses of texts are read from the log-probabilities of the prompt itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from robustok.errors import RobustokError
from robustok.models.served import ServedModel
from robustok.runtime.display import Progress, no_progress

if TYPE_CHECKING:
    from robustok.scoring.engine import Request

Prompt = tuple[int, ...]


def served_log_probs(
    model: ServedModel, requests: Sequence[Request]
) -> list[tuple[np.ndarray, int]]:
    """Log-probabilities of the options of each request, and how many positions they took.

    Args:
        model: the served model.
        requests: what to score.

    Returns float64 [questions, options] for each request, with minus infinity for a probability of
    zero, and the number of tokens of its prompts.
    """
    prompts = [_prompts_of(request) for request in requests]
    groups = [
        (list(asked), [token for option in _options_of(request) for token in option])
        for asked, request in zip(prompts, requests, strict=True)
    ]
    results = []
    for request, asked, answers in zip(
        requests, prompts, model.next_log_probs(groups), strict=True
    ):
        by_prompt = dict(zip(asked, answers, strict=True))
        values = np.array(
            [
                [
                    sum(by_prompt[(*start, *option[:j])][token] for j, token in enumerate(option))
                    for option in _options_of(request)
                ]
                for start in _starts_of(request)
            ],
            np.float64,
        ).reshape(len(request.questions), len(request.options))
        results.append((values, sum(map(len, asked))))
    return results


def _options_of(request: Request) -> list[list[int]]:
    options = [np.asarray(option).tolist() for option in request.options]
    if not options or not all(options):
        raise RobustokError("every answer option needs at least one token: check the options")
    return options


def _starts_of(request: Request) -> list[Prompt]:
    """Prefix and question of each row."""
    prefix = () if request.prefix is None else tuple(np.asarray(request.prefix).tolist())
    starts = [(*prefix, *question.tolist()) for question in request.questions]
    if not all(starts):
        raise RobustokError("an empty question follows nothing: give a prefix or a start token")
    return starts


def _prompts_of(request: Request) -> dict[Prompt, None]:
    """The prompts after which a token of an option is wanted, each once, in order."""
    return {
        (*start, *option[:j]): None
        for start in _starts_of(request)
        for option in _options_of(request)
        for j in range(len(option))
    }


def served_losses(
    model: ServedModel, chunks: Sequence[np.ndarray], progress: Progress = no_progress
) -> np.ndarray:
    """The negative log-likelihood in nats of each chunk after its first id, float64 [chunks]."""
    losses = np.zeros(len(chunks))
    for number, values in enumerate(model.prompt_log_probs([c.tolist() for c in chunks])):
        losses[number] = -sum(values)
        progress(number + 1, len(chunks))
    return losses
