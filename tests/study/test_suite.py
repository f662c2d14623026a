"""A suite of attacks as one column of a study."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.study.conftest import tiny

from robustok import RobustokError
from robustok.report import write_report
from robustok.runtime.files import write_rows
from robustok.study import Study, plan, run_study
from robustok.study.cells.measurements import AttackCell, TransferCell

GREEDY = {"items": 3, "steps": 2}
SUITE = {"items": 3, "suite": "standard", "max_scored": 12}


def study(*attacks: dict[str, Any], schemes: Sequence[str] = ("canonical",)) -> Study:
    evaluate = {"eval_schemes": ["canonical"], "items": 3, "draws": 1}
    return tiny(attacks=attacks, evaluate=evaluate, finetune={"schemes": [*schemes]})


def test_a_suite_is_a_column_and_the_worst_one(tmp_path: Path) -> None:
    both = study(GREEDY, SUITE)
    cells = [cell for cell in plan(both) if isinstance(cell, AttackCell)]
    assert [cell.attack.suite for cell in cells] == [None, "standard"]
    rows = run_study(both, tmp_path).rows
    canonical, greedy, suite = (row["accuracy"] for row in rows)
    assert rows[2]["eval_scheme"] == "standard-suite(max_scored=12)"
    assert suite <= min(canonical, greedy)
    assert rows[2]["low"] <= suite <= rows[2]["high"]
    (folder,) = {cell.path(tmp_path) for cell in cells if cell.attack.suite}
    lines = [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]
    broken = {row["key"] for row in lines if row["success"]}
    assert suite == pytest.approx(1 - len(broken) / 3)
    write_report(tmp_path)
    assert "standard-suite" in (tmp_path / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("wrong", "message"), [
    (SUITE | {"steps": 3}, "leave steps out"),
    ({"items": 3, "max_scored": 3}, "is for a suite"),
    (GREEDY | {"transfer": True}, "is for a suite"),
    (SUITE | {"suite": "best"}, "standard"),
])  # fmt: skip
def test_settings_without_effect_are_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(RobustokError, match=message):
        study(wrong)


def transferring(*, transfer: bool = True) -> Study:
    return study(GREEDY, SUITE | {"transfer": transfer}, schemes=("canonical", "uniform"))


def test_transfer_is_the_worst_of_the_own_attacks_and_of_those_on_other_models(
    tmp_path: Path,
) -> None:
    cells = plan(transferring())
    transfers = [cell for cell in cells if isinstance(cell, TransferCell)]
    assert cells[-2:] == tuple(transfers)  # after all models
    rows = run_study(transferring(), tmp_path).rows
    queries = [row["eval_scheme"] for row in rows if row["train_scheme"] == "uniform"]
    assert queries[-1] == "standard-suite(max_scored=12, transfer=1)"
    for cell in transfers:
        own = _items(cell.own, tmp_path)
        others = [row for other in cell.others for row in _items(other, tmp_path)]
        tried = {(row["key"], tuple(row["ids"])) for row in (*own, *others)}
        broken = {row["key"] for row in own if row["success"]}
        for row in _items(cell, tmp_path):
            assert (row["key"], tuple(row["ids"])) in tried
            assert row["score"] >= max(r["score"] for r in own if r["key"] == row["key"])
            assert row["success"] or row["key"] not in broken
    by_query = {(row["train_scheme"], row["eval_scheme"]): row["accuracy"] for row in rows}
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
    without = [cell.key for cell in plan(transferring(transfer=False))]
    keys = [cell.key for cell in plan(transferring())]
    assert keys[:-2] == without


def test_attacks_transfer_between_models_and_not_between_tasks() -> None:
    other = {"kind": "cute", "format": "short", "words": 40, "train": 8, "test": 12}
    suite = [SUITE | {"transfer": True}]
    schemes = {"schemes": ["canonical", "uniform"]}
    cells = plan(tiny(attacks=suite, other_tasks=[other], finetune=schemes))
    transfers = [cell for cell in cells if isinstance(cell, TransferCell)]
    assert [cell.data.task for cell in transfers] == ["langgame", "langgame", "cute", "cute"]
    assert all([one.data for one in cell.others] == [cell.data] for cell in transfers)
