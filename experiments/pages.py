"""Keep the results of a run in `results/`, and draw the pages of docs/results from them.

A kept folder has `study.json`, `run.json`, and `results.jsonl` with the share of right answers to
each question in every row, and the kind of each question in the first row of a task, so that all
intervals and differences can be derived again without the run. A page has a section for each of
the folders that `pages` of `claims.yaml` lists for it; `robustok study report
experiments/results/quick` draws the same section. The page of all claims is made by `verdicts.py`,
from the same file.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments import fidelity
from experiments.claims import RESULTS, read_claims
from experiments.index import index
from experiments.verdicts import judge_all
from robustok.errors import RobustokError
from robustok.evaluation.intervals import clustered
from robustok.report import write_report
from robustok.report.frame import check_repeats, measurement_of, read_source
from robustok.report.style import Row
from robustok.runtime.files import read_json, write_json, write_rows

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/results"


def keep(run: Path, name: str, commit: str | None = None) -> Path:
    """Write what the page of a run needs into results/NAME; returns this folder.

    Rows of results/NAME that the run does not have stay, as those of other seeds.
    """
    folder = RESULTS / name
    folder.mkdir(parents=True, exist_ok=True)
    known = ("study", "scale", "seeds", "versions", "missing")
    record: dict[str, Any] = {field: read_json(run / "run.json")[field] for field in known} | {
        "commit": commit or _commit(),
        "date": datetime.fromtimestamp((run / "run.json").stat().st_mtime, UTC).date().isoformat(),
    }
    new = [_rounded(row) for row in read_source(run).rows]
    before = read_source(folder).rows if (folder / "results.jsonl").is_file() else []
    replaced = {row["cell"] for row in new}
    stay = [row for row in before if row["cell"] not in replaced]
    if stay:
        _check_same_settings(stay, new)
        record = _joined(read_json(folder / "run.json"), record)
    else:
        study = (run / "study.json").read_text(encoding="utf-8")
        study = re.sub(r'"/[^"]*/([^"/]+)"', r'"\1"', study)  # files of the machine by their names
        (folder / "study.json").write_text(study, encoding="utf-8")
    record["missing"] = [
        one
        for one in record["missing"]
        if not any(one.items() <= row.items() for row in (*stay, *new))
    ]
    write_json(folder / "run.json", record)
    write_rows(folder / "results.jsonl", _kinds_once([*stay, *new]))
    return folder


def _kinds_once(rows: Sequence[Row]) -> list[Row]:
    """The rows with the kinds of all questions of a task in its first row alone.

    They are as large as the answers, and :func:`read_source` gives every row its own again.
    """
    kinds: dict[Any, Row] = {}
    for row in rows:
        kinds.setdefault(row.get("task"), {}).update(row.get("kinds", {}))
    kept = []
    for row in rows:
        of_task = kinds.pop(row.get("task"), {})
        alone = {name: value for name, value in row.items() if name != "kinds"}
        kept.append(alone | ({"kinds": of_task} if of_task else {}))
    return kept


def _joined(before: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The record of two runs whose rows stand in one folder."""
    commits = dict.fromkeys([*before["commit"].split(", "), new["commit"]])
    return new | {
        "seeds": sorted({*before["seeds"], *new["seeds"]}),
        "missing": [*before["missing"], *(m for m in new["missing"] if m not in before["missing"])],
        "commit": ", ".join(commits),
    }


def _check_same_settings(stay: Sequence[Row], new: Sequence[Row]) -> None:
    """Refuse rows that are no repeats of the kept ones that measured the same."""
    measured: dict[Any, list[Row]] = {}
    for row in (*stay, *new):
        measured.setdefault(measurement_of(row), []).append(row)
    for rows in measured.values():
        name = f"{rows[0]['train_scheme']} on {rows[0]['eval_scheme']}"
        try:
            check_repeats(name, rows)
        except RobustokError as error:
            sys.exit(f"{error}; or keep them under another name")


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose shares of right answers have five digits, which is exact for 0 and 1.

    The bounds are those that today's code gives these answers.
    """
    if "answers" not in row:
        return row
    answers = {key: round(share, 5) for key, share in row["answers"].items()}
    _, low, high = clustered(list(answers.values()), row["draws"])
    return row | {"low": low, "high": high, "answers": answers}


def pages() -> dict[str, list[str]]:
    """The kept results that each page shows; raises ValueError where a kept one is on none."""
    kept = {path.parent.name for path in RESULTS.glob("*/run.json")}
    listed = {name: page["runs"] for name, page in read_claims().pages.items()}
    if left := kept.difference(*listed.values()):
        raise ValueError(f"list {sorted(left)} on one of the pages of claims.yaml: {[*listed]}")
    return {name: [run for run in runs if run in kept] for name, runs in listed.items()}


def draw(name: str, folder: Path) -> str:
    """Draw a page: figures into a folder, and its text as it is returned."""
    claims = read_claims()
    if name == "index":
        return index(claims, judge_all(claims), folder)
    if name == "fidelity":
        return fidelity.page()
    page = claims.pages[name]
    sections = [section(run, folder) for run in pages()[name]]
    return "\n\n".join([f"# {page['title']}", page["about"], *sections]) + "\n"


def section(run: str, folder: Path) -> str:
    """Draw what a page shows of results/RUN, with the folder's name as its anchor."""
    with tempfile.TemporaryDirectory() as temporary:
        report = write_report(RESULTS / run, out=Path(temporary))
        text = report.with_name("report.md").read_text(encoding="utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        for figure in sorted((Path(temporary) / "figures").glob("*.png")):
            shutil.copyfile(figure, folder / f"{run}-{figure.name}")
    text = text.replace("](figures/", f"](figures/{run}-")
    text = re.sub(r"^#", "##", text.strip(), flags=re.MULTILINE)
    return f'<a id="{run}"></a>\n\n{text}\n\n{_source(run)}'


def _source(name: str) -> str:
    record = read_json(RESULTS / name / "run.json")
    versions = record["versions"]
    rows = (RESULTS / name / "results.jsonl").read_text(encoding="utf-8")
    has_answers = '"answers"' in rows
    answers = ", which has the answers to each question" if has_answers else ""
    known = [f"{package} {versions[package]}" for package in ("robustok", "torch", "transformers")]
    return (
        f"Measured on {record['date']} at commit {record['commit']} with {', '.join(known)}. This "
        f"section is drawn from `experiments/results/{name}`{answers}: "
        f"`robustok study report experiments/results/{name} --out DIR`."
    )


OF_ALL = ("index", "fidelity")  # pages that are drawn from all results


def write(name: str) -> Path:
    """Draw a page of docs/results with its figures; returns its file."""
    page = PAGES / f"{name}.md"
    page.write_text(draw(name, PAGES / "figures"), encoding="utf-8")
    return page
