"""From a study's folder to its report: report.html, report.md and figures/."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robustok.errors import RobustokError
from robustok.files import disk_full_in_one_line, read_json, read_object, read_rows, write_whole
from robustok.report.examples import groups
from robustok.report.figures import draw_figures
from robustok.report.merge import merged, perplexities
from robustok.report.page import render
from robustok.report.paper import beside_paper
from robustok.report.statements import drop_table, findings
from robustok.report.table import Results, Row, percent

CAPTIONS = {
    "teaser": (
        "Accuracy as the query's tokenization departs from the canonical one",
        "A bar is a model, a group a strength of perturbation; lines are 95% intervals. "
        "Strength 0 is the canonical tokenization.",
    ),
    "embeddings": (
        "How far apart each model holds the tokenizations of a word",
        "Mean distance between unit-normalized last-token states of the canonical and of uniformly "
        "drawn tokenizations, by layer; bands are 95% over words.",
    ),
    "heatmap": (
        "Every model against every kind of query",
        "Accuracy in percent. An adversarial column is the greedy worst case: the attack walks "
        "through neighboring tokenizations of the same text, and the text never changes.",
    ),
}


def write_report(folder: Path, others: Sequence[Path] = (), *, out: Path | None = None) -> Path:
    """Write the report of a study's folder, merged with other runs, and return its report.html.

    >>> write_report(Path("runs/demo")).name  # the folder that run_study's example made
    'report.html'

    Args:
        folder: folder of a run.
        others: folders of further runs. Other seeds of the same study change the intervals; other
            studies are shown as models of their own.
        out: output folder, by default `folder`.

    Raises RobustokError where a folder has no results.
    """
    rows = [row for each in (folder, *others) for row in _rows(each)]
    study = read_object(folder / "study.json")
    out = out or folder
    results = Results(merged(rows))
    with disk_full_in_one_line(out):
        drawn = draw_figures(results, out / "figures") if results.rows else {}
        drawn |= _embeddings(rows, out / "figures")
        held = perplexities(rows)
        beside = beside_paper(study, rows)
        page = _html(results, study, drawn, _examples(folder), held, beside, rows)
        write_whole(out / "report.html", page)
        write_whole(out / "report.md", _markdown(results, study, drawn, held, beside, rows))
    return out / "report.html"


def _embeddings(rows: Sequence[Row], folder: Path) -> dict[str, dict[str, str]]:
    layers = [layer for row in rows for layer in row.get("layers", ())]
    if not layers:
        return {}
    from robustok.report.model_figures import draw_embeddings

    draw_embeddings(layers, folder / "embeddings")
    text = (folder / "embeddings.svg").read_text(encoding="utf-8")
    return {"embeddings": {"wide": text, "narrow": text}}


def _rows(folder: Path) -> list[Row]:
    path = folder / "results.jsonl"
    if not path.is_file():
        raise RobustokError(f"{folder} holds no results.jsonl; run a study into it first")
    rows = read_rows(path)
    if not rows:
        raise RobustokError(f"{path} holds no rows yet; let the study finish a measurement")
    return rows


def _examples(folder: Path) -> list[dict[str, Any]]:
    found = sorted(folder.glob("cells/examples-*/examples.json"))
    return groups(read_json(found[0])) if found else []


def _html(
    results: Results,
    study: dict[str, Any],
    drawn: dict[str, dict[str, str]],
    examples: list[dict[str, Any]],
    held: list[Row],
    beside: list[dict[str, Any]],
    raw: list[Row],
) -> str:
    head, lines = drop_table(results)
    return render(
        "report",
        study=study,
        facts=_facts(raw),
        findings=findings(results),
        figures=[
            {"name": name, "title": CAPTIONS[name][0], "caption": CAPTIONS[name][1]}
            | {width: _data_url(svg) for width, svg in sizes.items()}
            for name, sizes in drawn.items()
        ],
        head=head,
        lines=list(zip(lines, (results.colors[train] for train in results.trains), strict=True)),
        perplexities=_perplexity_lines(held),
        paper=(study.get("paper") or {}),
        beside=beside,
        examples=examples,
        rows=results.rows,
        percent=percent,
        configuration=json.dumps(study, indent=2, ensure_ascii=False),
        versions=raw[-1].get("versions", {}),
    )


def _data_url(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _facts(rows: Sequence[Row]) -> list[str]:
    """The small print under the title: model, sizes, seed."""
    facts = []
    if model := rows[0].get("model"):
        from robustok.models import ARCHITECTURES

        size = f"{model['parameters'] / 1e6:.1f}M parameters"
        made = ARCHITECTURES[model.get("architecture", "llama")] + " architecture, "
        made += f"{model.get('layers')} layers of width {model.get('width')}"
        facts.append(f"{model.get('name') or made}, {size}")
    if counts := sorted({row["n"] for row in rows if "n" in row}):
        facts.append(f"{' or '.join(map(str, counts))} held-out questions a measurement")
    seeds = sorted({row["seed"] for row in rows})
    facts.append(f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}")
    if (scale := rows[0].get("scale", "full")) != "full":
        facts.append(f"at {scale} scale, not the paper's")
    return facts


def _perplexity_lines(held: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Pre-trained models against queries, as text."""
    queries = list(dict.fromkeys(row["query"] for row in held))
    found = {(row["pretrain"], row["query"]): row for row in held}
    lines = []
    for pretrain in dict.fromkeys(row["pretrain"] for row in held):
        shown = [_perplexity(found.get((pretrain, query))) for query in queries]
        lines.append([pretrain, *shown])
    return ["pre-trained", *queries], lines


