"""Accuracy of a model over tokenizations, its intervals, and answers from many tokenizations.

The names of `robustok.evaluation.public` are imported when one of them is used, so that the
statistics (`intervals`, `comparison`) need no torch.
"""

from typing import TYPE_CHECKING

from robustok.runtime.packages import names_on_use

if TYPE_CHECKING:
    from robustok.evaluation.public import *  # noqa: F403

__getattr__ = names_on_use("robustok.evaluation.public")
