"""Makes one shard from the input of a task; the workers call this.

A shard is a Parquet file with a row for each draw.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robustok.corpus.read import Batch, DamagedFile, Reject, Task, as_text, read_task
from robustok.corpus.transform import Retokenize
from robustok.errors import RobustokError
from robustok.runtime.files import JsonObject, part_of
from robustok.runtime.records import read_finished, sha256_of, write_record

COUNTED = ("rejects", "rows", "changed", "tokens", "canonical_tokens", "splits", "distance")
# `datasets`, Spark and `pyarrow.dataset` skip folders whose name starts with an underscore.
RUN = "__run__"
_BATCH = 1 << 19  # bytes of text processed at once, divided by the number of draws
_LEAST = 1 << 16
_GROUP = 1 << 20  # least number of ids in a row group


@dataclass(frozen=True)
class Job:
    """What all shards share: the output folder, what draws, and the fields of `find_fields`."""

    out: Path
    retokenize: Retokenize
    schema: pa.Schema


def make_shard(job: Job, task: Task, progress: Callable[[int], None]) -> JsonObject:
    """Write the shard of a task, its rejects, and last its manifest, which is returned.

    A shard with a sound manifest and intact files is kept. ``progress`` is called with the number
    of input bytes read. The files depend on the input of the task and the settings only, and are
    renamed when complete: a kill loses the work on this shard only. A damaged file is one reject.
    """
    path = job.out / RUN / "manifests" / f"{task.name}.json"
    manifest = read_finished(path, f"shard {task.name}", job.out)
    if manifest is None or manifest["input"] != task.input:
        size = max(_BATCH // job.retokenize.draws, _LEAST)
        try:
            manifest = _written(job, task, read_task(task, job.schema, size), progress)
        except DamagedFile as error:
            damage = [Reject(-1, str(error))]
            nothing = Batch(job.schema.empty_table(), np.empty(0, np.int64), damage, task.size)
            manifest = _written(job, task, [nothing], progress)
        write_record(path, manifest)
    return manifest


def _written(
    job: Job, task: Task, batches: Iterable[Batch], progress: Callable[[int], None]
) -> JsonObject:
    """Write the shard of the batches of a task, and its rejects; returns the manifest."""
    counts: Counter[str] = Counter()
    data, refused = f"data/{task.name}.parquet", f"{RUN}/rejects/{task.name}.jsonl"
    with ExitStack() as stack:
        parts = {data: stack.enter_context(part_of(job.out / data))}

        def set_aside(rejects: list[Reject]) -> None:
            if rejects and refused not in parts:
                parts[refused] = stack.enter_context(part_of(job.out / refused))
            if rejects:
                rows = ({"file": task.file.name, **asdict(reject)} for reject in rejects)
                with parts[refused].open("a", encoding="utf8") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
            counts["rejects"] += len(rejects)

        with _Shard(parts[data], job.retokenize.output_schema(job.schema)) as shard:
            for batch in batches:
                set_aside(batch.rejects)
                for result in _drawn(job.retokenize, batch.table, batch.positions):
                    if isinstance(result, Reject):
                        set_aside([result])
                    else:
                        shard.write(result)
                        counts.update(_counts(result))
                progress(batch.read)
        digests = {name: sha256_of(part) for name, part in parts.items()}
    return {
        "input": task.input,
        "files": digests,
        "documents": counts["rows"] // job.retokenize.draws,
        **{name: counts[name] for name in COUNTED},
    }


def _drawn(
    retokenize: Retokenize, table: pa.Table, positions: np.ndarray
) -> Iterator[pa.Table | Reject]:
    """The draws of a batch; rows that cannot be tokenized are isolated by bisection."""
    if not len(table):
        return
    try:
        drawn = retokenize(table)
    except RobustokError as error:
        if len(table) == 1:
            row = as_text(table.column(0)[0].as_py())
            yield Reject(int(positions[0]), str(error), row)
            return
        half = len(table) // 2
        yield from _drawn(retokenize, table.slice(0, half), positions[:half])
        yield from _drawn(retokenize, table.slice(half), positions[half:])
    else:
        yield drawn


def _counts(table: pa.Table) -> dict[str, int]:
    """What `COUNTED` lists after the rejects, of a table of draws."""
    splits, distance, canonical = (
        table.column(name).to_numpy() for name in ("splits", "distance", "canonical_tokens")
    )
    return {
        "rows": len(table),
        "changed": int(np.count_nonzero(distance)),
        "tokens": _n_ids(table),
        "canonical_tokens": int(canonical.sum(dtype=np.int64)),
        "splits": int(splits.sum(dtype=np.int64)),
        "distance": int(distance.sum(dtype=np.int64)),
    }


def _n_ids(table: pa.Table) -> int:
    return sum(len(chunk.values) for chunk in table.column("input_ids").chunks)


class _Shard:
    """One Parquet file, compressed with zstd, in row groups of about a million ids."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._ids = 0

    def __enter__(self) -> _Shard:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self._write_group()
        self._writer.close()

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table.cast(self._schema))  # ids that are kept have the file's type
        self._ids += _n_ids(table)
        if self._ids >= _GROUP:
            self._write_group()

    def _write_group(self) -> None:
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            self._writer.write_table(table, row_group_size=len(table))
            self._waiting, self._ids = [], 0
