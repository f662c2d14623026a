"""Groups of attacks, the worst of several, and the bound in a study of trained models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.study.conftest import TRAINING, rows_of, tiny

from robustok.report import write_report
from robustok.runtime.inputs import read_rows
from robustok.study import run_study
from robustok.study.measurements import base
from robustok.study.measurements.bound import power_of_ten

SECTIONS = {
    "finetune": TRAINING | {"schemes": ["canonical", "uniform"]},
    "evaluate": None,
    "attacks": [{"items": 5, "steps": 1, "max_neighbors": 3}],
    "bound": {"items": 3, "draws": 2},
}


class Stopped(Exception):
    pass


def test_a_stopped_cell_repeats_one_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "GROUP", 2)
    run_study(tiny(**SECTIONS), tmp_path / "whole")
    started: list[int] = []
    in_groups = base.OpenedCell.in_groups

    def stops_once(self, items, run):
        def counted(group, progress):
            started.append(len(group))
            if len(started) == 2:
                raise Stopped
            return run(group, progress)

        return in_groups(self, items, counted)

    monkeypatch.setattr(base.OpenedCell, "in_groups", stops_once)
    with pytest.raises(Stopped):
        run_study(tiny(**SECTIONS), tmp_path / "stopped")
    started.append(0)  # past the one that stops
    run_study(tiny(**SECTIONS), tmp_path / "stopped")
    assert started[:5] == [2, 2, 0, 2, 1]
    assert rows_of(tmp_path / "stopped") == rows_of(tmp_path / "whole")
    for cell in (tmp_path / "whole" / "items").iterdir():
        assert read_rows(tmp_path / "stopped" / "items" / cell.name) == read_rows(cell)


def test_a_report_has_the_bound_of_each_model(tmp_path: Path) -> None:
    rows: list[Any] = [*run_study(tiny(**SECTIONS), tmp_path).rows]
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text()
    bounds = [row for row in rows if "bound" in row]
    assert [row["train_scheme"] for row in bounds] == ["canonical", "uniform"]
    assert {one["kind"] for one in bounds[0]["changes"]} == {"sampled", "adversarial"}
    single, whole = bounds[1]["bound"]
    gammas = [power_of_ten(whole[f"log10_gamma_{one}"]) for one in ("theorem", "proof")]
    gammas += [power_of_ten(single["log10_gamma_theorem"])]
    logits = [one for one in bounds[1]["changes"] if one["depth"] == 2]
    measured = [f"{one['mean']:.4g}, at most {one['max']:.4g}" for one in logits[:2]]
    assert f"| uniform | {' | '.join([*gammas, *measured])} |" in text


def test_a_report_has_the_worst_of_several_attacks_by_question(tmp_path: Path) -> None:
    evaluate = {"eval_schemes": ["canonical"], "items": 5, "draws": 1}
    searches = [{}, {"beam": 3}, {"search": "random", "max_scored": 12}]
    attacks = [{"items": 5, "steps": 2, "max_neighbors": 9, **search} for search in searches]
    rows = run_study(tiny(attacks=attacks, evaluate=evaluate), tmp_path).rows
    broken = set()
    for row in rows:
        if row["eval_scheme"].startswith("adversarial"):
            assert 0 <= row["proved"] <= row["accuracy"]
            items = read_rows(tmp_path / "items" / f"{row['cell']}.jsonl")
            broken |= {item["key"] for item in items if item["success"]}
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    head = next(line for line in text.splitlines() if "| worst of 3 attacks |" in line)
    line = text[text.index(head) :].splitlines()[2]
    assert line.rstrip(" |").rpartition("| ")[2].startswith(f"{100 - 20 * len(broken):.1f} [")
