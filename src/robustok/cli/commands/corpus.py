"""robustok corpus: re-tokenize a corpus with a scheme, into shards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robustok.cli.options import (
    Json,
    SampleBy,
    Scheme,
    Seed,
    Tokenizer,
    print_json,
)

if TYPE_CHECKING:
    from robustok.corpus.run import Progress

NAME = "corpus"
EVERY = 30.0  # seconds between lines in a log


def command(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="IN...",
            help="files, folders or patterns: .parquet, .jsonl, .txt, "
            "the last two also .gz, .zst or .xz",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="folder of the shards")],
    tokenizer: Tokenizer,
    scheme: Scheme,
    seed: Seed,
    draws: Annotated[int, typer.Option("--draws", "-n", min=1, help="draws of each document")] = 1,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="parquet: one row per draw; packed: .npy of full blocks; megatron: .bin and .idx; "
            "nanotron: .ds",
        ),
    ] = "parquet",
    engine: Annotated[
        str, typer.Option("--engine", help="local, or ray for a cluster that shares the folders")
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="shards to write at once [default: cores]"),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            "--column", help="column of texts or canonical ids [default: text, input_ids, ids]"
        ),
    ] = None,
    keep_columns: Annotated[
        str | None,
        typer.Option("--keep-columns", help="other columns to keep: a,b or all [parquet]"),
    ] = None,
    sample_by: SampleBy = "line",
    max_row_bytes: Annotated[
        int, typer.Option("--max-row-bytes", min=1, help="longer rows are rejected")
    ] = 16 << 20,
    epoch: Annotated[int, typer.Option("--epoch", min=0, help="another epoch has other draws")] = 0,
    block_size: Annotated[
        int | None, typer.Option("--block-size", min=1, help="ids in a packed row [default: 2048]")
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--end", help="token after each document [packed, megatron, nanotron]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Re-tokenize every document of a corpus with a scheme.

    The same command continues an interrupted run. OUT/data has the shards, OUT/__run__/receipt.json
    the record of the run, OUT/__run__/rejects the rows that could not be read.
    """
    from dataclasses import asdict

    from robustok.corpus import run_corpus

    with _progress() as progress:
        receipt = run_corpus(
            inputs,
            out,
            tokenizer,
            scheme,
            seed=seed,
            epoch=epoch,
            draws=draws,
            column=column,
            keep_columns=_names(keep_columns),
            sample_by=sample_by,
            max_row_bytes=max_row_bytes,
            format=format_,
            block_size=block_size,
            end=end,
            engine=engine,
            workers=workers,
            progress=progress,
        )
    if as_json:
        print_json(asdict(receipt))
        return
    realized = receipt.realized
    typer.echo(
        f"{receipt.documents:,} documents, {receipt.rows:,} rows and {receipt.tokens:,} ids in "
        f"{len(receipt.shards):,} shards: {out / 'data'}"
    )
    typer.echo(
        f"a canonical token: {realized['splits']:.3f} splits, {realized['distance']:.3f} distance, "
        f"{realized['growth']:.3f} tokens"
    )
    if receipt.rejects:
        typer.echo(
            f"{receipt.rejects:,} rows were rejected, with reasons: {out / '__run__' / 'rejects'}"
        )


def _names(given: str | None) -> list[str] | str:
    if given == "all":
        return given
    return [name.strip() for name in (given or "").split(",") if name.strip()]


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar with rate and time left on a terminal; in a log, a line now and then."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True, highlight=False)
    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        TimeRemainingColumn(), console=console, disable=not console.is_terminal, transient=True,
    )  # fmt: skip
    task = bars.add_task("input", total=None)
    start = last = time.monotonic()
    first: int | None = None

    def progress(done: int, total: int) -> None:
        nonlocal last, first
        bars.update(task, completed=done, total=total)
        first = done if first is None else first
        now = time.monotonic()
        if console.is_terminal or now - last < EVERY:
            return
        last = now
        console.print(log_line(done, total, done - first, now - start), soft_wrap=True)

    with bars:
        yield progress


def log_line(done: int, total: int, fresh: int, seconds: float) -> str:
    """How far a run is; ``fresh`` bytes of what is done were done in these seconds.

    >>> log_line(50_000_000, 200_000_000, 50_000_000, 10.0)
    '25.0% of 200.0 MB, 5.0 MB/s, 0:00:30 left'
    """
    rate = fresh / max(seconds, 1e-9)
    left = f"{timedelta(seconds=round((total - done) / rate))} left" if rate else "no rate yet"
    share = 100 * done / max(total, 1)
    return f"{share:.1f}% of {total / 1e6:,.1f} MB, {rate / 1e6:,.1f} MB/s, {left}"
