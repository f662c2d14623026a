"""The local engine: shards side by side in processes of this machine."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from robustok.corpus.shard import Job, make_shard
from robustok.corpus.sources import Chunk
from robustok.errors import RobustokError
from robustok.processes import DIED, PROGRESS, Run, Worker, receive
from robustok.tokenizer_files import give_back_memory

TRIES = 3  # of a chunk whose process died

Told = Callable[[int, int], None]


def run_local(job: Job, chunks: Sequence[Chunk], workers: int, told: Told) -> Iterator[dict]:
    """Make the shard of every chunk; yields manifests as they come, in no particular order.

    ``told`` is called with a chunk's number and how many of its bytes have been read. A worker
    that dies is replaced and its chunk done again, twice at most.
    """
    waiting = deque(chunks)
    deaths: Counter[int] = Counter()
    team = [Worker(_prepare, job) for _ in range(min(workers, len(waiting)))]
    give_back_memory()  # of the pickled job
    try:
        for worker in team:
            worker.begin(waiting.popleft())
        while busy := [worker for worker in team if worker.task]:
            for worker, kind, value in receive(busy):
                chunk: Chunk = worker.task
                if kind == DIED:
                    deaths[chunk.number] += 1
                    _check_deaths(worker, chunk, deaths[chunk.number])
                    worker.kill()
                    team[team.index(worker)] = replacement = Worker(_prepare, job)
                    replacement.begin(chunk)
                elif kind == PROGRESS:
                    told(chunk.number, value)
                else:
                    worker.task = None
                    if waiting:
                        worker.begin(waiting.popleft())
                    yield value
    finally:
        for worker in team:
            worker.kill()


def _prepare(job: Job) -> Run:
    one_thread()
    give_back_memory()
    return partial(make_shard, job)


def one_thread() -> None:
    """Keep Arrow, too, to the thread that calls, and to memory that it gives back."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())


def _check_deaths(worker: Worker, chunk: Chunk, deaths: int) -> None:
    if deaths >= TRIES:
        raise RobustokError(
            f"the process that worked on {chunk.source.name} died {deaths} times, the last time"
            f" {worker.exit_reason()}: if memory was short, give fewer --workers; the same command"
            " goes on from the last finished shard"
        )
