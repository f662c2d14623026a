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

from experiments import fidelity
from experiments.claims import RESULTS, read_claims
from experiments.index import index
from experiments.verdicts import judge_all
from robustok.report import write_report
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
    "unless it is over three seeds or more and Holm's correction keeps it among those of its line. "
    "Beside an accuracy stand its change from canonical questions, in points, and the "
    "consistency, the share of questions with one answer in all draws. The axis of strength has "
    "measured splits per canonical token. Settings stand in the [ledger](fidelity.md). "
    "`robustok study report experiments/results/RUN --out DIR` draws the report of a run, which "
    "also has all differences, accuracies by subset and by kind of question, and values by layer."
)
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
    with tempfile.TemporaryDirectory() as temporary:
        report = write_report(RESULTS / run, out=Path(temporary))
        text = report.with_name("report.md").read_text(encoding="utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        for figure in sorted((Path(temporary) / "figures").glob("*.png")):
            shutil.copyfile(figure, folder / f"{run}-{figure.name}")
    text = _shortened(text, heading, without).replace("](figures/", f"](figures/{run}-")
    text = re.sub(r"^#", "##", text.strip(), flags=re.MULTILINE)
    return f'<a id="{run}"></a>\n\n{text}\n\n{_source(run)}'


def _shortened(text: str, heading: str, without: Sequence[str] = ()) -> str:
    """The report of a run without the parts that stand elsewhere, under another heading."""
    head, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    # One table a model: that beside the paper's, where there is one.
    has_paper = any(part.startswith("Comparison with the paper") for part in parts)
    left_out = (*_LEFT_OUT, *without, *(_ACCURACIES,) * has_paper)
    title, _, about = (head.rpartition("\n\nIntervals cover")[0] or head).partition("\n")
    about = re.sub(r"^- Accuracy with canonical .*\n", "", about, flags=re.MULTILINE)  # in READING
    about = re.sub(r"(measurements are finished):\n\n(\|.*(\n|$))+", r"\1.\n", about)
    kept = [f"# {heading}\n\n*{title.removeprefix('# ')}*\n{about}"]
    for part in parts:
        title, _, body = part.partition("\n")
        blocks = body.strip().split("\n\n")
        if title.startswith(_EXPLAINED):
            blocks = [block for block in blocks if block.startswith(("!", "|"))]
        if title.startswith(_FIGURE_ALONE):
            blocks = blocks[:1]
        if not title.startswith(left_out):
            kept.append("\n\n".join([title, *map(_of_what_was_run, _not_repeated(blocks))]))
    return "\n\n## ".join(one.strip() for one in kept) + "\n"


def _not_repeated(blocks: Sequence[str]) -> list[str]:
    """Without a table, and the text before it, whose lines and measured values a larger one has."""
    tables = {
        place: {
            tuple(cell.partition(" / ")[0] for cell in line.split("|"))
            for line in block.split("\n")
        }
        for place, block in enumerate(blocks)
        if block.startswith("|")
    }
    repeated = {place for place, own in tables.items() if any(own < one for one in tables.values())}
    left_out = repeated | {place - 1 for place in repeated if place - 1 not in tables}
    return [block for place, block in enumerate(blocks) if place not in left_out]


def _of_what_was_run(block: str) -> str:
    """A table without the lines that have the paper's values alone; other blocks as they are."""
    lines = block.split("\n")
    run = [line for line in lines if "| not run" not in line or re.search(r"\d \[", line)]
    return "\n".join(run) if block.startswith("|") and len(run) > 2 else block


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
