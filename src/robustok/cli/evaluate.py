"""robustok evaluate: a model's accuracy under drawn tokenizations of its questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

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

NAME = "evaluate"


def command(
    model: Model,
    items: Items,
    seed: Seed,
    tokenizer: OwnTokenizer = None,
    scheme: Schemes = None,
    draws: Draws = 10,
    limit: Limit = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="per-item results, a JSON line each")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure MODEL under drawn tokenizations.

    Its accuracy on multiple-choice questions, with a 95% interval over the questions.
    """
    from robustok.tasks import read_items
    from robustok.vocabulary import Vocabulary

    questions = read_items(items)[:limit]
    vocab = Vocabulary.load(tokenizer or model)
    measure(model, vocab, questions, scheme, draws, seed, as_json, out=out)


def measure(
    model: str,
    vocab: Any,
    questions: Any,
    schemes: list[str] | None,
    draws: int,
    seed: int,
    as_json: bool,
    context: Any = None,
    out: Path | None = None,
) -> None:
    """Evaluate a model once for each scheme and print what came out."""
    from robustok.evaluation import evaluate
    from robustok.models import load_model
    from robustok.samplers import sampler

    samplers = [sampler(spec, vocab) for spec in schemes or ["canonical", "uniform"]]
    loaded = load_model(model)
    rows: list[dict[str, Any]] = []
    for draw in samplers:
        with bar(draw.spec) as progress:
            result = evaluate(
                loaded,
                vocab,
                questions,
                draw,
                draws=draws,
                seed=seed,
                context=context,
                progress=progress,
            )
        if as_json:
            fields = ("query", "accuracy", "low", "high", "n", "draws", "seed", "seconds")
            print_json({"model": model} | {name: getattr(result, name) for name in fields})
        else:
            typer.echo(str(result))
        rows += [{"query": result.query, **row} for row in result.table()]
    if out is not None:
        from robustok.study.store import write_rows

        write_rows(out, rows)
