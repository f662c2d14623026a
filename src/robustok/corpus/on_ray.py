"""The Ray engine: shards on the machines of a cluster that share the input and output folders."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from robustok.corpus.local import Told, one_thread
from robustok.corpus.shard import Job, make_shard
from robustok.corpus.sources import Chunk
from robustok.processes import portable
from robustok.ray_cluster import connect

_jobs: dict[str, Job] = {}  # of this process, so that its vocabulary's tables are made once


def run_on_ray(
    job: Job, chunks: Sequence[Chunk], workers: int | None, told: Told
) -> Iterator[dict]:
    """Make the shard of every chunk with Ray Data; yields manifests as they come.

    Joins the cluster that RAY_ADDRESS names, or starts one on this machine. ``workers`` bounds how
    many shards are at work at once; without it, every core has one. Ray does the chunks of a lost
    machine again elsewhere.
    """
    connect()
    import ray
    from ray.data import DataContext, TaskPoolStrategy

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
    """Of a table of pickled chunks the table of their shards' manifests, as JSON.

    A process fetches the job once: the function is a module's own, so Ray sends its name and every
    task of the process finds the same ``_jobs``. An error comes back as a value, for Ray would
    wrap it in a traceback of its own; what Ray does again is only what a lost machine did.
    """
    if digest not in _jobs:
        one_thread()
        _jobs.clear()
        _jobs[digest] = fetch()
    chunks: list[Chunk] = [pickle.loads(x) for x in table.column("chunk").to_pylist()]
    made: list[str | None] = []
    errors: list[bytes | None] = []
    for chunk in chunks:
        try:
            made.append(json.dumps(make_shard(_jobs[digest], chunk)))
            errors.append(None)
        except Exception as error:
            made.append(None)
            errors.append(pickle.dumps(portable(error)))
    schema = pa.schema([("manifest", pa.string()), ("error", pa.binary())])
    return pa.table([made, errors], schema=schema)
