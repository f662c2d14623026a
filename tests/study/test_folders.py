"""Damaged and removed files of finished cells are noticed, and studies share their cells."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.study.conftest import TRAINING, rows_of, tiny, tiny_text

from robustok.errors import RobustokError
from robustok.runtime.files import locked, read_object, write_json
from robustok.runtime.records import json_digest
from robustok.study import Cell, Study, load_study, plan, run_study
from robustok.study.run import NoWatch

STUDY = tiny()


@pytest.fixture
def folder(tmp_path: Path, finished: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def raise_accuracy(path: Path) -> None:
    record = json.loads(path.read_text())
    record["result"]["accuracy"] = 0.999
    path.write_text(json.dumps(record))


def lose_fields(path: Path) -> None:
    record = {"kind": "evaluate"}
    write_json(path, record | {"digest": json_digest(record)})


def content(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


DAMAGE = [
    ("finetune-*/model/model.safetensors", flip),
    ("data-*/test.jsonl", flip),
    ("evaluate-*/items.jsonl", truncate),
    ("evaluate-*/items.jsonl", Path.unlink),
    ("tokenizer-*/tokenizer.json", flip),
    ("evaluate-*/cell.json", raise_accuracy),
    ("evaluate-*/cell.json", lose_fields),
    ("evaluate-*/cell.json", content(b"[]")),
    ("evaluate-*/cell.json", content(b"{}")),
    ("evaluate-*/cell.json", content(b"\xff")),
    ("evaluate-*/cell.json", flip),
]


@pytest.mark.parametrize(("pattern", "damage"), DAMAGE)
def test_a_damaged_cell_is_done_again(
    folder: Path,
    finished: Path,
    caplog: pytest.LogCaptureFixture,
    pattern: str,
    damage: Callable[[Path], object],
) -> None:
    (path,) = (folder / "cells").glob(pattern)
    before = path.read_bytes()
    damage(path)
    with caplog.at_level(logging.WARNING, "robustok.study"):
        run_study(STUDY, folder)
    noticed = [record.getMessage() for record in caplog.records]
    assert [path.relative_to(folder).parts[1] in line for line in noticed][:1] == [True]
    if path.name != "cell.json":
        assert path.read_bytes() == before
    assert rows_of(folder) == rows_of(finished)


@pytest.mark.parametrize("written_in", [".", "items", "figures"])
def test_temporary_files_of_a_killed_run_are_removed(folder: Path, written_in: str) -> None:
    part = folder / written_in / ".file.0.part"
    part.parent.mkdir(exist_ok=True)
    part.write_text("cut off")
    run_study(STUDY, folder)
    assert not part.exists()


@pytest.mark.parametrize("kinds", ["data tokenizer", "pretrain", "finetune", "evaluate"])
def test_removed_cells_are_done_again(folder: Path, finished: Path, kinds: str) -> None:
    cells = [path for kind in kinds.split() for path in (folder / "cells").glob(f"{kind}-*")]
    for cell in cells:
        shutil.rmtree(cell)
    run_study(STUDY, folder)
    assert all((cell / "cell.json").exists() for cell in cells)
    assert rows_of(folder) == rows_of(finished)


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_damaged_copy_of_the_items_is_copied_again(
    folder: Path, finished: Path, is_removed: bool
) -> None:
    (copy,) = (folder / "items").iterdir()
    flip(copy)
    for cell in (folder / "cells").glob("evaluate-*") if is_removed else ():
        shutil.rmtree(cell)
    run_study(STUDY, folder)
    assert copy.read_bytes() == (finished / "items" / copy.name).read_bytes()


@pytest.mark.parametrize("data", [b"[]", b"\xff", b"{", b""])
def test_a_damaged_study_file_is_one_line(folder: Path, data: bytes) -> None:
    (folder / "study.json").write_bytes(data)
    with pytest.raises(RobustokError, match=r"study\.json is (not JSON|damaged)") as error:
        run_study(STUDY, folder)
    assert "\n" not in str(error.value)


def test_a_cell_leaves_a_log(finished: Path) -> None:
    for log in finished.glob("cells/*/log.txt"):
        lines = log.read_text().splitlines()
        assert "started" in lines[0]
        assert "finished after" in lines[-1]


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


def test_items_are_those_of_the_rows_after_a_change_of_the_study(folder: Path) -> None:
    before = [path.name for path in (folder / "items").iterdir()]
    for items in (6, 12):
        (row,) = run_study(tiny(evaluate={"items": items}), folder).rows
        (copy,) = (folder / "items").iterdir()
        assert (copy.stem, len(copy.read_text().splitlines())) == (row["cell"], items)
    assert before == [copy.name]


def test_rows_of_other_settings_are_gone_where_the_next_run_stops_early(folder: Path) -> None:
    class Stopped(NoWatch):
        def start(self, cell: Cell) -> None:
            raise KeyboardInterrupt

    changed = tiny(finetune={"steps": 2})
    with pytest.raises(KeyboardInterrupt):
        run_study(changed, folder, watch=Stopped())
    assert rows_of(folder) == []
    assert read_object(folder / "run.json")["configuration"] == changed.as_dict()


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
