"""Worker processes, each of which does one task after another, and the one loop that feeds them.

They are `multiprocessing.Process` and `Pipe`. `concurrent.futures` does not fit: when it loses one
process every task fails, and its processes outlive a parent that is killed.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import multiprocessing.context
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import parent_process
from multiprocessing.resource_tracker import ensure_running
from multiprocessing.sharedctypes import RawArray
from typing import Any

from robustok.runtime.environment import thread_limits, variables

# Python then imports nothing from the working folder, which may be a cloned repository.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
PROGRESS, RESULT, ERROR, DIED = "progress", "result", "error", "died"
_PR_SET_PDEATHSIG = 1
_ENDING = 5.0  # seconds until a process that does not end is killed

RunTask = Callable[[Any, Callable[[Any], None]], Any]  # (task, progress) -> result
OnProgress = Callable[[Any, Any], None]  # (task, value)


class Worker:
    """A process that does one task after another.

    ``prepare(shared)`` is called once in the process and returns ``run(task, progress)``, which is
    called for each task. ``prepare`` is a function of a module, and ``shared``, tasks, progress
    values and results are pickled. ``threads`` limits the threads of numerical libraries.

    ``shared`` is the first message on the pipe, not an argument of the process: writing to a
    process that died while it started then fails with EPIPE and cannot block.
    """

    def __init__(self, prepare: Callable[[Any], RunTask], shared: object, threads: int = 1) -> None:
        # A forked process would share this one's locks and the threads of torch.
        context = multiprocessing.get_context("spawn")
        self.task: Any = None
        self.pipe, child = context.Pipe()
        self._process = context.Process(target=_serve, args=(child,), daemon=True)
        with variables(thread_limits(threads) | SAFE_PATH), _interrupts_later():
            self._process.start()
        child.close()
        self._send((prepare, shared))

    def begin(self, task: object) -> None:
        """Send a task. That the process is dead is reported by the next :meth:`receive`."""
        self.task = task
        self._send(task)

    def receive(self) -> tuple[str, Any]:
        """Wait for the next report: its kind and value.

        The kind is `PROGRESS`, `RESULT` (the task is finished) or `DIED`. An exception in the
        process is raised here.
        """
        try:
            kind, value = self.pipe.recv()
        except (EOFError, OSError):
            return DIED, None
        if kind == ERROR:
            raise value
        return kind, value

    def end(self) -> None:
        """End an idle process. It removes its semaphores, of which Python would warn."""
        self.pipe.close()
        self._process.join(_ENDING)
        self.kill()

    def kill(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self.pipe.close()

    def exit_reason(self) -> str:
        """How the process ended, such as ``"killed by SIGKILL"``."""
        self._process.join(10)
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def _send(self, message: object) -> None:
        with suppress(ConnectionError):
            self.pipe.send(message)


def dispatch(
    tasks: Iterable[object],
    pool: Processes,
    *,
    is_ready: Callable[[Any], bool] = lambda task: True,
    on_start: Callable[[Any], None] = lambda task: None,
) -> Iterator[tuple[Any, Any]]:
    """Run tasks in a pool; yield each with its result as it finishes.

    The first task that is ready begins whenever there is room: the tasks whose results it reads are
    finished. A task comes after those in ``tasks``. Raises RuntimeError where none can begin.
    """
    waiting, running = deque(tasks), 0
    while waiting or running:
        while pool.has_room() and (task := next(filter(is_ready, waiting), None)) is not None:
            waiting.remove(task)
            on_start(task)
            pool.begin(task)
            running += 1
        if not running:
            raise RuntimeError(f"no task is ready of {[*waiting]}")
        for task, result in pool.wait():
            running -= 1
            yield task, result


class Processes:
    """A pool of :class:`Worker` processes, which end with the ``with`` block.

    ``make`` starts a worker, ``progress(task, value)`` is called for each report of progress, and
    ``on_death(worker)`` for a process that has died: it raises, or the worker's task is repeated in
    a new process. ``has_room`` says whether another task can begin now, ``wait`` waits until
    something happens and yields (task, result) of each task that is finished.
    """

    def __init__(
        self,
        make: Callable[[], Worker],
        count: int,
        progress: OnProgress,
        on_death: Callable[[Worker], None],
    ) -> None:
        self._make, self._progress, self._on_death = make, progress, on_death
        self._workers = [make() for _ in range(count)]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        idle = [w for w in self._workers if error is None and w.task is None]
        for worker in idle:
            worker.pipe.close()  # they end side by side
        for worker in self._workers:
            worker.end() if worker in idle else worker.kill()

    def has_room(self) -> bool:
        return any(worker.task is None for worker in self._workers)

    def begin(self, task: object) -> None:
        next(worker for worker in self._workers if worker.task is None).begin(task)

    def wait(self) -> Iterator[tuple[Any, Any]]:
        for pipe in wait([worker.pipe for worker in self._workers]):
            worker = next(worker for worker in self._workers if worker.pipe is pipe)
            kind, value = worker.receive()
            task = worker.task
            if kind == DIED:
                self._on_death(worker)
                worker.kill()
                self._workers[self._workers.index(worker)] = replacement = self._make()
                if task is not None:
                    replacement.begin(task)
            elif kind == PROGRESS:
                self._progress(task, value)
            else:
                worker.task = None
                yield task, value


def portable(error: Exception) -> Exception:
    """The error itself, or its text as a RuntimeError where it cannot be pickled."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


def _serve(pipe: Connection) -> None:
    """Do tasks until one fails or the parent closes the pipe. Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()

    def send(kind: str, value: object) -> None:
        message = pickle.dumps((kind, value))
        try:
            pipe.send_bytes(message)
        except OSError:
            os._exit(1)

    def next_message() -> Any:
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            sys.exit()
        return pickle.loads(message)

    try:
        prepare, shared = next_message()
        run = prepare(shared)
        while True:
            send(RESULT, run(next_message(), lambda value: send(PROGRESS, value)))
    except Exception as error:
        send(ERROR, portable(error))


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C back: a process started inside never gets it, this one gets it at the end.

    A process that imports what it needs would print a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    ensure_running()  # its start would end the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """End this process when its parent does, even when that is killed with SIGKILL.

    Linux delivers the signal of PR_SET_PDEATHSIG at once, also while a kernel holds the GIL.
    Elsewhere a thread waits for the pipe to the parent to close.
    """
    parent = parent_process()
    if parent is None:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent.pid:  # It died before the signal was set.
            os._exit(1)

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class State:
    """The epoch of the draws and whether draws are on, in memory that worker processes share.

    Workers that are forked, or spawned by multiprocessing, see later changes. Any other pickle
    holds the two values of its moment.
    """

    def __init__(self, epoch: int = 0, training: bool = True) -> None:
        self._values = RawArray("q", [epoch, int(training)])

    @property
    def epoch(self) -> int:
        return self._values[0]

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._values[0] = epoch

    @property
    def training(self) -> bool:
        return bool(self._values[1])

    @training.setter
    def training(self, training: bool) -> None:
        self._values[1] = int(training)

    def __reduce__(self) -> Any:
        # Shared memory can be pickled for a process that is being spawned only.
        if multiprocessing.context.get_spawning_popen() is not None:
            return _of_values, (self._values,)
        return State, (self.epoch, self.training)


def _of_values(values: object) -> State:
    state = State()
    state._values = values
    return state
