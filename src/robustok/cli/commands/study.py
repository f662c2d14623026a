"""robustok study: list, plan and run studies, and write their reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from robustok.cli.bars import Bars
from robustok.cli.commands import report
from robustok.cli.options import Json, WordsFile, print_json
from robustok.cli.outputs import output_folder
from robustok.errors import RobustokError, nearest

if TYPE_CHECKING:
    from robustok.study import Study

NAME = "study"
ENGINES = ("local", "ray")


class _RunByDefault(TyperGroup):
    """`study NAME` is `study run NAME`, and `study` alone is `study list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:
            args = ["list"]
        elif args[0] not in (*self.commands, "-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    help="List, plan and run studies. `study NAME` is `study run NAME`.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Name = Annotated[str, typer.Argument(metavar="NAME | FILE.yaml", help="see `study list`")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FOLDER", callback=output_folder, help="[default: runs/NAME]"
    ),
]
Scale = Annotated[
    str | None, typer.Option("--scale", help="cpu, or small for SmolLM2-135M; see `study list`")
]
Corpus = Annotated[
    list[Path] | None,
    typer.Option("--corpus", help="text to pre-train on, instead of the study's text"),
]
HeldOut = Annotated[Path | None, typer.Option("--held-out", help="text to measure perplexity on")]
Benchmarks = Annotated[
    Path | None,
    typer.Option("--benchmarks", help="folder of NAME.jsonl files, instead of the hub"),
]
Repeats = Annotated[
    int | None,
    typer.Option("--repeats", min=1, help="number of seeds [default: the study's own]"),
]
Cells = Annotated[
    Path | None, typer.Option("--cells", help="folder of cells that several studies share")
]


@app.command("list")
def list_command(as_json: Json = False) -> None:
    """List the included studies and the requirements of each."""
    from robustok.study.catalog import scales_of, studies

    # quick is first: a new user starts with it.
    for name in sorted(studies(), key=lambda name: (name != "quick", name)):
        scales = [(scale or "full", _known(name, scale)) for scale in (None, *scales_of(name))]
        full = scales[0][1]
        where = full.paper.where if full.paper else None
        needs = {scale: _needs(study) for scale, study in scales}
        if as_json:
            print_json({"name": name, "title": full.title, "paper": where, "needs": needs})
            continue
        typer.echo(f"{name}\n    {full.title}{f' ({where})' if where else ''}")
        for scale, text in needs.items():
            typer.echo(f"    {scale}: {text}")


@app.command("plan")
def plan_command(
    name: Name,
    out: Out = None,
    scale: Scale = None,
    corpus: Corpus = None,
    held_out: HeldOut = None,
    benchmarks: Benchmarks = None,
    repeats: Repeats = None,
    cells: Cells = None,
    words_file: WordsFile = None,
    as_json: Json = False,
) -> None:
    """Show every cell of a study, and which are done."""
    from robustok.study import plan
    from robustok.study.work import RECORD

    study = _study(name, scale, corpus, held_out, benchmarks, words_file, repeats)
    folder = cells or (out or _default_folder(study, scale)) / "cells"
    planned = plan(study)
    todo = [cell for cell in planned if not (folder / cell.key / RECORD).exists()]
    for cell in planned:
        done = (folder / cell.key / RECORD).exists()
        if as_json:
            print_json({"key": cell.key, "done": done, "label": cell.label, "work": cell.work})
        else:
            typer.echo(f"{cell.key:<28}  {'done' if done else '':<4}  {cell.label}")
    if not as_json:
        time = _time([cell.work for cell in todo])
        typer.echo(f"{len(todo)} of {len(planned)} cells to do, about {time}")


@app.command("run")
def run_command(
    name: Name,
    out: Out = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, help="cells to run at once [default: by the available cores]"
        ),
    ] = None,
    scale: Scale = None,
    corpus: Corpus = None,
    held_out: HeldOut = None,
    benchmarks: Benchmarks = None,
    repeats: Repeats = None,
    cells: Cells = None,
    engine: Annotated[
        str, typer.Option("--engine", help="local, or ray for a cluster that shares the folder")
    ] = "local",
    words_file: WordsFile = None,
) -> None:
    """Run a study and write its report.

    The same command continues an interrupted run.
    """
    from robustok.report import Results, findings, merged, write_report
    from robustok.report.sources import read_source
    from robustok.study import run_study

    if engine not in ENGINES:
        raise RobustokError(f"unknown engine '{engine}': {nearest(engine, ENGINES)}")
    study = _study(name, scale, corpus, held_out, benchmarks, words_file, repeats)
    if jobs is not None and engine != "local":
        raise RobustokError(
            "--jobs applies to --engine local: leave it out, Ray schedules the cells"
        )
    if jobs is not None and study.threads is None:
        raise RobustokError(
            f"--jobs: the cells of '{study.name}' run one after another; set `threads` in its YAML "
            "to run several at once"
        )
    folder = out or _default_folder(study, scale)
    console = Console(highlight=False)
    with Bars(console) as bars:
        run_study(study, folder, cells_folder=cells, jobs=jobs, engine=engine, watch=bars)
    page = write_report(folder)
    for finding in findings(Results(merged(read_source(folder).rows))):
        console.print(f"{finding.number:>6} {finding.text}", soft_wrap=True, markup=False)
    console.print(f"The report is at {page.resolve()}", soft_wrap=True, markup=False)


app.command("report")(report.command)


def _default_folder(study: Study, scale: str | None) -> Path:
    return Path("runs") / (study.name if scale is None else f"{study.name}-{scale}")


def _study(
    name: str,
    scale: str | None,
    corpus: list[Path] | None,
    held_out: Path | None,
    benchmarks: Path | None,
    words_file: str | None,
    repeats: int | None,
) -> Study:
    from robustok.study import find_study

    return find_study(
        name,
        scale=scale,
        words_file=words_file,
        corpus=tuple(map(str, corpus or ())),
        held_out=str(held_out) if held_out else None,
        benchmarks=str(benchmarks) if benchmarks else None,
        repeats=repeats,
    )


def _known(name: str, scale: str | None) -> Study:
    from robustok.study import find_study

    try:
        return find_study(name, scale=scale)
    except RobustokError:
        # The estimate does not depend on the text, so the files need not exist.
        return find_study(name, scale=scale, corpus=("text",), held_out="text")


def _needs(study: Study) -> str:
    from robustok.models import ARCHITECTURES
    from robustok.study import plan
    from robustok.study.cost import parameters

    cells = plan(study, read=False)
    family = ARCHITECTURES[study.model.architecture]
    model = study.model.name or f"a {family} of {parameters(study) / 1e6:.1f}M parameters"
    text = study.corpus and (study.corpus.hub or "your own text (--corpus, --held-out)")
    time = _time([cell.work for cell in cells])
    return f"{', '.join(filter(None, (model, text)))}; {len(cells)} cells, about {time}"


def _time(work: list[float]) -> str:
    """The estimated time of cells: minutes on two cores, or hours on a GPU."""
    from robustok.study.cost import gpu_hours

    minutes = sum(work) / 2 / 60
    if minutes > 600:
        return f"{gpu_hours(work):.1f} GPU hours"
    return f"{minutes:.0f} minutes on two cores"
