"""Cells that several studies share."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.study.conftest import TRAINING, rows_of, tiny

from robustok.errors import RobustokError
from robustok.study import Study, plan, run_study


def small(name: str, *schemes: str, threads: int | None = None) -> Study:
    evaluate = {"eval_schemes": ["canonical", "uniform"], "items": 4, "draws": 2}
    finetune = TRAINING | {"schemes": [*schemes]}
    return tiny(name=name, seed=3, threads=threads, finetune=finetune, evaluate=evaluate)


def measured(folder: Path) -> list[dict[str, Any]]:
    names = ("train_scheme", "eval_scheme", "accuracy")
    return [{name: row[name] for name in names} for row in rows_of(folder)]


def test_what_two_studies_have_in_common_is_done_once(tmp_path: Path) -> None:
    one, two = small("one", "canonical"), small("two", "canonical", "uniform")
    shared = tmp_path / "cells"
    run_study(one, tmp_path / "one", cells_folder=shared)
    finished = {p: p.stat().st_mtime_ns for p in shared.glob("*/cell.json")}
    assert len(finished) == len(plan(one))
    run_study(two, tmp_path / "two", cells_folder=shared)
    assert {p: p.stat().st_mtime_ns for p in finished} == finished
    assert measured(tmp_path / "two")[:2] == measured(tmp_path / "one")
    # A run keeps what was measured of each question, whatever becomes of the shared folder.
    assert len(list((tmp_path / "two" / "items").iterdir())) == 4
    record = json.loads((tmp_path / "two" / "run.json").read_text())
    assert record["cells"] == {"finished": len(plan(two)), "of": len(plan(two))}
    assert record["seeds"] == [3]


def test_a_run_keeps_its_cells_and_finds_moved_ones(tmp_path: Path, finished: Path) -> None:
    shutil.copytree(finished / "cells", tmp_path / "cells")
    run = tmp_path / "run"
    run_study(tiny(), run, cells_folder=tmp_path / "cells")
    results = (run / "results.jsonl").read_bytes()
    with pytest.raises(RobustokError, match="already has its cells in"):
        run_study(tiny(), run, cells_folder=tmp_path / "others")
    (tmp_path / "cells").rename(tmp_path / "moved")
    with pytest.raises(RobustokError, match="which is gone: give the folder"):
        run_study(tiny(), run)
    run_study(tiny(), run, cells_folder=tmp_path / "moved")
    assert (run / "cells").resolve() == tmp_path / "moved"
    assert (run / "results.jsonl").read_bytes() == results
