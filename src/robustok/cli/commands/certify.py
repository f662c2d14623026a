"""robustok certify: is the answer the same under every tokenization within a distance?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from robustok.cli.named import Folder, Models, named
from robustok.cli.options import Json, Limit, Overflow, OwnTokenizer, Seed, print_json
from robustok.cli.paint import print_tokens
from robustok.cli.progress import bar
from robustok.errors import RobustokError

NAME = "certify"


def command(
    models: Models,
    seed: Seed,
    text: Annotated[str | None, typer.Option("--text", help="one question to certify")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="an answer with its leading space; give two or more"),
    ] = None,
    items: Annotated[
        str | None,
        typer.Option("--items", help="many questions: JSON Lines with query, choices and label"),
    ] = None,
    distance: Annotated[
        list[str] | None,
        typer.Option(
            "--distance", help="whole number or 'all'; may be given more than once [2 4 6]"
        ),
    ] = None,
    enumerate_up_to: Annotated[
        int,
        typer.Option(
            "--enumerate", min=1, help="score all tokenizations up to this many, else draw"
        ),
    ] = 2000,
    draws: Annotated[
        int,
        typer.Option(
            "--draws", "-n", min=1, help="uniform draws where there are too many to enumerate"
        ),
    ] = 1000,
    confidence: Annotated[float, typer.Option("--confidence", help="of each sampled bound")] = 0.95,
    attack: Annotated[
        bool, typer.Option("--attack/--no-attack", help="also run the greedy attack")
    ] = True,
    smoothed: Annotated[
        str | None,
        typer.Option(
            "--smoothed", help="scheme: certify the vote over its draws, for every tokenization"
        ),
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="the question is the user's turn of the chat template")
    ] = False,
    system: Annotated[
        str | None, typer.Option("--system", help="system prompt, with --chat")
    ] = None,
    overflow: Overflow = "error",
    limit: Limit = None,
    tokenizer: OwnTokenizer = None,
    out: Folder = None,
    as_json: Json = False,
) -> None:
    """Certify the answers of MODELS against retokenization.

    Scores all tokenizations within a distance if they are few enough. Otherwise uniform draws
    bound the share that changes the answer. The result of the greedy attack is printed beside it.
    """
    if (text is None) == (items is None):
        raise RobustokError("give either --text with its --option flags, or --items")
    if text is not None and out is not None:
        raise RobustokError("--out is for many questions: give --items")
    settings: dict[str, Any] = {
        "limit": enumerate_up_to, "draws": draws, "confidence": confidence, "seed": seed,
        "attack": attack, "overflow": overflow,
    }  # fmt: skip
    distances = [_distance(d) for d in distance or ["2", "4", "6"]]
    if smoothed is not None and (distance or out is not None):
        raise RobustokError("--smoothed covers all tokenizations: leave --distance and --out out")
    rows: list[dict[str, Any]] = []
    for name, path in named(models).items():
        frame = _frame(tokenizer or path, system) if chat or system else {}
        model, vocab = _load(path, tokenizer)
        if smoothed is not None:
            keys = ("limit", "draws", "confidence", "seed")
            chosen = {key: settings[key] for key in keys} | frame
            for question, answers in _questions(text, option or [], items, limit):
                _certify_vote(model, vocab, question, answers, smoothed, chosen, as_json)
        elif text is not None:
            for at in distances:
                _certify_one(model, vocab, text, option or [], at, settings | frame, as_json)
        elif items is not None:
            result = _certify_many(
                model, vocab, name, items, limit, distances, out, settings | frame
            )
            counts = {"overflowed": result.overflowed} if result.overflowed else {}
            model_rows = [{"model": name, **row} for row in result.gap()]
            rows += model_rows
            for row in model_rows if as_json else []:
                print_json(row | counts)
            if not as_json:
                typer.echo(f"{name}\n{result}")
    if out is not None:
        from robustok.report.model_figures import draw_gap

        draw_gap(rows, out / "gap")
        if not as_json:
            typer.echo(f"written: {out / 'gap.png'}, .svg and .csv")


def _questions(
    text: str | None, options: list[str], items: str | None, limit: int | None
) -> list[tuple[str, list[str]]]:
    if text is not None:
        return [(text, options)]
    from robustok.tasks import read_items

    return [(item.question, list(item.choices)) for item in read_items(str(items), limit=limit)]


def _certify_vote(
    model: Any,
    vocab: Any,
    text: str,
    options: list[str],
    scheme: str,
    settings: dict[str, Any],
    as_json: bool,
) -> None:
    from dataclasses import asdict

    from robustok.redteam import certify_smoothed

    done = certify_smoothed(model, vocab, text, options, scheme, **settings)
    if as_json:
        print_json({"text": text, **asdict(done)})
        return
    verdict = "certified" if done.certified else "abstains"
    bound = "" if done.method == "enumeration" else f", at least {done.lower:.1%}"
    typer.echo(
        f"answer {options[done.answer]!r}, {verdict}: {done.share:.1%} of {scheme}{bound}, "
        f"{done.n_scored} tokenizations scored"
    )


def _distance(given: str) -> int | None:
    if given == "all":
        return None
    if not given.isdecimal():
        raise RobustokError(f"--distance {given}: give a whole number, or all")
    return int(given)


def _frame(tokenizer: str, system: str | None) -> dict[str, Any]:
    from robustok.evaluation import chat_frame
    from robustok.models import load_tokenizer

    return chat_frame(load_tokenizer(tokenizer), system=system)._asdict()


def _load(path: str, tokenizer: str | None) -> tuple[Any, Any]:
    from robustok.models import load_model
    from robustok.vocabulary import Vocabulary

    return load_model(path), Vocabulary.load(tokenizer or path)


def _certify_one(
    model: Any,
    vocab: Any,
    text: str,
    options: list[str],
    distance: int | None,
    settings: dict[str, Any],
    as_json: bool,
) -> None:
    from robustok.evaluation import certify

    label = "all" if distance is None else f"distance {distance}"
    with bar(label) as progress:
        certificate = certify(
            model, vocab, text, options, distance=distance, progress=progress, **settings
        )
    if as_json:
        print_json(certificate.to_json())
        return
    typer.echo(f"answer {options[certificate.answer]!r}, {certificate}")
    if certificate.witness is not None:
        print_tokens([vocab.tokens[i] for i in certificate.witness])


def _certify_many(
    model: Any,
    vocab: Any,
    name: str,
    items: str,
    limit: int | None,
    distances: list[int | None],
    out: Path | None,
    settings: dict[str, Any],
) -> Any:
    from robustok.evaluation import certify_items
    from robustok.tasks import read_items

    questions = read_items(items, limit=limit)
    file = out and out / f"certificates-{name}.jsonl"
    with bar(name) as progress:
        return certify_items(
            model, vocab, questions, distances=distances, resume_file=file, progress=progress,
            **settings,
        )  # fmt: skip
