"""Files are whole or not there, a full disk is one line, a folder serves one run."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from robustok.errors import RobustokError
from robustok.study import store


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    store.write_json(path, {"old": True})

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.write_json(path, {"old": False})
    assert store.read_json(path) == {"old": True}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("SafetensorError: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_one_line(error: Exception) -> None:
    with (
        pytest.raises(RobustokError, match="is full; free some space"),
        store.disk_full_in_one_line(Path("runs/a")),
    ):
        raise error


def test_another_error_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError), store.disk_full_in_one_line(Path("runs/a")):
        raise ZeroDivisionError


def test_a_folder_serves_one_run_at_a_time(tmp_path: Path) -> None:
    with (
        store.locked(tmp_path),
        pytest.raises(RobustokError, match="another run is at work"),
        store.locked(tmp_path),
    ):
        pass
    with store.locked(tmp_path):
        pass


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(RobustokError, match="line 2 is not JSON"):
        store.read_rows(path)
