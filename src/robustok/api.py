"""The names of the public API, which `robustok` has.

A module of its own, so that `robustok` can import it when one of the names is used: with all that
it imports it takes longer than the page of `robustok --help`.
"""

# Two modules that numba and `importlib.metadata` import in a first draw: imported with the names,
# while a fork waits.
import email.parser  # noqa: F401

import numpy.ma  # noqa: F401

from robustok import samplers
from robustok.errors import RobustokError as RobustokError
from robustok.guard import Guard as Guard
from robustok.integrations.stochastic import stochastic as stochastic
from robustok.kernel_warmup import warmup as warmup
from robustok.lattice import Lattice as Lattice
from robustok.lattice import distance as distance
from robustok.ragged import Ragged as Ragged
from robustok.samplers import *  # noqa: F403
from robustok.tokenizer.vocabulary import Vocabulary as Vocabulary

__all__ = [
    "Guard", "Lattice", "Ragged", "RobustokError", "Vocabulary", "distance", "stochastic", "warmup",
]  # fmt: skip
__all__ += samplers.__all__
