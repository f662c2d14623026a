"""Groups of questions: one run at a time, damaged files are done again, another run is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from robustok.errors import RobustokError
from robustok.runtime.records import in_groups, read_record, write_record

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
