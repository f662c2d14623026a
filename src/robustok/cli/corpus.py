"""robustok corpus and data: re-tokenize a corpus into shards; generate questions about letters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import click

from robustok.cli.options import Argument, draws_option, folder_option, option
from robustok.cli.printing import print_json
from robustok.cli.terminal import bar
from robustok.errors import RobustokError, check_choice
from robustok.runtime.display import counted
from robustok.runtime.files import clear_parts, locked
from robustok.runtime.inputs import named
from robustok.runtime.records import claim
from robustok.tasks import GAMES, frequent_words, read_words, write_items

SETTINGS = ".settings.json"  # of `data`; readers of the folder skip a hidden file


@dataclass(frozen=True)
class CorpusOptions:
    """Options of `corpus` that have the names of the parameters of ``run_corpus``."""

    draws: int = draws_option("draws of each document", 1)
    workers: int | None = option("shards to write at once  [default: cores]", default=None, min=1)
    column: str | None = option(
        "column of texts or canonical ids  [default: text, input_ids, ids]",
        default=None,
        metavar="NAME",
    )
    keep_columns: str | None = option(
        "other columns to keep: a,b or all", default=None, metavar="NAMES"
    )


def corpus(
    inputs: Annotated[
        tuple[str, ...],
        Argument(
            "IN",
            "files, folders or patterns: .parquet and .jsonl, which may be .gz, .zst or .xz",
        ),
    ],
    out: Annotated[str, Argument("OUT", "folder of the shards")],
    tokenizer: str,
    scheme: str,
    seed: int,
    options: Annotated[dict, CorpusOptions],
    engine: str = option(
        "local, or ray for Ray Data and what it reads",
        default="local",
        choices=("local", "ray"),
        metavar="NAME",
    ),
    as_json: bool = False,
) -> None:
    """Re-tokenize every document of a corpus with a scheme.

    The same command continues an interrupted run. OUT is a new folder, or that of such a run:
    OUT/data has the shards, OUT/__run__/receipt.json the record of the run, OUT/__run__/rejects the
    rows that could not be read.
    """
    from robustok.corpus.run import run_corpus, run_on_ray

    if "keep_columns" in options and options["keep_columns"] != "all":
        names = (name.strip() for name in options["keep_columns"].split(","))
        options["keep_columns"] = [name for name in names if name]
    options["seed"] = seed
    if engine == "ray":
        if "workers" in options:
            raise RobustokError("--workers has no effect on Ray, which decides it: leave it out")
        run_on_ray(inputs, out, tokenizer, scheme, **options)
        print_json({"out": str(out)}) if as_json else click.echo(f"drawn by Ray Data: {out}")
        return
    with bar("shards") as progress:
        receipt = run_corpus(inputs, out, tokenizer, scheme, progress=progress, **options)
    if as_json:
        print_json(asdict(receipt))
        return
    realized = receipt.realized
    click.echo(
        f"{counted(receipt.documents, 'document')}, {counted(receipt.rows, 'row')} and "
        f"{counted(receipt.tokens, 'id')} in {counted(len(receipt.shards), 'shard')}: "
        f"{Path(out, 'data')}"
    )
    click.echo(
        f"a canonical token: {realized['splits']:.3f} splits, {realized['distance']:.3f} distance, "
        f"{realized['growth']:.3f} tokens"
    )
    if receipt.unread:
        click.echo(f"not read: {named(receipt.unread)}")
    if receipt.rejects:
        click.echo(
            f"{counted(receipt.rejects, 'reject')} (a row, or a file that cannot be read): "
            f"{Path(out, '__run__', 'rejects')}"
        )


def data(
    game: Annotated[str, Argument("langgame | cute", "the game")],
    *,
    seed: int,
    out: Path = folder_option("folder of the data set", required=True),
    train: int = option("training questions", default=10_000, min=1),
    test: int = option("test questions", default=1_000, min=1),
    words: int | None = option(
        "number of the most frequent English words  [default: 1000]", default=None, min=1
    ),
    words_file: str | None = option(
        "file with one word per line, instead of the frequent words", default=None, metavar="FILE"
    ),
    as_json: bool = False,
) -> None:
    """Generate a data set of questions about letters.

    Writes train.jsonl and test.jsonl; `datasets.load_dataset` reads the folder. It is a new one, or
    that of the same command.
    """
    check_choice("data set", game, GAMES)
    if words_file is None:
        names = frequent_words(words or 1000)
    elif words is None:
        names = read_words(words_file)
    else:
        raise RobustokError("--words-file has all words: leave out --words")
    counts = {"train": train, "test": test}
    # Before the folder: words too few for the questions leave none behind.
    splits = {s: GAMES[game](names, n, seed=seed, split=s) for s, n in counts.items()}
    with locked(out):
        claim(out, SETTINGS, {"data set": game, "seed": seed, "words": names} | counts)
        clear_parts(out)
        for split, items in splits.items():
            write_items(out / f"{split}.jsonl", items)
    if as_json:
        print_json({"out": str(out), "train": train, "test": test})
    else:
        click.echo(f"{train} training and {test} test questions: {out}")
