"""Writes the report of a study's folder: report.html, report.md and figures/."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robustok.errors import RobustokError
from robustok.files import disk_full_in_one_line, read_json, write_whole
from robustok.report.about import about
from robustok.report.accuracies import (
    FEW_SHOT,
    accuracy_table,
    first_title,
    versus_canonical,
    write_table,
)
from robustok.report.curve import draw_curve
from robustok.report.embeddings import draw_layers, merged_layers
from robustok.report.examples import groups
from robustok.report.figures import draw_figures
from robustok.report.merge import merged, perplexities, training
from robustok.report.missing import missing
from robustok.report.page import render
from robustok.report.paper import beside_paper
from robustok.report.sections import Section
from robustok.report.sources import Source, read_source
from robustok.report.statements import findings
from robustok.report.table import Results, Row, percent
from robustok.study.cells.models import UNTRAINED

TITLES = {
    "accuracy": "Accuracy on canonical questions, on the most perturbed ones and under attack",
    "versus": "Difference to canonical training",
    "perplexity": "Perplexity of held-out text",
    "embeddings": "Distances by layer",
}
NOTES = {
    "accuracy": (
        "Accuracy in percent with its 95% interval. Below it the change from the canonical "
        "tokenizations of the same questions, in points with its 95% interval: an attack is "
        "compared on the questions that it attacked."
    ),
    "versus": (
        "In points, with 95% intervals, over the seeds and questions that both models have. A star "
        "marks the differences of a column that remain after Holm's correction; the others "
        "establish no order."
    ),
    "perplexity": (
        "Perplexity is per token of the drawn sequence; bits per byte are comparable between "
        "schemes and vocabularies. Brackets hold the lowest and the highest of the seeds."
    ),
}
PAPER_NOTES = {
    "accuracy": (
        "Each cell: our value with its 95% interval / the paper's value, and the difference in "
        "points."
    ),
    "perplexity": (
        "Each cell: our value / the paper's value. Perplexities of different vocabularies do not "
        "compare as numbers."
    ),
    "embeddings": "Each cell: our value / the paper's value, by the number of the layer.",
}
CAPTIONS = {
    "teaser": (
        "Accuracy by the strength of the perturbation",
        "One bar a model, one group of bars a strength, with 95% intervals. The axis is the number "
        "of splits per canonical token, where it was measured; α is the parameter of the scheme "
        "that gave them. At α = 0 the questions have their canonical tokenization.",
    ),
    "attacks": (
        "Accuracy under attack",
        "One bar a model or a training scheme, with 95% intervals. An attack searches the "
        "tokenizations of a question for one that the model answers wrongly.",
    ),
    "embeddings": (
        "Distance between the tokenizations of a word, by layer",
        "Mean distance between the unit-normalized last-token states of the canonical and of "
        "uniformly drawn tokenizations; bands are 95% intervals over words and seeds.",
    ),
    "curve": (
        "Accuracy by the number of tokenizations scored",
        "Share of questions that are still answered correctly after an attack has scored this many "
        "tokenizations of each, with 95% intervals.",
    ),
    "heatmap": (
        "Accuracy of every model under every evaluation scheme",
        "In percent. Where schemes were trained at several strengths, a panel is an evaluation "
        "scheme, a row a training scheme and a column its strength; otherwise a row is a model.",
    ),
}


def write_report(
    folder: Path,
    others: Sequence[Path] = (),
    *,
    out: Path | None = None,
    table: Path | None = None,
) -> Path:
    """Write the report of a study's folder or of a file of results, and return its report.html.

    >>> write_report(Path("runs/demo")).name  # the folder that run_study's example made
    'report.html'

    Args:
        folder: folder of a run, or a file: results.jsonl of a study, or the file of `robustok
            evaluate --out`, `icl --out`, `attack --out`, `attack --generate` or `certify --out`.
        others: further folders and files. Other seeds of the same study change the intervals; other
            studies and files are shown as models of their own.
        out: output folder; by default `folder`, or for a file its name without the suffix and with
            `-report`, beside it.
        table: file that :func:`write_table` writes the accuracies to; by default none.

    Raises RobustokError where a folder or a file has no results, and where there are no accuracies
    for `table`.
    """
    sources = [read_source(path) for path in (folder, *others)]
    names = [
        path.stem
        for path, source in zip((folder, *others), sources, strict=True)
        if source.section is not None or "file" in source.rows[0]
    ]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise RobustokError(f"two files are named '{repeated}': rename one")
    rows = [row for source in sources for row in source.rows]
    files = ", ".join(path.name for path in (folder, *others))
    study = sources[0].study or {"name": "", "title": f"Results of {files}"}
    out = out or (folder.with_name(f"{folder.stem}-report") if folder.is_file() else folder)
    results = Results(merged(rows))
    if table is not None:
        write_table(table, results)
    with disk_full_in_one_line(out):
        drawn = draw_figures(results, out / "figures") if results.rows else {}
        drawn |= draw_layers(rows, out / "figures")
        drawn |= _curves(sources, out / "figures")
        sections = [s.section(out / "figures") for s in sources if s.section is not None]
        values = _values(results, study, drawn, _examples(folder), rows)
        values["sections"] = [_shown(section, out / "figures") for section in sections]
        for suffix in ("html", "md"):
            write_whole(out / f"report.{suffix}", render(f"report.{suffix}", **values))
    return out / "report.html"


def _shown(section: Section, folder: Path) -> dict[str, Any]:
    """A section with its figure as a link for the page."""
    image = ""
    if section.figure:
        image = _data_url((folder / f"{section.figure}.svg").read_text(encoding="utf-8"))
    return section._asdict() | {"image": image}


def _curves(sources: Sequence[Source], folder: Path) -> dict[str, dict[str, str]]:
    curves = {
        f"{source.rows[-1]['file']}: {scheme}" if len(sources) > 1 else scheme: curve
        for source in sources
        for scheme, curve in source.curves.items()
    }
    if not curves:
        return {}
    for suffix in ("png", "svg"):
        draw_curve(curves, folder / f"curve.{suffix}")
    text = (folder / "curve.svg").read_text(encoding="utf-8")
    return {"curve": {"wide": text, "narrow": text}}


def _examples(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("cells/examples-*/examples.json"))
    return groups(read_json(files[0])) if files else []


def _values(
    results: Results,
    study: dict[str, Any],
    drawn: dict[str, dict[str, str]],
    examples: list[dict[str, Any]],
    raw: list[Row],
) -> dict[str, Any]:
    """What both templates show."""
    head, lines = accuracy_table(results)
    return {
        "study": study,
        "about": about(study, raw),
        "titles": TITLES | _versus_title(results),
        "notes": NOTES,
        "missing": missing(study, raw),
        "facts": _facts(raw),
        "findings": findings(results),
        "figures": [
            {"name": name, "title": CAPTIONS[name][0], "caption": CAPTIONS[name][1]}
            | {width: _data_url(svg) for width, svg in sizes.items()}
            for name, sizes in drawn.items()
        ],
        "head": head,
        "lines": list(zip(lines, (results.colors[train] for train in results.trains), strict=True)),
        "versus": versus_canonical(results),
        "layers": _layer_lines(raw),
        "perplexities": _perplexity_lines(perplexities(raw)),
        "paper": (study.get("paper") or {}),
        "paper_notes": PAPER_NOTES,
        "beside": beside_paper(study, raw),
        "examples": examples,
        "rows": results.rows,
        "measurements": _measurements(results.rows),
        "configuration": json.dumps(study, indent=2, ensure_ascii=False),
        "versions": raw[-1].get("versions", {}) if raw else {},
    }


def _versus_title(results: Results) -> dict[str, str]:
    few_shot = first_title(results.rows) == FEW_SHOT
    return {"versus": f"Difference to canonical {FEW_SHOT}"} if few_shot else {}


def _data_url(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _facts(rows: Sequence[Row]) -> list[str]:
    """The line below the title: model, sizes, seeds."""
    facts = []
    if not rows:
        return facts
    if model := rows[0].get("model"):
        from robustok.models import ARCHITECTURES

        size = f"{model['parameters'] / 1e6:.1f}M parameters"
        shape = ARCHITECTURES[model.get("architecture", "llama")] + " architecture, "
        shape += f"{model.get('layers')} layers of width {model.get('width')}"
        facts.append(f"{model.get('name') or shape}, {size}")
    if counts := sorted({row["n"] for row in rows if "n" in row}):
        facts.append(f"{' or '.join(map(str, counts))} held-out questions for each measurement")
    if seeds := sorted({row["seed"] for row in rows if "seed" in row}):
        facts.append(f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}")
    if (scale := rows[0].get("scale", "full")) != "full":
        facts.append(f"at {scale} scale, not the paper's")
    return facts


def _perplexity_lines(held: list[Row]) -> tuple[list[str], list[list[str]]]:
    """A line a pre-trained model, a column an evaluation scheme."""
    schemes = list(dict.fromkeys(row["query"] for row in held))
    by_schemes = {(row["pretrain"], row["query"]): row for row in held}
    lines = [
        [pretrain, *(_perplexity(by_schemes.get((pretrain, scheme))) for scheme in schemes)]
        for pretrain in dict.fromkeys(row["pretrain"] for row in held)
    ]
    trained = any(training(row) != UNTRAINED for row in held)
    return ["pre-trained with" if trained else "model", *schemes], lines


def _perplexity(row: Row | None) -> str:
    if row is None:
        return "not run"
    text = f"{row['perplexity']:.1f}"
    if len(row["seeds"]) > 1:
        text += f" [{row['lowest']:.1f}, {row['highest']:.1f}]"
    return f"{text}, {row['bits_per_byte']:.3f} bits/byte"


def _layer_lines(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """A line a layer, a column a model: the mean distance and its interval."""
    layers = merged_layers(rows)
    models = list(dict.fromkeys(layer["model"] for layer in layers))
    cells = {
        (layer["model"], layer["layer"]): (
            f"{layer['mean']:.3f} [{layer['low']:.3f}, {layer['high']:.3f}]"
        )
        for layer in layers
    }
    numbers = sorted({layer["layer"] for layer in layers})
    return ["layer", *models], [
        [str(number), *(cells.get((model, number), "–") for model in models)] for number in numbers
    ]


def _measurements(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Every row as text."""
    head = [
        first_title(rows),
        "evaluated with",
        "accuracy",
        "95% interval",
        "n",
        "draws",
        "seeds",
        "seconds",
    ]
    return head, [
        [
            row["train"],
            row["query"],
            percent(row["accuracy"]),
            f"{percent(row['low'])} to {percent(row['high'])}",
            str(row["n"]),
            str(row.get("draws", 1)),
            str(len(row["seeds"])),
            f"{row['seconds']:.1f}" if "seconds" in row else "",
        ]
        for row in rows
    ]
