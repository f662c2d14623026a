"""Draw the pages of docs/results from `results/`, a section for each folder that a page lists.

`pages` of `claims.yaml` lists them; `robustok study report experiments/results/quick` draws the
same section. The page of all claims is made by `index.py`, and the ledger by `fidelity.py`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import fidelity
from experiments.claims import RESULTS, read_claims
from experiments.index import index
from experiments.verdicts import judge_all
from robustok.errors import RobustokError
from robustok.report import Results
from robustok.report.page import Section, write_page
from robustok.report.source import read_source
from robustok.report.write import report_values
from robustok.runtime.files import read_json

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/results"


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
    if name not in claims.pages:
        raise RobustokError(f"draw one of {', '.join((*claims.pages, *OF_ALL))}, not {name!r}")
    page = claims.pages[name]
    without = page.get("without", ())
    sections = [
        section(run, folder, _heading(claims.models[run]), without) for run in pages()[name]
    ]
    return "\n\n".join([f"# {page['title']}", page["about"], READING, *sections]) + "\n"


READING = (
    "Accuracies are in percent, with 95% intervals over seeds and questions; those of one seed "
    "(hatched bars, a star in a heat map) are over questions only. A section begins with canonical "
    "training or examples → the others, and in points the paired differences; one is undecided "
    "unless it is over three seeds or more and Holm's correction keeps it among those of its line; "
    "the [index](index.md) has the verdicts, some at levels that were fixed before. "
    "Beside an accuracy stand its change from canonical questions, in points, and the "
    "consistency, the share of questions with one answer in all draws. The axis of strength has "
    "measured splits per canonical token. Settings stand in the [ledger](fidelity.md). "
    "`robustok study report experiments/results/RUN --out DIR` draws the report of a run, which "
    "also has all differences, accuracies by subset and by kind of question, and values by layer."
)
_IN_READING = "Accuracy with canonical "
# Of the report of a run: what the ledger has, and what READING says once.
_LEFT_OUT = (
    "All measurements", "Difference to canonical", "Accuracy by kind of question",
)  # fmt: skip
_FIGURE_ALONE = ("Accuracy by the steps of fine-tuning", "Distance between the tokenizations")
_ACCURACIES = "Accuracy on canonical questions"
_EXPLAINED = (
    "Accuracy by the strength of the perturbation", "Accuracy under attack",
    "Accuracy of every model under every evaluation scheme", _ACCURACIES,
)  # fmt: skip


def _heading(model: Mapping[str, str]) -> str:
    return f"{model['model']}: {model['where']}"


def section(run: str, folder: Path, heading: str, without: Sequence[str] = ()) -> str:
    """Draw what a page shows of results/RUN, with the folder's name as its anchor.

    ``without`` are titles of parts of the report that the page leaves out.
    """
    source = read_source(RESULTS / run)
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary)
        values = report_values([source], Results(source.rows), out)
        title = values["title"]
        write_page(out, **_shortened(values, heading, without))
        text = (out / "report.md").read_text(encoding="utf-8").strip()
        folder.mkdir(parents=True, exist_ok=True)
        for figure in sorted((out / "figures").glob("*.png")):
            shutil.copyfile(figure, folder / f"{run}-{figure.name}")
    text = text.replace("\n", f"\n\n*{title}*\n", 1).replace("](figures/", f"](figures/{run}-")
    text = re.sub(r"^#", "##", text, flags=re.MULTILINE)
    return f'<a id="{run}"></a>\n\n{text}\n\n{_source(run)}'


def _shortened(values: Mapping[str, Any], heading: str, without: Sequence[str]) -> dict[str, Any]:
    """The values of a report without what stands elsewhere, under another heading."""
    sections: Sequence[Section] = values["sections"]
    # One table a model: that beside the paper's, where there is one.
    has_paper = any(part.title.startswith("Comparison with the paper") for part in sections)
    left_out = (*_LEFT_OUT, *without, *(_ACCURACIES,) * has_paper)
    kept = [_compact(part) for part in sections if not part.title.startswith(left_out)]
    answers = [line for line in values["answers"] if not line.startswith(_IN_READING)]
    shown = {"title": heading, "sections": kept, "answers": answers, "missing": None}
    if values["note"].startswith("Intervals cover"):  # of several seeds, as in READING
        shown |= {"note": "", "about": ""}
    return {**values, **shown}


def _compact(part: Section) -> Section:
    """A section without its explanation, and without tables that say what others do."""
    if part.title.startswith(_FIGURE_ALONE):
        return part._replace(caption="", tables=())
    tables = [table._replace(lines=_of_what_was_run(table.lines)) for table in part.tables]
    cells = [{tuple(x.partition(" / ")[0] for x in line) for line in t.texts} for t in tables]
    tables = [t for t, own in zip(tables, cells, strict=True) if not any(own < x for x in cells)]
    if part.title.startswith(_EXPLAINED):
        part, tables = part._replace(caption=""), [table._replace(note="") for table in tables]
    return part._replace(tables=tables)


def _of_what_was_run(lines: Sequence[list[Any]]) -> list[list[Any]]:
    """The lines of a table without those that have the paper's values alone, if others are left."""
    texts = [" ".join(map(str, line)) for line in lines]
    run = [
        line
        for line, text in zip(lines, texts, strict=True)
        if "not run" not in text or re.search(r"\d \[", text)
    ]
    return run or [*lines]


def _source(name: str) -> str:
    record = read_json(RESULTS / name / "run.json")
    versions = record["versions"]
    rows = (RESULTS / name / "results.jsonl").read_text(encoding="utf-8")
    answers = ", with each answer" if '"answers"' in rows else ""
    known = [f"{package} {versions[package]}" for package in ("robustok", "torch", "transformers")]
    return (
        f"Run `{name}` of {record['date']} at commit {record['commit']}{answers}: "
        f"{', '.join(known)}."
    )


OF_ALL = ("index", "fidelity")  # pages that are drawn from all results


def write(name: str) -> Path:
    """Draw a page of docs/results with its figures; returns its file."""
    page = PAGES / f"{name}.md"
    page.write_text(draw(name, PAGES / "figures"), encoding="utf-8")
    return page
