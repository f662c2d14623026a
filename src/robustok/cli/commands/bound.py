"""robustok bound: the paper's robustness bound from weights, and measured ratios beside it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from robustok.cli.named import Folder, Models, named
from robustok.cli.options import Json, Limit, OwnTokenizer, print_json
from robustok.cli.progress import bar
from robustok.errors import RobustokError

NAME = "bound"


def command(
    models: Models,
    items: Annotated[
        str | None,
        typer.Option("--items", help="questions to measure the changes on, JSON Lines"),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="of the draws, with --items")] = None,
    distance: Annotated[int, typer.Option("--distance", min=1, help="k of the bound")] = 1,
    tokens: Annotated[
        int | None,
        typer.Option("--tokens", min=1, help="n in the proof [the longest tokenization measured]"),
    ] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="relative error of each spectral norm")
    ] = 1e-3,
    scheme: Annotated[
        str, typer.Option("--scheme", "-s", help="scheme of the questions, with --items")
    ] = "uniform",
    draws: Annotated[int, typer.Option("--draws", "-n", min=1, help="draws of each question")] = 10,
    attack: Annotated[
        bool,
        typer.Option(
            "--attack/--no-attack", help="also measure attacked tokenizations, with --items"
        ),
    ] = True,
    limit: Limit = None,
    tokenizer: OwnTokenizer = None,
    out: Folder = None,
    as_json: Json = False,
) -> None:
    """Compute the bound of MODELS from their weights.

    Prints C1, C2 and the bound by layer and for the whole model, as in the theorem and as in its
    proof. --items adds the measured ratio, over drawn and over attacked tokenizations.
    """
    from robustok.evaluation import lipschitz_bound
    from robustok.models import load_model

    if items is not None and seed is None:
        raise RobustokError("--items draws tokenizations: give a --seed")
    rows: list[dict[str, Any]] = []
    for name, path in named(models).items():
        model = load_model(path)
        with bar(f"{name}: norms") as progress:
            bound = lipschitz_bound(model, tolerance=tolerance, name=name, progress=progress)
        ratios = None
        if items is not None:
            settings = {
                "draws": draws, "seed": seed, "sampler": scheme, "adversarial": attack,
                "name": name, "resume_file": out and out / f"attacks-{name}.jsonl",
            }  # fmt: skip
            ratios = _measure(model, tokenizer or path, items, limit, settings)
        n = tokens or (ratios.longest if ratios else None)
        _tell(bound, ratios, distance, n, as_json)
        rows += _rows(bound, ratios, n)
    if out is not None:
        from robustok.report.model_figures import draw_bound

        draw_bound(rows, out / "bound")
        if not as_json:
            typer.echo(f"written: {out / 'bound.png'}, .svg and .csv")


def _measure(
    model: Any, tokenizer: str, items: str, limit: int | None, settings: dict[str, Any]
) -> Any:
    from robustok.evaluation import lipschitz_ratios
    from robustok.tasks import read_items
    from robustok.vocabulary import Vocabulary

    questions = read_items(items, limit=limit)
    with bar(f"{settings['name']}: measured") as progress:
        return lipschitz_ratios(
            model, Vocabulary.load(tokenizer), questions, progress=progress, **settings
        )


def _rows(bound: Any, ratios: Any, tokens: int | None) -> list[dict[str, Any]]:
    """Rows of the bound and of the measured ratios, all per square root of a distance."""
    rows = [] if ratios is None else ratios.table()
    for reading in ("theorem", "proof") if tokens else ("theorem",):
        powers = bound.through(1, reading=reading, tokens=tokens)
        rows += [
            {"model": bound.model, "kind": reading, "depth": depth, "pairs": "", "mean": 10**power,
             "p95": 10**power, "max": 10**power, "query": "", "seed": ""}
            for depth, power in enumerate(powers)
            if power < 300
        ]  # fmt: skip
    return rows


def _tell(bound: Any, ratios: Any, distance: int, tokens: int | None, as_json: bool) -> None:
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
    heads = [f"{'C1 ' + r:>12}{'γ ' + r:>12}" for r in readings]
    typer.echo(f"  {'layer':>6}{'C2':>12}" + "".join(heads))
    for row in table:
        cells = [_number(row["c2"])]
        for reading in readings:
            cells += [_number(row[f"c1_{reading}"]), _power(row[f"log10_gamma_{reading}"])]
        typer.echo(f"  {row['layer']!s:>6}" + "".join(f"{cell:>12}" for cell in cells))
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
