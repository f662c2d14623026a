"""A suite of attacks as one column of a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.study.conftest import tiny

from robustok import RobustokError
from robustok.report import write_report
from robustok.runtime.files import read_rows, write_rows
from robustok.study import Study, plan, run_study
from robustok.study.measurements import MeasuredCell
from robustok.study.measurements.attacks import TransferCell

GREEDY = {"items": 3, "steps": 2}
SUITE = {"items": 3, "suite": True, "max_scored": 12}


def study(*attacks: dict[str, Any], schemes: Sequence[str] = ("canonical",)) -> Study:
    evaluate = {"eval_schemes": ["canonical"], "items": 3, "draws": 1}
    return tiny(attacks=attacks, evaluate=evaluate, finetune={"schemes": [*schemes]})


@pytest.mark.parametrize(("wrong", "message"), [
    (SUITE | {"steps": 3}, "leave steps out"),
    (GREEDY | {"transfer": True}, "is for the suite"),
    (SUITE | {"suite": "best"}, "True"),
])  # fmt: skip
def test_settings_without_effect_are_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(RobustokError, match=message):
        study(wrong)


def transferring(*, transfer: bool = True) -> Study:
    return study(GREEDY, SUITE | {"transfer": transfer}, schemes=("canonical", "uniform"))


def test_a_suite_and_its_transfer_are_the_worst_of_their_attacks(tmp_path: Path) -> None:
    cells = plan(transferring())
    transfers = [cell for cell in cells if isinstance(cell, TransferCell)]
    assert cells[-2:] == tuple(transfers)  # after all models
    rows = run_study(transferring(), tmp_path).rows
    names = [row["eval_scheme"] for row in rows if row["train_scheme"] == "uniform"]
    assert names[2:] == [f"standard-suite(max_scored=12{end})" for end in ("", ", transfer=1")]
    for cell in transfers:
        own = _items(cell.own, tmp_path)
        others = [row for other in cell.others for row in _items(other, tmp_path)]
        tried = {(row["key"], tuple(row["ids"])) for row in (*own, *others)}
        broken = {row["key"] for row in own if row["success"]}
        for row in _items(cell, tmp_path):
            assert (row["key"], tuple(row["ids"])) in tried
            assert row["score"] >= max(r["score"] for r in own if r["key"] == row["key"])
            assert row["success"] or row["key"] not in broken
        mine = [row for row in rows if row["train_scheme"] == cell.model.scheme]
        canonical, greedy, suite, transfer = (row["accuracy"] for row in mine)
        assert transfer <= suite <= min(canonical, greedy)
        assert mine[2]["low"] <= suite <= mine[2]["high"]
        assert suite == pytest.approx(1 - len(broken) / 3)
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert (
        "| fine-tuned | canonical | attack d = 2 | worst attack | worst attack + transfer |" in text
    )
    for other in transfers[0].others:  # attacks too long for a model are left out
        longer = [row | {"ids": row["ids"] * 100} for row in _items(other, tmp_path)]
        write_rows(other.path(tmp_path) / "items.jsonl", longer)
    transfers[0].run(tmp_path, lambda *_: None)
    assert all(row["of_model"] is None for row in _items(transfers[0], tmp_path))


def _items(cell: MeasuredCell, folder: Path) -> list[dict[str, Any]]:
    return read_rows(cell.path(folder) / "items.jsonl")


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
    assert [cell.task for cell in transfers] == ["langgame", "langgame", "cute", "cute"]
    assert all([one.questions for one in cell.others] == [cell.questions] for cell in transfers)
