"""Options, evaluation and output that `evaluate` and `icl` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robustok.cli.options import print_json
from robustok.cli.outputs import output_file
from robustok.cli.progress import bar
from robustok.errors import RobustokError

if TYPE_CHECKING:
    from robustok.evaluation import FewShot, TaskResult
    from robustok.tasks import Item

Tasks = Annotated[
    list[str],
    typer.Option(
        "--items",
        help="JSON Lines with query, choices and label, a folder of such files, or the name of a "
        "benchmark on the hub; may be given more than once",
    ),
]
Per = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        callback=output_file(".jsonl", ".parquet"),
        help="file for per-item results, .jsonl or .parquet; also resumes an interrupted run",
    ),
]
Table = Annotated[
    Path | None,
    typer.Option(
        "--table",
        metavar="FILE",
        callback=output_file(),
        help="file for a Markdown table in the paper's form",
    ),
]


def read_tasks(sources: Sequence[str], limit: int | None) -> dict[str, list[Item]]:
    """Every task by name, from files, folders and the hub."""
    from robustok.tasks import benchmark_files, read_items

    tasks: dict[str, list[Item]] = {}
    for source in sources:
        folder = Path(source).is_dir()
        for name, place in (benchmark_files(source) if folder else {_name(source): source}).items():
            if name in tasks:
                raise RobustokError(f"two tasks are called '{name}': give each once")
            tasks[name] = read_items(place, limit=limit)
    return tasks


def _name(source: str) -> str:
    return Path(source).stem if source.endswith(".jsonl") else source


def run_tasks(
    model: str,
    vocab: Any,
    tasks: dict[str, list[Item]],
    schemes: list[str] | None,
    *,
    draws: int,
    seed: int,
    few_shot: FewShot | None = None,
    start: Sequence[int] = (),
    overflow: str = "error",
    out: Path | None = None,
    table: Path | None = None,
    as_json: bool = False,
) -> None:
    """Evaluate the tasks, print the results, and write the requested files."""
    from robustok.evaluation import evaluate_tasks
    from robustok.models import load_model

    resume = out.with_name(out.name + ".part.jsonl") if out else None
    with bar("evaluate") as progress:
        results = evaluate_tasks(
            load_model(model),
            vocab,
            tasks,
            schemes or ["canonical", "uniform"],
            draws=draws,
            seed=seed,
            few_shot=few_shot,
            start=start,
            overflow=overflow,
            resume_file=resume,
            progress=progress,
        )
    _show(model, results, as_json)
    _write(results, out, table)
    if resume is not None:
        resume.unlink(missing_ok=True)


def _show(model: str, results: Sequence[TaskResult], as_json: bool) -> None:
    fields = ("accuracy", "low", "high", "n", "draws", "seed", "seconds")
    several = len({result.task for result in results}) > 1
    for result in results:
        one = result.evaluation
        if as_json:
            row = {"model": model, "task": result.task, "query": one.eval_scheme}
            row |= {name: getattr(one, name) for name in fields}
            row |= {"overflowed": one.overflowed} if one.overflowed else {}
            if result.against:
                row |= {"difference": result.against.difference, "p": result.against.p}
            print_json(row)
        else:
            typer.echo(f"{result.task}, {one}" if several else str(one))


def _write(results: Sequence[TaskResult], out: Path | None, table: Path | None) -> None:
    from robustok.evaluation.tasks import item_rows
    from robustok.evaluation.tasks import table as as_table
    from robustok.files import write_rows, write_whole

    if table is not None:
        write_whole(table, as_table(results) + "\n")
    if out is None:
        return
    rows = item_rows(results)
    if out.suffix == ".jsonl":
        write_rows(out, rows)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    write_whole(out, sink.getvalue().to_pybytes())
