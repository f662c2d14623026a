"""The Ray engine: shards on the machines of a cluster that share the input and output folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from robustok.corpus.local import Told, one_thread
from robustok.corpus.shard import Job, make_shard
from robustok.corpus.sources import Chunk


def run_on_ray(
    job: Job, chunks: Sequence[Chunk], workers: int | None, told: Told
) -> Iterator[dict]:
    """Make the shard of every chunk with Ray Data; yields manifests as they come.

    Joins the cluster that RAY_ADDRESS names, or starts one on this machine. ``workers`` bounds how
    many shards are at work at once; without it, every core has one. Ray does the chunks of a lost
    machine again elsewhere.
    """
    import ray
    from ray.data import DataContext, TaskPoolStrategy

    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    DataContext.get_current().enable_progress_bars = False
    blocks = [pa.table({"chunk": [number]}) for number in range(len(chunks))]
    shards = ray.data.from_arrow(blocks).map_batches(
        shard_maker(job, chunks),
        batch_size=1,
        batch_format="pyarrow",
        num_cpus=1,
        zero_copy_batch=True,
        compute=TaskPoolStrategy(size=workers),
    )
    for row in shards.iter_rows():
        yield json.loads(row["manifest"])


def shard_maker(job: Job, chunks: Sequence[Chunk]) -> Callable[[pa.Table], pa.Table]:
    """Of a table of chunk numbers the table of their shards' manifests, as JSON."""

    def make_shards(table: pa.Table) -> pa.Table:
        one_thread()
        made: list[Any] = [make_shard(job, chunks[n]) for n in table.column("chunk").to_pylist()]
        return pa.table({"manifest": [json.dumps(manifest) for manifest in made]})

    return make_shards
