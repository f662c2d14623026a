"""robustok attack: the worst tokenization that a greedy search finds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from robustok.cli.options import Json, Limit, Model, OwnTokenizer, Seed, print_json
from robustok.cli.paint import print_tokens
from robustok.cli.progress import bar
from robustok.errors import RobustokError

NAME = "attack"


def command(
    model: Model,
    seed: Seed,
    text: Annotated[str | None, typer.Option("--text", help="one query to attack")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="an answer, its leading space included; give two or more"),
    ] = None,
    label: Annotated[int, typer.Option("--label", help="which option is right, from 0")] = 0,
    items: Annotated[
        Path | None, typer.Option("--items", help="or JSON Lines with query, choices and label")
    ] = None,
    tokenizer: OwnTokenizer = None,
    distance: Annotated[
        list[int] | None, typer.Option("--distance", help="of a step; may be given twice [2]")
    ] = None,
    start: Annotated[str, typer.Option("--start", help="canonical, or a scheme")] = "canonical",
    steps: Annotated[int, typer.Option("--steps", min=1)] = 10,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Attack MODEL through its queries' tokenization.

    One query (--text, with its options) or many (--items).
    """
    from robustok.models import load_model
    from robustok.vocabulary import Vocabulary

    if (text is None) == (items is None):
        raise RobustokError("give either --text with its --option's, or --items")
    vocab = Vocabulary.load(tokenizer or model)
    settings = {"distances": tuple(distance or (2,)), "start": start, "steps": steps, "seed": seed}
    if text is not None:
        _attack_one(load_model(model), vocab, text, option or [], label, settings, as_json)
    elif items is not None:
        _attack_many(load_model(model), vocab, items, limit, settings, as_json)


def _attack_one(
    model: Any,
    vocab: Any,
    text: str,
    options: list[str],
    label: int,
    settings: dict[str, Any],
    as_json: bool,
) -> None:
    from robustok.evaluation import attack

    found = attack(model, vocab, text, options, label, **settings)
    ids = [int(i) for i in found.ids]
    if as_json:
        print_json({
            "ids": ids, "margins": list(found.margins), "success": bool(found.success),
            "queries": found.queries,
        })  # fmt: skip
        return
    print_tokens([vocab.tokens[i] for i in ids])
    typer.echo("margins  " + " → ".join(f"{m:+.3f}" for m in found.margins))
    typer.echo(
        f"{'broken' if found.success else 'held'} after {found.queries} tokenizations scored"
    )


def _attack_many(
    model: Any, vocab: Any, items: Path, limit: int | None, settings: dict[str, Any], as_json: bool
) -> None:
    from robustok.evaluation import attack_items
    from robustok.tasks import read_items

    with bar("attack") as progress:
        result = attack_items(
            model, vocab, read_items(items)[:limit], progress=progress, **settings
        )
    if as_json:
        fields = ("query", "accuracy", "low", "high", "n", "start_accuracy", "queries", "seed")
        print_json({name: getattr(result, name) for name in (*fields, "seconds")})
    else:
        typer.echo(str(result))
