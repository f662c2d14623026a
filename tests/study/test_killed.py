"""The real thing, very small: killed with SIGKILL while it trains, it ends as if undisturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.study.conftest import rows_of, tiny_text

from robustok.cli.app import run
from robustok.study import find_study, run_study

SMALL = tiny_text(
    threads=1,
    pretrain={"steps": 40, "save_every": 10},
    finetune={"schemes": ["canonical", "uniform-k(alpha=1)"], "steps": 20},
    evaluate={"eval_schemes": ["canonical", "uniform"], "items": 8, "draws": 2},
    attacks=[{"items": 2, "steps": 2}],
)


def start(study: Path, out: Path, jobs: int) -> subprocess.Popen[str]:
    command = ["-m", "robustok", "study", str(study), "--out", str(out), "--jobs", str(jobs)]
    return subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def kill_once_it_exists(process: subprocess.Popen[str], out: Path, pattern: str) -> None:
    """SIGKILL as soon as a file that matches is there."""
    while not list(out.glob(pattern)):
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)
    helpers = children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    for helper in helpers:
        wait_until_gone(helper)


def children(pid: int) -> list[int]:
    """The processes that it started, where the system tells."""
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listing.read_text().split()] if listing.exists() else []


def wait_until_gone(pid: int) -> None:
    for _ in range(600):
        status = Path(f"/proc/{pid}/stat")
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError(f"process {pid} outlived the run that started it")


def test_killed_twice_it_ends_as_if_undisturbed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "small.yaml"
    study.write_text(SMALL)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_study(replace(find_study(str(study)), threads=None), whole)
    checkpoint = "cells/pretrain-*/model/checkpoints/*/trainer_*"
    kill_once_it_exists(start(study, killed, jobs=1), killed, checkpoint)
    kill_once_it_exists(start(study, killed, jobs=2), killed, "cells/evaluate-*/cell.json")
    assert run(["study", str(study), "--out", str(killed), "--jobs", "1"]) == 0
    assert "cells are already done" in capsys.readouterr().out
    fields = ("train_scheme", "eval_scheme", "accuracy", "low", "high", "n", "draws", "cell")
    assert rows_of(killed, *fields) == rows_of(whole, *fields)
    assert len(rows_of(whole)) == 2 * 3
    weights = "cells/finetune-*/model/model.safetensors"
    for one, other in zip(sorted(whole.glob(weights)), sorted(killed.glob(weights)), strict=True):
        assert one.read_bytes() == other.read_bytes()
    lines = (killed / "report.md").read_text().splitlines()
    for row in rows_of(killed, "train_scheme", "eval_scheme"):
        assert any(f"{row['train_scheme']} | {row['eval_scheme']} |" in line for line in lines)
    assert not list(killed.rglob("*.part"))
