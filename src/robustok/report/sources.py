"""Reads what a report shows: the folder of a study, or a file of results.

A file without accuracies (attacks for other objectives, answers) has a section of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from robustok.attack.settings import AttackSettings
from robustok.errors import RobustokError
from robustok.evaluation.intervals import clustered
from robustok.report.frame import MEASURES, Row, percent
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
from robustok.runtime.files import read_object, read_rows
from robustok.study.run import answers_of

ACCEPTED = (
    "give the folder of a study or of a command, its results.jsonl, or the file of attacks or of "
    "their answers"
)
_MEASUREMENT = {  # the fields beside each measure
    "accuracy": {"train_scheme", "eval_scheme", "low", "high", "n", "seed"},
    "perplexity": {"pretrain_scheme", "eval_scheme", "bits_per_byte", "seed"},
    "layers": {"seed"},
    "gap": {"seed"},
    "bound": {"seed"},
    "cell": {"train_scheme", "eval_scheme", "seed"},  # any other kind of a study
}
_ATTACKS = {"key", "text", "ids", "lengths", "vocabulary", "score", "canonical_score"}
_ANSWERS = {"key", "text", "canonical", "attacked", "canonical_verdict"}
_LONGEST = 90  # characters of a text in a table
_DRAWN = 40  # prompts in a figure, those of the greatest gain
_VERDICTS = ("canonical_verdict", "attacked_verdict")


@dataclass(frozen=True)
class ReportSource:
    """Rows of results.jsonl from one path, curves of attacks, and a section of its own.

    `study` is the configuration in study.json, and `record` is run.json; both are empty where there
    is none. `section` writes its figure into a folder.
    """

    rows: list[Row] = field(default_factory=list)
    study: dict[str, Any] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    section: Callable[[Path], Section] | None = None

    @property
    def is_file(self) -> bool:
        """Whether the source is a file of a command, which is shown by its name."""
        return self.section is not None or "file" in self.rows[0]


def read_source(path: Path) -> ReportSource:
    """Read a study's folder, or a file of results.

    Attacks of `attack --out` become one row, and one for the canonical start. Their `train` and
    `file` are the file's name without its suffix. Attacks for other objectives and answers become
    a section.

    Raises RobustokError for a path without results.
    """
    if not path.exists():
        raise RobustokError(f"{path} does not exist: {ACCEPTED}")
    if not path.is_file():
        results = path / "results.jsonl"
        if not results.is_file():
            raise RobustokError(
                f"{path} has no results.jsonl: run a study in this folder, or {ACCEPTED}"
            )
        return _of_study(results)
    rows = read_rows(path)
    name, config = path.stem, rows[0]["config"] if _all_have(rows[:1], {"config"}) else None
    body = rows if config is None else rows[1:]
    if _all_have(body, _ATTACKS):
        if config is None or "max_scored_by_key" not in config:  # of prompts
            return ReportSource(section=partial(attacks_section, name, body))
        measured, curve = _of_attacks(name, config, body)
        return ReportSource(measured, curves={measured[-1]["eval_scheme"]: curve})
    if _all_have(body, _ANSWERS):
        return ReportSource(section=partial(answers_section, name, body))
    return _of_study(path)


def _of_study(results: Path) -> ReportSource:
    files = (results.with_name(name) for name in ("study.json", "run.json"))
    study, record = (read_object(file) if file.is_file() else {} for file in files)
    return ReportSource(_measurements(results), study, record)


def _all_have(rows: Sequence[Any], names: set[str]) -> bool:
    return bool(rows) and all(isinstance(row, dict) and names <= row.keys() for row in rows)


def _measurements(path: Path) -> list[Row]:
    rows = read_rows(path)
    if not rows:
        raise RobustokError(f"{path} has no rows yet: let the study finish a measurement")
    for row in rows:
        measures = [name for name in MEASURES if isinstance(row, dict) and name in row]
        needed = [_MEASUREMENT[name] for name in measures or ["cell"]]
        if not isinstance(row, dict) or not all(names <= row.keys() for names in needed):
            raise RobustokError(f"{path} holds no results that a report shows: {ACCEPTED}")
    return [row | _answers(row, path.parent) for row in rows]


def _answers(row: Row, folder: Path) -> Row:
    """How far each question was answered, by its key, for comparisons question by question.

    Also the kind of each question, where they have several.
    """
    path = folder / "items" / f"{row.get('cell')}.jsonl"
    if "accuracy" not in row or not path.is_file():
        return {}
    items = read_rows(path)
    answers = answers_of(items)
    if not answers:
        return {}
    kinds = {item["key"]: item["kind"] for item in items if item.get("kind")}
    several = {"kinds": kinds} if len(set(kinds.values())) > 1 else {}
    return {"answers": answers} | several


def _of_attacks(
    name: str, config: Row, attacks: Sequence[Row]
) -> tuple[list[Row], list[dict[str, float]]]:
    """The row of the attack, after one of the canonical start, and the curve over its budget."""
    from robustok.attack.records import curve_of

    settings = AttackSettings(**config["settings"])
    starts = {
        row["key"]: float(max(start) == start[row["fields"]["label"]])
        for row in attacks
        for start in [row["steps"][0]["log_probs"]]
    }
    held = {row["key"]: float(not row["success"]) for row in attacks}
    seed = {"seed": config["seed"]}
    measured = (
        [_accuracy(name, "canonical", starts) | seed] if settings.start == "canonical" else []
    )
    after = {"start_accuracy": sum(starts.values()) / len(starts)}
    measured.append(_accuracy(name, str(settings), held) | after | seed)
    most = max(row["n_scored"] for row in attacks)
    return measured, curve_of("accuracy", [row["reached_at"] for row in attacks], most=most)


def _accuracy(name: str, eval_scheme: str, answers: dict[str, float], draws: int = 1) -> Row:
    accuracy, low, high = clustered(list(answers.values()), draws)
    return {
        "train_scheme": name, "file": name, "eval_scheme": eval_scheme, "accuracy": accuracy,
        "low": low, "high": high, "n": len(answers), "answers": answers,
    }  # fmt: skip


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
        + ([f"{row[name]:g}" for name in _VERDICTS] if judged else [])
        for row in rows
    ]
    caption = f"Greedy answers to {len(rows)} prompts."
    if judged:
        means = [sum(row[one] for row in rows) / len(rows) for one in _VERDICTS]
        caption += f" Mean verdict {means[0]:.3f} canonical, {means[1]:.3f} attacked."
    return Section(name, f"Answers: {name}", caption, [Table(head, lines)], prose=True)


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
        score = f"score: {rows[0].get('objective') or 'objective'}"
        axes.set(ylim=(-0.7, len(rows) - 0.3), xlabel=score)
        axes.locator_params(axis="x", nbins=6)
        axes.grid(axis="x")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        save_all(figure, stem)


def _label(row: Row) -> str:
    return plain(_at_most(str(row["text"] if len(str(row["key"])) < 3 else row["key"]), 28))


def _at_most(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
