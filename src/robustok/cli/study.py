"""robustok study: list, plan and run studies, write their reports, print the schema of one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from rich.console import Console

from robustok.cli.app import Group
from robustok.cli.options import (
    Argument,
    folder_option,
    option,
    served_tokenizer_option,
    with_settings,
)
from robustok.cli.printing import print_json
from robustok.cli.terminal import StudyBars
from robustok.errors import RobustokError, check_choice
from robustok.runtime.display import counted
from robustok.runtime.files import studies
from robustok.runtime.hub import is_served, served_label
from robustok.runtime.packages import require

if TYPE_CHECKING:
    from robustok.study import Study


class _RunByDefault(Group):
    """`study NAME` is `study run NAME`, and `study` alone is `study list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # a shell completes the names
            return super().parse_args(ctx, args)
        if not args:
            args = ["list"]
        elif args[0] not in (*self.commands, "-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


_MEASURE = "measure"  # the scale of a study that trains nothing
group = _RunByDefault("study", help="List, plan and run studies. `study NAME` is `study run NAME`.")

Name = Annotated[str, Argument("NAME | FILE.yaml", "see `study list`")]


@dataclass(frozen=True)
class StudyOptions:
    """The folders of a run, and what replaces the study's own fields: see ``load_study``."""

    out: Path | None = folder_option("of the run  [default: runs/NAME, or runs/NAME-SCALE-MODEL]")
    scale: str | None = option(
        "cpu, small (SmolLM2-135M) or another one; see `study list`",
        default=None,
        metavar="NAME",
    )
    corpus: tuple[Path, ...] = option(
        "file with text to pre-train on, instead of the study's text", default=(), metavar="FILE"
    )
    held_out: Path | None = option("text to measure perplexity on", default=None, metavar="FILE")
    benchmarks: Path | None = option(
        "folder of NAME.jsonl files, instead of the hub", default=None, metavar="FOLDER"
    )
    model: str | None = option(
        "folder, hub name or address of a server, instead of the study's named model",
        default=None,
        metavar="NAME|DIR",
        panel="Model",
    )
    tokenizer: str | None = served_tokenizer_option()
    start_token: str | None = option(
        "special token before every text of --model  [default: what its tokenizer puts there]",
        default=None,
        metavar="TOKEN",
        panel="Model",
    )
    repeats: int | None = option("number of seeds  [default: the study's own]", default=None, min=1)
    first_repeat: int | None = option(
        "number of the first seed, where another run has those before it",
        default=None,
        metavar="N",
        min=0,
    )
    cells: Path | None = option(
        "folder of cells that several studies share", default=None, metavar="FOLDER"
    )
    words_file: str | None = option(
        "file with one word per line, instead of the study's words", default=None, metavar="FILE"
    )


def list_(as_json: bool = False) -> None:
    """List the included studies and their scales; `study plan` says how long each takes."""
    # quick is first: a new user starts with it.
    for name in sorted(studies(), key=lambda name: (name != "quick", name)):
        title, where = (
            next(iter(re.findall(rf"(?m)^{field}: *[\"']?(.*?)[\"']?$", studies()[name])), None)
            for field in ("title", " +where")
        )
        scales = ["full", *_scales_of(name)]
        if as_json:
            print_json({"name": name, "title": title, "paper": where, "scales": scales})
        else:
            click.echo(f"{name}\n    {title}{f' ({where})' if where else ''}")
            click.echo(f"    scales: {', '.join(scales)}")


def _scales_of(name: str) -> list[str]:
    """The scales of an included study, besides the full one, without a library that reads YAML."""
    return re.findall(r"(?m)^  ([\w-]+):", studies().get(name, "").partition("\nscales:\n")[2])


def show(name: Annotated[str, Argument("NAME", "see `study list`")]) -> None:
    """Print the YAML of an included study, to copy and change."""
    from robustok.study.config import study_named

    click.echo(studies()[check_choice("study", study_named(name), studies())], nl=False)


def plan(name: Name, options: Annotated[dict, StudyOptions], as_json: bool = False) -> None:
    """Show every cell of a study, and which are done."""
    from robustok.study import plan as plan_cells
    from robustok.study.config import study_named
    from robustok.study.run import RECORD

    study, folder, cells_folder = _find(study_named(name), options)
    kept = cells_folder or folder / "cells"
    planned = plan_cells(study)
    finished = {cell.key for cell in planned if (kept / cell.key / RECORD).exists()}
    for cell in planned:
        done = cell.key in finished
        if as_json:
            print_json({"key": cell.key, "done": done, "label": cell.label, "work": cell.work})
        else:
            click.echo(f"{cell.key:<28}  {'done' if done else '':<4}  {cell.label}")
    if not as_json:
        todo = [cell.work for cell in planned if cell.key not in finished]
        about = f", about {_time(todo)}" if todo else ""
        click.echo(f"{len(todo)} of {len(planned)} cells to do{about}")


def run(
    name: Name,
    options: Annotated[dict, StudyOptions],
    jobs: int | None = option(
        "cells to run at once  [default: by the available cores]", default=None, min=1
    ),
) -> None:
    """Run a study and write its report.

    The same command continues an interrupted run.
    """
    from robustok.cli.evaluate import print_accuracies
    from robustok.report import Results, write_report
    from robustok.report.readme import write_readme
    from robustok.report.source import read_source
    from robustok.study import run_study
    from robustok.study.config import study_named
    from robustok.study.run import cells_at_once

    require("matplotlib", "pandas")  # before the cells run, not after
    name = study_named(name)
    study, folder, cells_folder = _find(name, options)
    if jobs is not None and study.threads is None:
        raise RobustokError(
            f"--jobs: the cells of '{study.name}' run one after another; set `threads` in its YAML "
            "to run several at once"
        )
    console = Console(highlight=False)
    smaller = _scales_of(name) if study.scale == "full" else []
    note = f"at full scale; smaller ones: --scale {', '.join(smaller)}" if smaller else ""
    with StudyBars(console, cells_at_once(study.threads, jobs), note) as bars:
        run_study(study, folder, cells_folder=cells_folder, jobs=jobs, watch=bars)
    page, rows = write_report(folder), read_source(folder).rows
    if (results := Results(rows)).rows:
        print_accuracies(results)
    console.print(f"The report is at {page.resolve()}", soft_wrap=True, markup=False)
    if study.readme:
        readme = write_readme(rows, folder)
        where = f"is at {readme.resolve()}" if readme else "was not written: there is another one"
        console.print(f"README.md {where}", soft_wrap=True, markup=False)


def report(
    folders: Annotated[
        tuple[Path, ...],
        Argument("FOLDER...", "folders of runs, which are merged into one report"),
    ],
    out: Path | None = folder_option("of the report  [default: that of the run]"),
) -> None:
    """Write the report of runs.

    It has tables and figures: report.html, report.md and figures/. Several runs make one report:
    runs of one study with other seeds become one row each, with an interval over all seeds.
    """
    from robustok.report import write_report

    first, *others = folders
    if others and out is None:
        raise RobustokError("the report of several results needs its own folder: give --out")
    page = write_report(first, others, out=out)
    click.echo(f"The report is at {page.resolve()}")


def schema() -> None:
    """Print the JSON Schema of a study's YAML, for editors."""
    from robustok.study.config import study_schema

    click.echo(json.dumps(study_schema(), indent=2, ensure_ascii=False))


for command in (list_, show, plan, run, report, schema):
    group.add_command(with_settings(command))


def _find(name: str, options: dict[str, Any]) -> tuple[Study, Path, Path | None]:
    """The study, the folder of its run, and that of its cells if it is another."""
    from robustok.study import find_study

    out, cells_folder = options.pop("out", None), options.pop("cells", None)
    # A study that trains may have a scale that measures a model as it is.
    if "model" in options and "scale" not in options and _MEASURE in _scales_of(name):
        options["scale"] = _MEASURE
    # As a path is written: a run goes on with "./text.txt" where it began with "text.txt".
    paths = {name: str(path) for name, path in options.items() if isinstance(path, Path)}
    corpus = {"corpus": tuple(map(str, options["corpus"]))} if "corpus" in options else {}
    study = find_study(name, **options | paths | corpus)
    parts = [study.name, *([study.scale] if study.scale != "full" else [])]
    if "model" in options:  # its name without folder and revision
        model = options["model"]
        name = served_label(model) if is_served(model) else Path(model.partition("@")[0]).name
        parts.append(name or "model")
    return study, out or Path("runs", "-".join(parts)), cells_folder


def _time(work: list[float]) -> str:
    """The estimated time of cells on two cores."""
    minutes = sum(work) / 2 / 60
    if minutes > 90:
        return f"{minutes / 60:,.0f} hours on two cores"
    return f"{counted(max(round(minutes), 1), 'minute')} on two cores"
