"""Training with tokenizations drawn on the fly, on transformers' Trainer.

The names are imported when they are used: the settings (``Recipe``) need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from robustok.runtime.environment import require

if TYPE_CHECKING:
    from robustok.training.finetuning import finetune as finetune
    from robustok.training.packed import PackedStream as PackedStream
    from robustok.training.pretraining import pretrain as pretrain
    from robustok.training.prompts import AnswerCollator as AnswerCollator
    from robustok.training.prompts import PromptDataset as PromptDataset
    from robustok.training.recipe import PRESETS as PRESETS
    from robustok.training.recipe import Recipe as Recipe
    from robustok.training.record import Perplexity as Perplexity
    from robustok.training.record import Training as Training

_NAMES = {
    "finetuning": ("finetune",),
    "packed": ("PackedStream",),
    "pretraining": ("pretrain",),
    "prompts": ("AnswerCollator", "PromptDataset"),
    "recipe": ("PRESETS", "Recipe"),
    "record": ("Perplexity", "Training"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("torch", "transformers")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
