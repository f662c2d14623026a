"""Worker processes: one that dies is noticed, none outlives its parent, none takes more cores."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import util
from pathlib import Path
from typing import Any

import psutil
import pytest

from robustok.runtime import environment, processes
from robustok.runtime.environment import available_cores
from robustok.runtime.processes import DIED, PROGRESS, RESULT, Worker, dispatch


def kill_at_start(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Kill the next worker processes before they read a byte; returns their ids as they come."""
    killed: list[int] = []
    spawn = util.spawnv_passfds

    def spawn_and_kill(path: Any, args: list[Any], passfds: Any) -> int:
        pid = spawn(path, args, passfds)
        if "resource_tracker" not in str(args) and len(killed) < times:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        return pid

    monkeypatch.setattr(util, "spawnv_passfds", spawn_and_kill)
    return killed


def prepare(shared: Any) -> Callable[..., Any]:
    def run(task: Any, progress: Callable[[Any], None]) -> Any:
        if task == "threads":
            return os.environ["OMP_NUM_THREADS"]
        if task == "mask":
            return signal.pthread_sigmask(signal.SIG_BLOCK, ())
        if task == "exit":
            os._exit(7)
        if isinstance(task, Exception):
            raise task
        progress("half")
        return len(shared), task

    return run


def reports(worker: Worker, task: Any) -> list[tuple[str, Any]]:
    worker.begin(task)
    received = [worker.receive()]
    while received[-1][0] == PROGRESS:
        received.append(worker.receive())
    return received


@pytest.fixture
def worker() -> Any:
    worker = Worker(prepare, "abc", threads=3)
    yield worker
    worker.kill()


def test_a_worker_does_one_task_after_another(worker: Worker) -> None:
    assert reports(worker, 1) == [(PROGRESS, "half"), (RESULT, (3, 1))]
    assert reports(worker, 2)[-1] == (RESULT, (3, 2))
    assert reports(worker, "threads") == [(RESULT, "3")]
    assert reports(worker, "exit") == [(DIED, None)]
    assert worker.exit_reason() == "ended with exit code 7"
    assert "OMP_NUM_THREADS" not in os.environ or os.environ["OMP_NUM_THREADS"] != "3"


def test_ctrl_c_never_reaches_a_worker_also_while_it_starts(worker: Worker) -> None:
    assert signal.SIGINT in reports(worker, "mask")[0][1]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize("fails", [False, True])
def test_idle_workers_end_and_busy_ones_are_killed(fails: bool) -> None:
    workers: list[Worker] = []

    def make() -> Worker:
        workers.append(Worker(prepare, "abc"))
        return workers[-1]

    pool = processes.Processes(make, 2, lambda task, value: None, lambda worker: None)
    with suppress(KeyError), pool:
        for worker in workers:
            assert reports(worker, 1)[-1] == (RESULT, (3, 1))
            worker.task = None
        if fails:
            raise KeyError
    ended = "killed by SIGKILL" if fails else "ended with exit code 0"
    assert [worker.exit_reason() for worker in workers] == [ended] * 2


def test_tasks_that_can_never_begin_are_named() -> None:
    make = partial(Worker, prepare, "abc")
    finished: list[int] = []
    pool = processes.Processes(make, 2, lambda task, value: None, lambda worker: None)
    with pytest.raises(RuntimeError, match=r"no task is ready of \[2, 3\]"), pool:
        for task, result in dispatch([1, 2, 3], pool, is_ready=lambda task: task == 1):
            finished.append(task)
            assert result == (3, 1)
    assert finished == [1]


class Unpicklable(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


@pytest.mark.parametrize("error", [ValueError("wrong"), EOFError("torn"), ConnectionError("hub")])
def test_an_exception_is_raised_as_it_was(worker: Worker, error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        reports(worker, error)


def test_an_exception_that_cannot_be_pickled_keeps_its_text() -> None:
    error = processes.portable(Unpicklable("the reason", "more"))
    assert (type(error), str(error)) == (RuntimeError, "Unpicklable: the reason")


@pytest.mark.parametrize("size", [0, 20_000_000])
def test_a_death_at_the_start_is_reported(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    kill_at_start(monkeypatch, times=1)
    worker = Worker(prepare, b" " * size)
    assert reports(worker, 1) == [(DIED, None)]
    assert worker.exit_reason() == "killed by SIGKILL"
    worker.kill()


PARENT = """
import sys, time
from robustok.runtime.processes import Worker
def prepare(shared):
    def run(task, progress):
        progress(None)
        while True:
            {wait}
    return run
if __name__ == "__main__":
    busy, idle = Worker(prepare, None), Worker(prepare, None)
    busy.begin(1)
    busy.receive()
    print("started", flush=True)
    time.sleep(100)
"""


@pytest.mark.parametrize("wait", ["time.sleep(1)", "sum(range(10**7))"])
def test_workers_end_when_their_parent_is_killed(tmp_path: Path, wait: str) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(wait=wait))
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        children = psutil.Process(parent.pid).children(recursive=True)
        assert len(children) >= 2
        parent.kill()
    assert not psutil.wait_procs(children, timeout=20)[1]


def test_cores_are_those_of_the_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    monkeypatch.setattr(environment, "_cgroup_quota", lambda: float("inf"))
    assert available_cores() == 6
    monkeypatch.setattr(environment, "_cgroup_quota", lambda: 1.5)
    assert available_cores() == 2
    monkeypatch.setattr(environment, "_cgroup_quota", lambda: 0.1)
    assert available_cores() == 1


@pytest.mark.parametrize(("group", "files", "quota"), [
    ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000"}, 1.5),
    ("0::/", {"cpu.max": "200000 100000"}, 2.0),
    ("0::/not/here", {"cpu.max": "50000 100000"}, 0.5),
    ("4:memory:/d", {"cpu.max": "100000 100000"}, float("inf")),
    (None, {}, float("inf")),  # a system without cgroups
])  # fmt: skip
def test_the_quota_of_a_container(tmp_path: Path, group: Any, files: dict, quota: float) -> None:
    for name, text in files.items():
        (tmp_path / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / name).write_text(text + "\n")
    if group:
        (tmp_path / "cgroup").write_text(group + "\n")
    assert environment._cgroup_quota(tmp_path / "sys", tmp_path) == quota


@pytest.mark.parametrize(
    ("module", "start"),
    [
        ("multiprocessing", "from tests.runtime.test_processes import work_once; work_once()"),
        ("numpy", "from robustok.kernel_warmup import _compile_in_processes as c; c([], 1)"),
        ("pip", "from robustok.runtime.hub import _download; from pathlib import Path\n"
                "try: _download('no-such-package==0', '0' * 64, Path('wheels'))\n"
                "except ValueError: pass"),
    ],
)  # fmt: skip
def test_children_import_nothing_from_the_working_folder(
    tmp_path: Path, module: str, start: str
) -> None:
    (tmp_path / f"{module}.py").write_text("open('executed', 'w').close(); raise SystemExit(1)")
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    subprocess.run(
        [sys.executable, "-P", "-c", start], cwd=tmp_path, check=True, capture_output=True,
        env=os.environ | {"PYTHONPATH": paths, "PIP_NO_INDEX": "1"},
    )  # fmt: skip
    assert not (tmp_path / "executed").exists()


def work_once() -> None:
    worker = Worker(prepare, "abc")
    assert reports(worker, 1)[-1] == (RESULT, (3, 1))
    worker.end()
