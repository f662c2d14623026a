"""robustok finetune: train a model on questions whose tokenization is drawn anew at every step."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from robustok.cli.options import Json, Scheme, Seed, print_json
from robustok.cli.progress import bar

NAME = "finetune"


def command(
    model: Annotated[str, typer.Argument(help="a model's folder or hub name")],
    items: Annotated[
        Path, typer.Option("--items", help="JSON Lines with query, choices and label")
    ],
    scheme: Scheme,
    seed: Seed,
    out: Annotated[Path, typer.Option("--out", "-o", help="the trained model's folder")],
    steps: Annotated[int, typer.Option("--steps", min=1)],
    batch_size: Annotated[int, typer.Option("--batch-size", min=1)],
    learning_rate: Annotated[float, typer.Option("--learning-rate")],
    warmup: Annotated[int, typer.Option("--warmup", min=0, help="steps")] = 0,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", "-t", help="the model's own, if not given")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fine-tune MODEL on drawn tokenizations.

    The same call goes on after an interruption. The question is drawn with SCHEME, the answer
    stays canonical and is alone in the loss.
    """
    from robustok.models import load_model
    from robustok.samplers import sampler
    from robustok.tasks import read_items
    from robustok.training import finetune
    from robustok.vocabulary import Vocabulary

    questions = read_items(items)
    vocab = Vocabulary.load(tokenizer or model)
    draw = sampler(scheme, vocab)
    with bar(f"finetune {draw.spec}") as progress:
        done = finetune(
            load_model(model, dtype="float32"),
            vocab,
            questions,
            sampler=draw,
            seed=seed,
            out=out,
            steps=steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            warmup=warmup,
            progress=progress,
        )
    if as_json:
        print_json(
            asdict(done) | {"scheme": draw.spec, "tokens_per_second": done.tokens_per_second}
        )
    else:
        last = f"last loss {done.losses[-1][1]:.3f}, " if done.losses else ""
        typer.echo(f"{done.steps} steps, {last}{done.tokens_per_second:,.0f} tokens/s: {out}")
