"""robustok icl: a model's accuracy with solved examples before every question."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robustok.cli.evaluate import measure
from robustok.cli.options import Json, Seed

NAME = "icl"


def command(
    model: Annotated[str, typer.Argument(help="a model's folder or hub name")],
    items: Annotated[
        Path, typer.Option("--items", help="JSON Lines with query, choices and label")
    ],
    examples: Annotated[Path, typer.Option("--examples", help="the same, to be shown solved")],
    seed: Seed,
    shots: Annotated[int, typer.Option("--shots", "-k", min=1, help="the first so many")] = 10,
    example_scheme: Annotated[
        str, typer.Option("--example-scheme", help="how the examples' questions are drawn")
    ] = "canonical",
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", "-t", help="the model's own, if not given")
    ] = None,
    scheme: Annotated[
        list[str] | None, typer.Option("--scheme", "-s", help="may be given more than once")
    ] = None,
    draws: Annotated[int, typer.Option("--draws", "-n", min=1)] = 10,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="the first so many")] = None,
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
    measure(model, vocab, read_items(items)[:limit], scheme, draws, seed, as_json, context=context)
