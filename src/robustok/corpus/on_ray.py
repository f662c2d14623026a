"""The Ray engine: shards on the machines of a cluster that share the input and output folders."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
import ray
from ray.data import DataContext, TaskPoolStrategy

from robustok.corpus.shard import Job, ShardProgress, make_shard, one_thread
from robustok.corpus.sources import Chunk
from robustok.runtime.processes import connect, portable

_jobs: dict[str, Job] = {}  # by digest; kept so that a process builds the vocabulary's tables once


def run_on_ray(
    job: Job, chunks: Sequence[Chunk], workers: int | None, progress: ShardProgress
) -> Iterator[dict]:
    """Make the shard of every chunk with Ray Data; yield the manifests in the order of completion.

    Joins the cluster that RAY_ADDRESS names, or starts one on this machine. ``workers`` limits the
    number of shards in progress; the default is one for each core. Ray repeats the chunks of a lost
    machine on another one. ``progress`` is not called: Ray reports finished shards only.
    """
    connect()
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    DataContext.get_current().enable_progress_bars = False
    blocks = [pa.table({"chunk": [pickle.dumps(chunk)]}) for chunk in chunks]
    kept = ray.put(job)
    shards = ray.data.from_arrow(blocks).map_batches(
        make_shards,  # type: ignore[arg-type]
        fn_kwargs={"digest": job.digest, "fetch": partial(ray.get, kept)},
        batch_size=1,
        batch_format="pyarrow",
        num_cpus=1,
        compute=TaskPoolStrategy(size=workers),
    )
    for row in shards.iter_rows():
        if row["error"] is not None:
            raise pickle.loads(row["error"])
        yield json.loads(row["manifest"])


def make_shards(table: pa.Table, digest: str, fetch: Callable[[], Job]) -> pa.Table:
    """Make the shards of a table of pickled chunks; return their manifests as JSON.

    A process fetches the job once: Ray sends a module-level function by name, so all tasks of a
    process share ``_jobs``. An error is returned as a value, because Ray would wrap an exception in
    a traceback of its own. Ray therefore repeats only the tasks of lost machines.
    """
    if digest not in _jobs:
        one_thread()
        _jobs.clear()
        _jobs[digest] = fetch()
    chunks: list[Chunk] = [pickle.loads(x) for x in table.column("chunk").to_pylist()]
    manifests: list[str | None] = []
    errors: list[bytes | None] = []
    for chunk in chunks:
        try:
            manifests.append(json.dumps(make_shard(_jobs[digest], chunk)))
            errors.append(None)
        except Exception as error:
            manifests.append(None)
            errors.append(pickle.dumps(portable(error)))
    schema = pa.schema([("manifest", pa.string()), ("error", pa.binary())])
    return pa.table([manifests, errors], schema=schema)
