"""Two processes train as one with twice the accumulation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.training.test_finetune import ITEMS, UNIFORM, VOCAB, tiny

from robustok.errors import RobustokError
from robustok.training import finetune

PLAN = {"steps": 20, "batch_size": 16, "learning_rate": 1e-2, "save_every": 10}

SCRIPT = """
    import sys
    from robustok.training import finetune
    from tests.training.test_distributed import PLAN
    from tests.training.test_finetune import ITEMS, UNIFORM, VOCAB, tiny

    for out in sys.argv[1:]:
        pack = 128 if out.endswith("packed") else None
        finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=out, pack=pack, **PLAN)
"""


def on_two_processes(folder: Path, *outs: Path) -> None:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = os.pathsep.join([str(Path.cwd()), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launch, str(script), *map(str, outs)]
    run = subprocess.run(command, env=environment, check=False, capture_output=True)
    assert run.returncode == 0, run.stderr.decode()[-3000:]


def losses(out: Path) -> dict[int, float]:
    record = json.loads((out / "training.json").read_text())
    return dict(record["training"]["losses"])


def alone(out: Path, stop: int = -1, pack: int | None = None) -> None:
    def progress(step: int, total: int) -> None:
        if step == stop:
            raise KeyboardInterrupt

    finetune(
        tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=out, gradient_accumulation_steps=2,
        progress=progress, pack=pack, **PLAN,
    )  # fmt: skip


def test_two_processes_train_as_one_does_also_when_their_number_changes_midway(tmp_path):
    one, two, both = (tmp_path / name for name in ("one", "two", "both"))
    alone(one)
    with pytest.raises(KeyboardInterrupt):
        alone(both, stop=13)
    packed, two_packed = tmp_path / "one-packed", tmp_path / "two-packed"
    alone(packed, pack=128)
    on_two_processes(tmp_path, two, both, two_packed)
    for out in (two, both):
        assert losses(out) == pytest.approx(losses(one), rel=1e-4)
    assert losses(two_packed) == pytest.approx(losses(packed), rel=1e-4)


def test_a_batch_that_does_not_divide_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(
        RobustokError, match="not a multiple of 2 gradient accumulation steps x 3 processes"
    ):
        alone(tmp_path)
