"""Files are whole or not there, a folder serves one run, damaged groups of a run are done again."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from robustok.errors import RobustokError
from robustok.runtime import files
from robustok.runtime.records import in_groups, read_record, write_record


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    files.write_json(path, {"old": True})

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_json(path, {"old": False})
    assert files.read_json(path) == {"old": True}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.skipif(sys.platform == "win32", reason="has no such links and pipes")
def test_links_and_pipes_are_not_replaced(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("old")
    link.symlink_to(target)
    files.write_whole(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    os.mkfifo(pipe)
    with pytest.raises(RobustokError, match="a device or a pipe"):
        files.write_whole(pipe, "new")
    assert pipe.is_fifo()


@pytest.mark.skipif(sys.platform == "win32", reason="acts like Windows elsewhere")
def test_a_file_is_written_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where folders cannot be opened, and only handles that write can be synced."""
    import fcntl

    def open_file(path: Path, flags: int) -> int:
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, "Permission denied")
        return os_open(path, flags)

    def sync(handle: int) -> None:
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")

    os_open = os.open
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "open", open_file)
    monkeypatch.setattr(os, "fsync", sync)
    files.write_json(tmp_path / "a.json", {"whole": True})
    assert files.read_json(tmp_path / "a.json") == {"whole": True}


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("SafetensorError: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_one_line(error: Exception) -> None:
    with (
        pytest.raises(RobustokError, match=r"runs/a cannot be written .*free some space"),
        files.disk_full_in_one_line(Path("runs/a")),
    ):
        raise error
    with pytest.raises(ZeroDivisionError), files.disk_full_in_one_line(Path("runs/a")):
        raise ZeroDivisionError


def test_the_error_of_a_write_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", full)
    for write in (files.write_whole, files.write_rows):
        with pytest.raises(OSError, match=r"No space left on device: .*a\.jsonl"):
            write(tmp_path / "a.jsonl", "abc")


def test_a_folder_serves_one_run_at_a_time(tmp_path: Path) -> None:
    for _ in range(2):  # it is free again after the block
        with (
            files.locked(tmp_path / "a"),
            files.locked(tmp_path / "b"),
            pytest.raises(RobustokError, match="another run is at work"),
            files.locked(tmp_path / "a"),
        ):
            pass


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from robustok.runtime.files import locked\n"
        "with locked(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert run.returncode == -signal.SIGKILL
    with files.locked(tmp_path):
        pass


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff", b"[" * 200_000, b"9" * 5_000])
def test_damaged_or_missing_json_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    message = "cannot be read" if content is None else r"a\.json is not JSON"
    with pytest.raises(RobustokError, match=message) as error:
        files.read_json(path)
    assert "\n" not in str(error.value)
    assert files.read_json_or_none(path) is None


GROUP = 32
QUESTIONS = [f"naïve {n} é" for n in range(2 * GROUP + 3)]
CONFIG = {"seed": 0, "steps": 3}


def measured(group: Sequence[Any], progress: Any) -> dict[str, Any]:
    progress(1, len(group))
    return {"lengths": [len(q) / 7 for q in group]}


RESULTS = [measured(QUESTIONS[at : at + GROUP], lambda *_: None) for at in (0, 32, 64)]


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert in_groups(None, CONFIG, QUESTIONS, measured, lambda *_: None, size=GROUP) == RESULTS
    assert not list(tmp_path.iterdir())


def test_a_stopped_run_goes_on_and_does_damaged_groups_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "new" / "groups"
    groups: list[int] = []
    heard: list[tuple[int, int]] = []

    def run(group: Sequence[Any], progress: Any) -> dict[str, Any]:
        if groups == [GROUP, GROUP]:
            raise KeyboardInterrupt
        with pytest.raises(RobustokError, match="another run"):
            results()
        groups.append(len(group))
        return measured(group, progress)

    def results(**config: Any) -> list[dict[str, Any]]:
        now = lambda *progress: heard.append(progress)  # noqa: E731
        return in_groups(folder, CONFIG | config, QUESTIONS, run, now, size=GROUP)

    with pytest.raises(KeyboardInterrupt):
        results()
    damaged = folder / "000032.json"
    content = damaged.read_bytes()
    damaged.write_bytes(content.replace(b"1", b"2", 1))
    del groups[:], heard[:]
    assert results() == RESULTS and groups == [GROUP, 3]
    assert heard == [(32, 67), (33, 67), (64, 67), (65, 67), (67, 67)]
    assert damaged.read_bytes() == content
    assert f"{damaged} is damaged and done again" in caplog.text
    with pytest.raises(RobustokError, match="results with other seed, steps: delete it"):
        results(seed=1, steps=4)
    assert groups == [GROUP, 3]


def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    record = {"config": {"seed": 0}, "result": RESULTS[2]}
    write_record(path, record)
    content = path.read_bytes()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << (at % 8)
        for wrong in (bytes(damaged), content[:at]):
            path.write_bytes(wrong)
            assert read_record(path) in (None, record), at  # white space may change
