"""robustok attack: the worst tokenization that a search finds, for one question or many."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from robustok.cli.options import Json, Limit, Model, OwnTokenizer, Seed, print_json
from robustok.cli.outputs import output_file
from robustok.cli.paint import print_tokens
from robustok.cli.progress import bar
from robustok.errors import RobustokError

NAME = "attack"


def command(
    model: Model,
    seed: Seed,
    text: Annotated[str | None, typer.Option("--text", help="one question to attack")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="an answer, its leading space included; give two or more"),
    ] = None,
    label: Annotated[
        int | None, typer.Option("--label", help="which option is right, from 0 [0]")
    ] = None,
    items: Annotated[
        str | None, typer.Option("--items", help="or JSON Lines with query, choices and label")
    ] = None,
    tokenizer: OwnTokenizer = None,
    distance: Annotated[
        list[int] | None, typer.Option("--distance", help="of a step; may be given twice [2]")
    ] = None,
    start: Annotated[str, typer.Option("--start", help="canonical, or a scheme")] = "canonical",
    steps: Annotated[int, typer.Option("--steps", min=1)] = 10,
    objective: Annotated[
        str, typer.Option("--objective", help="probability or log-probability")
    ] = "probability",
    search: Annotated[str, typer.Option("--search", help="greedy or random")] = "greedy",
    max_neighbors: Annotated[
        int | None, typer.Option("--max-neighbors", min=1, help="scored a step, at random")
    ] = None,
    beam: Annotated[int, typer.Option("--beam", min=1)] = 1,
    restarts: Annotated[int, typer.Option("--restarts", min=0, help="from uniform draws")] = 0,
    max_scored: Annotated[
        int | None, typer.Option("--max-scored", min=1, help="tokenizations scored an item")
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="the question is the user's turn of the chat template")
    ] = False,
    system: Annotated[str | None, typer.Option("--system", help="with --chat")] = None,
    control: Annotated[
        bool,
        typer.Option("--control", help="also a random search with as many tokenizations scored"),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            callback=output_file(),
            help="a row an item, as JSON Lines; also resumes a killed attack",
        ),
    ] = None,
    curve: Annotated[
        Path | None,
        typer.Option(
            "--curve",
            metavar="FILE",
            callback=output_file(".png", ".svg"),
            help="accuracy against tokenizations scored, .png or .svg",
        ),
    ] = None,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Attack MODEL through the tokenization of its questions.

    One question (--text, with its options) or many (--items). A chat template and a system
    prompt stay as they are; any set of labels can be the options, a guard model's too.
    """
    from robustok.models import load_model
    from robustok.vocabulary import Vocabulary

    if (text is None) == (items is None):
        raise RobustokError("give either --text with its --option's, or --items")
    if text is not None and (control or out or curve):
        raise RobustokError("--control, --out and --curve are for many questions: give --items")
    if items is not None and (option or label is not None):
        raise RobustokError("--option and --label are about one --text: the items have their own")
    vocab = Vocabulary.load(tokenizer or model)
    settings: dict[str, Any] = {
        "distances": tuple(distance or (2,)), "start": start, "steps": steps, "seed": seed,
        "objective": objective, "search": search, "max_neighbors": max_neighbors, "beam": beam,
        "restarts": restarts, "max_scored": max_scored,
        **(_chat(tokenizer or model, system) if chat or system else {}),
    }  # fmt: skip
    loaded = load_model(model)
    if text is not None:
        _attack_one(loaded, vocab, text, option or [], label or 0, settings, as_json)
    elif items is not None:
        _attack_many(loaded, vocab, items, limit, settings, control, out, curve, as_json)


def _chat(tokenizer: str, system: str | None) -> dict[str, Any]:
    """The kept ids around the user's turn."""
    from robustok.evaluation import chat_frame
    from robustok.models import load_tokenizer

    return chat_frame(load_tokenizer(tokenizer), system=system)._asdict()


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
            "n_scored": found.n_scored,
        })  # fmt: skip
        return
    print_tokens([vocab.tokens[i] for i in ids])
    typer.echo("margins  " + " → ".join(f"{m:+.3f}" for m in found.margins))
    typer.echo(
        f"{'broken' if found.success else 'held'} after {found.n_scored} tokenizations scored"
    )


def _attack_many(
    model: Any,
    vocab: Any,
    items: str,
    limit: int | None,
    settings: dict[str, Any],
    control: bool,
    out: Path | None,
    curve: Path | None,
    as_json: bool,
) -> None:
    from robustok.tasks import read_items

    questions = read_items(items, limit=limit)
    found = {settings["search"]: _search(model, vocab, questions, settings, out)}
    if control:
        spent = {a.key: a.n_scored for a in found[settings["search"]].attacks}
        other = settings | {"search": "random", "max_scored": spent}
        beside = out.with_name(f"{out.stem}-control{out.suffix}") if out else None
        found["random, equal queries"] = _search(model, vocab, questions, other, beside)
    for name, result in found.items():
        if as_json:
            fields = ("accuracy", "low", "high", "n", "start_accuracy", "n_scored", "seed")
            told = {field: getattr(result, field) for field in (*fields, "seconds")}
            print_json(
                {"search": name, "query": result.eval_scheme, **told, "curve": result.curve()}
            )
        else:
            typer.echo(str(result))
    if curve is not None:
        from robustok.report.curve import draw_curve

        draw_curve({name: result.curve() for name, result in found.items()}, curve)


def _search(
    model: Any, vocab: Any, questions: Any, settings: dict[str, Any], out: Path | None
) -> Any:
    """Attack every question, with the accuracy so far beside the bar."""
    from robustok.evaluation import attack_items

    held: list[bool] = []
    with bar(settings["search"]) as progress:

        def tell(done: int, total: int) -> None:
            share = f" {sum(held) / len(held):.0%} held" if held else ""
            progress(done, total, f"{settings['search']}{share}")

        return attack_items(
            model,
            vocab,
            questions,
            resume_file=out,
            progress=tell,
            each=lambda found: held.append(not found.success),
            **settings,
        )
