"""From a study's folder to its report: report.html, report.md and figures/."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from robustok.errors import RobustokError
from robustok.report.examples import groups
from robustok.report.figures import draw_figures
from robustok.report.findings import drop_table, findings
from robustok.report.page import render
from robustok.report.style import colors
from robustok.report.table import Results, Row, percent
from robustok.study.store import disk_full_in_one_line, read_json, read_rows, write_whole

CAPTIONS = {
    "teaser": (
        "Accuracy as the query's tokenization departs from the canonical one",
        "A bar is a model, a group a strength of perturbation; lines are 95% intervals. "
        "Strength 0 is the canonical tokenization.",
    ),
    "heatmap": (
        "Every model against every kind of query",
        "Accuracy in percent. The adversarial column is the greedy worst case: the attack walks "
        "through neighboring tokenizations of the same text, and the text never changes.",
    ),
}


def write_report(folder: Path) -> Path:
    """Write the report of a study's folder and return the path of its report.html.

    Raises RobustokError where the folder holds no results.
    """
    path = folder / "results.jsonl"
    if not path.is_file():
        raise RobustokError(f"{folder} holds no results.jsonl; run a study into it first")
    rows = read_rows(path)
    if not rows:
        raise RobustokError(f"{path} holds no rows yet; let the study finish a measurement")
    results = Results(rows)
    study = read_json(folder / "study.json")
    with disk_full_in_one_line(folder):
        drawn = draw_figures(results, folder / "figures")
        write_whole(folder / "report.html", _html(results, study, drawn, _examples(folder)))
        write_whole(folder / "report.md", _markdown(results, study, drawn))
    return folder / "report.html"


def _examples(folder: Path) -> list[dict[str, Any]]:
    found = sorted(folder.glob("cells/examples-*/examples.json"))
    return groups(read_json(found[0])) if found else []


def _html(
    results: Results,
    study: dict[str, Any],
    drawn: dict[str, dict[str, str]],
    examples: list[dict[str, Any]],
) -> str:
    head, lines = drop_table(results)
    return render(
        "report",
        study=study,
        facts=_facts(results),
        findings=findings(results),
        figures=[
            {"name": name, "title": CAPTIONS[name][0], "caption": CAPTIONS[name][1]}
            | {width: _data_url(svg) for width, svg in sizes.items()}
            for name, sizes in drawn.items()
        ],
        head=head,
        lines=list(zip(lines, colors(results.trains), strict=True)),
        examples=examples,
        rows=results.rows,
        percent=percent,
        configuration=json.dumps(study, indent=2, ensure_ascii=False),
        versions=results.rows[-1].get("versions", {}),
    )


def _data_url(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _facts(results: Results) -> list[str]:
    """The small print under the title: model, sizes, seed."""
    rows = results.rows
    facts = []
    if model := rows[0].get("model"):
        size = model["parameters"] / 1e6
        facts.append(
            f"{model['architecture'].capitalize()} architecture, {model['layers']} layers of width "
            f"{model['width']}, {size:.1f}M parameters"
        )
    counts = " or ".join(str(n) for n in sorted({row["n"] for row in rows}))
    facts.append(f"{counts} held-out questions a measurement")
    facts.append(f"seed {', '.join(str(s) for s in sorted({row['seed'] for row in rows}))}")
    return facts


def _markdown(results: Results, study: dict[str, Any], drawn: dict[str, Any]) -> str:
    head, lines = drop_table(results)
    parts = [f"# {study['title']}", study["about"].strip(), " · ".join(_facts(results))]
    parts.append("\n".join(f"- **{f.number}** {f.text}" for f in findings(results)))
    for name in drawn:
        title, caption = CAPTIONS[name]
        parts.append(f"## {title}\n\n![{title}](figures/{name}.png)\n\n{caption}")
    parts.append("## Canonical accuracy, and what other queries cost\n\n" + _drops(head, lines))
    parts.append("## All measurements\n\n" + _all(results.rows))
    return "\n\n".join(part for part in parts if part) + "\n"


def _drops(head: list[str], lines: list[list[dict[str, Any]]]) -> str:
    return _table(head, [[_in_words(entry) for entry in line] for line in lines])


def _in_words(entry: dict[str, Any]) -> str:
    notes = [entry[name] for name in ("accuracy", "interval") if entry.get(name)]
    return f"{entry['text']} ({' '.join(notes)})" if notes else entry["text"]


def _all(rows: list[Row]) -> str:
    return _table(
        ["training", "query", "accuracy", "95% interval", "n", "draws", "seconds"],
        [
            [
                row["train"],
                row["query"],
                percent(row["accuracy"]),
                f"{percent(row['low'])} to {percent(row['high'])}",
                str(row["n"]),
                str(row.get("draws", 1)),
                f"{row['seconds']:.1f}",
            ]
            for row in rows
        ],
    )


def _table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *lines])
