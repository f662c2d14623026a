"""The engine with cells that cost nothing: order, resuming, other folders; a real run is killed."""

import dataclasses
import errno
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.study.conftest import QUICK, rows_of, tiny, tiny_text

from robustok.cli.app import run
from robustok.errors import RobustokError
from robustok.models import load_model
from robustok.report import write_report
from robustok.report.frame import merged_layers
from robustok.runtime.files import read_json
from robustok.study import Cell, Watch, find_study, load_study, models, plan, run_study
from robustok.study.inputs import DataCell
from robustok.study.run import NoWatch, run_cells

IN_WORKERS = plan(load_study(QUICK, "a"))
PARTS: dict[str, Any] = {
    "finetune": {"schemes": ["canonical", "stochastok(alpha=2)", "uniform-k(alpha=1.5)"]},
    "evaluate": {"eval_schemes": ["canonical", "uniform"], "draws": 10},
    "attacks": [{"items": 2, "steps": 2}],
}
STUDY: Any = tiny(**PARTS)


class Works:
    """Stands in for the real work, and counts it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fail_at: Callable[[Any], Exception | None] = lambda cell: None

    def __call__(self, cell: Cell, folder: Path, progress: Any) -> dict[str, Any]:
        assert all((other.path(folder) / "cell.json").exists() for other in cell.inputs.values())
        progress(1, 2)
        if error := self.fail_at(cell):
            raise error
        self.done.append(cell.label)
        share = int(cell.key[-4:], 16) / 2**16
        measured = {"eval_scheme": getattr(cell, "eval_scheme", ""), "accuracy": share}
        return measured | {
            "low": 0.0, "high": 1.0, "n": 9, "draws": 1, "chance": 0.25, "parameters": 7,
            "start_accuracy": 0.5,
        }  # fmt: skip


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> Works:
    fake = Works()
    for kind in {type(cell) for cell in plan(STUDY)}:
        monkeypatch.setattr(kind, "run", lambda *args: fake(*args))
    return fake


def accuracies(folder: Path) -> list[dict[str, Any]]:
    return rows_of(folder, "train_scheme", "eval_scheme", "accuracy")


def test_a_row_has_what_others_rely_on(tmp_path: Path, works: Works) -> None:
    study = tiny(**PARTS, model={"architecture": "qwen3"})
    rows = run_study(study, tmp_path / "a").rows
    assert len(rows) == len(STUDY.finetune.schemes) * (len(STUDY.evaluate.eval_schemes) + 1)
    wanted = {"train_scheme", "eval_scheme", "accuracy", "low", "high", "n", "draws", "seed"}
    for row in rows:
        assert wanted | {"seconds", "model", "configuration", "versions"} <= row.keys()
    assert rows[0]["configuration"]["inputs"]["model"]["options"]["steps"] == STUDY.finetune.steps
    assert rows[0]["configuration"]["inputs"]["model"]["inputs"]["model"]["seed"] == STUDY.seed
    assert rows[0]["versions"]["numpy"]
    assert {row["model"]["architecture"] for row in rows} == {"qwen3"}


def test_a_measured_model_has_the_scheme_of_its_recorded_training(
    finished: Path, tmp_path: Path
) -> None:
    (model,) = finished.glob("cells/finetune-*/model")
    shutil.copytree(model, tmp_path / "copied")
    (tmp_path / "copied/training.json").unlink()
    parts = json.loads(tiny_text(pretrain=None, finetune=None, tokenizer=None))
    for folder, scheme in ((model, "uniform"), (tmp_path / "copied", "as published")):
        study = load_study(json.dumps(parts | {"model": {"name": str(folder)}}), "measured.yaml")
        run = run_study(study, tmp_path / scheme)
        trained_with = {(row["pretrain_scheme"], row["train_scheme"]) for row in run.rows}
        assert trained_with == {("canonical", scheme)}
        page = write_report(run.folder).with_name("report.md").read_text()
        name = folder.name + " (uniform)" * (scheme == "uniform")
        assert f"- {name}: " in page and f"| {name} | canonical | " in page


def test_a_second_call_does_nothing_again(tmp_path: Path, works: Works) -> None:
    (tmp_path / ".study.json.0123.part").write_text("{")  # of a run killed at its first write
    run_study(STUDY, tmp_path)
    assert not list(tmp_path.glob(".*.part"))
    first = (tmp_path / "results.jsonl").read_bytes()
    works.done.clear()
    run_study(tiny(**PARTS, title="Another title"), tmp_path)
    assert works.done == []
    assert (tmp_path / "results.jsonl").read_bytes() == first
    assert read_json(tmp_path / "study.json")["title"] == "Another title"


def test_a_stopped_run_goes_on_and_ends_the_same(tmp_path: Path, works: Works) -> None:
    run_study(STUDY, tmp_path / "whole")
    total = len(works.done)
    for stop in (0, 1, 4, total - 2):
        folder = tmp_path / str(stop)
        works.done.clear()
        works.fail_at = lambda cell, stop=stop: (
            KeyError("stopped") if len(works.done) == stop else None
        )
        with pytest.raises(KeyError):
            run_study(STUDY, folder)
        works.fail_at = lambda cell: None
        run_study(STUDY, folder)
        assert len(works.done) == total
        assert accuracies(folder) == accuracies(tmp_path / "whole")


def test_the_report_of_a_stopped_run_names_what_is_missing(tmp_path: Path, works: Works) -> None:
    twice, count = tiny(**PARTS, repeats=2), 2 * 3 * 3
    label = "evaluate stochastok(alpha=2) on uniform"
    works.fail_at = lambda cell: KeyError("stopped") if cell.label == label else None
    with pytest.raises(KeyError):
        run_study(twice, tmp_path)
    rows, missing = rows_of(tmp_path), read_json(tmp_path / "run.json")["missing"]
    assert len(rows) + len(missing) == count
    assert {row["train_scheme"] for row in missing if row["seed"] == 0} == {
        "stochastok(alpha=2)", "uniform-k(alpha=1.5)",
    }  # fmt: skip
    for page in ("report.html", "report.md"):
        write_report(tmp_path)
        text = (tmp_path / page).read_text(encoding="utf-8")
        assert f"{len(rows)} of {count} measurements are finished" in text
        assert "uniform-k(alpha=1.5)" in text
    works.fail_at = lambda cell: None
    finished = run_study(twice, tmp_path).rows
    assert len(finished) == count
    assert read_json(tmp_path / "run.json")["missing"] == []


def test_a_changed_field_runs_what_depends_on_it_in_the_same_folder(
    tmp_path: Path, works: Works
) -> None:
    run_study(STUDY, tmp_path)
    before = (tmp_path / "results.jsonl").read_bytes()
    works.done.clear()
    other = tiny(**PARTS | {"evaluate": PARTS["evaluate"] | {"draws": 7}})
    assert other != STUDY
    rows = run_study(other, tmp_path).rows
    drawn = [row for row in rows if row["eval_scheme"] == "uniform"]
    assert len(works.done) == len(drawn)  # what draws once is the same in both
    works.done.clear()
    run_study(STUDY, tmp_path)  # whose cells are all there
    assert not works.done
    assert (tmp_path / "results.jsonl").read_bytes() == before
    with pytest.raises(RobustokError, match="holds a run of the study 'tiny', not 'other'"):
        run_study(tiny(**PARTS, name="other"), tmp_path)


def test_more_repeats_continue_in_the_same_folder(tmp_path: Path, works: Works) -> None:
    run_study(STUDY, tmp_path)
    first = accuracies(tmp_path)
    works.done.clear()
    three = load_study(tiny_text(**PARTS), "tiny.yaml", repeats=3)
    rows = run_study(three, tmp_path).rows
    assert accuracies(tmp_path)[: len(first)] == first
    assert not {"data", "tokenizer", "pretrain canonical"} & set(works.done)
    assert [row["seed"] for row in rows] == [seed for seed in range(3) for _ in first]
    assert read_json(tmp_path / "study.json")["repeats"] == 3


def test_no_finished_seed_is_left_out_of_the_same_folder(tmp_path: Path, works: Works) -> None:
    run_study(tiny(**PARTS, repeats=2), tmp_path)
    before = (tmp_path / "results.jsonl").read_bytes()
    for changes in ({"first_repeat": 1, "repeats": 1}, {"repeats": 1}):
        with pytest.raises(RobustokError, match="change --first-repeat or --repeats so that"):
            run_study(tiny(**PARTS, **changes), tmp_path)
    assert (tmp_path / "results.jsonl").read_bytes() == before


def test_layers_of_models_that_differ_in_pretraining_have_names(tmp_path: Path) -> None:
    study = tiny(
        pretrain={"schemes": ["canonical", "uniform"]}, finetune=None, evaluate=None,
        embeddings={"words": 3, "draws": 2},
    )  # fmt: skip
    layers = merged_layers(run_study(study, tmp_path).rows)
    assert set(layers["model"]) == {"before fine-tuning", "uniform before fine-tuning"}
    assert set(layers["seeds"]) == {1}


@pytest.mark.parametrize(("file", "message"), [
    ("run/thesis.tex", r"holds other files \(thesis\.tex\)"),
    ("run/.hidden", r"holds other files \(\.hidden\)"),
    ("run", "is a file"),
])  # fmt: skip
def test_a_folder_that_holds_something_else_is_refused(
    file: str, message: str, tmp_path: Path, works: Works
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("years of work")
    with pytest.raises(RobustokError, match=message):
        run_study(STUDY, tmp_path / "run")


def test_a_disk_that_fills_up_is_one_line_and_loses_nothing(tmp_path: Path, works: Works) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    works.fail_at = lambda cell: full if len(works.done) == 6 else None
    with pytest.raises(RobustokError, match="continues after the last finished part"):
        run_study(STUDY, tmp_path)
    works.fail_at = lambda cell: None
    run_study(STUDY, tmp_path)
    assert len(works.done) == len(plan(STUDY))


@pytest.mark.parametrize(("jobs", "task"), [(1, "that ran 'data'"), (2, "that was idle")])
def test_a_worker_that_is_killed_is_one_line(tmp_path: Path, jobs: int, task: str) -> None:
    """A second worker has no task: every other cell needs the first one's result."""
    cells = IN_WORKERS[:jobs]
    assert jobs == 1 or cells[0] in cells[1].inputs.values()

    class Kills(Watch):
        """Kills the last worker as the system does when memory runs out."""

        def progress(self, cell: Any, done: int, total: int) -> None:
            workers = multiprocessing.active_children()
            last = max(workers, key=lambda child: child.pid or 0)
            last.kill()
            last.join()

    with pytest.raises(RobustokError, match=rf"{task} was killed by SIGKILL[^\n]*$"):
        list(run_cells(cells, tmp_path, Kills(), set(), threads=1, jobs=jobs))


