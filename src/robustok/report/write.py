"""Writes the report of a study's folder: report.html, report.md and figures/."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robustok.models import ARCHITECTURES
from robustok.report.answers import answer_lines
from robustok.report.attacked import attack_sections
from robustok.report.figures import (
    attack_section,
    bound_section,
    heatmap_section,
    layer_section,
    learning_section,
    strength_section,
)
from robustok.report.frame import (
    Results,
    Row,
    model_name,
    model_size,
    precisions_text,
)
from robustok.report.page import Section, write_page
from robustok.report.source import ReportSource, read_source
from robustok.report.tables import (
    accuracy_section,
    attacked_kinds_section,
    kinds_section,
    measurement_section,
    missing_table,
    paper_section,
    perplexity_section,
    settings_section,
    versus_canonical,
)
from robustok.runtime.files import JsonObject, disk_full_in_one_line


def write_report(folder: Path, others: Sequence[Path] = (), *, out: Path | None = None) -> Path:
    """Write the report of the folder of a study, and return its report.html.

    >>> write_report(Path("runs/demo")).name  # the folder that run_study's example made
    'report.html'

    Args:
        folder: folder of a run, of a study or of a command's `--out`.
        others: further folders. Other seeds of the same study change the intervals; other studies
            are shown as models of their own.
        out: output folder, by default `folder`.

    Raises RobustokError where a folder has no results.
    """
    sources = [read_source(path) for path in (folder, *others)]
    results = Results([row for source in sources for row in source.rows])
    return write_sources(sources, results, out or folder)


def write_sources(sources: Sequence[ReportSource], results: Results, out: Path) -> Path:
    """Write the report of folders that were read into ``out``; ``results`` are those of all."""
    title = f"Results of {', '.join(source.folder.name for source in sources)}"
    study = sources[0].study or {"name": "", "title": title}
    rows = results.all_rows
    missing = [row for source in sources for row in source.record.get("missing", ())]
    finished = len({row.get("cell") for row in rows})
    with disk_full_in_one_line(out):
        return write_page(
            out,
            _sections(results, sources, study, out / "figures"),
            title=study["title"],
            name=study["name"],
            answers=answer_lines(results),
            about=" ".join(str(study.get("about") or "").split()),
            facts=_facts(rows),
            note=f"{_what_intervals_cover(rows)} {precisions_text(rows)}".strip(),
            missing=missing_table(missing),
            progress=f"{finished} of {finished + len(missing)} measurements are finished",
            configuration=json.dumps(study, indent=2, ensure_ascii=False),
            versions=rows[-1].get("versions", {}) if rows else {},
        )


def _sections(
    results: Results, sources: Sequence[ReportSource], study: JsonObject, folder: Path
) -> list[Section]:
    """The sections that the results have something for; figures are written into the folder."""
    sections = [
        strength_section(results, folder),
        attack_section(results, folder),
        heatmap_section(results, folder),
        layer_section(results, folder),
        bound_section(results, folder),
        learning_section(results, folder),
        accuracy_section(results),
        versus_canonical(results),
        kinds_section(results),
        attacked_kinds_section(results),
        perplexity_section(results),
        *attack_sections(results, [source.folder for source in sources], folder),
        paper_section(study.get("paper") or {}, _of_one_study(results.all_rows)),
        settings_section(study),
        measurement_section(results),
    ]
    return [section for section in sections if section]


def _facts(rows: Sequence[Row]) -> list[str]:
    """The line below the title: model, sizes, seeds."""
    facts = []
    models: dict[str, str] = {}
    for model in (row["model"] for row in rows if row.get("model")):
        family = model.get("architecture", "llama")
        shape = f"{ARCHITECTURES.get(family, family)} architecture, "
        shape += f"{model.get('layers')} layers of width {model.get('width')}"
        name = model.get("name") or shape
        models.setdefault(name, ", ".join(filter(None, (name, model_size({"model": model})))))
    if models:
        facts.append("; ".join(models.values()))
    if counts := sorted({row["n"] for row in rows if "n" in row}):
        facts.append(f"{' or '.join(map(str, counts))} held-out questions for each measurement")
    if seeds := sorted({row["seed"] for row in rows}):
        facts.append(f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}")
    scales = {row.get("scale", "full") for row in rows}
    if len(scales) == 1 and scales != {"full"}:
        facts.append(f"at {scales.pop()} scale, not the paper's")
    return facts


def _what_intervals_cover(rows: Sequence[Row]) -> str:
    what = "questions" if any("accuracy" in row for row in rows) else "words"
    seeds = {row["seed"] for row in rows if "accuracy" in row or "layers" in row}
    if len(seeds) > 1:
        return (
            f"Intervals cover the seeds and the choice of {what}, which all seeds share. Those of "
            f"one seed cover the {what} only."
        )
    return f"Intervals of one seed cover the choice of {what} only." if seeds else ""


def _of_one_study(rows: Sequence[Row]) -> list[Row]:
    """The rows of the first study, which have its scale and its model."""

    def source(row: Row) -> tuple[Any, ...]:
        return row.get("study"), row.get("scale"), model_name(row)

    return [row for row in rows if source(row) == source(rows[0])]
