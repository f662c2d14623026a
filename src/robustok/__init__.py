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
from robustok.samplers import *  # noqa: F403 (its __all__ lists them)
from robustok.tokenizer.vocabulary import Vocabulary as Vocabulary
from robustok.version import __version__ as __version__
