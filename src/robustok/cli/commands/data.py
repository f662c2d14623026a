"""robustok data: generate a data set of questions about letters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robustok.cli.options import Json, Seed, Words, WordsFile, print_json
from robustok.cli.outputs import output_folder
from robustok.errors import RobustokError, nearest

NAME = "data"
GAMES = {
    "langgame": (
        "LangGame",
        "Six kinds of questions about the letters of words, each with four answers: which has most "
        "of a letter, contains it, starts or ends with a string, is longest or shortest.",
    ),
    "cute": (
        "CUTE",
        "Seven kinds of questions about spelling: does a word contain a letter, delete, insert or "
        "substitute letters, which word is closer in letters, spell a word, and the inverse.",
    ),
}


def command(
    game: Annotated[str, typer.Argument(metavar="langgame | cute")],
    seed: Seed,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FOLDER", callback=output_folder, help="folder of the data set"
        ),
    ],
    words: Words = 1000,
    words_file: WordsFile = None,
    language: Annotated[
        str, typer.Option("--language", help="language of the frequent words, such as de")
    ] = "en",
    train: Annotated[int, typer.Option("--train", min=1, help="training questions")] = 10_000,
    test: Annotated[int, typer.Option("--test", min=1, help="test questions")] = 1_000,
    as_json: Json = False,
) -> None:
    """Generate a data set of questions about letters.

    Writes train.jsonl, test.jsonl and a card; `datasets.load_dataset` reads the folder.
    """
    from robustok.tasks import cute, frequent_words, langgame, read_words
    from robustok.tasks.card import baselines, write_dataset

    makers = {"langgame": langgame, "cute": cute}
    if game not in makers:
        raise RobustokError(f"unknown data set '{game}': {nearest(game, makers)}")
    chosen = read_words(words_file) if words_file else frequent_words(words, language=language)
    splits = {
        split: makers[game](chosen, count, seed=seed, split=split)
        for split, count in (("train", train), ("test", test))
    }
    title, about = GAMES[game]
    write_dataset(
        out, splits, title=title, about=about, words=len(chosen), seed=seed, language=language,
        source=words_file or f"the most frequent words of '{language}' in wordfreq",
    )  # fmt: skip
    if as_json:
        reached = baselines(splits["test"])
        print_json({"out": str(out), "train": train, "test": test, "baselines": reached})
    else:
        typer.echo(f"{train} training and {test} test questions: {out}")
