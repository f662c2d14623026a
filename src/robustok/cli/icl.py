"""robustok icl: a model's accuracy with solved examples before every question."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robustok.cli.evaluate import measure
from robustok.cli.options import (
    Draws,
    Items,
    Json,
    Limit,
    Model,
    OwnTokenizer,
    Schemes,
    Seed,
    print_json,
)
from robustok.cli.progress import bar

NAME = "icl"


def command(
    model: Model,
    items: Items,
    examples: Annotated[Path, typer.Option("--examples", help="the same, to be shown solved")],
    seed: Seed,
    shots: Annotated[int, typer.Option("--shots", "-k", min=1, help="the first so many")] = 10,
    example_scheme: Annotated[
        str, typer.Option("--example-scheme", help="how the examples' questions are drawn")
    ] = "canonical",
    attack: Annotated[
        bool, typer.Option("--attack", help="also the greedy attack on every question")
    ] = False,
    tokenizer: OwnTokenizer = None,
    scheme: Schemes = None,
    draws: Draws = 10,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Measure MODEL with solved examples before it.

    The examples' questions are drawn with --example-scheme, their answers stay canonical.
    """
    from robustok.evaluation import solved_examples
    from robustok.tasks import read_items
    from robustok.vocabulary import Vocabulary

    vocab = Vocabulary.load(tokenizer or model)
    solved = read_items(examples)[:shots]
    context = solved_examples(vocab, solved, example_scheme, seed=seed)
    questions = read_items(items)[:limit]
    measure(model, vocab, questions, scheme, draws, seed, as_json, context=context)
    if attack:
        from robustok.evaluation import attack_items
        from robustok.models import load_model

        with bar("attack") as progress:
            found = attack_items(
                load_model(model), vocab, questions, seed=seed, context=context, progress=progress
            )
        if as_json:
            fields = ("query", "accuracy", "low", "high", "n", "start_accuracy", "queries", "seed")
            print_json({"model": model} | {name: getattr(found, name) for name in fields})
        else:
            typer.echo(str(found))
