"""robustok certify, embeddings and bound: what all tokenizations of a text have in common.

`certify`: is the answer the same under every tokenization within a distance? `embeddings`: the
distances between tokenizations inside a model. `bound`: the paper's robustness bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from robustok import attack as attacks
from robustok import evaluation
from robustok.attack.settings import CertifySettings
from robustok.cli.measuring import RunOptions, measure
from robustok.cli.options import (
    ModelOptions,
    QuestionOptions,
    by_name,
    draws_option,
    limit_option,
    option,
    refuse,
    scheme_option,
)
from robustok.cli.printing import (
    bar,
    print_figure,
    print_json,
    print_result,
    print_table,
    print_tokens,
    row_of,
)
from robustok.errors import RobustokError
from robustok.models.devices import precision_of
from robustok.report.analyses import draw_bound, draw_gap
from robustok.study.measurements import Embeddings
from robustok.tasks import Item, read_items


def certify(
    models: list[str],
    seed: int,
    smoothed: str | None = option(
        "certify the vote over the draws of a scheme, for every tokenization", default=None,
        metavar="SCHEME",
    ),
    *,
    options: QuestionOptions,
    settings: CertifySettings,
    distances: tuple[str, ...] = option(
        "whole number or 'all'  [default: 2, 4, 6]", "--distance", default=(), metavar="N"
    ),
    out: Path | None = None,
) -> None:  # fmt: skip
    """Certify the answers of MODELS against retokenization.

    Scores all tokenizations within a distance if they are few enough. Otherwise uniform draws
    bound the share that changes the answer. The result of the greedy attack is printed beside it.
    """
    text, items = options.text, options.items
    refuse({
        "give either --text with its --option flags, or --items": (text is None) == (items is None),
        "--out is for many questions: give --items": text is not None and out is not None,
        "--smoothed covers all tokenizations: leave --distance and --out out":
            smoothed is not None and (distances or out is not None),
    })  # fmt: skip
    if distances:
        settings = replace(settings, distances=tuple(map(_distance, distances)))
    questions = [] if items is None else read_items(items, limit=options.limit)
    rows: list[dict[str, Any]] = []
    for name, path in by_name(models).items():
        vocab = options.vocabulary(path)
        given = {"seed": seed, **options.frame(path, vocab)}
        model = options.load(path)
        if smoothed is not None:
            given |= {one: getattr(settings, one) for one in ("limit", "draws", "confidence")}
            _certify_votes(model, vocab, questions, options, smoothed, given)
            continue
        given |= {"settings": settings, "overflow": options.overflow}
        if text is not None:
            for distance in settings.distances:
                with bar("all" if distance is None else f"distance {distance}") as progress:
                    certificate = attacks.certify(
                        model, vocab, text, options.choices, distance=distance, progress=progress,
                        **given,
                    )  # fmt: skip
                _print_certificate(certificate, vocab, options)
            continue
        file = out and out / f"certificates-{name}.jsonl"
        with bar(name) as progress:
            result = attacks.certify_items(
                model, vocab, questions, resume_file=file, progress=progress, **given
            )
        rows += _print_certification(result, name, model, options.as_json)
    print_figure(draw_gap, rows, out and out / "gap", options.as_json)


def _distance(argument: str) -> int | None:
    if argument == "all":
        return None
    if not argument.isdecimal():
        raise RobustokError(f"--distance {argument}: give a whole number, or all")
    return int(argument)


def _certify_votes(
    model: Any, vocab: Any, questions: Sequence[Item], options: QuestionOptions, scheme: str,
    given: dict[str, Any],
) -> None:  # fmt: skip
    texts = [(item.question, item.choices) for item in questions]
    for text, choices in texts or [(str(options.text), options.choices)]:
        done = evaluation.certify_smoothed(model, vocab, text, choices, scheme, **given)
        verdict = "certified" if done.certified else "abstains"
        bound = "" if done.method == "enumeration" else f", at least {done.lower:.1%}"
        print_result(
            f"answer {choices[done.answer]!r}, {verdict}: {done.share:.1%} of {scheme}{bound}, "
            f"{done.n_scored} tokenizations scored",
            {"text": text, **asdict(done)},
            options.as_json,
        )


def _print_certificate(certificate: Any, vocab: Any, options: QuestionOptions) -> None:
    answer = options.choices[certificate.answer]
    print_result(f"answer {answer!r}, {certificate}", certificate.to_json(), options.as_json)
    if certificate.witness is not None and not options.as_json:
        print_tokens([vocab.tokens[i] for i in certificate.witness])


def _print_certification(result: Any, name: str, model: Any, as_json: bool) -> list[dict[str, Any]]:
    """Print the certificates of all items; returns the rows of the figure."""
    rows = [{"model": name, **row} for row in result.gap()]
    if not as_json:
        typer.echo(f"{name}\n{result}")
    for row in rows if as_json else ():
        print_json(row | row_of(result) | {"precision": precision_of(model)})
    return rows


def embeddings(
    models: list[str],
    measurement: Annotated[dict, Embeddings],
    options: RunOptions,
) -> None:
    """Compare the tokenizations of a word inside MODELS.

    Prints the mean distance between unit-normalized last-token states of the canonical and of
    uniformly drawn tokenizations, per layer. The report in --out has one figure of all models and
    sentences.
    """
    measure(models, "embeddings", options, embeddings=measurement)


@dataclass(frozen=True)
class BoundOptions(ModelOptions):
    """What is measured beside the bound, and what the bound is of."""

    items: str | None = option(
        "questions to measure the changes on, JSON Lines", default=None, metavar="FILE"
    )
    seed: int | None = option("of the draws, with --items", default=None)
    distance: int = option("k of the bound", default=1, min=1)
    tokens: int | None = option(
        "n in the proof  [default: the longest tokenization measured]", default=None, min=1
    )
    tolerance: float = option("relative error of each spectral norm", default=1e-3)
    scheme: str = scheme_option("scheme of the questions, with --items", "uniform")
    draws: int = draws_option("draws of each question", 10)
    attack: bool = option(
        "also measure attacked tokenizations, with --items", "--attack/--no-attack", default=True
    )
    limit: int | None = limit_option()


def bound(models: list[str], options: BoundOptions, out: Path | None = None) -> None:
    """Compute the bound of MODELS from their weights.

    Prints C1, C2 and the bound by layer and for the whole model, as in the theorem and as in its
    proof. --items adds the measured ratio, over drawn and over attacked tokenizations.
    """
    if options.items is not None and options.seed is None:
        raise RobustokError("--items draws tokenizations: give a --seed")
    rows: list[dict[str, Any]] = []
    for name, path in by_name(models).items():
        model = options.load(path)
        with bar(f"{name}: norms") as progress:
            limits = evaluation.lipschitz_bound(
                model, tolerance=options.tolerance, name=name, progress=progress
            )
        ratios = None
        if options.items is not None:
            ratios = _measure(model, path, name, options, out)
        n = options.tokens or (ratios.longest if ratios else None)
        _print_bound(limits, ratios, options.distance, n, options.as_json)
        rows += _rows(limits, ratios, n)
    print_figure(draw_bound, rows, out and out / "bound", options.as_json)


def _measure(model: Any, path: str, name: str, options: BoundOptions, out: Path | None) -> Any:
    """The measured ratios; the attack on each question leaves out neighbors that do not fit."""
    seed: Any = options.seed
    questions = read_items(str(options.items), limit=options.limit)
    vocab = options.vocabulary(path)
    attacked: list[Any] = []
    if options.attack:
        with bar(f"{name}: attacks") as progress:
            result = attacks.attack_items(
                model, vocab, questions, seed=seed, overflow="canonical",
                resume_file=out and out / f"attacks-{name}.jsonl", progress=progress,
            )  # fmt: skip
        attacked = [one.ids for one in result.attacks]
    with bar(f"{name}: measured") as progress:
        return evaluation.lipschitz_ratios(
            model, vocab, questions, attacked=attacked, draws=options.draws, seed=seed,
            sampler=options.scheme, name=name, progress=progress,
        )  # fmt: skip


def _rows(bound: Any, ratios: Any, tokens: int | None) -> list[dict[str, Any]]:
    """Rows of the bound and of the measured ratios, all per square root of a distance."""
    from robustok.evaluation.bound import readings

    rows = [] if ratios is None else ratios.table()
    for reading, n in readings(tokens).items():
        powers = bound.through(1, tokens=n)
        rows += [
            {"model": bound.model, "kind": reading, "depth": depth, "pairs": "", "mean": 10**power,
             "p95": 10**power, "max": 10**power, "eval_scheme": "", "seed": ""}
            for depth, power in enumerate(powers)
            if power < 300
        ]  # fmt: skip
    return rows


def _print_bound(bound: Any, ratios: Any, distance: int, tokens: int | None, as_json: bool) -> None:
    table = bound.table(distance, tokens=tokens)
    if as_json:
        record = row_of(bound, "model", "embedding", "head", "largest_embedding", "tolerance")
        record |= {"distance": distance, "tokens": tokens, "layers": table}
        if ratios is not None:
            record |= {"measured": ratios.table()} | row_of(ratios, "items", "draws")
        print_json(record)
        return
    where = f", n = {tokens}" if tokens else ""
    typer.echo(f"{bound.model}: ‖W‖ = {bound.embedding:.4g}, ‖W_out‖ = {bound.head:.4g}, "
               f"k = {distance}{where}")  # fmt: skip
    readings = [r for r in ("theorem", "proof") if f"log10_gamma_{r}" in table[0]]
    titles = ["layer", "C2", *(f"{symbol} {r}" for r in readings for symbol in ("C1", "γ"))]
    lines = [
        [row["layer"], _number(row["c2"]),
         *(cell for r in readings
           for cell in (_number(row[f"c1_{r}"]), _power(row[f"log10_gamma_{r}"])))]
        for row in table
    ]  # fmt: skip
    print_table(titles, lines, left=0)
    if ratios is not None:
        typer.echo(str(ratios))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _power(log10: float) -> str:
    """
    >>> _power(345.301)
    '2.00e+345'
    """
    whole = int(log10 // 1)
    return f"{10 ** (log10 - whole):.2f}e{whole:+03d}"
