"""robustok certify: is the answer the same under every tokenization within a distance?"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from robustok import attack as attacks
from robustok import evaluation
from robustok.attack.settings import CertifySettings
from robustok.cli.options import FrameOptions, Json, Models, ResultFolder, Seed, by_name, option
from robustok.cli.printing import print_figure, print_json, print_result, print_tokens
from robustok.cli.progress import bar
from robustok.errors import RobustokError
from robustok.models.devices import precision_of
from robustok.report.analyses import draw_gap
from robustok.tasks import read_items


@dataclass(frozen=True)
class CertifyOptions:
    """What is certified."""

    text: str | None = option("one question to certify", default=None)
    choices: tuple[str, ...] = option(
        "an answer with its leading space; give two or more", "--option", default=()
    )
    items: str | None = option(
        "many questions: JSON Lines with question, choices and label", default=None, metavar="FILE"
    )
    max_items: int | None = option("number of items to read", "--limit", default=None, min=1)
    smoothed: str | None = option(
        "certify the vote over the draws of a scheme, for every tokenization", default=None,
        metavar="SCHEME",
    )  # fmt: skip


def certify(
    models: Models,
    seed: Seed,
    options: CertifyOptions,
    settings: CertifySettings,
    frame: FrameOptions,
    distances: Annotated[
        list[str] | None,
        typer.Option(
            "--distance", metavar="N",
            help="whole number or 'all'; may be given more than once  [default: 2, 4, 6]",
        ),
    ] = None,
    out: ResultFolder = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Certify the answers of MODELS against retokenization.

    Scores all tokenizations within a distance if they are few enough. Otherwise uniform draws
    bound the share that changes the answer. The result of the greedy attack is printed beside it.
    """
    text, choices, items = options.text, list(options.choices), options.items
    smoothed = options.smoothed
    if (text is None) == (items is None):
        raise RobustokError("give either --text with its --option flags, or --items")
    if text is not None and out is not None:
        raise RobustokError("--out is for many questions: give --items")
    if smoothed is not None and (distances or out is not None):
        raise RobustokError("--smoothed covers all tokenizations: leave --distance and --out out")
    if distances:
        settings = replace(settings, distances=tuple(map(_distance, distances)))
    rows: list[dict[str, Any]] = []
    for name, path in by_name(models).items():
        vocab = frame.vocabulary(path)
        around = frame.frame(path, vocab)
        model = frame.load(path, as_json)
        scoring: dict[str, Any] = {"seed": seed, "overflow": frame.overflow} | around
        if smoothed is not None:
            questions = [(text, choices)] if text is not None else [
                (item.question, list(item.choices))
                for item in read_items(str(items), limit=options.max_items)
            ]  # fmt: skip
            around |= {"limit": settings.limit, "draws": settings.draws, "seed": seed,
                       "confidence": settings.confidence}  # fmt: skip
            for question, answers in questions:
                _certify_vote(model, vocab, question, answers, smoothed, around, as_json)
        elif text is not None:
            for distance in settings.distances:
                _certify_one(model, vocab, text, choices, distance, settings, scoring, as_json)
        else:
            rows += _certify_items(
                model, vocab, name, items, options.max_items, settings, scoring, out, as_json
            )
    print_figure(draw_gap, rows, out and out / "gap", as_json)


def _distance(argument: str) -> int | None:
    if argument == "all":
        return None
    if not argument.isdecimal():
        raise RobustokError(f"--distance {argument}: give a whole number, or all")
    return int(argument)


def _certify_vote(
    model: Any, vocab: Any, text: str, options: list[str], scheme: str, settings: dict[str, Any],
    as_json: bool,
) -> None:  # fmt: skip
    done = evaluation.certify_smoothed(model, vocab, text, options, scheme, **settings)
    verdict = "certified" if done.certified else "abstains"
    bound = "" if done.method == "enumeration" else f", at least {done.lower:.1%}"
    print_result(
        f"answer {options[done.answer]!r}, {verdict}: {done.share:.1%} of {scheme}{bound}, "
        f"{done.n_scored} tokenizations scored",
        {"text": text, **asdict(done)},
        as_json,
    )


def _certify_one(
    model: Any, vocab: Any, text: str, options: list[str], distance: int | None,
    settings: CertifySettings, scoring: dict[str, Any], as_json: bool,
) -> None:  # fmt: skip
    with bar("all" if distance is None else f"distance {distance}") as progress:
        certificate = attacks.certify(
            model, vocab, text, options, distance=distance, settings=settings, progress=progress,
            **scoring,
        )  # fmt: skip
    if as_json:
        print_json(certificate.to_json())
        return
    typer.echo(f"answer {options[certificate.answer]!r}, {certificate}")
    if certificate.witness is not None:
        print_tokens([vocab.tokens[i] for i in certificate.witness])


def _certify_items(
    model: Any, vocab: Any, name: str, items: str | None, limit: int | None,
    settings: CertifySettings, scoring: dict[str, Any], out: Path | None, as_json: bool,
) -> list[dict[str, Any]]:  # fmt: skip
    """Certify every item and print the result; returns the rows of the figure."""
    questions = read_items(str(items), limit=limit)
    with bar(name) as progress:
        result = attacks.certify_items(
            model, vocab, questions, settings=settings, progress=progress,
            resume_file=out and out / f"certificates-{name}.jsonl", **scoring,
        )  # fmt: skip
    rows = [{"model": name, **row} for row in result.gap()]
    if as_json:
        counts = {"overflowed": result.overflowed} if result.overflowed else {}
        for row in rows:
            print_json(row | counts | {"precision": precision_of(model)})
    else:
        typer.echo(f"{name}\n{result}")
    return rows
