"""The names of the public API, which `robustok` has.

A module of its own, so that `robustok` can import it when one of the names is used: with all that
it imports it takes longer than the page of `robustok --help`. What needs torch is imported when it
is used: `TorchCollator` and `robustify`.
"""

from typing import TYPE_CHECKING

from robustok import samplers
from robustok.errors import RobustokError as RobustokError
from robustok.guard import Guard as Guard
from robustok.guard.rollouts import align as align
from robustok.integrations.stochastic import stochastic as stochastic
from robustok.kernel_warmup import warmup as warmup
from robustok.lattice import Lattice as Lattice
from robustok.lattice import distance as distance
from robustok.ragged import Ragged as Ragged
from robustok.runtime.packages import names_on_use
from robustok.samplers import *  # noqa: F403
from robustok.tokenizer.vocabulary import Vocabulary as Vocabulary

if TYPE_CHECKING:
    from robustok.integrations.trainer import TorchCollator as TorchCollator
    from robustok.integrations.trainer import robustify as robustify

ON_USE = ("TorchCollator", "robustify")
__getattr__ = names_on_use("robustok", "robustok.integrations.trainer", names=ON_USE)

__all__ = [
    "Guard", "Lattice", "Ragged", "RobustokError", "Vocabulary", "align", "distance", "stochastic",
    "warmup",
]  # fmt: skip
__all__ += samplers.__all__
