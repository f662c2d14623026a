"""The public names of `robustok.training`, most of which need torch."""

from robustok.training.finetuning import finetune as finetune
from robustok.training.pretraining import pretrain as pretrain
from robustok.training.recipe import PRESETS as PRESETS
from robustok.training.recipe import Finetuning as Finetuning
from robustok.training.recipe import Recipe as Recipe
from robustok.training.recipe import Training as Training
