"""Locks in forked processes."""

from __future__ import annotations

import os
import threading
import warnings

import pytest

from robustok.runtime.environment import ForkSafeLock


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_lock_that_another_thread_holds_is_free_in_a_forked_child() -> None:
    lock = ForkSafeLock()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads, on purpose
        child = os.fork()
    if child == 0:
        os._exit(0 if lock._lock.acquire(blocking=False) else 1)
    status = os.waitpid(child, 0)[1]
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_lock_may_be_taken_again_by_its_thread() -> None:
    lock = ForkSafeLock()
    with lock, lock:
        pass
    assert lock._lock.acquire(blocking=False)
