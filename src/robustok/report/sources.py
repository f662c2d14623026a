"""Reads what a report shows: the folder of a study, or a file of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from robustok.attack_settings import AttackSettings
from robustok.errors import RobustokError
from robustok.extras import require
from robustok.files import read_object, read_rows
from robustok.report.sections import (
    ANSWERS,
    ATTACKS,
    CERTIFICATES,
    Section,
    answers_section,
    attacks_section,
    certificates_section,
)
from robustok.report.table import Row

ACCEPTED = (
    "give results.jsonl of a study, or the file of evaluate --out, icl --out, attack --out, "
    "attack --generate or certify --out"
)
_MEASUREMENT = {
    "accuracy": {"train", "query", "low", "high", "n", "seed"},
    "perplexity": {"pretrain", "query", "bits_per_byte", "seed"},
    "layers": {"seed"},
}
_PREDICTION = {"task", "query", "key", "predictions", "correct"}
_ATTACK = {"key", "label", "success", "flipped_at", "n_scored", "log_probs_start"}


class Source(NamedTuple):
    """Rows of results.jsonl from one path, curves of attacks, and a section of its own.

    `study` is the configuration in study.json, empty where there is none. `section` writes its
    figure into a folder.
    """

    rows: list[Row]
    study: dict[str, Any]
    curves: dict[str, list[dict[str, float]]]
    section: Callable[[Path], Section] | None = None


def read_source(path: Path) -> Source:
    """Read a study's folder, or a file of results.

    Predictions of `evaluate --out` become a row for each task and scheme; attacks of `attack --out`
    become one row, and one for the canonical start. Their `train` and `file` are the file's name
    without its suffix. Certificates, attacks for other objectives and answers become a section.

    Raises RobustokError for a path without results.
    """
    if not path.exists():
        raise RobustokError(f"{path} does not exist: give a study's folder, or {ACCEPTED[5:]}")
    if not path.is_file():
        results = path / "results.jsonl"
        if not results.is_file():
            raise RobustokError(
                f"{path} has no results.jsonl: run a study with this folder as --out, or {ACCEPTED}"
            )
        return Source(_measurements(results), read_object(path / "study.json"), {})
    rows = _parquet_rows(path) if path.suffix == ".parquet" else read_rows(path)
    if _all_have(rows, _PREDICTION):
        return Source(_of_predictions(path.stem, rows), {}, {})
    if _all_have(rows[:1], {"config"}) and _all_have(rows[1:], _ATTACK):
        measured, curve = _of_attacks(path.stem, rows[0]["config"], rows[1:])
        return Source(measured, {}, {measured[-1]["query"]: curve})
    if section := _section(path.stem, rows):
        return Source([], {}, {}, section)
    if _all_have(rows[1:], {"key", "distances"}):
        raise RobustokError(
            f"{path} holds the words of an unfinished or finished `robustok embeddings`: run it "
            "with the same --out, which draws their figure"
        )
    rows = _measurements(path)
    study = path.with_name("study.json")
    return Source(rows, read_object(study) if study.is_file() else {}, {})


def _section(name: str, rows: Sequence[Any]) -> Callable[[Path], Section] | None:
    """What makes the section of a file that holds no accuracies; None for any other file."""
    if _all_have(rows[:1], {"config"}) and _all_have(rows[1:], CERTIFICATES):
        name = name.removeprefix("certificates-")
        return partial(certificates_section, name, rows[0]["config"], rows[1:])
    if _all_have(rows, ATTACKS):
        return partial(attacks_section, name, rows)
    return partial(answers_section, name, rows) if _all_have(rows, ANSWERS) else None


def _parquet_rows(path: Path) -> list[Any]:
    require("pyarrow")
    import pyarrow.parquet as pq
    from pyarrow import ArrowInvalid

    try:
        return pq.read_table(path).to_pylist()
    except ArrowInvalid as error:
        raise RobustokError(f"{path} is no Parquet file: {ACCEPTED}") from error


def _all_have(rows: Sequence[Any], names: set[str]) -> bool:
    return bool(rows) and all(isinstance(row, dict) and names <= row.keys() for row in rows)


def _measurements(path: Path) -> list[Row]:
    rows = read_rows(path)
    if not rows:
        raise RobustokError(f"{path} has no rows yet: let the study finish a measurement")
    for row in rows:
        kinds = [
            _MEASUREMENT[kind] for kind in _MEASUREMENT if isinstance(row, dict) and kind in row
        ]
        if not kinds or not all(names <= row.keys() for names in kinds):
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
    rights = [item.get("correct", not item["success"] if "success" in item else None)
              for item in items]  # fmt: skip
    if None in rights:
        return {}
    answers: dict[str, float] = {}
    for item, right in zip(items, rights, strict=True):  # a suite has a row for each search
        answers[item["key"]] = min(float(right), answers.get(item["key"], 1.0))
    kinds = {item["key"]: item["kind"] for item in items if item.get("kind")}
    several = {"kinds": kinds} if len(set(kinds.values())) > 1 else {}
    return {"answers": answers} | several


def _of_predictions(name: str, rows: Sequence[Row]) -> list[Row]:
    """One row for each task and scheme, from one for each question."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["task"], row["query"]), []).append(row)
    measured = []
    for (task, eval_scheme), group in groups.items():
        answers = {row["key"]: float(row["correct"]) for row in group}
        draws = len(group[0]["predictions"])
        measured.append(_accuracy(name, eval_scheme, answers, draws) | {"draws": draws})
        if "seed" in group[0]:  # rows of earlier releases have none
            measured[-1]["seed"] = group[0]["seed"]
        if len(groups) > len({scheme for _, scheme in groups}):  # several tasks
            measured[-1]["task"] = task
    return measured


def _of_attacks(
    name: str, config: Row, attacks: Sequence[Row]
) -> tuple[list[Row], list[dict[str, float]]]:
    """The row of the attack, after one of the canonical start, and the curve over its budget."""
    from robustok.evaluation.adversarial.attacks import accuracy_by_budget

    settings = AttackSettings(**config["settings"])
    starts = {
        row["key"]: float(max(row["log_probs_start"]) == row["log_probs_start"][row["label"]])
        for row in attacks
    }
    held = {row["key"]: float(not row["success"]) for row in attacks}
    seed = {"seed": config["seed"]}
    measured = (
        [_accuracy(name, "canonical", starts) | seed] if settings.start == "canonical" else []
    )
    after = {"start_accuracy": sum(starts.values()) / len(starts)}
    measured.append(_accuracy(name, str(settings), held) | after | seed)
    most = max(row["n_scored"] for row in attacks)
    return measured, accuracy_by_budget([row["flipped_at"] for row in attacks], most)


def _accuracy(name: str, eval_scheme: str, answers: dict[str, float], draws: int = 1) -> Row:
    from robustok.evaluation.intervals import clustered

    accuracy, low, high = clustered(list(answers.values()), draws)
    return {
        "train": name, "file": name, "query": eval_scheme, "accuracy": accuracy, "low": low,
        "high": high, "n": len(answers), "answers": answers,
    }  # fmt: skip
