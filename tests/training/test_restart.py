"""Runs that were killed, stopped, damaged or spread over processes end with the same weights."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.oracles.processes import as_two_processes
from tests.training.conftest import ITEMS, PLAN, VOCAB, data, stopped, tiny, tune

import robustok as rt
from robustok.attack import Adversary
from robustok.errors import RobustokError
from robustok.models import load_model
from robustok.runtime.files import locked
from robustok.training import run as training_run
from robustok.training.run import CHECKSUMS

MOVING = rt.schedule("stochastok(alpha=0->2)", VOCAB)


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


KILLED = """
    import os, signal
    from pathlib import Path
    from tests.training.conftest import tune

    def kill(step, total):
        if step == 17:
            os.kill(os.getpid(), signal.SIGKILL)

    tune(Path({out!r}), progress=kill)
"""


def test_a_killed_run_goes_on_with_the_same_losses(tmp_path, straight):
    expected_run, folder = straight
    out = tmp_path / "killed"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])}
    script = textwrap.dedent(KILLED.format(out=str(out)))
    run = subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert run.returncode == -signal.SIGKILL
    assert (out / "checkpoints" / "checkpoint-10").is_dir()
    # What a kill in the middle of a save leaves behind.
    (out / "checkpoints" / "checkpoint-20").mkdir()
    model = tiny()
    resumed = tune(out, model)
    assert resumed.losses == expected_run.losses
    assert resumed.tokens == expected_run.tokens
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        assert torch.equal(model.eval()(ids).logits, load_model(folder)(ids).logits)


def test_a_run_of_other_steps_needs_another_folder(tmp_path):
    tune(tmp_path, steps=12)
    for steps in (8, 24):
        with pytest.raises(RobustokError, match=f"steps = 12, not {steps}: use another folder"):
            tune(tmp_path, steps=steps)


@pytest.mark.parametrize("pack", [None, 40])
def test_what_is_measured_goes_on_after_a_stop(tmp_path, pack):
    options = {"overflow": "drop", "pack": pack, "batch_size": 8}
    whole = tune(tmp_path / "straight", tiny(max_length=40), **options)
    out = tmp_path / "stopped"
    stopped(out, 25, model=tiny(max_length=40), **options)
    state = out / "checkpoints" / "checkpoint-20" / "trainer_state.json"
    at_20 = json.loads(state.read_text())["log_history"][-1]
    resumed = tune(out, tiny(max_length=40), **options)
    assert resumed.overflowed == whole.overflowed > at_20["overflowed"] > 0
    assert resumed.seconds > at_20["seconds"] > 0


def test_a_stop_in_a_schedule_changes_nothing(tmp_path):
    whole = tune(tmp_path / "a", sampler=MOVING)
    stopped(tmp_path / "b", 20, sampler=MOVING)
    parts = tune(tmp_path / "b", sampler=MOVING)
    assert (parts.losses, parts.tokens) == (whole.losses, whole.tokens)


@pytest.mark.parametrize("every", [1, 3])
def test_a_stop_beside_an_adversary_changes_nothing(tmp_path, every):
    """An attack reads the weights before its step, which a data loader that reads ahead hides."""

    def run(out: Path, stop: int | None = None) -> Any:
        model = tiny()
        adversary = Adversary(model, VOCAB, ITEMS, every=every, max_scored=8)
        if stop is not None:
            return stopped(out, stop, model=model, adversary=adversary)
        return tune(out, model, adversary=adversary)

    whole = run(tmp_path / "a")
    run(tmp_path / "b", stop=21)
    parts = run(tmp_path / "b")
    assert (parts.losses, parts.tokens) == (whole.losses, whole.tokens)
    assert weights(tmp_path / "b") == weights(tmp_path / "a")
    assert whole.losses != tune(tmp_path / "c").losses


def test_the_loss_of_attacked_rows_does_not_depend_on_the_draws_in_their_place(tmp_path):
    """Those of `characters` do not fit and would be dropped, so they have no labels to count."""
    longest = data("canonical").row_length + 16

    def losses(scheme: str) -> Any:
        model = tiny(max_length=longest)
        adversary = Adversary(model, VOCAB, ITEMS, every=1, max_scored=4)
        draws: dict[str, Any] = {"sampler": rt.sampler(scheme, VOCAB), "overflow": "drop"}
        return tune(tmp_path / scheme, model, adversary=adversary, steps=10, **draws).losses

    assert any(
        row["overflowed"]
        for row in data("characters", max_length=longest, overflow="drop").__getitems__(range(16))
    )
    assert losses("characters") == losses("canonical")


def test_a_slow_training_saves_by_the_clock(tmp_path, monkeypatch):
    saved = []

    def look(step: int, total: int) -> None:
        saved.append(sorted(p.name for p in (tmp_path / "checkpoints").glob("checkpoint-*")))

    monkeypatch.setattr(training_run, "SAVE_SECONDS", 0)
    tune(tmp_path, progress=look, save_every=1000)
    assert saved[15] == ["checkpoint-10"]
    assert saved[25] == ["checkpoint-10", "checkpoint-20"]


@pytest.mark.parametrize("room", [4_000, 60_000, 200_000])
def test_a_full_disk_is_one_line_and_the_run_goes_on_afterwards(tmp_path, straight, room):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(RobustokError, match="free some space and give the same") as error:
            tune(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(error.value)
    assert tune(tmp_path).losses == straight[0].losses


def test_the_folder_is_locked_during_a_run(tmp_path):
    refused = pytest.raises(RobustokError, match=r"another run is at work in .*; wait for it")

    def look(step: int, total: int) -> None:
        if step == 5:
            with refused, locked(tmp_path):
                pass

    tune(tmp_path, progress=look, steps=10)
    with locked(tmp_path), refused:
        tune(tmp_path, steps=10)


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that stopped at step 25, with checkpoints of steps 10 and 20."""
    out = tmp_path_factory.mktemp("stopped")
    stopped(out, 25)
    return out


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "empty": lambda path: path.write_bytes(b""),
    "missing": Path.unlink,
    "flipped": flip,
    "without entries": lambda path: path.write_text("{}"),
}


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", "flipped"),
        ("optimizer.pt", "truncated"),
        ("trainer_state.json", "missing"),
        ("rng_state.pth", "empty"),
        (CHECKSUMS, "flipped"),
        (CHECKSUMS, "without entries"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over(tmp_path, half, straight, caplog, name, damage):
    out = tmp_path / "out"
    shutil.copytree(half, out)
    DAMAGE[damage](out / "checkpoints" / "checkpoint-20" / name)
    with caplog.at_level(logging.WARNING, "robustok"):
        stopped(out, 10)  # where it goes on
    assert [r.getMessage().count("checkpoint-20 is damaged") for r in caplog.records] == [1]
    if name == "model.safetensors":
        tune(out)
        assert weights(out) == weights(straight[1])


def test_every_file_of_a_checkpoint_is_checked(half):
    checkpoint = half / "checkpoints" / "checkpoint-20"
    checked = set(json.loads((checkpoint / CHECKSUMS).read_text())["files"])
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
def test_a_damaged_result_is_done_again(tmp_path, straight, caplog, name, damage):
    out = tmp_path / "out"
    shutil.copytree(straight[1], out)
    DAMAGE[damage](out / name)
    with caplog.at_level(logging.WARNING, "robustok"):
        stopped(out, 0)
    assert [r.getMessage().count("is damaged") for r in caplog.records] == [1]


def test_checkpoints_of_an_unknown_run_are_not_used(tmp_path, half):
    out = tmp_path / "out"
    shutil.copytree(half, out)
    (out / "training.json").write_text("{")
    stopped(out, 0, model=tiny(3))


def test_an_error_of_reading_is_not_called_one_of_writing(tmp_path, monkeypatch):
    def broken(self, indices):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("robustok.training.rows.PromptDataset.__getitems__", broken)
    with pytest.raises(OSError, match="Input/output error") as error:
        tune(tmp_path)
    assert not isinstance(error.value, RobustokError)


def train(rank: int, folder: Path) -> None:
    for name, options in RUNS.items():
        tune(folder / name, steps=20, **options)


# Of 21 rows and a batch of 16, epochs end within a batch.
RUNS = {"two": {}, "both": {}, "two-packed": {"pack": 128}, "few": {"items": ITEMS[:21]}}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_two_processes_train_as_one_does_also_when_their_number_changes_midway(tmp_path):
    """One process accumulates over two passes."""
    alone = {"gradient_accumulation_steps": 2, "steps": 20}
    expected = {name: tune(tmp_path / f"{name}-alone", **alone, **RUNS[name]) for name in RUNS}
    stopped(tmp_path / "both", 13, **alone)
    as_two_processes(train, tmp_path)
    for name, one in expected.items():
        record = json.loads((tmp_path / name / "training.json").read_text())["training"]
        assert dict(record["losses"]) == pytest.approx(dict(one.losses), rel=1e-4)
        assert (record["tokens"], record["overflowed"]) == (one.tokens, one.overflowed)


def test_a_batch_that_does_not_divide_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(
        RobustokError, match="not a multiple of 2 gradient accumulation steps x 3 processes"
    ):
        tune(tmp_path, **PLAN | {"gradient_accumulation_steps": 2})
