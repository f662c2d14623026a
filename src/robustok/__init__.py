"""Stochastic tokenization: sample, count, train on, evaluate on and attack with every tokenization.

This is the public API.
"""

from typing import TYPE_CHECKING

from robustok.runtime.packages import names_on_use
from robustok.version import __version__ as __version__

if TYPE_CHECKING:
    from robustok.api import *  # noqa: F403

__getattr__ = names_on_use("robustok", "robustok.api")


def __dir__() -> list[str]:
    return [*globals(), *__getattr__("__all__"), *__getattr__("ON_USE")]
