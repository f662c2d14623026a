"""`grampa`: a walk by path counts, skewed by a temperature (GRaMPa, Bauwens et al. 2025)."""

from __future__ import annotations

from typing import Any

from robustok.samplers.parameters import count
from robustok.samplers.parameters import temperature as temperature_range
from robustok.samplers.walk import WalkSampler, plain_law
from robustok.vocabulary import Vocabulary


class Grampa(WalkSampler):
    """At each position a token, in proportion to (ways on to the end after it) ** (1 / T).

    >>> ids = vocab.encode("the")
    >>> round(float(np.exp(Grampa(vocab, temperature=1.0).log_prob(ids))), 3)
    0.333

    T = 1 is uniform over all tokenizations; T above 1 favors long tokens, since more ways on follow
    a short one. Tokens of fewer than ``min_length`` bytes are left out, but where no longer one
    starts the longest is taken; so the uniform law of T = 1 is over what is left. Left to right,
    as the authors' code by default. ``temperature`` is from 1e-6 to 1e6.
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

    def _law(self) -> Any:
        from robustok.kernels.walk import GRAMPA

        return plain_law(GRAMPA, self.temperature, self.min_length)
