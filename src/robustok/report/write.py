"""Writes the report of a study's folder: report.html, report.md and figures/.

Its first lines say what its accuracies are. A report on trainings compares all of them with the
canonical one; a report on models that exist has the accuracies of each. Differences are paired, as
in the tables below the lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robustok.attack.settings import is_attack, is_worst
from robustok.evaluation.comparison import Difference, clear_differences, difference
from robustok.models import ARCHITECTURES
from robustok.report.attacked import attack_sections
from robustok.report.figures import (
    attack_section,
    bound_section,
    heatmap_section,
    layer_section,
    learning_section,
    questions_asked,
    strength_section,
)
from robustok.report.frame import (
    LEAST_SEEDS,
    SOURCES,
    Results,
    model_size,
    percent,
    points_text,
    precisions_text,
    still_missing,
)
from robustok.report.page import Section, write_page
from robustok.report.source import ReportSource, read_source
from robustok.report.style import Row, one_line, panel_title, short
from robustok.report.tables import (
    FEW_SHOT,
    accuracy_section,
    kinds_section,
    measurement_section,
    missing_table,
    paper_section,
    perplexity_section,
    versus_canonical,
)
from robustok.runtime.files import JsonObject, disk_full_in_one_line
from robustok.study.run import model_name

_MOST_PANELS = 4  # tasks or pre-trainings, or models; of more, the tables alone are shown
_FEW = 3  # names in a sentence


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
    out = out or folder
    with disk_full_in_one_line(out):
        return write_page(out, **report_values(sources, results, out))


def report_values(sources: Sequence[ReportSource], results: Results, out: Path) -> dict[str, Any]:
    """The values of :func:`robustok.report.page.write_page` for a report.

    Its figures are written into ``out``.
    """
    title = f"Results of {', '.join(source.folder.name for source in sources)}"
    study = sources[0].study or {"name": "", "title": title}
    rows = results.all_rows
    known = [row for source in sources for row in source.record.get("missing", ())]
    missing = still_missing(known, rows)
    finished = len({row.get("cell") for row in rows})
    return {
        "sections": _sections(results, sources, study, out / "figures"),
        "title": study["title"],
        "name": study["name"],
        "answers": answer_lines(results),
        "about": " ".join(str(study.get("about") or "").split()),
        "facts": _facts(rows),
        "note": f"{_what_intervals_cover(rows)} {precisions_text(rows)}".strip(),
        "missing": missing_table(missing),
        "progress": f"{finished} of {finished + len(missing)} measurements are finished",
        "configuration": json.dumps(study, indent=2, ensure_ascii=False),
        "versions": rows[-1].get("versions", {}) if rows else {},
    }


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
        perplexity_section(results),
        *attack_sections(results, [source.folder for source in sources], folder),
        paper_section(study.get("paper") or {}, _of_one_study(results.all_rows)),
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
    if count := questions_asked(rows):
        facts.append(f"{count} held-out questions for each measurement")
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


def answer_lines(results: Results) -> list[str]:
    """The sentences that answer a report's title; none for results that they do not fit."""
    if results.frame.empty:
        return []
    if results.exist:
        lines = [_of_model(results, name) for name in results.names]
        return lines if len(lines) <= _MOST_PANELS else []
    panels = {p: {row["spec"]: row["name"] for row in own} for p, own in results.panels.items()}
    panels = {p: names for p, names in panels.items() if len(names) > 1 and "canonical" in names}
    if not panels or len(panels) > _MOST_PANELS or {*SOURCES[:2]} & {*results.varying}:
        return []
    lines = [_head(results, max(map(len, panels.values())) - 1)]
    for panel, names in panels.items():
        lines += _of_panel(results, panel, names)
    return lines


def _head(results: Results, most: int) -> str:
    """What the sentences on trainings compare; ``most`` is the number of the other schemes."""
    few_shot = any(row["few_shot_scheme"] for row in results.rows)
    kind = FEW_SHOT if few_shot else "training"
    several = f" ({most} schemes)" if most > 1 else ""
    return (
        f"Accuracy with canonical {kind} → with other {kind}{several}, and in points the paired "
        "differences with 95% intervals. One is undecided unless it is over three seeds or more "
        "and Holm's correction keeps it among those of its line."
    )


