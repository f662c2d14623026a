"""Scoring as one would write it first: one sequence, one forward pass, nothing shared."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from robustok.scoring import Scores, score


def score_naively(
    model: Any,
    questions: Sequence[Iterable[int]],
    options: Sequence[Sequence[int] | np.ndarray],
    prefix: Iterable[int] = (),
) -> np.ndarray:
    """log p(option | prefix, question) as float64 [questions, options], each from its own pass."""
    result = np.zeros((len(questions), len(options)))
    for i, question in enumerate(questions):
        for c, option in enumerate(options):
            ids = [*map(int, prefix), *map(int, question), *map(int, option)]
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([ids])).logits[0]
            log_probs = torch.log_softmax(logits.double(), dim=-1)
            for j in range(len(option)):
                at = len(ids) - len(option) + j
                result[i, c] += float(log_probs[at - 1, ids[at]])
    return result


def outputs_naively(model: Any, ids: Iterable[int]) -> list[np.ndarray]:
    """The last token's hidden states, [layers + 1] of float64 [width], and its logits."""
    with torch.no_grad():
        output = model(input_ids=torch.tensor([[*map(int, ids)]]), output_hidden_states=True)
    return [values[0, -1].double().numpy() for values in (*output.hidden_states, output.logits)]


def checked_scores(
    model: Any,
    questions: Sequence[Sequence[int]],
    options: Sequence[Sequence[int]],
    prefix: Sequence[int] = (),
    **settings: Any,
) -> Scores:
    """What `score` gives, compared with :func:`score_naively`."""
    result = score(model, questions, options, prefix, **settings)
    wanted = score_naively(model, questions, options, prefix)
    np.testing.assert_allclose(result.log_probs, wanted, atol=1e-4, rtol=0)
    return result
