"""Options that say how a model is trained, alike in `pretrain` and `finetune`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from robustok.errors import RobustokError

PRESETS = "paper-tiny-llm-pretrain, paper-tiny-llm-finetune or paper-finetune"

Preset = Annotated[str | None, typer.Option("--preset", help=f"the paper's settings: {PRESETS}")]
Steps = Annotated[int | None, typer.Option("--steps", min=1)]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", min=1, help="rows of a step, over all processes")
]
LearningRate = Annotated[float | None, typer.Option("--learning-rate")]
Warmup = Annotated[int | None, typer.Option("--warmup", min=0, help="steps")]
WeightDecay = Annotated[float | None, typer.Option("--weight-decay", min=0)]
Accumulate = Annotated[
    int | None, typer.Option("--accumulate", min=1, help="passes of a step, to save memory")
]
Precision = Annotated[str | None, typer.Option("--precision", help="float32 or bfloat16")]
Compile = Annotated[bool, typer.Option("--compile", help="compile the model with torch")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=0, help="processes that draw ahead of the model")
]
SaveEvery = Annotated[
    int | None, typer.Option("--save-every", min=1, help="steps between checkpoints")
]


def recipe(preset: str | None, **given: Any) -> dict[str, Any]:
    """A preset's settings with those given in their place.

    Raises RobustokError for an unknown preset and where something that has no default is missing.
    """
    from dataclasses import asdict

    from robustok.errors import nearest
    from robustok.training import PRESETS as known

    if preset is not None and preset not in known:
        raise RobustokError(f"unknown preset '{preset}': {nearest(preset, known)}")
    settings = asdict(known[preset]) if preset else {}
    # A flag that was not given is False; a number that was may well be 0.
    settings |= {k: v for k, v in given.items() if v is not None and v is not False}
    needed = ("steps", "batch_size", "learning_rate")
    if missing := [f"--{n.replace('_', '-')}" for n in needed if n not in settings]:
        raise RobustokError(f"give {' and '.join(missing)}, or a --preset ({PRESETS})")
    return settings
