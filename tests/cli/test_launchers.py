"""What launchers of several processes do: print once, and say where only one was started."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize(("count", "is_named"), [(1, False), (2, True)])
def test_accelerate_with_one_process_in_place_of_two_is_named(
    count: int, is_named: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the variables that `accelerate launch` sets on a CPU."""
    torch = pytest.importorskip("torch")
    if torch.accelerator.is_available():
        pytest.skip("accelerate starts all processes where there are accelerators")
    launcher = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--cpu"]
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    clean = {k: v for k, v in os.environ.items() if k not in ("WORLD_SIZE", "RANK", "MASTER_ADDR")}
    result = subprocess.run(
        [*launcher, "--num_processes", str(count), "--no_python", sys.executable, "-c", script],
        env=clean, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    monkeypatch.setattr(os, "environ", json.loads(result.stdout))
    with caplog.at_level(logging.WARNING):
        check_launch()
    assert ("use torchrun" in caplog.text) is is_named


def test_a_plain_run_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    with caplog.at_level(logging.WARNING):
        check_launch()
    assert not caplog.text
