"""Estimates of cost: seconds on one core for progress bars, GPU hours for `study list`."""

from __future__ import annotations

from collections.abc import Sequence

from robustok.study.schema import Study, Training

CORE = 1e11  # floating-point operations a second of one core, for small models
GPU = 3e14  # of one large accelerator in bfloat16, at a third of its peak
QUESTION_TOKENS = 45  # of a question with its answer


def parameters(study: Study) -> float:
    """About how many parameters a study's model has.

    A named model has the number its `parameters` give, or else a billion.
    """
    model = study.model
    if model.name is not None:
        return model.parameters or 1e9
    sizes = model.sizes()
    width, size = sizes["width"], study.tokenizer.size if study.tokenizer else None
    keys = width // sizes["heads"] * sizes["kv_heads"]
    block = 2 * width * width + 2 * width * keys + 3 * width * sizes["feed_forward"]
    return sizes["layers"] * block + (1 if sizes["tied"] else 2) * (size or 50_257) * width


def training_seconds(
    parameters: float, options: Training, scheme: str, max_length: int | None = None
) -> float:
    """Seconds of training on full rows of `max_length` tokens, or on questions without it."""
    if max_length is None:
        # Drawn tokenizations are about twice as long as the canonical ones.
        max_length = QUESTION_TOKENS * (1 if scheme == "canonical" else 2)
    return 6 * parameters * float(options.steps * options.batch_size) * max_length / CORE


def scoring_seconds(parameters: float, tokens: float) -> float:
    return 2 * parameters * tokens / CORE


def gpu_hours(work: Sequence[float]) -> float:
    """Hours on one accelerator for cells of this many seconds on one core."""
    return sum(work) * CORE / GPU / 3600
