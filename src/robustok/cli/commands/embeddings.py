"""robustok embeddings: distance between the hidden states of a word's tokenizations, by layer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from robustok.cli.named import Folder, Models, named
from robustok.cli.options import Json, OwnTokenizer, Seed, Words, WordsFile, print_json
from robustok.cli.progress import bar
from robustok.errors import RobustokError

NAME = "embeddings"


def command(
    models: Models,
    seed: Seed,
    words: Words = 1000,
    words_file: WordsFile = None,
    draws: Annotated[
        int, typer.Option("--draws", "-n", min=1, help="uniform draws of each word")
    ] = 50,
    sentence: Annotated[
        list[str] | None,
        typer.Option(
            "--sentence", help="also measure the word in this text, as 'I said {word} twice.'"
        ),
    ] = None,
    start_token: Annotated[
        bool, typer.Option("--start-token", help="put the model's start token before every text")
    ] = False,
    tokenizer: OwnTokenizer = None,
    out: Folder = None,
    as_json: Json = False,
) -> None:
    """Compare the tokenizations of a word inside MODELS.

    Prints the mean distance between unit-normalized last-token states of the canonical and of
    uniformly drawn tokenizations, per layer. --out draws one figure of all models and sentences.
    """
    from robustok.tasks import frequent_words, read_words

    chosen = read_words(words_file) if words_file else frequent_words(words)
    rows: list[dict[str, Any]] = []
    for name, path in named(models).items():
        model, vocab = _load(path, tokenizer)
        prefix = _start(model, path) if start_token else None
        for number, text in enumerate([None, *(sentence or [])]):
            file = out and out / f"embeddings-{name}{f'-{number}' if number else ''}.jsonl"
            result = _measure(
                model, vocab, chosen, draws=draws, seed=seed, sentence=text, prefix=prefix,
                name=name, resume_file=file,
            )  # fmt: skip
            rows += result.table()
            _tell(result, as_json)
    if out is not None:
        from robustok.report.model_figures import draw_embeddings

        draw_embeddings(rows, out / "embeddings")
        if not as_json:
            typer.echo(f"written: {out / 'embeddings.png'}, .svg and .csv")


def _load(path: str, tokenizer: str | None) -> tuple[Any, Any]:
    from robustok.models import load_model
    from robustok.vocabulary import Vocabulary

    return load_model(path), Vocabulary.load(tokenizer or path)


def _start(model: Any, path: str) -> list[int]:
    start_id = model.config.get_text_config().bos_token_id
    if start_id is None:
        raise RobustokError(f"'{path}' has no start token: leave --start-token out")
    return [int(start_id)]


def _measure(model: Any, vocab: Any, words: list[str], **settings: Any) -> Any:
    from robustok.evaluation import embedding_distances

    with bar(settings["name"]) as progress:
        return embedding_distances(model, vocab, words, progress=progress, **settings)


def _tell(result: Any, as_json: bool) -> None:
    if not as_json:
        typer.echo(str(result))
        return
    fields = ("model", "sentence", "mean", "low", "high", "mean_of_others", "words", "single")
    print_json({name: getattr(result, name) for name in (*fields, "draws", "seed", "seconds")})
