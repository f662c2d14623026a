"""Commands that measure models: each is a study of one measurement on a model that exists.

`robustok evaluate MODEL --items F --seed 0 --out DIR` runs in DIR, where the same command goes on
after an interruption, and without --out in a temporary folder. The options are the fields of the
measurement (:mod:`robustok.study.measurements`), and what is printed are its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_type_hints

import click

from robustok.cli.options import by_name, figure_folder, folder_option, option
from robustok.cli.printing import print_json, print_written
from robustok.cli.terminal import ProgressCallback, bar
from robustok.errors import RobustokError
from robustok.evaluation.comparison import Difference, difference
from robustok.runtime.files import JsonFields, write_whole
from robustok.runtime.inputs import read_rows
from robustok.study import Cell, Study, Watch, run_study
from robustok.study.config import checked_study, types_in
from robustok.study.measurements import MeasuredCell, OnQuestions
from robustok.study.run import answers_of
from robustok.study.sections import ChatModel, LoadedModel

Row = dict[str, Any]
# What is beside the folders of several models, so that no model has such a name.
_TAKEN = ("cells", "items", "figures", "items.parquet", "report.html", "report.md", ".", "..")


@dataclass(frozen=True, kw_only=True)
class RunOptions(LoadedModel):
    """How the study of a command runs, and how its rows are printed."""

    seed: int = option("the same seed, the same draws")
    out: Path | None = folder_option(
        "folder of the results, for `robustok study report`; the same command goes on there",
        check=figure_folder,
    )
    as_json: bool = option("print JSON", "--json", default=False)


@dataclass(frozen=True, kw_only=True)
class ChatRunOptions(RunOptions, ChatModel):
    """How the study of a command runs whose questions can have a chat template around them."""


def measure(
    models: Sequence[str],
    kind: str,
    options: RunOptions,
    **sections: object,
) -> dict[str, list[Row]]:
    """Measure each model, and print the rows as they are finished; returns them by model.

    Args:
        models: folders, hub names or NAME=FOLDER.
        kind: the name of the study.
        options: how it runs.
        **sections: the sections of the study, each as in its YAML.

    Several models have a folder each, and share their cells.
    """
    rows: dict[str, list[Row]] = {}
    named = by_name(models)
    several = len(named) > 1
    if several and (taken := [name for name in named if name in _TAKEN]):
        raise RobustokError(
            f"the folder of the results has its own '{taken[0]}': write another NAME=FOLDER for "
            "this model"
        )
    title = f"{kind}: {', '.join(named)}"
    loading = ChatModel if isinstance(options, ChatModel) else LoadedModel
    model = {one.name: getattr(options, one.name) for one in fields(loading)}
    shared_fields = {"name": kind, "title": title, "seed": options.seed, **sections}
    with nullcontext(options.out) if options.out else TemporaryDirectory() as place:
        folder = Path(place)
        folders = [folder / name if several else folder for name in named]
        shared = (folder / "cells").absolute() if several else None
        for (name, path), own in zip(named.items(), folders, strict=True):
            own_model = model | {"name": path, "label": name}
            study = checked_study(shared_fields | {"model": own_model}, _error_of_option)
            with bar(kind) as progress:
                printed = _Printed(name, own, options.as_json, progress)
                run_study(
                    study,
                    own,
                    cells_folder=shared,
                    by_content=options.out is not None,
                    watch=printed,
                )
            rows[name] = printed.rows
        if options.out is not None:
            from robustok.report import write_report

            page = write_report(folders[0], folders[1:], out=folder)
            _write_parquet(rows, folder / "items.parquet")
            print_written([page], options.as_json)
    return rows


def _write_parquet(rows: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Write the results of all questions as one table, where pyarrow is installed."""
    names = ("model", "task", "eval_scheme", "few_shot_scheme")
    table = [
        {name: row[name] for name in names if name in row} | item
        for of_model in rows.values()
        for row in of_model
        for item in row["items"]
        if "correct" in item
    ]
    if table and find_spec("pyarrow") is not None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(table), sink)
        write_whole(path, sink.getvalue().to_pybytes())