def test_an_error_in_a_worker_is_raised_unchanged(tmp_path: Path) -> None:
    data = IN_WORKERS[0]
    assert isinstance(data, DataCell)
    wrong = dataclasses.replace(data, words=("a", "b"))
    with pytest.raises(RobustokError, match="the word list has 2 words"):
        list(run_cells([wrong], tmp_path, NoWatch(), set(), threads=1, jobs=1))
    assert not multiprocessing.active_children()


def test_a_model_stays_loaded_for_all_its_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def load(source: Any, **options: Any) -> Any:
        loaded.append(str(source))
        return load_model(source, **options)

    for name in ("load_model", "open_model"):
        monkeypatch.setattr(models, name, load)
    schemes = ["canonical", "uniform", "characters"]
    evaluate = {"eval_schemes": schemes, "items": 2, "draws": 1}
    run_study(tiny(evaluate=evaluate, attacks=[{"items": 2, "steps": 1}]), tmp_path)
    # Once to train it further, and once to measure the trained one.
    assert len(loaded) == len(set(loaded)) == 2
    assert not models._OPENED


SMALL = tiny_text(
    threads=1,
    pretrain={"steps": 40, "save_every": 10},
    finetune={"schemes": ["canonical", "uniform-k(alpha=1)"], "steps": 20},
    evaluate={"eval_schemes": ["canonical", "uniform"], "items": 8, "draws": 2},
    attacks=[{"items": 2, "steps": 2}],
)


