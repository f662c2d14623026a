"""Damaged files of finished cells are noticed, and the cell is done again."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from robustok.errors import RobustokError
from robustok.study import load_study, run_study

TEXT = """
name: demo
title: A study of seconds
seed: 0
task: {kind: langgame, format: short, words: 20, train: 64, test: 12}
tokenizer: {size: 300}
model: {layers: 1, width: 16, heads: 2, kv_heads: 2, feed_forward: 32, max_length: 256}
pretrain: {schemes: [canonical], steps: 1, batch_size: 8, learning_rate: 1.0e-3}
finetune: {schemes: [uniform], steps: 1, batch_size: 8, learning_rate: 1.0e-3}
evaluate: {eval_schemes: [canonical], items: 12, draws: 1}
"""
STUDY = load_study(TEXT, "demo.yaml")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run_study(STUDY, folder)
    return folder


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


def comparable(folder: Path) -> list[str]:
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    for row in rows:
        del row["seconds"], row["model"]["training_seconds"]
    return [json.dumps(row, sort_keys=True) for row in rows]


@pytest.mark.parametrize(("pattern", "damage"), DAMAGE)
def test_a_damaged_cell_is_done_again(
    tmp_path: Path,
    finished: Path,
    caplog: pytest.LogCaptureFixture,
    pattern: str,
    damage: Callable[[Path], object],
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (path,) = (folder / "cells").glob(pattern)
    before = path.read_bytes()
    damage(path)
    with caplog.at_level(logging.WARNING, "robustok.study"):
        run_study(STUDY, folder)
    noticed = [record.getMessage() for record in caplog.records]
    assert [path.relative_to(folder).parts[1] in line for line in noticed][:1] == [True]
    if path.name != "cell.json":
        assert path.read_bytes() == before
    assert comparable(folder) == comparable(finished)


def test_an_undamaged_run_does_nothing_again(
    finished: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cells = {path: path.stat().st_mtime_ns for path in finished.glob("cells/*/cell.json")}
    with caplog.at_level(logging.WARNING, "robustok.study"):
        run_study(STUDY, finished)
    assert not caplog.records
    assert cells == {path: path.stat().st_mtime_ns for path in finished.glob("cells/*/cell.json")}


def test_a_damaged_copy_of_the_items_is_copied_again(tmp_path: Path, finished: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (copy,) = (folder / "items").iterdir()
    flip(copy)
    run_study(STUDY, folder)
    assert copy.read_bytes() == (finished / "items" / copy.name).read_bytes()


def test_a_cell_of_a_release_without_checksums_is_kept(
    tmp_path: Path, finished: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    for path in folder.glob("cells/*/cell.json"):
        record = json.loads(path.read_text())
        del record["files"], record["digest"]
        path.write_text(json.dumps(record))
    with caplog.at_level(logging.WARNING, "robustok.study"):
        run_study(STUDY, folder)
    assert not caplog.records


@pytest.mark.parametrize("data", [b"[]", b"\xff", b"{", b""])
def test_a_damaged_study_file_is_one_line(tmp_path: Path, finished: Path, data: bytes) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "study.json").write_bytes(data)
    with pytest.raises(RobustokError, match=r"study\.json is (not JSON|damaged)") as error:
        run_study(STUDY, folder)
    assert "\n" not in str(error.value)
