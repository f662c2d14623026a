"""The schemes: each a probability distribution over the tokenizations of a text."""

from robustok.samplers.base import Sampler, Schedule, sampler, schedule
from robustok.samplers.bpe_dropout import BpeDropout
from robustok.samplers.canonical import Canonical, Characters
from robustok.samplers.mix import Mix
from robustok.samplers.spec import Spec, register, schemes
from robustok.samplers.stochastok import StochasTok, StochasTokUniform
from robustok.samplers.strength import Strength, at_strength, measure
from robustok.samplers.uniform import Uniform, UniformK
from robustok.samplers.walk import Grampa, MaxMatchDropout, Unigram

BUILT_IN: tuple[type[Sampler], ...] = (
    Canonical, Characters, StochasTok, StochasTokUniform, UniformK, Uniform, BpeDropout, Grampa,
    Unigram, MaxMatchDropout, Mix,
)  # fmt: skip
for _scheme in BUILT_IN:
    register(_scheme)

# `robustok` exports these names, and docs/reference.md describes them in this order.
__all__ = [  # noqa: RUF022
    "sampler", "Spec", "schemes", "register", "Sampler",
    "Canonical", "Characters", "StochasTok", "StochasTokUniform", "Uniform", "UniformK",
    "BpeDropout", "Grampa", "Unigram", "MaxMatchDropout", "Mix",
    "schedule", "Schedule", "Strength", "measure", "at_strength",
]  # fmt: skip
