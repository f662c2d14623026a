"""Accuracy of a model over tokenizations, its intervals, and answers from many tokenizations.

The names of `robustok.evaluation.public` are imported when one of them is used, so that the
statistics (`intervals`, `comparison`) need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustok.evaluation.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("robustok.evaluation.public"), name)
