"""Scores of a model behind a server: the same questions, asked by ids.

An option of several tokens is a chain: after the question the first token is wanted, after both the
second, and so on. Prompts that several options share are asked once. This form can use the server's
prefix cache. Losses of texts are read from the log-probabilities of the prompt itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robustok.models.served import ServedModel
from robustok.runtime.display import Progress, no_progress

Prompt = tuple[int, ...]


def served_log_probs(
    model: ServedModel, requests: Sequence[tuple[Sequence[Prompt], Sequence[Prompt]]]
) -> list[tuple[np.ndarray, int]]:
    """Log-probability of each option after each start, for each request.

    Args:
        model: the served model.
        requests: starts (prefix and question) and options as ids, none empty.

    Returns for each request float64 [starts, options], with minus infinity for a probability of
    zero, and the number of tokens of its prompts.
    """
    groups = []
    for starts, options in requests:
        prompts = {
            (*start, *option[:j]): None
            for start in starts
            for option in options
            for j in range(len(option))
        }
        groups.append((list(prompts), [token for option in options for token in option]))
    results = []
    answered = zip(requests, groups, model.next_log_probs(groups), strict=True)
    for (starts, options), (prompts, _), answers in answered:
        after = dict(zip(prompts, answers, strict=True))
        values = np.zeros((len(starts), len(options)))
        for row, start in enumerate(starts):
            for column, option in enumerate(options):
                chain = enumerate(option)
                values[row, column] = sum(after[*start, *option[:j]][token] for j, token in chain)
        results.append((values, sum(map(len, prompts))))
    return results


def served_losses(
    model: ServedModel, chunks: Sequence[np.ndarray], progress: Progress = no_progress
) -> np.ndarray:
    """The negative log-likelihood in nats of each chunk after its first id, float64 [chunks]."""
    losses = np.zeros(len(chunks))
    for number, values in enumerate(model.prompt_log_probs([ids.tolist() for ids in chunks])):
        losses[number] = -sum(values)
        progress(number + 1, len(chunks))
    return losses