def start(study: Path, out: Path, jobs: int) -> subprocess.Popen[str]:
    command = ["-m", "robustok", "study", str(study), "--out", str(out), "--jobs", str(jobs)]
    return subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def kill_once_it_exists(process: subprocess.Popen[str], out: Path, pattern: str) -> None:
    """SIGKILL as soon as a file that matches is there."""
    while not list(out.glob(pattern)):
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)
    helpers = children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    for helper in helpers:
        wait_until_gone(helper)


def children(pid: int) -> list[int]:
    """The processes that it started, where the system tells."""
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listing.read_text().split()] if listing.exists() else []


def wait_until_gone(pid: int) -> None:
    for _ in range(600):
        status = Path(f"/proc/{pid}/stat")
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError(f"process {pid} outlived the run that started it")


def test_killed_twice_it_ends_as_if_undisturbed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "small.yaml"
    study.write_text(SMALL)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_study(replace(find_study(str(study)), threads=None), whole)
    checkpoint = "cells/pretrain-*/model/checkpoints/*/trainer_*"
    kill_once_it_exists(start(study, killed, jobs=1), killed, checkpoint)
    kill_once_it_exists(start(study, killed, jobs=2), killed, "cells/evaluate-*/cell.json")
    assert run(["study", str(study), "--out", str(killed), "--jobs", "1"]) == 0
    assert "cells are already done" in capsys.readouterr().out
    fields = ("train_scheme", "eval_scheme", "accuracy", "low", "high", "n", "draws", "cell")
    assert rows_of(killed, *fields) == rows_of(whole, *fields)
    assert len(rows_of(whole)) == 2 * 3
    weights = "cells/finetune-*/model/model.safetensors"
    for one, other in zip(sorted(whole.glob(weights)), sorted(killed.glob(weights)), strict=True):
        assert one.read_bytes() == other.read_bytes()
    lines = (killed / "report.md").read_text().splitlines()
    for row in rows_of(killed, "train_scheme", "eval_scheme"):
        assert any(f"{row['train_scheme']} | {row['eval_scheme']} |" in line for line in lines)
    assert not list(killed.rglob("*.part"))
