"""Groups of questions: one run at a time, damaged files are done again, another run is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from robustok.errors import RobustokError
from robustok.runtime.files import in_groups, read_record, write_record

GROUP = 32
QUESTIONS = [f"naïve {n} é" for n in range(2 * GROUP + 3)]
RESULTS = [{"lengths": [len(q) / 7 for q in QUESTIONS[at : at + GROUP]]} for at in (0, 32, 64)]


class Work:
    """Measures groups of questions, and fails at one of them."""

    def __init__(self, stop: int | None = None) -> None:
        self.groups: list[int] = []
        self.progress: list[tuple[int, int]] = []
        self.stop = stop

    def run(self, group: Sequence[Any], progress: Any) -> dict:
        if len(self.groups) == self.stop:
            raise KeyboardInterrupt
        self.groups.append(len(group))
        progress(1, len(group))
        return {"lengths": [len(q) / 7 for q in group]}

    def results(self, folder: Path | None, **config: Any) -> list[dict]:
        config = {"seed": 0, **config}
        progress = lambda *now: self.progress.append(now)  # noqa: E731
        return in_groups(folder, config, QUESTIONS, self.run, progress, size=GROUP)


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Work().results(None) == RESULTS
    assert not list(tmp_path.iterdir())


def test_a_stopped_run_goes_on_after_its_last_group(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "groups"
    with pytest.raises(KeyboardInterrupt):
        Work(stop=2).results(folder)
    work = Work()
    assert work.results(folder) == RESULTS
    assert work.groups == [3]
    assert work.progress == [(32, 67), (64, 67), (65, 67), (67, 67)]


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


def test_a_damaged_group_alone_is_done_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Work().results(tmp_path)
    damaged = sorted(tmp_path.glob("*.json"))[1]
    content = damaged.read_bytes()
    damaged.write_bytes(content.replace(b"1", b"2", 1))
    work = Work()
    assert work.results(tmp_path) == RESULTS and work.groups == [GROUP]
    assert damaged.read_bytes() == content
    assert f"{damaged} is damaged and done again" in caplog.text


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    Work().results(tmp_path, steps=3)
    work = Work()
    with pytest.raises(RobustokError, match="results with other seed, steps: delete it"):
        work.results(tmp_path, seed=1, steps=4)
    assert not work.groups


def test_a_second_run_is_refused(tmp_path: Path) -> None:
    def run(group: Sequence[Any], progress: Any) -> dict:
        with pytest.raises(RobustokError, match="another run"):
            Work().results(tmp_path)
        return {}

    assert in_groups(tmp_path, {}, QUESTIONS[:1], run, lambda *_: None, size=1) == [{}]
