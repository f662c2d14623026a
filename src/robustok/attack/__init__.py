"""Attacks through tokenization: objectives, searches, suites, records, certificates, defenses.

The names of `robustok.attack.public` are imported when one of them is used, so that
`robustok.attack.settings` needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustok.attack.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("robustok.attack.public"), name)
