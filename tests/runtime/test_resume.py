"""Resume files: one run at a time, damaged rows are done again, a full disk loses nothing."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from robustok.errors import RobustokError
from robustok.runtime import files
from robustok.runtime.files import RowFile, json_digest

CONFIG = {"seed": 0}
ROWS = [{"key": f"naïve {n} é", "accuracy": n / 7, "ids": [n, n + 1]} for n in range(4)]


def write(path: Path) -> bytes:
    with RowFile(path, CONFIG) as file:
        for row in ROWS:
            file.add_row(row)
    return path.read_bytes()


def read(path: Path) -> dict[str, Any]:
    with RowFile(path, CONFIG) as file:
        return file.rows


def test_without_a_path_rows_are_in_memory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with RowFile(None, CONFIG) as file:
        for row in ROWS:
            file.add_row(row)
    assert list(file.rows.values()) == ROWS
    assert not list(tmp_path.iterdir())


def test_a_file_cut_anywhere_goes_on_from_its_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    content = write(path)
    first = content.index(b"\n") + 1
    for size in [*range(first, len(content), 23), len(content)]:
        path.write_bytes(content[:size])
        whole = content[:size].count(b"\n") - 1
        assert list(read(path).values()) == ROWS[:whole], size
        with RowFile(path, CONFIG) as file:
            for row in ROWS[whole:]:
                file.add_row(row)
        assert path.read_bytes() == content


def test_a_configuration_cut_short_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b'{"config": {"se')
    assert read(path) == {}
    assert path.read_bytes().startswith(b'{"config": {"seed": 0}')


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    content = write(path)
    first = content.index(b"\n") + 1
    for at in range(first, len(content), 7):
        damaged = bytearray(content)
        damaged[at] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        rows = read(path)
        assert all(rows[key] in ROWS for key in rows), at
        assert len(rows) < len(ROWS), at


def test_another_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    for content in (b"years of work", b"years\nof work\n", b"[]\n", b"\xff\n"):
        path.write_bytes(content)
        with pytest.raises(RobustokError, match="no resume file"):
            read(path)
        assert path.read_bytes() == content


@pytest.mark.parametrize("config", [5, None, [1]])
def test_a_configuration_of_no_names_is_another(tmp_path: Path, config: Any) -> None:
    path, first = tmp_path / "rows", {"config": config}
    path.write_text(json.dumps(first | {"check": json_digest(first)}) + "\n")
    with pytest.raises(RobustokError, match="with other seed: delete it"):
        read(path)


def test_a_second_run_is_refused(tmp_path: Path) -> None:
    with RowFile(tmp_path / "rows", CONFIG), pytest.raises(RobustokError, match="another run"):
        read(tmp_path / "rows")
    assert read(tmp_path / "rows") == {}


@pytest.mark.parametrize("written", [0, 1, 30])
def test_a_disk_full_for_a_moment_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """The system writes a part of the row, then fails, then has room again."""

    class Full(io.FileIO):
        room = written

        def write(self, data: Any) -> int:
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            size, self.room = super().write(data[: self.room]), 0
            return size

    path = tmp_path / "rows"
    with RowFile(path, CONFIG) as file:
        file.add_row(ROWS[0])
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", lambda self, *a, **k: Full(os.fspath(self), "a"))
            with pytest.raises(RobustokError, match="is full; free some space"):
                file.add_row(ROWS[1])
        assert path.read_bytes() == before
        for row in ROWS[1:]:
            file.add_row(row)
    assert list(read(path).values()) == ROWS


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows"
    data = b"x" * 100 + b"\n"

    class Short(io.FileIO):
        def write(self, data: Any) -> int:
            return super().write(data[:7])

    monkeypatch.setattr(Path, "open", lambda self, *a, **k: Short(os.fspath(self), "a"))
    files.append_whole(path, data)
    monkeypatch.undo()
    assert path.read_bytes() == data
