"""Sections of a report about files that hold no accuracies: certificates, attacks, answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robustok import attack
from robustok.attack.settings import CertifySettings
from robustok.evaluation.intervals import clustered
from robustok.report.frame import Row, percent
from robustok.report.model_figures import draw_gap
from robustok.report.page import Section, Table
from robustok.report.style import (
    ATTACKED,
    GRID,
    INK,
    MUTED,
    figure_style,
    new_figure,
    plain,
    save_all,
)

CERTIFICATES = {"key", "certificates"}
ATTACKS = {"key", "text", "ids", "lengths", "vocabulary", "score", "canonical_score"}
ANSWERS = {"key", "text", "canonical", "attacked", "canonical_verdict"}
_LONGEST = 90  # characters of a text in a table
_DRAWN = 40  # prompts in a figure, those of the greatest gain


def certificates_section(name: str, config: Row, rows: Sequence[Row], folder: Path) -> Section:
    """Certified, open and broken questions by distance, of a file of `certify --out`."""
    every = tuple(attack.Certificate.from_json(c) for row in rows for c in row["certificates"])
    fields = ("distances", "limit", "draws", "confidence")
    settings = CertifySettings(**{field: config[field] for field in fields})
    done = attack.Certification(every, settings, len(rows), config["seed"], seconds=0.0)
    gap = done.gap()
    draw_gap([{"model": name, **row} for row in gap], folder / f"{name}-gap")
    head = ["distance", "questions", "certified", "open", "attack missed", "attack broke", "bound"]
    lines = [
        [
            str(row["distance"]), str(row["n"]), str(row["same"]), str(row["open"]),
            str(row["flips"]), str(row["attacked"]),
            "" if row["open_upper"] is None else f"{percent(row['open_upper'])}%",
        ]
        for row in gap
    ]  # fmt: skip
    caption = (
        "Certified: all tokenizations within the distance were scored and give the same answer. "
        f"Open: none of {config['draws']} uniform draws gives another answer, which bounds their "
        f"share at {config['confidence']:.0%} confidence; the greatest bound is in the last "
        f"column. Seed {config['seed']}."
    )
    table, figure = Table(head, lines), folder / f"{name}-gap"
    return Section(name, f"Certificates: {name}", caption, [table], figure, prose=True)


def attacks_section(name: str, rows: Sequence[Row], folder: Path) -> Section:
    """Scores of every prompt before and after, of a file of `attack --objective … --out`."""
    rows = sorted(rows, key=lambda row: row["canonical_score"] - row["score"])
    figure = folder / f"{name}-scores"
    _draw_scores(rows, figure)
    outcomes = {True: "broken", False: "held", None: ""}
    lines = [
        [
            _prompt(row), f"{row['canonical_score']:+.4g}", f"{row['score']:+.4g}",
            f"{row['score'] - row['canonical_score']:+.4g}",
            f"{len(row['canonical_ids'])} → {len(row['ids'])}" if row.get("canonical_ids") else
            str(len(row["ids"])), outcomes[row.get("success")],
        ]
        for row in rows
    ]  # fmt: skip
    broken = [float(row["success"]) for row in rows if row.get("success") is not None]
    mean = sum(row["score"] - row["canonical_score"] for row in rows) / len(rows)
    caption = f"{len(rows)} prompts, objective {rows[0].get('objective') or 'unnamed'}, "
    caption += f"mean gain {mean:+.4g}"
    if broken:
        share, low, high = (percent(value) for value in clustered(broken))
        caption += f", {share}% broken (95% interval {low} to {high})"
    seeds = sorted({row["seed"] for row in rows if "seed" in row})
    settings = dict.fromkeys(row.get("settings", "") for row in rows)
    caption += f". {'; '.join(settings)}, seed {', '.join(map(str, seeds))}."
    head = ["prompt", "canonical", "attacked", "gain", "tokens", "outcome"]
    return Section(name, f"Attacks: {name}", caption, [Table(head, lines)], figure, prose=True)


def answers_section(name: str, rows: Sequence[Row], _: Path) -> Section:
    """Answers to the canonical and the attacked prompts, of a file of `attack --generate`."""
    judged = rows[0]["canonical_verdict"] is not None
    head = ["prompt", "canonical answer", "attacked answer"]
    head += ["canonical verdict", "attacked verdict"] if judged else []
    lines = [
        [_prompt(row), row["canonical"].strip(), row["attacked"].strip()]
        + ([f"{row[field]:g}" for field in _VERDICTS] if judged else [])
        for row in rows
    ]
    caption = f"Greedy answers to {len(rows)} prompts."
    if judged:
        means = [sum(row[field] for row in rows) / len(rows) for field in _VERDICTS]
        caption += f" Mean verdict {means[0]:.3f} canonical, {means[1]:.3f} attacked."
    return Section(name, f"Answers: {name}", caption, [Table(head, lines)], prose=True)


_VERDICTS = ("canonical_verdict", "attacked_verdict")


def _prompt(row: Row) -> str:
    """The prompt's key and text; the key alone where it is the text."""
    key, text = str(row["key"]), str(row["text"])
    shown = text if key == text else f"{key}: {text}"
    return _at_most(shown, _LONGEST)


def _draw_scores(rows: Sequence[Row], stem: Path) -> None:
    """A line for each prompt, from its canonical score to that of the attack."""
    rows = rows[:_DRAWN][::-1]
    with figure_style():
        figure, (axes,) = new_figure((7.2, 1.4 + 0.26 * len(rows)))
        for at, row in enumerate(rows):
            axes.hlines(at, row["canonical_score"], row["score"], color=GRID, linewidth=3)
        axes.plot([row["canonical_score"] for row in rows], range(len(rows)), "o", color=MUTED,
                  markersize=5.5, label="canonical")  # fmt: skip
        axes.plot([row["score"] for row in rows], range(len(rows)), "D", color=ATTACKED,
                  markersize=5, label="attacked")  # fmt: skip
        axes.set_yticks(range(len(rows)), [_label(row) for row in rows], color=INK)
        axes.set_ylim(-0.7, len(rows) - 0.3)
        axes.set_xlabel(f"score: {rows[0].get('objective') or 'objective'}")
        axes.locator_params(axis="x", nbins=6)
        axes.grid(visible=False)
        axes.grid(axis="x")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        save_all(figure, stem)


def _label(row: Row) -> str:
    return plain(_at_most(str(row["text"] if len(str(row["key"])) < 3 else row["key"]), 28))


def _at_most(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
