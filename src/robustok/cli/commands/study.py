"""robustok study: list, plan and run studies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from robustok.cli.bars import Bars
from robustok.errors import RobustokError, nearest

if TYPE_CHECKING:
    from robustok.study import Study

NAME = "study"
ACTIONS = ("list", "plan", "run")
ENGINES = ("local", "ray")


def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[list | plan | run] [NAME | FILE.yaml]",
            help="what to do (run, if nothing is said) and with which study (quick)",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="the run's folder [default: runs/NAME]")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="cells side by side [default: as the cores allow]"),
    ] = None,
    scale: Annotated[
        str | None, typer.Option("--scale", help="such as cpu: the small one of a paper's study")
    ] = None,
    corpus: Annotated[
        list[Path] | None,
        typer.Option("--corpus", help="text to pre-train on, in place of the study's own"),
    ] = None,
    held_out: Annotated[
        Path | None, typer.Option("--held-out", help="text to measure perplexity on")
    ] = None,
    benchmarks: Annotated[
        Path | None,
        typer.Option("--benchmarks", help="a folder of NAME.jsonl files, in place of the hub"),
    ] = None,
    cells: Annotated[
        Path | None,
        typer.Option("--cells", help="a folder of cells that several studies share"),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", help="local, or ray for a cluster that shares the folder")
    ] = "local",
    word_list: Annotated[
        str | None,
        typer.Option("--words", help="a file with one word a line, in place of frequent words"),
    ] = None,
) -> None:
    """Run a study and write its report.

    The same command goes on with a run that was stopped. `robustok study list` shows the
    studies that come along, `robustok study plan NAME` what one would do.
    """
    action, name = _parse(words or [])
    if action == "list":
        _list()
        return
    from robustok.study import find_study, run_study

    if engine not in ENGINES:
        raise RobustokError(f"unknown engine '{engine}': {nearest(engine, ENGINES)}")
    study = find_study(
        name,
        scale=scale,
        words_file=word_list,
        corpus=tuple(map(str, corpus or ())),
        held_out=str(held_out) if held_out else None,
        benchmarks=str(benchmarks) if benchmarks else None,
    )
    folder = out or Path("runs") / (study.name if scale is None else f"{study.name}-{scale}")
    if action == "plan":
        _plan(study, cells or folder / "cells")
        return
    from robustok.report import Results, findings, merged, write_report

    console = Console(highlight=False)
    with Bars(console) as bars:
        run = run_study(study, folder, cells_folder=cells, jobs=jobs, engine=engine, watch=bars)
    page = write_report(folder)
    for finding in findings(Results(merged(run.rows))):
        console.print(f"{finding.number:>6} {finding.text}", soft_wrap=True)
    console.print(f"The report is at {page.resolve()}", soft_wrap=True)


def _parse(words: list[str]) -> tuple[str, str]:
    action = words.pop(0) if words and words[0] in ACTIONS else "run"
    if len(words) > 1:
        raise RobustokError(f"one study at a time: {words[1]!r} is one too many")
    if action == "list" and words:
        raise RobustokError(f"'study list' takes no name, but got {words[0]!r}")
    return action, words[0] if words else "quick"


def _plan(study: Study, cells: Path) -> None:
    """Every cell of a study, and which of them a folder of cells already holds."""
    from robustok.study import plan
    from robustok.study.work import RECORD

    for cell in plan(study):
        done = "done" if (cells / cell.key / RECORD).exists() else ""
        typer.echo(f"{cell.key:<28}  {done:<4}  {cell.label}")


def _list() -> None:
    """Every study with what it needs, at full size and at its small one."""
    from robustok.study import studies

    # The one to begin with comes first.
    for name in sorted(studies(), key=lambda name: (name != "quick", name)):
        for number, scale in enumerate((None, "cpu")):
            study = _known(name, scale)
            if not number:
                where = f" ({study.paper.where})" if study.paper else ""
                typer.echo(f"{name}\n    {study.title}{where}")
            typer.echo(f"    {scale or 'full'}: {_needs(study)}")


def _known(name: str, scale: str | None) -> Study:
    from robustok.study import find_study

    try:
        return find_study(name, scale=scale)
    except RobustokError:
        # What it costs does not depend on which text is read, so none has to be there.
        return find_study(name, scale=scale, corpus=("text",), held_out="text")


def _needs(study: Study) -> str:
    from robustok.models import ARCHITECTURES
    from robustok.study import plan
    from robustok.study.cost import gpu_hours, parameters

    cells = plan(study, read=False)
    family = ARCHITECTURES[study.model.architecture]
    model = study.model.name or f"a {family} of {parameters(study) / 1e6:.1f}M parameters"
    text = study.corpus and (study.corpus.hub or "text of yours (--corpus, --held-out)")
    work = [cell.work for cell in cells]
    hours, minutes = gpu_hours(work), sum(work) / 2 / 60
    time = f"{minutes:.0f} minutes on two cores"
    if minutes > 600:
        time = f"{hours:.1f} GPU hours"
    return f"{', '.join(filter(None, (model, text)))}; {len(cells)} cells, about {time}"
