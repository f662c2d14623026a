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
from robustok.runtime.files import write_json
from robustok.runtime.records import json_digest
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
