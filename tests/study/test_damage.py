"""Damaged files of finished cells, and removed ones, are noticed, and the cell is done again."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.study.conftest import rows_of, tiny

from robustok.errors import RobustokError
from robustok.study import run_study

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


def content(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


DAMAGE = [
    ("finetune-*/model/model.safetensors", flip),
    ("data-*/test.jsonl", flip),
    ("evaluate-*/items.jsonl", truncate),
    ("evaluate-*/items.jsonl", Path.unlink),
    ("tokenizer-*/tokenizer.json", flip),
    ("evaluate-*/cell.json", raise_accuracy),
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


@pytest.mark.parametrize("kind", ["data", "tokenizer", "pretrain", "finetune", "evaluate"])
def test_a_removed_cell_is_done_again(folder: Path, finished: Path, kind: str) -> None:
    (cell,) = (folder / "cells").glob(f"{kind}-*")
    shutil.rmtree(cell)
    run_study(STUDY, folder)
    assert (cell / "cell.json").exists()
    assert rows_of(folder) == rows_of(finished)


def test_removed_inputs_are_made_again_before_what_was_measured_with_them(
    folder: Path, finished: Path
) -> None:
    for kind in ("data", "tokenizer"):
        (cell,) = (folder / "cells").glob(f"{kind}-*")
        shutil.rmtree(cell)
    run_study(STUDY, folder)
    assert rows_of(folder) == rows_of(finished)


def test_an_undamaged_run_does_nothing_again(
    finished: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cells = {path: path.stat().st_mtime_ns for path in finished.glob("cells/*/cell.json")}
    with caplog.at_level(logging.WARNING, "robustok.study"):
        run_study(STUDY, finished)
    assert not caplog.records
    assert cells == {path: path.stat().st_mtime_ns for path in finished.glob("cells/*/cell.json")}


def test_a_damaged_copy_of_the_items_is_copied_again(folder: Path, finished: Path) -> None:
    (copy,) = (folder / "items").iterdir()
    flip(copy)
    run_study(STUDY, folder)
    assert copy.read_bytes() == (finished / "items" / copy.name).read_bytes()


def test_the_copy_of_the_items_is_that_of_the_cell_that_ran_again(
    folder: Path, finished: Path
) -> None:
    (copy,) = (folder / "items").iterdir()
    copy.write_text("of an earlier release\n")
    (cell,) = (folder / "cells").glob("evaluate-*")
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
