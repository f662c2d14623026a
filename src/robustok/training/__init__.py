"""Training with tokenizations drawn on the fly, on transformers' Trainer.

Names are imported when one of them is used: the settings (`recipe`) need no torch.
"""

from typing import TYPE_CHECKING

from robustok.runtime.packages import names_on_use

if TYPE_CHECKING:
    from robustok.training.recipe import PRESETS, Finetuning, Recipe, Training
    from robustok.training.trainings import finetune, pretrain

__all__ = ["PRESETS", "Finetuning", "Recipe", "Training", "finetune", "pretrain"]
__getattr__ = names_on_use(
    "robustok.training",
    "robustok.training.recipe",
    "robustok.training.trainings",
    names=__all__,
)
