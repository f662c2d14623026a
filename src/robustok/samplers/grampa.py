"""`grampa`: a walk by path counts, skewed by a temperature (GRaMPa, Bauwens et al. 2025)."""

from __future__ import annotations

from typing import Any

from robustok.samplers.parameters import count
from robustok.samplers.parameters import temperature as temperature_range
from robustok.samplers.walk import WalkSampler, plain_rule
from robustok.vocabulary import Vocabulary


class Grampa(WalkSampler):
    """At each position a token, in proportion to (tokenizations of the rest after it) ** (1 / T).

    >>> ids = vocab.encode("the")
    >>> round(float(np.exp(Grampa(vocab, temperature=1.0).log_prob(ids))), 3)
    0.333

    Args:
        vocab: the vocabulary whose texts are tokenized.
        temperature: T, from 1e-6 to 1e6. 1 is uniform over all tokenizations; above 1 favors long
            tokens, since the rest after a short one has more tokenizations.
        min_length: least length of a token in bytes, from 1 to 2**31 - 1. Where no token is as
            long, the longest is used; T = 1 is then uniform over what remains.

    Left to right, as the authors' code by default.
    """

    name = "grampa"
    example = "grampa(temperature=2, min_length=2)"
    parameters = {"temperature": temperature_range(1.0), "min_length": count(1, least=1)}
    strength = "temperature"
    exact = True
    temperature: float
    min_length: int

    def __init__(self, vocab: Vocabulary, *, temperature: float = 1.0, min_length: int = 1) -> None:
        super().__init__(vocab, temperature=temperature, min_length=min_length)

    def _step_rule(self) -> Any:
        from robustok.kernels.walk import GRAMPA

        return plain_rule(GRAMPA, self.temperature, self.min_length)
