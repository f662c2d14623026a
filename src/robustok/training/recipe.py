"""How a model is trained: steps, batch, optimiser, schedule; and the paper's settings by name."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from robustok.errors import RobustokError, nearest

PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Recipe:
    """AdamW with a linear warm-up and a linear decay.

    >>> PRESETS["paper-tiny-llm-finetune"].learning_rate
    0.0001

    ``batch_size`` counts the rows of an optimiser step over all processes; each
    takes its share of them in ``accumulate`` passes. The rate falls to
    ``final_rate`` times ``learning_rate`` at the last step. A checkpoint is
    written every ``save_every`` steps.
    """

    steps: int
    batch_size: int
    learning_rate: float
    warmup: int = 0
    final_rate: float = 0.1
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    accumulate: int = 1
    precision: str = "float32"
    compiled: bool = False
    workers: int = 0
    save_every: int = 200

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Recipe:
        """A recipe of named fields; raises RobustokError for one that is unknown or missing."""
        try:
            return cls(**fields)
        except TypeError as e:
            message = str(e).replace("Recipe.__init__() ", "")
            raise RobustokError(f"training settings: {message}") from None

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate", "save_every"):
            if getattr(self, name) < 1:
                raise RobustokError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise RobustokError(f"learning_rate is {self.learning_rate}: it must be positive")
        if not 0 <= self.warmup <= self.steps:
            raise RobustokError(f"warmup is {self.warmup}: it must be between 0 and the steps")
        if not 0 <= self.final_rate <= 1:
            raise RobustokError(f"final_rate is {self.final_rate}: it must be between 0 and 1")
        if self.precision not in PRECISIONS:
            hint = nearest(self.precision, PRECISIONS)
            raise RobustokError(f"unknown precision '{self.precision}': {hint}")

    @property
    def rows_per_pass(self) -> int:
        """Rows that one process takes at a time.

        Raises RobustokError where the batch does not divide evenly.
        """
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        if self.batch_size % (self.accumulate * processes):
            raise RobustokError(
                f"batch_size {self.batch_size} does not divide into {self.accumulate} passes "
                f"of {processes} processes: change one of them"
            )
        return self.batch_size // (self.accumulate * processes)


PRESETS = {
    # The paper's tables on pre-training Tiny-LLM, fine-tuning it, and fine-tuning larger models.
    "paper-tiny-llm-pretrain": Recipe(
        30_000, 480, 6e-4, warmup=5_000, weight_decay=0.1, accumulate=8, save_every=1_000
    ),
    "paper-tiny-llm-finetune": Recipe(3_000, 480, 1e-4, warmup=500, weight_decay=0.05),
    # The table gives no batch size for this one; 64 is ours.
    "paper-finetune": Recipe(1_500, 64, 1e-4, warmup=150, weight_decay=0.01),
}
