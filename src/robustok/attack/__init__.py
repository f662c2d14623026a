"""Attacks through tokenization: objectives, searches, adversaries.

The names of `robustok.attack.public` are imported when one of them is used, so that
`robustok.attack.settings` needs no torch.
"""

from typing import TYPE_CHECKING

from robustok.runtime.packages import names_on_use

if TYPE_CHECKING:
    from robustok.attack.public import *  # noqa: F403

__getattr__ = names_on_use("robustok.attack.public")
