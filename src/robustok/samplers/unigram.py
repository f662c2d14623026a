"""`unigram`: subword regularization by the scores of a Unigram tokenizer (Kudo 2018)."""

from __future__ import annotations

from typing import Any

import numpy as np

from robustok.samplers.needs import SCORES
from robustok.samplers.parameters import temperature as temperature_range
from robustok.samplers.walk import WalkSampler
from robustok.vocabulary import Vocabulary

_UNKNOWN = 10.0  # how far below the least score SentencePiece puts a character it does not know


class Unigram(WalkSampler):
    """Tokenizations in proportion to exp(sum of the tokens' scores / temperature).

    >>> from tokenizers import Tokenizer, models
    >>> scores = [("<unk>", 0.0), ("a", -2.0), ("b", -2.0), ("ab", -3.0)]
    >>> small = rt.Vocabulary.load(Tokenizer(models.Unigram(scores, 0, False)))
    >>> round(float(np.exp(Unigram(small).log_prob([3]))), 3)
    0.731

    Args:
        vocab: the vocabulary of a Unigram tokenizer.
        temperature: from 1e-6 to 1e6. 1 (default) is the model's own distribution; 1 / temperature
            is SentencePiece's ``alpha``.

    Bytes replace characters that are no token; all bytes of one character together score 10 below
    the least token. Raises RobustokError where the tokenizer has no Unigram scores.
    """

    name = "unigram"
    example = "unigram(temperature=2)"
    parameters = {"temperature": temperature_range(1.0)}
    strength = "temperature"
    exact = True
    needs = SCORES
    temperature: float

    def __init__(self, vocab: Vocabulary, *, temperature: float = 1.0) -> None:
        super().__init__(vocab, temperature=temperature)

    def _step_rule(self) -> Any:
        from robustok.kernels.walk import UNIGRAM, StepRule

        logs, fallback = self.vocab.derived("unigram scores", lambda: _scores(self.vocab))
        return StepRule(UNIGRAM, 1.0, 1, logs / self.temperature, fallback)


def _scores(vocab: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """The score of each id, and which ids are byte fallbacks."""
    data = vocab.data
    given = data.scores or {}
    logs, fallback = np.zeros(vocab.size), np.zeros(vocab.size, np.bool_)
    for i, score in given.items():
        logs[i] = score
    fallback[list(data.byte_fallback)] = True
    scored = [i for i in data.ordinary if not fallback[i]]
    least = min((logs[i] for i in scored), default=0.0) - _UNKNOWN
    for i in data.byte_fallback:  # the first byte of a character bears the whole score
        follows = 0x80 <= vocab.tokens[i][0] < 0xC0
        logs[i] = 0.0 if follows else least
    return logs, fallback
