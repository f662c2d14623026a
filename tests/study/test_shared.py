"""Cells that several studies share."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.study.conftest import TRAINING, rows_of, tiny, tiny_text

from robustok.errors import RobustokError
from robustok.runtime.files import locked
from robustok.study import Study, load_study, plan, run_study


def small(name: str, *schemes: str, threads: int | None = None) -> Study:
    evaluate = {"eval_schemes": ["canonical", "uniform"], "items": 4, "draws": 2}
    finetune = TRAINING | {"schemes": [*schemes]}
    return tiny(name=name, seed=3, threads=threads, finetune=finetune, evaluate=evaluate)


def test_what_two_studies_have_in_common_is_done_once(tmp_path: Path) -> None:
    one, two = small("one", "canonical"), small("two", "canonical", "uniform")
    shared = tmp_path / "cells"
    run_study(one, tmp_path / "one", cells_folder=shared)
    finished = {p: p.stat().st_mtime_ns for p in shared.glob("*/cell.json")}
    assert len(finished) == len(plan(one))
    run_study(two, tmp_path / "two", cells_folder=shared)
    assert {p: p.stat().st_mtime_ns for p in finished} == finished
    fields = ("train_scheme", "eval_scheme", "accuracy")
    assert rows_of(tmp_path / "two", *fields)[:2] == rows_of(tmp_path / "one", *fields)
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


def test_one_run_at_a_time_works_in_shared_cells(tmp_path: Path, finished: Path) -> None:
    for name in ("one", "own"):
        shutil.copytree(finished, tmp_path / name)
    shutil.copytree(finished / "cells", tmp_path / "cells")
    shutil.rmtree(tmp_path / "one" / "cells")
    run_study(tiny(), tmp_path / "one", cells_folder=tmp_path / "cells")
    for cells, folder in (("cells", "one"), ("own/cells", "own")):
        with (
            locked(tmp_path / cells),  # as by a run with --cells
            pytest.raises(RobustokError, match="another run is at work in"),
        ):
            run_study(tiny(), tmp_path / folder)


def test_a_model_that_was_moved_is_found_at_its_new_place(tmp_path: Path, finished: Path) -> None:
    (trained,) = finished.glob("cells/pretrain-*/model")
    shared = tmp_path / "cells"
    for name, scheme in (("here", "canonical"), ("there", "uniform")):
        if name == "here":
            shutil.copytree(trained, tmp_path / "here")
        else:
            (tmp_path / "here").rename(tmp_path / "there")
        study = of_model(tmp_path / name, eval_schemes=[scheme], items=2, draws=1)
        (row,) = run_study(study, tmp_path / f"run-{name}", cells_folder=shared).rows
        assert row["model"]["name"] == str(tmp_path / name)


def of_model(folder: Path, **evaluate: Any) -> Study:
    """A study that evaluates a model that exists."""
    fields = json.loads(tiny_text(name="exists", evaluate=evaluate))
    for section in ("tokenizer", "pretrain", "finetune"):
        del fields[section]
    return load_study(json.dumps(fields | {"model": {"name": str(folder)}}), "exists.yaml")
