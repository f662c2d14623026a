"""A suite of attacks as one column of a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.study.conftest import tiny

from robustok.report import write_report
from robustok.runtime.inputs import read_rows
from robustok.study import Study, run_study

GREEDY = {"items": 3, "steps": 2}
SUITE = {"items": 3, "suite": True, "max_scored": 12}


def study(*attacks: dict[str, Any], schemes: Sequence[str] = ("canonical",)) -> Study:
    evaluate = {"eval_schemes": ["canonical"], "items": 3, "draws": 1}
    return tiny(attacks=attacks, evaluate=evaluate, finetune={"schemes": [*schemes]})


def test_a_suite_is_the_worst_of_its_attacks(tmp_path: Path) -> None:
    rows = run_study(study(GREEDY, SUITE, schemes=("canonical", "uniform")), tmp_path).rows
    for scheme in ("canonical", "uniform"):
        mine = [row for row in rows if row["train_scheme"] == scheme]
        assert mine[2]["eval_scheme"] == "standard-suite(max_scored=12)"
        items = read_rows(tmp_path / "items" / f"{mine[2]['cell']}.jsonl")
        broken = {row["key"] for row in items if row["success"]}
        canonical, greedy, suite = (row["accuracy"] for row in mine)
        assert suite <= min(canonical, greedy)
        assert mine[2]["low"] <= suite <= mine[2]["high"]
        assert suite == pytest.approx(1 - len(broken) / 3)
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| fine-tuned | canonical | attack d = 2 | worst attack |" in text
