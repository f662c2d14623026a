"""A suite of attacks as one column of a study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from robustok import RobustokError
from robustok.files import write_rows
from robustok.report import write_report
from robustok.study import load_study, plan, run_study
from robustok.study.cells import AttackCell, TransferCell

SUITE = """
name: a
title: A suite
about: A small study with a suite as a column.
seed: 0
threads: null
task: {kind: langgame, format: short, words: 40, train: 40, test: 4}
tokenizer: {size: 400}
model: {layers: 1, width: 32, heads: 2, kv_heads: 2, feed_forward: 64, max_length: 256}
pretrain: {schemes: [canonical], steps: 2, batch_size: 4, learning_rate: 1.0e-3}
finetune: {schemes: [canonical], steps: 2, batch_size: 4, learning_rate: 1.0e-3}
evaluate: {eval_schemes: [canonical], items: 3, draws: 1}
attacks:
  - {items: 3, steps: 2}
  - {items: 3, suite: standard, max_scored: 12}
"""


def test_a_suite_is_a_column_and_the_worst_one(tmp_path: Path) -> None:
    study = load_study(SUITE, "a")
    cells = [cell for cell in plan(study) if isinstance(cell, AttackCell)]
    assert ["suite" in cell.fields for cell in cells] == [False, True]
    rows = run_study(study, tmp_path).rows
    canonical, greedy, suite = (row["accuracy"] for row in rows)
    assert rows[2]["query"] == "standard-suite(query_budget=12)"
    assert suite <= min(canonical, greedy)
    assert rows[2]["low"] <= suite <= rows[2]["high"]
    (folder,) = {cell.path(tmp_path) for cell in cells if "suite" in cell.fields}
    lines = [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]
    broken = {row["key"] for row in lines if row["success"]}
    assert suite == pytest.approx(1 - len(broken) / 3)
    write_report(tmp_path)
    assert "standard-suite" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_settings_without_effect_are_one_line() -> None:
    for wrong, message in (("suite: standard, steps: 3", "leave steps out"),
                           ("max_scored: 3", "is for a suite"),
                           ("steps: 3, transfer: true", "is for a suite"),
                           ("suite: best", "standard")):  # fmt: skip
        with pytest.raises(RobustokError, match=message):
            load_study(SUITE.replace("suite: standard, max_scored: 12", wrong), "a")


TRANSFER = SUITE.replace(
    "schemes: [canonical], steps: 2, batch_size: 4, learning_rate: 1.0e-3}\nevaluate",
    "schemes: [canonical, uniform], steps: 2, batch_size: 4, learning_rate: 1.0e-3}\nevaluate",
).replace("max_scored: 12", "max_scored: 12, transfer: true")


def test_transfer_is_the_worst_of_the_own_attacks_and_of_those_on_other_models(
    tmp_path: Path,
) -> None:
    study = load_study(TRANSFER, "a")
    cells = plan(study)
    transfers = [cell for cell in cells if isinstance(cell, TransferCell)]
    assert cells[-2:] == tuple(transfers)  # after all models
    rows = run_study(study, tmp_path).rows
    queries = [row["query"] for row in rows if row["train"] == "uniform"]
    assert queries[-1] == "standard-suite(query_budget=12, transfer=1)"
    for cell in transfers:
        assert cell.own is not None
        own = _items(cell.own, tmp_path)
        others = [row for other in cell.others for row in _items(other, tmp_path)]
        tried = {(row["key"], tuple(row["ids"])) for row in (*own, *others)}
        broken = {row["key"] for row in own if row["success"]}
        for row in _items(cell, tmp_path):
            assert (row["key"], tuple(row["ids"])) in tried
            assert row["score"] >= max(r["score"] for r in own if r["key"] == row["key"])
            assert row["success"] or row["key"] not in broken
    by_query = {(row["train"], row["query"]): row["accuracy"] for row in rows}
    for train in ("canonical", "uniform"):
        assert by_query[train, queries[-1]] <= by_query[train, queries[-2]]
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert (
        "| fine-tuned | canonical | attack d = 2 | worst attack | worst attack + transfer |" in text
    )
    _attacks_too_long_for_a_model_are_left_out(transfers[0], tmp_path)


def _attacks_too_long_for_a_model_are_left_out(cell: TransferCell, folder: Path) -> None:
    for other in cell.others:
        rows = [row | {"ids": row["ids"] * 100} for row in _items(other, folder)]
        write_rows(other.path(folder) / "items.jsonl", rows)
    cell.run(folder, lambda *_: None)
    assert all(row["of_model"] is None for row in _items(cell, folder))


def _items(cell: AttackCell, folder: Path) -> list[dict[str, Any]]:
    lines = (cell.path(folder) / "items.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_transfer_changes_no_key_of_a_suite() -> None:
    without = [cell.key for cell in plan(load_study(TRANSFER.replace(", transfer: true", ""), "a"))]
    keys = [cell.key for cell in plan(load_study(TRANSFER, "a"))]
    assert keys[:-2] == without
