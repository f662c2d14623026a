"""Stochastic tokenization: sample, count, train on, evaluate on and attack with every tokenization.

This is the public API.
"""

from robustok.errors import RobustokError as RobustokError
from robustok.guard import Guard as Guard
from robustok.integrations.stochastic import stochastic as stochastic
from robustok.kernel_warmup import warmup as warmup
from robustok.lattice import Lattice as Lattice
from robustok.lattice import distance as distance
from robustok.ragged import Ragged as Ragged
from robustok.samplers import BpeDropout as BpeDropout
from robustok.samplers import Canonical as Canonical
from robustok.samplers import Characters as Characters
from robustok.samplers import Exactly as Exactly
from robustok.samplers import Grampa as Grampa
from robustok.samplers import MaxMatchDropout as MaxMatchDropout
from robustok.samplers import Mix as Mix
from robustok.samplers import Sampler as Sampler
from robustok.samplers import Schedule as Schedule
from robustok.samplers import Spec as Spec
from robustok.samplers import StochasTok as StochasTok
from robustok.samplers import StochasTokUniform as StochasTokUniform
from robustok.samplers import Uniform as Uniform
from robustok.samplers import UniformK as UniformK
from robustok.samplers import Unigram as Unigram
from robustok.samplers import at_progress as at_progress
from robustok.samplers import register as register
from robustok.samplers import sampler as sampler
from robustok.samplers import schedule as schedule
from robustok.samplers import schemes as schemes
from robustok.strength import Strength as Strength
from robustok.strength import at_strength as at_strength
from robustok.strength import measure as measure
from robustok.version import __version__ as __version__
from robustok.vocabulary import Vocabulary as Vocabulary
