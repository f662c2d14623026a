"""robustok finetune: train a model on questions with new drawn tokenizations at every step."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from robustok.cli.options import Items as Questions
from robustok.cli.options import (
    Json,
    Model,
    Out,
    Overflow,
    OwnTokenizer,
    Scheme,
    Seed,
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
from robustok.errors import RobustokError

NAME = "finetune"


def command(
    model: Model,
    items: Questions,
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
    lora: Annotated[
        bool, typer.Option("--lora", help="train low-rank adapters instead of all weights")
    ] = False,
    lora_rank: Annotated[int | None, typer.Option("--lora-rank", min=1, help="[8]")] = None,
    lora_alpha: Annotated[float | None, typer.Option("--lora-alpha", help="[32]")] = None,
    lora_dropout: Annotated[float | None, typer.Option("--lora-dropout", help="[0.05]")] = None,
    pack: Annotated[
        int | None,
        typer.Option("--pack", min=2, help="tokens of a row, into which questions are packed"),
    ] = None,
    fixed_draws: Annotated[
        int | None,
        typer.Option("--fixed-draws", min=1, help="draws of a question [new ones in each epoch]"),
    ] = None,
    overflow: Overflow = "error",
    tokenizer: OwnTokenizer = None,
    as_json: Json = False,
) -> None:
    """Fine-tune MODEL on drawn tokenizations.

    The question is drawn with SCHEME, the answer stays canonical and is alone in the loss. A
    strength may change as it trains: 'stochastok(alpha=0.1->1)'. The same call goes on after an
    interruption, also under `accelerate launch -m robustok finetune ...`.
    """
    from robustok.models import add_lora, load_model, save_tokenizer
    from robustok.samplers import schedule
    from robustok.tasks import read_questions
    from robustok.training import finetune
    from robustok.vocabulary import Vocabulary

    if not lora and (lora_rank, lora_alpha, lora_dropout) != (None, None, None):
        raise RobustokError("--lora-rank, --lora-alpha and --lora-dropout need --lora")
    settings = recipe(
        preset, steps=steps, batch_size=batch_size, learning_rate=learning_rate,
        warmup_steps=warmup_steps, min_lr_ratio=min_lr_ratio, max_grad_norm=max_grad_norm,
        weight_decay=weight_decay, gradient_accumulation_steps=gradient_accumulation_steps,
        precision=precision, torch_compile=torch_compile, workers=workers, save_every=save_every,
        dropout=dropout,
    )  # fmt: skip
    questions = read_questions(items)
    vocab = Vocabulary.load(tokenizer or model)
    draw = schedule(scheme, vocab)
    trained: Any = load_model(model, dtype="float32")
    if lora:
        trained = add_lora(
            trained,
            seed=seed,
            rank=8 if lora_rank is None else lora_rank,
            alpha=32 if lora_alpha is None else lora_alpha,
            dropout=0.05 if lora_dropout is None else lora_dropout,
        )
    with training_log(as_json), bar(f"finetune {draw.spec}") as progress:
        done = finetune(
            trained, vocab, questions, sampler=draw, seed=seed, out=out, overflow=overflow,
            pack=pack, fixed_draws=fixed_draws, progress=progress, **settings,
        )  # fmt: skip
    save_tokenizer(tokenizer or model, out)
    print_training(done, draw.spec, out, as_json)
