"""Makes one shard from one chunk of input; the workers of every engine call this.

A shard is a Parquet file with a row for each draw.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robustok.corpus.read import read_chunk
from robustok.corpus.sources import (
    Chunk,
    DamagedFile,
    DocumentBatch,
    Reject,
    as_text,
)
from robustok.corpus.transform import Retokenize
from robustok.errors import RobustokError
from robustok.runtime.files import JsonObject, part_of, read_json_or_none, write_json
from robustok.runtime.records import find_damage, sha256_of

COUNTED = ("rows", "changed", "tokens", "canonical_tokens", "splits", "distance")
# `datasets`, Spark and `pyarrow.dataset` skip folders whose name starts with an underscore.
RUN = "__run__"
_BATCH = 1 << 19  # bytes of text processed at once, divided by the number of draws
_LEAST = 1 << 16
_GROUP = 1 << 20  # least number of ids in a row group

NewPart = Callable[[str], Path]  # from a name in the output folder to a temporary file


@dataclass(frozen=True)
class Job:
    """The settings of all shards, and the output folder.

    ``schema`` is that of `batch_schema`. ``digest`` identifies the settings and the input files;
    shards of another digest are ignored.
    """

    out: Path
    retokenize: Retokenize
    schema: pa.Schema
    max_row_bytes: int
    digest: str

    def manifest(self, chunk: Chunk) -> Path:
        return self.out / RUN / "manifests" / f"{chunk.name}.json"


def make_shard(job: Job, chunk: Chunk, progress: Callable[[int], None]) -> JsonObject:
    """Write the shard of a chunk, its rejects, and last its manifest, which is returned.

    A shard with a manifest and intact files is kept. ``progress`` is called with the number of
    input bytes read. The files depend on the bytes of the chunk and the settings only, and are
    renamed when complete: a kill loses the work on this shard only, and two workers that make the
    same shard write the same bytes.
    """
    existing = read_json_or_none(job.manifest(chunk))
    if existing is not None and existing.get("job") == job.digest:
        digests = {file["name"]: file["sha256"] for file in existing["files"]}
        if find_damage(job.out, digests) is None:
            return existing
    size = max(_BATCH // job.retokenize.draws, _LEAST)
    batches = read_chunk(chunk, job.schema, size, job.max_row_bytes)
    try:
        manifest = _written(job, chunk, batches, progress)
    except DamagedFile as error:
        damage = [Reject(-1, str(error))]
        empty = job.schema.empty_table()
        nothing = DocumentBatch(empty, np.empty(0, np.int64), damage, chunk.size)
        manifest = _written(job, chunk, [nothing], progress)
    write_json(job.manifest(chunk), manifest)
    return manifest


def _written(
    job: Job, chunk: Chunk, batches: Iterable[DocumentBatch], progress: Callable[[int], None]
) -> JsonObject:
    """Write the shard of the batches of a chunk, and its rejects; returns the manifest."""
    counts: Counter[str] = Counter()
    files: list[JsonObject] = []
    with ExitStack() as stack:
        parts: dict[str, Path] = {}

        def new_part(name: str) -> Path:
            parts[name] = stack.enter_context(part_of(job.out / name))
            return parts[name]

        with ExitStack() as opened:
            part = new_part(f"data/{chunk.name}.parquet")
            shard = _Shard(part, job.retokenize.output_schema(job.schema), opened)
            rejects = _Rejects(chunk, new_part, opened)
            for batch in batches:
                rejects.write(batch.rejects)
                for result in _transformed(job, batch.table, batch.positions):
                    if isinstance(result, Reject):
                        rejects.write([result])
                    else:
                        shard.write(result)
                        counts.update(_counts(result))
                progress(batch.read)
            shard.finish()
        for name, part in parts.items():
            size = part.stat().st_size
            files.append({"name": name, "bytes": size, "sha256": sha256_of(part)})
    return {
        "shard": chunk.number,
        "input": {"file": chunk.source.name, "start": chunk.start, "stop": chunk.stop},
        "job": job.digest,
        "files": files,
        "documents": counts["rows"] // job.retokenize.draws,
        "rejects": rejects.count,
        **{name: counts[name] for name in COUNTED},
    }


def one_thread() -> None:
    """Limit Arrow to the calling thread and to an allocator that returns memory to the system."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())


def _transformed(job: Job, table: pa.Table, positions: np.ndarray) -> Iterator[pa.Table | Reject]:
    """The draws of a batch; rows that cannot be tokenized are isolated by bisection."""
    if not len(table):
        return
    try:
        drawn = job.retokenize(table)
    except RobustokError as error:
        if len(table) == 1:
            row = as_text(table.column(0)[0].as_py())
            yield Reject(int(positions[0]), str(error), row)
            return
        half = len(table) // 2
        yield from _transformed(job, table.slice(0, half), positions[:half])
        yield from _transformed(job, table.slice(half), positions[half:])
    else:
        yield drawn


def _counts(table: pa.Table) -> dict[str, int]:
    """What `COUNTED` lists, of a table of draws."""
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


class _Rejects:
    """Writes the rejected rows as JSON Lines; creates no file without any."""

    def __init__(self, chunk: Chunk, new_part: NewPart, opened: ExitStack) -> None:
        self.count = 0
        self._chunk, self._new_part, self._opened = chunk, new_part, opened
        self._file: Any = None

    def write(self, rejects: Sequence[Reject]) -> None:
        for reject in rejects:
            if self._file is None:
                part = self._new_part(f"{RUN}/rejects/{self._chunk.name}.jsonl")
                self._file = self._opened.enter_context(part.open("w", encoding="utf8"))
            row = {"file": self._chunk.source.name, **asdict(reject)}
            self._file.write(json.dumps(row, ensure_ascii=True) + "\n")
            self.count += 1


class _Shard:
    """One Parquet file, compressed with zstd, in row groups of about a million ids."""

    def __init__(self, path: Path, schema: pa.Schema, opened: ExitStack) -> None:
        writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._writer, self._schema = opened.enter_context(writer), schema
        self._waiting: list[pa.Table] = []
        self._ids = 0

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table.cast(self._schema))  # ids that are kept have the file's type
        self._ids += _n_ids(table)
        if self._ids >= _GROUP:
            self.finish()

    def finish(self) -> None:
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            self._writer.write_table(table, row_group_size=len(table))
            self._waiting, self._ids = [], 0
