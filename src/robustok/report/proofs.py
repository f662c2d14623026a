"""Sections of what holds for all tokenizations of a text: certificates, and the bound."""

from __future__ import annotations

from pathlib import Path

from robustok.report.analyses import draw_bound, draw_gap
from robustok.report.frame import DataFrame, Results, entries_of, percent
from robustok.report.page import Section, Table
from robustok.study.measurements.bound import power_of_ten

_COLUMNS = {
    "c2": "C2",
    "c1_theorem": "C1 theorem",
    "log10_gamma_theorem": "γ theorem",
    "c1_proof": "C1 proof",
    "log10_gamma_proof": "γ proof",
}


def certificates_section(results: Results, folder: Path) -> Section | None:
    """Certified, open and broken questions, a line each model and distance; and their figure."""
    gap = entries_of(results.all_rows, "gap")
    if gap.empty:
        return None
    counts = ["n", "same", "open", "flips", "attacked"]
    groups = gap.groupby(["model", "distance"], sort=False)
    merged: DataFrame = groups.agg(
        {**dict.fromkeys(counts, "sum"), "open_upper": "max", "confidence": "first"}
    ).reset_index()
    draw_gap(merged.to_dict("records"), folder / "certificates")
    bounds = ["" if bound != bound else f"{percent(bound)}%" for bound in merged["open_upper"]]
    lines = merged[["model", "distance", *counts]].astype(str).to_numpy().tolist()
    head = [
        "model",
        "distance",
        "questions",
        "certified",
        "open",
        "attack missed",
        "attack broke",
        "bound",
    ]
    draws = sorted({row["draws"] for row in results.all_rows if "gap" in row})
    caption = (
        "Certified: all tokenizations within the distance were scored and give the same answer. "
        f"Open: none of {' or '.join(map(str, draws))} uniform draws gives another answer, which "
        f"bounds their share at {merged['confidence'].min():.0%} confidence; the greatest bound is "
        "in the last column."
    )
    table = Table(head, [[*line, bound] for line, bound in zip(lines, bounds, strict=True)])
    title = "Certificates: the same answer under all tokenizations"
    return Section("certificates", title, caption, [table], folder / "certificates")


def bound_section(results: Results, folder: Path) -> Section | None:
    """The bound of each model by layer, and the measured changes below it; and their figure."""
    changes = entries_of(results.all_rows, "changes")
    if changes.empty:
        return None
    groups = changes.groupby(["model", "kind", "depth"], sort=False)
    merged: DataFrame = groups.agg({"mean": "mean", "p95": "max", "max": "max"}).reset_index()
    draw_bound(merged.to_dict("records"), folder / "bound")
    layers = entries_of(results.all_rows, "bound").reindex(columns=["model", "layer", *_COLUMNS])
    lines = [
        [*map(str, row[:2]), *map(_shown, _COLUMNS, row[2:])]
        for row in layers.drop_duplicates().itertuples(index=False)
    ]
    head = ["model", "layer", *_COLUMNS.values()]
    caption = (
        "γ bounds the change of the output at a distance, as in the theorem and as in its proof, "
        "for each layer as a model of one layer, and for the whole model. The figure has the bound "
        "and the measured changes, both per square root of a distance."
    )
    title = "Bound from the weights"
    return Section("bound", title, caption, [Table(head, lines)], folder / "bound")


def _shown(column: str, value: float) -> str:
    if value != value:  # NaN: the whole model has no C1, and the proof needs a number of tokens
        return ""
    return power_of_ten(value) if column.startswith("log10") else f"{value:.4g}"
