"""Training with tokenizations drawn on the fly, on transformers' Trainer."""

from __future__ import annotations

from robustok.extras import require

require("torch", "transformers")

from robustok.training.collate import AnswerCollator
from robustok.training.finetuning import finetune
from robustok.training.packed import PackedStream
from robustok.training.pretraining import pretrain
from robustok.training.prompts import PromptDataset
from robustok.training.recipe import PRESETS, Recipe
from robustok.training.result import Perplexity, Training

__all__ = [
    "PRESETS",
    "AnswerCollator",
    "PackedStream",
    "Perplexity",
    "PromptDataset",
    "Recipe",
    "Training",
    "finetune",
    "pretrain",
]
