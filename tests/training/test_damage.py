"""A training folder serves one run, and damaged files in it are noticed."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.training.test_finetune import ITEMS, PLAN, UNIFORM, VOCAB, tiny

from robustok.errors import RobustokError
from robustok.training import finetune
from robustok.training.record import CHECKSUMS

SETTINGS = {**PLAN, "save_every": 10}
SECOND = """
    from tests.training.test_damage import run

    run({out!r})
"""


def run(out, seed=0, **options):
    model = tiny(seed)
    return finetune(
        model, VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=out, **{**SETTINGS, **options}
    )


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    run(out)
    return out


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that stopped at step 35, with checkpoints of steps 20 and 30."""
    out = tmp_path_factory.mktemp("stopped")

    def stop(step: int, total: int) -> None:
        if step == 35:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(out, progress=stop)
    return out


def test_a_second_process_in_the_folder_is_refused(tmp_path: Path, whole: Path) -> None:
    out, second = tmp_path / "out", []

    def start_second(step: int, total: int) -> None:
        if step == 25:
            script = textwrap.dedent(SECOND.format(out=str(out)))
            command = [sys.executable, "-c", script]
            second.append(subprocess.run(command, check=False, capture_output=True, text=True))

    run(out, progress=start_second)
    assert second[0].returncode != 0
    assert (
        second[0]
        .stderr.splitlines()[-1]
        .endswith(f"another run is at work in {out}; wait for it, or give another folder")
    )
    assert weights(out) == weights(whole)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "empty": lambda path: path.write_bytes(b""),
    "missing": Path.unlink,
    "flipped": flip,
}


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", "flipped"),
        ("optimizer.pt", "truncated"),
        ("trainer_state.json", "missing"),
        ("rng_state.pth", "empty"),
        (CHECKSUMS, "flipped"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path,
    stopped: Path,
    whole: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    damage: str,
) -> None:
    out = tmp_path / "out"
    shutil.copytree(stopped, out)
    DAMAGE[damage](out / "checkpoints" / "checkpoint-30" / name)
    steps = []
    with caplog.at_level(logging.WARNING, "robustok"):
        run(out, progress=lambda step, total: steps.append(step))
    assert steps[0] == 20
    assert [r.getMessage().count("checkpoint-30 is damaged") for r in caplog.records] == [1]
    assert weights(out) == weights(whole)


def test_every_file_of_a_checkpoint_is_checked(stopped: Path) -> None:
    checkpoint = stopped / "checkpoints" / "checkpoint-30"
    checked = set(json.loads((checkpoint / CHECKSUMS).read_text()))
    assert checked == {path.name for path in checkpoint.iterdir()} - {CHECKSUMS}
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"} < checked


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", "flipped"),
        ("model.safetensors", "missing"),
        ("training.json", "flipped"),
        ("training.json", "truncated"),
        ("config.json", "empty"),
    ],
)
def test_a_damaged_result_is_done_again(
    tmp_path: Path, whole: Path, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    DAMAGE[damage](out / name)
    with caplog.at_level(logging.WARNING, "robustok"):
        run(out)
    assert [r.getMessage().count("is damaged") for r in caplog.records] == [1]
    assert weights(out) == weights(whole)


def test_checkpoints_of_an_unknown_run_are_not_used(tmp_path: Path, stopped: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(stopped, out)
    (out / "training.json").write_text("{")
    steps = []
    run(out, seed=3, progress=lambda step, total: steps.append(step))
    assert steps[0] == 0


def test_an_error_of_reading_is_not_called_one_of_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self, indices):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("robustok.training.prompts.PromptDataset.__getitems__", broken)
    with pytest.raises(OSError, match="Input/output error") as error:
        run(tmp_path)
    assert not isinstance(error.value, RobustokError)
