"""Training options shared by `pretrain` and `finetune`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from robustok.errors import RobustokError

PRESETS = "paper-tiny-llm-pretrain, paper-tiny-llm-finetune or paper-finetune"

Preset = Annotated[str | None, typer.Option("--preset", help=f"the paper's settings: {PRESETS}")]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="optimizer steps")]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", min=1, help="rows of an optimizer step, over all processes"),
]
LearningRate = Annotated[float | None, typer.Option("--learning-rate")]
WarmupSteps = Annotated[int | None, typer.Option("--warmup-steps", min=0)]
MinLrRatio = Annotated[
    float | None,
    typer.Option("--min-lr-ratio", help="final learning rate divided by --learning-rate"),
]
MaxGradNorm = Annotated[float | None, typer.Option("--max-grad-norm", help="gradient clipping")]
WeightDecay = Annotated[float | None, typer.Option("--weight-decay", min=0)]
GradientAccumulationSteps = Annotated[
    int | None,
    typer.Option(
        "--gradient-accumulation-steps", min=1, help="forward passes per step, to save memory"
    ),
]
Precision = Annotated[str | None, typer.Option("--precision", help="float32 or bfloat16")]
TorchCompile = Annotated[bool, typer.Option("--torch-compile", help="compile the model")]
Workers = Annotated[int | None, typer.Option("--workers", min=0, help="data loader processes")]
SaveEvery = Annotated[
    int | None, typer.Option("--save-every", min=1, help="steps between checkpoints")
]
Dropout = Annotated[
    float | None,
    typer.Option("--dropout", help="after embeddings and layers, and in attention [the model's]"),
]


def recipe(preset: str | None, **given: Any) -> dict[str, Any]:
    """The preset's settings, replaced by those given on the command line.

    Raises RobustokError for an unknown preset, and if an option without a default is missing.
    """
    from dataclasses import asdict

    from robustok.errors import nearest
    from robustok.training import PRESETS as known

    if preset is not None and preset not in known:
        raise RobustokError(f"unknown preset '{preset}': {nearest(preset, known)}")
    settings = asdict(known[preset]) if preset else {}
    # A missing flag is False; a given number may be 0.
    settings |= {k: v for k, v in given.items() if v is not None and v is not False}
    needed = ("steps", "batch_size", "learning_rate")
    if missing := [f"--{n.replace('_', '-')}" for n in needed if n not in settings]:
        raise RobustokError(f"give {' and '.join(missing)}, or a --preset ({PRESETS})")
    return settings
