"""Training with tokenizations drawn on the fly, on transformers' Trainer.

The names of `robustok.training.public` are imported when one of them is used: the settings
(`robustok.training.recipe`) need no torch.
"""

from typing import TYPE_CHECKING

from robustok.runtime.packages import names_on_use

if TYPE_CHECKING:
    from robustok.training.public import *  # noqa: F403

__getattr__ = names_on_use("robustok.training.public")
