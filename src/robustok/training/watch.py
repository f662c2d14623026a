"""The Trainer callback of every run."""

from __future__ import annotations

import logging
import math
import time
from typing import Any

from transformers import TrainerCallback

from robustok.display import Progress
from robustok.errors import RobustokError

_log = logging.getLogger(__name__)


class Watch(TrainerCallback):
    """Sets the epoch of the data set, measures time, reports progress, and stops at a NaN loss."""

    def __init__(self, dataset: Any, steps: int, progress: Progress | None) -> None:
        self.dataset, self.steps, self.progress = dataset, steps, progress
        self.seconds = self.waiting = 0.0
        self._mark = time.perf_counter()

    def on_train_begin(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        self._mark = time.perf_counter()
        if self.progress:
            self.progress(state.global_step, self.steps)

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        # accelerate forgets a data set's set_epoch after a resume and with several processes.
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(int(state.epoch or 0))

    def on_step_begin(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        self.waiting += self._lap()

    def on_step_end(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        self._lap()
        if self.progress:
            self.progress(state.global_step, self.steps)

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # type: ignore[override]
        loss = (logs or {}).get("loss")
        if loss is None:
            return
        if not math.isfinite(loss):
            raise RobustokError(
                f"the loss is {loss} at step {state.global_step}: lower the learning rate, "
                "raise the warm-up, or use float32; the last checkpoint is kept"
            )
        step = state.global_step
        # At most 20 lines for a run, besides the last.
        if state.is_world_process_zero and (
            step % max(self.steps // 20, 1) < args.logging_steps or step == self.steps
        ):
            _log.info("step %d of %d: loss %.4f", step, self.steps, loss)

    def on_save(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        self._lap()

    def _lap(self) -> float:
        now = time.perf_counter()
        lap, self._mark = now - self._mark, now
        self.seconds += lap
        return lap
