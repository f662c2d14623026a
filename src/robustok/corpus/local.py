"""The local engine: shards side by side in processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

from robustok.corpus.shard import Job, make_shard
from robustok.corpus.sources import Chunk
from robustok.errors import RobustokError
from robustok.tokenizer_files import give_back_memory

TRIES = 3  # of a chunk whose process was ended from outside
_ALONE = {  # a worker is one thread, so that as many of them as cores do not crowd each other out
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

Told = Callable[[int, int], None]


class _Worker:
    """A process that makes one shard after another, and the line to it."""

    def __init__(self, job: Job) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, job), daemon=True)
        with _environment(_ALONE):
            self.process.start()
        theirs.close()
        self.chunk: Chunk | None = None

    def begin(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.line.send(chunk)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.line.close()


def run_local(job: Job, chunks: Sequence[Chunk], workers: int, told: Told) -> Iterator[dict]:
    """Make the shard of every chunk; yields manifests as they come, in no particular order.

    ``told`` hears a chunk's number and how many of its bytes have been read. A worker that is
    ended from outside is replaced, and its chunk done again, twice at most.
    """
    waiting = deque(chunks)
    tries: dict[int, int] = {}
    team = [_Worker(job) for _ in range(min(workers, len(waiting)))]
    give_back_memory()  # of what was sent to them
    try:
        for worker in team:
            worker.begin(waiting.popleft())
        while busy := {worker.line: worker for worker in team if worker.chunk}:
            for line in wait(list(busy)):
                worker = busy[line]  # type: ignore[index]
                assert worker.chunk is not None
                try:
                    said: Any = worker.line.recv()
                except (EOFError, ConnectionError):
                    _count_try(tries, worker.chunk)
                    worker.end()
                    team[team.index(worker)] = fresh = _Worker(job)
                    fresh.begin(worker.chunk)
                    continue
                if isinstance(said, BaseException):
                    raise said
                if isinstance(said, int):
                    told(worker.chunk.number, said)
                    continue
                worker.chunk = None
                if waiting:
                    worker.begin(waiting.popleft())
                yield said
    finally:
        for worker in team:
            worker.end()


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """These variables for the processes started meanwhile: some are read at import only."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def one_thread() -> None:
    """Keep Arrow, too, to the thread that calls, and to memory that it gives back."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())


def portable(error: Exception) -> bytes:
    """An error pickled, as it is or, where it cannot be, as its text."""
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
        return pickled
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))


def _count_try(tries: dict[int, int], chunk: Chunk) -> None:
    tries[chunk.number] = tries.get(chunk.number, 0) + 1
    if tries[chunk.number] >= TRIES:
        raise RobustokError(
            f"the process that worked on {chunk.source.name} was ended from outside {TRIES} times,"
            " perhaps for its memory; the same command with fewer --workers goes on from there"
        )


def _work(line: Connection, job: Job) -> None:
    """A worker's life: it ends when the line does, so a run that is killed leaves none behind."""
    one_thread()
    give_back_memory()
    try:
        while True:
            chunk = line.recv()
            try:
                line.send(make_shard(job, chunk, line.send))
            except (ConnectionError, EOFError):
                raise
            except Exception as error:
                line.send(pickle.loads(portable(error)))
    except (ConnectionError, EOFError, KeyboardInterrupt):
        os._exit(1)
