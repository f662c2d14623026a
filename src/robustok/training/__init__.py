"""Training with tokenizations drawn on the fly, on transformers' Trainer.

Names are imported when one of them is used: the settings (`recipe`) need no torch.
"""

from typing import TYPE_CHECKING

from robustok.runtime.packages import names_on_use

if TYPE_CHECKING:
    from robustok.training.recipe import PRESETS as PRESETS
    from robustok.training.recipe import Finetuning as Finetuning
    from robustok.training.recipe import Recipe as Recipe
    from robustok.training.recipe import Training as Training
    from robustok.training.trainings import finetune as finetune
    from robustok.training.trainings import pretrain as pretrain

__getattr__ = names_on_use(
    "robustok.training", "robustok.training.recipe", "robustok.training.trainings"
)
