"""robustok pretrain: train a small model from random weights on drawn tokenizations of text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robustok.cli.options import (
    Json,
    Out,
    SampleBy,
    Scheme,
    Seed,
    Tokenizer,
    print_training,
)
from robustok.cli.progress import bar, training_log
from robustok.cli.recipe import (
    BatchSize,
    Dropout,
    GradientAccumulationSteps,
    LearningRate,
    MaxGradNorm,
    MinLrRatio,
    Precision,
    Preset,
    SaveEvery,
    Steps,
    TorchCompile,
    WarmupSteps,
    WeightDecay,
    Workers,
    recipe,
)
from robustok.errors import RobustokError, nearest

NAME = "pretrain"


def command(
    texts: Annotated[list[Path], typer.Argument(help=".txt, .jsonl or .parquet files")],
    tokenizer: Tokenizer,
    scheme: Scheme,
    seed: Seed,
    out: Out,
    preset: Preset = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    warmup_steps: WarmupSteps = None,
    min_lr_ratio: MinLrRatio = None,
    max_grad_norm: MaxGradNorm = None,
    weight_decay: WeightDecay = None,
    gradient_accumulation_steps: GradientAccumulationSteps = None,
    precision: Precision = None,
    torch_compile: TorchCompile = False,
    workers: Workers = None,
    save_every: SaveEvery = None,
    dropout: Dropout = None,
    shape: Annotated[str, typer.Option("--shape", help="tiny-llm (the paper's) or quick")] = (
        "tiny-llm"
    ),
    scale: Annotated[
        float, typer.Option("--scale", help="factor of the shape's width and depth, such as 0.25")
    ] = 1.0,
    every: Annotated[
        int, typer.Option("--every", min=1, help="steps between measurements of held-out text")
    ] = 500,
    held_out: Annotated[
        Path | None, typer.Option("--held-out", help="text to measure perplexity on")
    ] = None,
    end: Annotated[str | None, typer.Option("--end", help="token after each document")] = None,
    sample_by: SampleBy = "line",
    as_json: Json = False,
) -> None:
    """Train a small model on drawn tokenizations.

    It has the Llama architecture and starts from random weights. The same call goes on after an
    interruption, also under `accelerate launch -m robustok pretrain ...`. Held-out perplexity
    is measured canonically and on uniform draws.
    """
    from robustok.models import SHAPES, save_tokenizer, small_model
    from robustok.samplers import sampler, schedule
    from robustok.special_tokens import end_of_text
    from robustok.tasks import read_texts
    from robustok.training import pretrain
    from robustok.vocabulary import Vocabulary

    settings = recipe(
        preset, steps=steps, batch_size=batch_size, learning_rate=learning_rate,
        warmup_steps=warmup_steps, min_lr_ratio=min_lr_ratio, max_grad_norm=max_grad_norm,
        weight_decay=weight_decay, gradient_accumulation_steps=gradient_accumulation_steps,
        precision=precision, torch_compile=torch_compile, workers=workers, save_every=save_every,
        dropout=dropout,
    )  # fmt: skip
    if shape not in SHAPES:
        raise RobustokError(f"unknown model shape '{shape}': {nearest(shape, SHAPES)}")
    vocab = Vocabulary.load(tokenizer)
    draw = schedule(scheme, vocab)
    end_id = end_of_text(vocab, end)
    measured = [sampler(spec, vocab) for spec in ("canonical", "uniform")] if held_out else []
    with training_log(as_json), bar(f"pretrain {draw.spec}") as progress:
        done = pretrain(
            small_model(vocab.size, SHAPES[shape].scaled(scale), seed=seed, end_id=end_id),
            vocab,
            read_texts(texts, sample_by=sample_by),
            sampler=draw,
            seed=seed,
            out=out,
            held_out=read_texts(held_out, sample_by=sample_by) if held_out else (),
            held_out_samplers=measured,
            every=every,
            end=end_id,
            progress=progress,
            **settings,
        )
    save_tokenizer(tokenizer, out)
    print_training(done, draw.spec, out, as_json)
