"""robustok pretrain: train a small model from random weights on text, its tokens drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robustok.cli.options import (
    BatchSize,
    Json,
    LearningRate,
    Out,
    Scheme,
    Seed,
    Steps,
    Tokenizer,
    Warmup,
    print_training,
)
from robustok.cli.progress import bar

NAME = "pretrain"


def command(
    texts: Annotated[list[Path], typer.Argument(help="text files: .txt or .jsonl, also .gz, .xz")],
    tokenizer: Tokenizer,
    scheme: Scheme,
    seed: Seed,
    out: Out,
    steps: Steps,
    batch_size: BatchSize,
    learning_rate: LearningRate,
    warmup: Warmup = 0,
    shape: Annotated[str, typer.Option("--shape", help="tiny-llm (the paper's) or quick")] = (
        "tiny-llm"
    ),
    held_out: Annotated[
        Path | None, typer.Option("--held-out", help="text whose perplexity is measured")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a small model on drawn tokenizations.

    It has the Llama architecture and starts from random weights. The same call goes on after an
    interruption. Held-out perplexity is measured canonically and on uniform draws.
    """
    from robustok.models import tiny_llama
    from robustok.samplers import sampler
    from robustok.tasks import read_texts
    from robustok.training import pretrain
    from robustok.vocabulary import Vocabulary

    vocab = Vocabulary.load(tokenizer)
    draw = sampler(scheme, vocab)
    measured = [sampler(spec, vocab) for spec in ("canonical", "uniform")] if held_out else []
    with bar(f"pretrain {draw.spec}") as progress:
        done = pretrain(
            tiny_llama(vocab.size, shape, seed=seed),
            vocab,
            read_texts(texts),
            sampler=draw,
            seed=seed,
            out=out,
            held_out=read_texts(held_out) if held_out else (),
            held_out_samplers=measured,
            steps=steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            warmup=warmup,
            progress=progress,
        )
    print_training(done, draw.spec, out, as_json)