def _error_of_option(field: str, message: str) -> RobustokError:
    """An error that names the option in place of the field of a study, where it is one."""
    section, name = [*(part for part in field.split(".") if not part.isdecimal()), ""][:2]
    cls = next(filter(is_dataclass, types_in(get_type_hints(Study).get(section))), None)
    one = next((one for one in fields(cls) if one.name == name), None) if cls else None
    if one is not None and "help" in one.metadata:
        flags = one.metadata.get("flags", (f"--{name.replace('_', '-')}",))
        message = message.replace(field, flags[0], 1)
    return RobustokError(message)


class _Printed(Watch):
    """Prints the rows of one model as its cells finish, and keeps them with their answers."""

    def __init__(self, model: str, folder: Path, as_json: bool, progress: ProgressCallback) -> None:
        self._model, self._folder, self._as_json = model, folder, as_json
        self._progress = progress
        self._several_tasks = False
        self._todo: list[MeasuredCell] = []
        self._records: dict[str, Any] = {}
        self.rows: list[Row] = []

    def plan(self, cells: tuple[Cell, ...], finished: Mapping[str, Any]) -> None:
        self._todo = [cell for cell in cells if isinstance(cell, MeasuredCell)]
        self._several_tasks = len({cell.task for cell in self._todo}) > 1
        self._records = dict(finished)
        self._print_finished()

    def progress(self, cell: Cell, done: int, total: int) -> None:
        self._progress(done, total, cell.label)

    def finish(self, cell: Cell, record: JsonFields) -> None:
        self._records[cell.key] = record
        self._print_finished()

    def _print_finished(self) -> None:
        """Print in the order of the plan, also what an earlier run has finished of it."""
        while self._todo and self._todo[0].key in self._records:
            cell = self._todo.pop(0)
            self._print(cell, self._records[cell.key])

    def _print(self, cell: MeasuredCell, record: JsonFields) -> None:
        measurement = cell.measurement
        row: Row = {
            "model": self._model,
            "task": cell.task,
            **record["result"],
            "eval_scheme": cell.eval_scheme,
            **({"few_shot_scheme": cell.few_shot.scheme} if cell.few_shot else {}),
            "seed": cell.seed,
            "seconds": record["seconds"],
        }
        items = self._folder / "items" / f"{cell.key}.jsonl"
        row["items"] = read_rows(items) if items.is_file() else []
        row["answers"] = {cell.seed: answers_of(row["items"])}
        first = next((one for one in self.rows if one["task"] == row["task"]), None)
        change = None
        if first is not None and isinstance(measurement, OnQuestions):
            change = difference(first, row)
            row |= {"difference": change.mean, "p": change.p}
        if not self.rows and "precision" in row and not self._as_json:
            click.echo(f"{self._model}: weights in {row['precision']}")
        self.rows.append(row)
        for printed in measurement.rows(row):
            if self._as_json:
                print_json(printed)
                continue
            task = f"{cell.task}, " if self._several_tasks else ""
            after = f"{cell.few_shot.scheme} examples, " if cell.few_shot else ""
            against = "" if change is None else f"; against the first {change_text(change)}"
            click.echo(f"{task}{after}{measurement.line(printed)}{against}")


def change_text(change: Difference) -> str:
    """A difference with its interval and its p, on one line."""
    return f"{change.mean:+.3f} {change.bounds_text()}, p = {change.p_text()}"


def _measured(row: Row) -> tuple[str, str]:
    return row["task"], row["eval_scheme"]


def print_comparison(rows: Mapping[str, Sequence[Row]], as_json: bool) -> None:
    """Print the paired differences of several models from the first one, by task and scheme."""
    (against, first), *others = rows.items()
    for name, theirs in others:
        measured = {_measured(row): row for row in theirs}
        for one in first:
            change = difference(one, measured[_measured(one)])
            names = {"model": name, "against": against, "task": one["task"]}
            names |= {"eval_scheme": one["eval_scheme"]}
            if as_json:
                numbers = ("low", "high", "lost", "won", "n", "p")
                values = {number: getattr(change, number) for number in numbers}
                print_json({**names, "difference": change.mean, **values})
                continue
            task = f"{one['task']}, " if len({row["task"] for row in first}) > 1 else ""
            click.echo(
                f"{name} against {against}, {task}{one['eval_scheme']}: {change_text(change)}"
            )
