"""robustok doctor: show versions, hardware, caches and missing packages."""

from __future__ import annotations

import os
import platform
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from robustok.cli.options import Json, print_json
from robustok.extras import EXTRAS
from robustok.packaged import model_cache
from robustok.processes import available_cores
from robustok.versions import versions

NAME = "doctor"


def command(
    hub: Annotated[
        bool, typer.Option("--hub", help="open the files that the studies read from the model hub")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show versions, hardware, caches and missing packages."""
    if hub:
        _check_hub(as_json)
        return
    findings = _findings()
    if as_json:
        print_json(findings)
        return
    console = Console(highlight=False)
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, release in findings["versions"].items():
        table.add_row(name, Text(release))
    table.add_row("platform", findings["platform"])
    table.add_row("cores", str(findings["cores"]))
    table.add_row("devices", ", ".join(findings["devices"]) or "none (torch is not installed)")
    for name, place in findings["caches"].items():
        table.add_row(name, Text(place))
    console.print(table)
    for entry in findings["missing"]:
        line = f"missing {entry['package']}, for {entry['for']}: {entry['install']}"
        console.print(line, markup=False, soft_wrap=True)
    if not findings["missing"]:
        console.print("nothing is missing")


def _check_hub(as_json: bool) -> None:
    """Open a row of each data set, each tokenizer and model configuration; exit 1 on failure."""
    from robustok.study.hub import hub_names, open_on_hub

    failed = 0
    for entry in hub_names():
        problem = open_on_hub(entry)
        failed += problem is not None
        if as_json:
            print_json({"kind": entry.kind, "name": entry.name, "ok": problem is None,
                        "problem": problem, "studies": entry.studies})  # fmt: skip
        else:
            typer.echo(f"{'ok' if problem is None else 'FAILED':<7} {entry.kind:<10} {entry.name}")
            if problem:
                typer.echo(f"        {problem} (for {', '.join(entry.studies)})")
    if failed:
        raise typer.Exit(1)


def _findings() -> dict[str, Any]:
    from robustok.kernels.compiler.cache import cache_directory

    return {
        "versions": versions(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": available_cores(),
        "devices": _devices(),
        "caches": {
            "kernel cache": str(cache_directory() or "none is writable: set NUMBA_CACHE_DIR"),
            "model cache": str(model_cache()),
            "hub cache": os.environ.get("HF_HOME", str(Path("~/.cache/huggingface").expanduser())),
        },
        "missing": [
            {"package": name, "for": extra.purpose, "install": extra.install(name)}
            for name, extra in EXTRAS.items()
            if find_spec(name) is None
        ],
    }


def _devices() -> list[str]:
    from robustok.models.devices import devices

    return devices() if find_spec("torch") else []
