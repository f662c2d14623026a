"""Locks in forked processes."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from robustok.runtime import environment
from robustok.runtime.environment import ForkSafeLock, computed_once, fork_waits_for
from robustok.runtime.packages import names_on_use

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def child_succeeds(run: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether ``run`` returns True in a forked child, which is killed where it hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads, on purpose
        child = os.fork()
    if child == 0:
        signal.alarm(int(seconds))
        os._exit(0 if run() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextmanager
def in_a_thread(run: Callable[[threading.Event], object]) -> Iterator[None]:
    """A thread in which ``run(started)`` has set its event, and which ends with the block."""
    started = threading.Event()
    thread = threading.Thread(target=run, args=(started,))
    thread.start()
    started.wait()
    yield
    thread.join()


@needs_fork
def test_a_lock_that_another_thread_holds_is_free_in_a_forked_child() -> None:
    lock, done = ForkSafeLock(), threading.Event()

    def hold(started: threading.Event) -> None:
        with lock:
            started.set()
            done.wait()

    with in_a_thread(hold):
        is_free = child_succeeds(lambda: lock._lock.acquire(blocking=False))
        done.set()
    assert is_free


def test_a_lock_may_be_taken_again_by_its_thread() -> None:
    lock = ForkSafeLock()
    with lock, lock:
        pass
    assert lock._lock.acquire(blocking=False)


class Slow:
    """Computes an attribute for as long as another thread wants."""

    def __init__(self, started: threading.Event | None = None) -> None:
        self.started, self.done = started, threading.Event()

    @computed_once
    def value(self) -> list[int]:
        """A list."""
        if self.started:
            self.started.set()
            self.done.wait()
        return []


@needs_fork
def test_an_attribute_that_another_thread_computes_is_free_in_a_forked_child() -> None:
    slow, other = Slow(), Slow()

    def compute(started: threading.Event) -> None:
        slow.started = started
        _ = slow.value

    with in_a_thread(compute):
        is_free = child_succeeds(lambda: other.value == [])
        slow.done.set()
    assert is_free


def test_an_attribute_is_computed_once_and_the_first_value_is_kept() -> None:
    one = Slow()
    assert one.value is one.value is vars(one)["value"]
    assert computed_once.__get__(vars(Slow)["value"], one) is one.value  # a second thread
    assert Slow.value.__doc__ == "A list."


@needs_fork
def test_a_fork_waits_for_a_lock_that_another_thread_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    lock: Any = threading.RLock()
    monkeypatch.setattr(environment, "_waited_for", [*environment._waited_for])
    fork_waits_for(lock)
    is_done = []

    def hold(started: threading.Event) -> None:
        with lock:
            started.set()
            time.sleep(0.1)
            is_done.append(True)

    with in_a_thread(hold):
        assert child_succeeds(lambda: is_done == [True] and lock.acquire(blocking=False))
    assert lock.acquire(blocking=False)
    lock.release()


@needs_fork
def test_a_name_that_another_thread_imports_is_there_in_a_forked_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    (tmp_path / "slow_module.py").write_text(
        f"import time; open({str(started)!r}, 'w').close(); time.sleep(0.3); value = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    find = names_on_use("robustok", "slow_module")
    thread = threading.Thread(target=find, args=("value",))
    thread.start()
    while not started.exists():
        time.sleep(0.001)
    try:
        assert child_succeeds(lambda: find("value") == 1)
    finally:
        thread.join()
        sys.modules.pop("slow_module")


WORK = """
import logging, os, threading, warnings
from concurrent.futures import ThreadPoolExecutor
from robustok.runtime.environment import import_lock
held = threading.Event()

def work():
    with import_lock:
        held.set()
        time.sleep(0.3)
        {need}

thread = threading.Thread(target=work)
thread.start()
held.wait()
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    {need}
    os._exit(0)
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


@needs_fork
@pytest.mark.parametrize(
    "need", ["logging.getLogger('new')", "ThreadPoolExecutor(1).submit(int).result()"]
)
def test_a_fork_that_waits_holds_no_lock_that_the_other_thread_needs(need: str) -> None:
    # The library first: what is registered later is called earlier.
    script = "import time\nimport robustok\n" + WORK.format(need=need)
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
