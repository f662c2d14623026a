"""robustok count: how many tokenizations a text has."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from robustok.cli.options import Json, Tokenizer, print_json, text_of

NAME = "count"


def command(
    text: Annotated[str, typer.Argument(help="a text")],
    tokenizer: Tokenizer,
    by: Annotated[
        Literal["distance", "segments"] | None,
        typer.Option(
            "--by", help="also count by distance from the canonical tokenization, or by segments"
        ),
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", min=0, help="greatest distance or number of segments")
    ] = None,
    as_json: Json = False,
) -> None:
    """Count the tokenizations of TEXT, exactly.

    JSON output has the counts as strings, since they exceed the range of JSON numbers.
    """
    from robustok.vocabulary import Vocabulary

    lattice = Vocabulary.load(tokenizer).lattice(text_of(text))
    total = lattice.count()
    record: dict[str, Any] = {"total": str(total)}
    counts = []
    if by:
        counts = counts_by(lattice, by, total, most)
        record[f"by_{by}"] = [str(count) for count in counts]
    if as_json:
        print_json(record)
        return
    typer.echo(f"{total:,}")
    for value, count in enumerate(counts):
        if count:
            typer.echo(f"{by} {value:>4}  {count:,}")


def counts_by(lattice: Any, by: str, total: int, most: int | None) -> list[int]:
    """The counts at 0, 1, 2, … up to `most`, or until all are counted."""
    counts: list[int] = []
    seen = 0
    while (seen < total) if most is None else (len(counts) <= most):
        counts.append(lattice.count(**{by: len(counts)}))
        seen += counts[-1]
    return counts
