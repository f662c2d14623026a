"""Certificates and the bound in a study of trained models."""

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
    "certify": {"items": 5, "distances": ["all", 2], "limit": 40, "draws": 20},
    "bound": {"items": 3, "draws": 2},
}


class Stopped(Exception):
    pass


def test_a_stopped_cell_repeats_one_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "GROUP", 2)
    run_study(tiny(**SECTIONS), tmp_path / "whole")
    started: list[int] = []
    in_groups = base.Opened.in_groups

    def stops_once(self, items, run):
        def counted(group, progress):
            started.append(len(group))
            if len(started) == 2:
                raise Stopped
            return run(group, progress)

        return in_groups(self, items, counted)

    monkeypatch.setattr(base.Opened, "in_groups", stops_once)
    with pytest.raises(Stopped):
        run_study(tiny(**SECTIONS), tmp_path / "stopped")
    started.append(0)  # past the one that stops
    run_study(tiny(**SECTIONS), tmp_path / "stopped")
    assert started[:5] == [2, 2, 0, 2, 1]
    assert rows_of(tmp_path / "stopped") == rows_of(tmp_path / "whole")
    for cell in (tmp_path / "whole" / "items").iterdir():
        assert read_rows(tmp_path / "stopped" / "items" / cell.name) == read_rows(cell)


def test_a_report_has_the_verdicts_and_the_bound_of_each_model(tmp_path: Path) -> None:
    rows: list[Any] = [*run_study(tiny(**SECTIONS), tmp_path).rows]
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text()
    names = {"canonical": "canonical", "uniform": "uniform"}
    gaps = {row["train_scheme"]: row["gap"] for row in rows if row["eval_scheme"] == "certificates"}
    assert set(gaps) == set(names)
    for name, gap in gaps.items():
        assert [one["distance"] for one in gap] == [2, "all"]
        for one in gap:
            counts = " | ".join(str(one[verdict]) for verdict in ("n", "same", "open", "flips"))
            assert f"| {name} | {one['distance']} | {counts} |" in text
    bounds = [row for row in rows if "bound" in row]
    assert [row["train_scheme"] for row in bounds] == ["canonical", "uniform"]
    assert {one["kind"] for one in bounds[0]["changes"]} == {
        "sampled", "adversarial", "theorem", "proof",
    }  # fmt: skip
    single, whole = bounds[1]["bound"]
    gammas = [power_of_ten(whole[f"log10_gamma_{one}"]) for one in ("theorem", "proof")]
    gammas += [power_of_ten(single["log10_gamma_theorem"])]
    logits = [one for one in bounds[1]["changes"] if one["depth"] == 2]
    measured = [f"{one['mean']:.4g}, at most {one['max']:.4g}" for one in logits[:2]]
    assert f"| uniform | {' | '.join([*gammas, *measured])} |" in text
