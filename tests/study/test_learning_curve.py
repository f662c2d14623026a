"""A study with keep_every: models kept on the way are measured, and shown apart from the last."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from tests.study.conftest import TRAINING, rows_of, tiny

from robustok.report import write_report
from robustok.study import plan, run_study
from robustok.study.measurements import MeasuredCell
from robustok.study.models import FinetuneCell, StepCell

SCHEMES = ["canonical", "uniform-k(alpha=1)"]
PARTS: dict[str, Any] = {
    "evaluate": {"eval_schemes": ["canonical", "uniform"], "items": 8, "draws": 2},
    "finetune": TRAINING | {"schemes": SCHEMES, "steps": 5, "keep_every": 2},
}
CURVE = tiny(**PARTS)


def test_every_kept_model_has_a_cell_and_its_evaluations() -> None:
    cells = plan(CURVE)
    steps = [cell.step for cell in cells if isinstance(cell, StepCell)]
    assert steps == [2, 4, 2, 4]
    measured = [c for c in cells if isinstance(c, MeasuredCell) and isinstance(c.model, StepCell)]
    assert len(measured) == 4 * 2
    keys = {c.key for c in cells if isinstance(c, FinetuneCell)}
    without = plan(tiny(**PARTS | {"finetune": PARTS["finetune"] | {"keep_every": None}}))
    assert not keys & {cell.key for cell in without}  # other files are kept


@pytest.mark.parametrize("lora", [None, {"rank": 2}], ids=["full", "lora"])
def test_the_curve_is_measured_drawn_and_kept_out_of_the_tables(tmp_path: Path, lora: Any) -> None:
    finetune = PARTS["finetune"] | {"lora": lora, "schemes": SCHEMES[: 1 if lora else 2]}
    models = len(finetune["schemes"])
    run_study(tiny(**PARTS | {"finetune": finetune}), tmp_path)
    write_report(tmp_path)
    kept = [*tmp_path.glob("cells/finetune-*/model/steps/*")]
    assert len(kept) == models * 2
    assert all((folder / "tokenizer.json").is_file() for folder in kept)
    rows = rows_of(tmp_path)
    assert sum("step" in row for row in rows) == models * 2 * 2
    assert {row["precision"] for row in rows} == {"float32"}
    with (tmp_path / "figures" / "learning.csv").open() as file:
        points = list(csv.DictReader(file))
    assert len(points) == models * 2 * 3
    assert {point["step"] for point in points} == {"2", "4", "5"}
    ends = [row for row in rows if "step" not in row]
    assert len(ends) == models * 2
    heatmap = tmp_path / "figures" / "heatmap.csv"
    assert heatmap.exists() == (models > 1)  # of one model the table has every cell
    if models > 1:
        with heatmap.open() as file:
            assert len(list(csv.DictReader(file))) == len(ends)
    text = (tmp_path / "report.md").read_text()
    assert "measurements are finished" not in text
    assert "learning.png" in text


def test_a_damaged_model_on_the_way_is_trained_again(tmp_path: Path) -> None:
    study = tiny(**PARTS | {"finetune": PARTS["finetune"] | {"schemes": ["uniform"]}})
    run_study(study, tmp_path)
    (weights,) = tmp_path.glob("cells/finetune-*/model/steps/2/model.safetensors")
    assert not [*tmp_path.glob("cells/*/model/checkpoints")]
    before = weights.read_bytes()
    weights.write_bytes(before[:-1] + b"x")
    run_study(study, tmp_path)
    assert weights.read_bytes() == before
