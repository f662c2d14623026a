"""What launchers of several processes do: print once, and say where only one was started."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from robustok.cli.app import run
from robustok.training.run import check_launch


@pytest.mark.parametrize(("rank", "printed"), [("0", True), ("1", False)])
def test_the_first_process_alone_prints(
    rank: str,
    printed: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", rank)
    assert run(["--version"]) == 0
    assert bool(capsys.readouterr().out) is printed


def test_accelerate_with_one_process_in_place_of_two_is_named() -> None:
    """The variables that `accelerate launch --num_processes 2` sets on a CPU."""
    torch = pytest.importorskip("torch")
    if torch.accelerator.is_available():
        pytest.skip("accelerate starts all processes where there are accelerators")
    script = "from robustok.training.run import check_launch; check_launch()"
    launcher = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
    clean = {k: v for k, v in os.environ.items() if k not in ("WORLD_SIZE", "RANK", "MASTER_ADDR")}
    for count in (1, 2):
        command = [*launcher, "--cpu", "--num_processes", str(count), "--no_python"]
        result = subprocess.run(
            [*command, sys.executable, "-c", script], env=clean, capture_output=True, text=True,
            timeout=300, check=True,
        )  # fmt: skip
        assert ("use torchrun" in result.stderr) is (count == 2)


def test_a_plain_run_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    with caplog.at_level(logging.WARNING):
        check_launch()
    assert not caplog.text