def shown_schemes(results: Results) -> list[str]:
    """The most perturbed questions, an attack, and canonical questions.

    The attack is that of most models and seeds: of all equals the last, as the worst of several.
    """

    def runs(scheme: str) -> int:
        return sum(len(row["seeds"]) for row in results.rows if row["eval_scheme"] == scheme)

    attack = max(reversed(results.attacks), key=runs, default="")
    known = (results.hardest or "", attack, "canonical")
    return [scheme for scheme in known if scheme in results.eval_schemes]


def _of_panel(results: Results, panel: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """A sentence for each kind of questions, on the models of one pre-training or task."""
    start = f"{panel_title(panel)}: " if panel else ""
    lines = []
    for scheme in shown_schemes(results):
        rows = {spec: row for spec, name in names.items() if (row := results.get(name, scheme))}
        base = rows.pop("canonical", None)
        if base and rows:
            questions = where(scheme, results.attacks)
            questions = questions if panel else questions.capitalize()
            lines.append(f"{start}{questions} {_comparison(base, rows)}.")
    return lines


def _comparison(base: Row, others: Mapping[str, Row]) -> str:
    """The accuracies, the smallest and the greatest difference, and what is undecided."""
    pairs = {spec: (base, row) for spec, row in others.items()}
    changes = {spec: difference(*pair) for spec, pair in pairs.items()}
    shares = sorted(row["accuracy"] for row in others.values())
    accuracies = " to ".join(dict.fromkeys(percent(share) for share in (shares[0], shares[-1])))
    ends = sorted(changes, key=lambda spec: changes[spec].mean)
    named = len(changes) > 1
    texts = [
        " ".join(points_text(changes[spec])) + f" ({one_line(short(spec))})" * named
        for spec in dict.fromkeys((ends[0], ends[-1]))
    ]
    text = f"{percent(base['accuracy'])}% → {accuracies}%: {' to '.join(texts)} points"
    if any(change.seeds < len(base["seeds"]) for change in changes.values()):
        text += " over the seeds that both have"
    return text + _undecided(changes, [*clear_differences(pairs)])


def _undecided(changes: Mapping[str, Difference], kept: Sequence[str]) -> str:
    """The end of a sentence: which of its differences are undecided, or nothing."""
    names = [s for s, change in changes.items() if s not in kept or change.seeds < LEAST_SEEDS]
    if len(names) == len(changes):
        return "; all are undecided" if len(names) > 1 else "; undecided"
    if len(names) > _FEW:
        return f"; {len(names)} of {len(changes)} are undecided"
    return f"; undecided: {', '.join(one_line(short(name)) for name in names)}" if names else ""


def _of_model(results: Results, name: str) -> str:
    """The accuracies of a model that exists, from canonical questions to attacked ones."""
    parts = []
    for scheme in sorted(shown_schemes(results), key=lambda scheme: scheme != "canonical"):
        row = results.get(name, scheme)
        if row is None:
            continue
        text = f"{percent(row['accuracy'])}% {where(scheme, results.attacks)}"
        change = results.change(name, scheme) if scheme != "canonical" else None
        if change is not None:
            canonical = results.get(name, "canonical")
            own = canonical is not None and percent(change.before) != percent(canonical["accuracy"])
            before = f"from {percent(change.before)} on the same questions: " if own else ""
            undecided = "" if change.is_clear else ", undecided"
            text += f" ({before}{' '.join(points_text(change))} points{undecided})"
        parts.append(text)
    return f"{name}: {' → '.join(parts)}."


def where(scheme: str, among: Sequence[str] = ()) -> str:
    """The questions of an evaluation scheme, in a sentence: `under uniform draws`."""
    if scheme == "canonical":
        return "on canonical questions"
    name = one_line(short(scheme, among))
    if is_worst(scheme):
        return f"under the {name}"
    return f"under {name}" if is_attack(scheme) else f"under {name} draws"
