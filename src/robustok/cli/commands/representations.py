"""robustok embeddings and bound: distances inside a model, and the paper's robustness bound."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from robustok import attack as attacks
from robustok import evaluation
from robustok.cli.options import (
    Json,
    Limit,
    ModelOptions,
    Models,
    ResultFolder,
    Seed,
    StartOptions,
    WordOptions,
    by_name,
    option,
)
from robustok.cli.printing import print_figure, print_json, print_result, print_table
from robustok.cli.progress import bar
from robustok.errors import RobustokError
from robustok.report.model_figures import draw_bound, draw_embeddings
from robustok.tasks import read_items


def _with_place(sentences: list[str] | None) -> list[str] | None:
    """The sentences, or RobustokError where one has no place for the word."""
    if sentences:
        from robustok.evaluation.embeddings import check_sentence

        for sentence in sentences:
            check_sentence(sentence)
    return sentences


@dataclass(frozen=True)
class EmbeddingOptions(StartOptions):
    draws: int = option("draws of each text or word", "--draws", "-n", default=50, min=1)
    sentence: tuple[str, ...] = option(
        "also measure the word in this text, as 'I said {word} twice.'",
        default=(),
        callback=_with_place,
    )


def embeddings(
    models: Models, seed: Seed, words: WordOptions, options: EmbeddingOptions,
    out: ResultFolder = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Compare the tokenizations of a word inside MODELS.

    Prints the mean distance between unit-normalized last-token states of the canonical and of
    uniformly drawn tokenizations, per layer. --out draws one figure of all models and sentences.
    """
    names = words.read()
    fields = ("model", "sentence", "mean", "low", "high", "mean_of_others", "words", "single",
              "draws", "seed", "seconds")  # fmt: skip
    rows: list[dict[str, Any]] = []
    for name, path in by_name(models).items():
        model, vocab = options.load(path, as_json), options.vocabulary(path)
        prefix = options.start_ids(vocab) or None
        texts: list[str | None] = [None, *options.sentence]
        for number, text in enumerate(texts):
            file = out and out / f"embeddings-{name}{f'-{number}' if number else ''}.jsonl"
            with bar(name) as progress:
                result = evaluation.embedding_distances(
                    model, vocab, names, draws=options.draws, seed=seed, sentence=text,
                    prefix=prefix, name=name, resume_file=file, progress=progress,
                )  # fmt: skip
            rows += result.table()
            print_result(result, {field: getattr(result, field) for field in fields}, as_json)
    print_figure(draw_embeddings, rows, out and out / "embeddings", as_json)


@dataclass(frozen=True)
class BoundOptions(ModelOptions):
    items: str | None = option(
        "questions to measure the changes on, JSON Lines", default=None, metavar="FILE"
    )
    seed: int | None = option("of the draws, with --items", default=None)
    distance: int = option("k of the bound", default=1, min=1)
    tokens: int | None = option(
        "n in the proof  [default: the longest tokenization measured]", default=None, min=1
    )
    tolerance: float = option("relative error of each spectral norm", default=1e-3)
    scheme: str = option(
        "scheme of the questions, with --items", "--scheme", "-s", default="uniform",
        metavar="SCHEME",
    )  # fmt: skip
    draws: int = option("draws of each question", "--draws", "-n", default=10, min=1)
    attack: bool = option(
        "also measure attacked tokenizations, with --items", "--attack/--no-attack", default=True
    )


def bound(
    models: Models,
    options: BoundOptions,
    limit: Limit = None,
    out: ResultFolder = None,
    as_json: Json = False,
) -> None:
    """Compute the bound of MODELS from their weights.

    Prints C1, C2 and the bound by layer and for the whole model, as in the theorem and as in its
    proof. --items adds the measured ratio, over drawn and over attacked tokenizations.
    """
    if options.items is not None and options.seed is None:
        raise RobustokError("--items draws tokenizations: give a --seed")
    rows: list[dict[str, Any]] = []
    for name, path in by_name(models).items():
        model = options.load(path, as_json)
        with bar(f"{name}: norms") as progress:
            limits = evaluation.lipschitz_bound(
                model, tolerance=options.tolerance, name=name, progress=progress
            )
        ratios = None
        if options.items is not None:
            ratios = _measure(model, path, name, options, limit, out)
        n = options.tokens or (ratios.longest if ratios else None)
        _print_bound(limits, ratios, options.distance, n, as_json)
        rows += _rows(limits, ratios, n)
    print_figure(draw_bound, rows, out and out / "bound", as_json)


def _measure(
    model: Any, path: str, name: str, options: BoundOptions, limit: int | None, out: Path | None
) -> Any:
    """The measured ratios; the attack on each question leaves out neighbors that do not fit."""
    seed: Any = options.seed
    questions, vocab = read_items(str(options.items), limit=limit), options.vocabulary(path)
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
        record: dict[str, Any] = {
            "model": bound.model, "distance": distance, "tokens": tokens, "layers": table,
            "embedding": bound.embedding, "head": bound.head,
            "largest_embedding": bound.largest_embedding, "tolerance": bound.tolerance,
        }  # fmt: skip
        if ratios is not None:
            record |= {"measured": ratios.table(), "items": ratios.items, "draws": ratios.draws}
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