def _perplexity(row: Row | None) -> str:
    if row is None:
        return "not run"
    said = f"{row['perplexity']:.1f}"
    if len(row["seeds"]) > 1:
        said += f" [{row['lowest']:.1f}, {row['highest']:.1f}]"
    return f"{said}, {row['bits_per_byte']:.3f} bits/byte"


def _markdown(
    results: Results,
    study: dict[str, Any],
    drawn: dict[str, Any],
    held: list[Row],
    beside: list[dict[str, Any]],
    raw: list[Row],
) -> str:
    head, lines = drop_table(results)
    parts = [f"# {study['title']}", study["about"].strip(), " · ".join(_facts(raw))]
    parts.append("\n".join(f"- **{f.number}** {f.text}" for f in findings(results)))
    for name in drawn:
        title, caption = CAPTIONS[name]
        parts.append(f"## {title}\n\n![{title}](figures/{name}.png)\n\n{caption}")
    if lines:
        parts.append("## Canonical accuracy, and what other queries cost\n\n" + _drops(head, lines))
    if held:
        about = "Brackets hold the lowest and the highest of the seeds."
        parts.append(
            f"## Perplexity of held-out text\n\n{_table(*_perplexity_lines(held))}\n\n{about}"
        )
    if beside:
        paper = study["paper"]
        claims = "\n".join(f"- The paper: {claim}" for claim in paper["claims"])
        said = "Ours with its 95% interval / the paper's, and the difference in points."
        parts.append(f"## Beside the paper: {paper['where']}\n\n{claims}\n\n{said}")
        parts += [_table(table["head"], table["lines"]) for table in beside]
    if results.rows:
        parts.append("## All measurements\n\n" + _all(results.rows))
    return "\n\n".join(part for part in parts if part) + "\n"


def _drops(head: list[str], lines: list[list[dict[str, Any]]]) -> str:
    return _table(head, [[_in_words(entry) for entry in line] for line in lines])


def _in_words(entry: dict[str, Any]) -> str:
    text, accuracy, interval = (entry.get(name, "") for name in ("text", "accuracy", "interval"))
    return f"{text} ({accuracy} {interval})" if accuracy else f"{text} {interval}".rstrip()


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
