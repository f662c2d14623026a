"""Training options: steps, batch, optimizer, learning-rate schedule, and the paper's presets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from robustok.checks import check_settings, option
from robustok.errors import RobustokError
from robustok.models.load import PRECISIONS
from robustok.runtime.files import JsonObject

_option = partial(option, panel="Training")


@dataclass(frozen=True)
class Recipe:
    """AdamW with a linear warm-up and a linear decay.

    >>> PRESETS["paper-tiny-llm-finetune"].learning_rate
    0.0001

    Args:
        steps: number of optimizer steps, at least 1.
        batch_size: rows of an optimizer step over all processes; a multiple of the processes times
            ``gradient_accumulation_steps``.
        learning_rate: greatest learning rate, positive.
        warmup_steps: steps over which the learning rate rises from 0; from 0 (default) to
            ``steps``.
        min_lr_ratio: learning rate of the last step as a share of ``learning_rate``, from 0 to 1.
        weight_decay: weight decay of AdamW.
        max_grad_norm: norm that gradients are clipped to, positive.
        gradient_accumulation_steps: forward passes in which each process computes its share of a
            batch. More of them need less memory and give the same loss.
        precision: ``"float32"``, ``"bfloat16"`` for automatic mixed precision, or ``"auto"``
            (default) for what the machine computes fastest:
            :func:`~robustok.models.load.resolve_precision`.
        torch_compile: whether to compile the model.
        workers: number of processes that load data, besides the main one; 0 (default) loads in it.
        save_every: steps between checkpoints, rounded up to a multiple of 10. Slow trainings
            also save one every ten minutes.
        keep_every: steps between the models that are kept in ``steps/N`` of the output folder, for
            a learning curve; by default only the last one is.
        dropout: probability that a value is set to zero after the embeddings, in attention, and
            after every attention and feed-forward layer, below 1. By default the model's own.

    Raises RobustokError for a value out of range.
    """

    steps: int = _option("optimizer steps", min=1)
    batch_size: int = _option("rows of an optimizer step, over all processes", min=1)
    learning_rate: float = _option("greatest learning rate", gt=0)
    warmup_steps: int = _option("steps over which the learning rate rises from 0", default=0, min=0)
    min_lr_ratio: float = _option(
        "final learning rate as a share of the greatest", default=0.1, min=0, le=1, flags=()
    )
    weight_decay: float = _option("weight decay of AdamW", default=0.01, min=0, flags=())
    max_grad_norm: float = _option(
        "norm that gradients are clipped to", default=1.0, gt=0, flags=()
    )
    gradient_accumulation_steps: int = _option(
        "forward passes per step, to save memory", default=1, min=1
    )
    precision: Literal["auto", "float32", "bfloat16"] = _option(
        "auto (what is fastest here), float32 or bfloat16",
        default="auto",
        metavar="TYPE",
        choices=PRECISIONS,
    )
    torch_compile: bool = _option("compile the model", default=False, flags=(), in_key=False)
    workers: int = _option("data loader processes", default=0, min=0, flags=(), in_key=False)
    save_every: int = _option("steps between checkpoints", default=200, min=1, flags=())
    dropout: float | None = _option(
        "after embeddings and layers, and in attention  [default: the model's]",
        default=None,
        min=0,
        lt=1,
    )
    keep_every: int | None = _option(
        "steps between models kept in OUT/steps  [default: none]", default=None, min=1
    )

    @classmethod
    def of(cls, fields: JsonObject) -> Recipe:
        """A recipe of named fields; raises RobustokError for one that is unknown or missing."""
        try:
            return cls(**fields)
        except TypeError as e:
            message = str(e).replace("Recipe.__init__() ", "")
            raise RobustokError(f"training settings: {message}") from None

    def __post_init__(self) -> None:
        check_settings(type(self), vars(self))
        if self.warmup_steps > self.steps:
            raise RobustokError(
                f"warmup_steps is {self.warmup_steps}: it must be from 0 to the steps, {self.steps}"
            )

    @property
    def rows_per_device(self) -> int:
        """Rows of one forward pass of one process.

        Raises RobustokError if the batch does not divide evenly.
        """
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        steps = self.gradient_accumulation_steps
        if self.batch_size % (steps * processes):
            raise RobustokError(
                f"batch_size {self.batch_size} is not a multiple of {steps} gradient accumulation "
                f"steps x {processes} processes: change one of them"
            )
        return self.batch_size // (steps * processes)


def step_folder(out: Path, step: int) -> Path:
    """The folder of the model that a training with ``keep_every`` keeps after a step."""
    return out / "steps" / str(step)


PRESETS = {
    # The paper's tables on pre-training Tiny-LLM, fine-tuning it, and fine-tuning larger models.
    "paper-tiny-llm-pretrain": Recipe(
        30_000,
        480,
        6e-4,
        warmup_steps=5_000,
        weight_decay=0.1,
        gradient_accumulation_steps=8,
        save_every=1_000,
        dropout=0.1,
    ),
    # A batch of 480 rows of 512 tokens, into which questions are packed (`pack`).
    "paper-tiny-llm-finetune": Recipe(
        3_000,
        480,
        1e-4,
        warmup_steps=500,
        weight_decay=0.05,
        gradient_accumulation_steps=8,
        dropout=0.1,
    ),
    # The table gives no batch size for this one; 64 is ours.
    "paper-finetune": Recipe(1_500, 64, 1e-4, warmup_steps=150, weight_decay=0.01),
}
