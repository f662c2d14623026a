"""A suite of attacks as one column of a study."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robustok import RobustokError
from robustok.report import write_report
from robustok.study import load_study, plan, run_study
from robustok.study.cells import AttackCell

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
                           ("suite: best", "standard")):  # fmt: skip
        with pytest.raises(RobustokError, match=message):
            load_study(SUITE.replace("suite: standard, max_scored: 12", wrong), "a")
