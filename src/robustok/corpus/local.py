"""The local engine: makes shards in parallel processes of this machine."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from robustok.corpus.shard import Job, make_shard
from robustok.corpus.sources import Chunk
from robustok.errors import RobustokError
from robustok.heap import give_back_memory
from robustok.processes import DIED, PROGRESS, Run, Worker, receive

TRIES = 3  # attempts at a chunk whose process died

ShardProgress = Callable[[int, int], None]  # chunk number, bytes read


def run_local(
    job: Job, chunks: Sequence[Chunk], workers: int, progress: ShardProgress
) -> Iterator[dict]:
    """Make the shard of every chunk; yield the manifests in the order of completion.

    ``progress`` is called with the number of a chunk and the number of its bytes read so far. A
    worker that dies is replaced and its chunk repeated, at most twice.
    """
    waiting = deque(chunks)
    deaths: Counter[int] = Counter()
    team = [Worker(_prepare, job) for _ in range(min(workers, len(waiting)))]
    give_back_memory()  # that pickling the job took
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
                    progress(chunk.number, value)
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
    """Limit Arrow to the calling thread and to an allocator that returns memory to the system."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())


def _check_deaths(worker: Worker, chunk: Chunk, deaths: int) -> None:
    if deaths >= TRIES:
        raise RobustokError(
            f"the process that worked on {chunk.source.name} died {deaths} times, the last time"
            f" {worker.exit_reason()}: if memory was short, give fewer --workers; the same command"
            " continues from the last finished shard"
        )
