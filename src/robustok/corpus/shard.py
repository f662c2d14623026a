"""Makes one shard from one chunk of input; the workers of every engine call this.

A shard is a Parquet file with a row for each draw, or token files for training: one set for each
draw, so that training on one after the other does not repeat a document immediately. Rows of
`block_size` ids are an int32 `.npy` of shape [rows, block_size]; each document is followed by the
end token, with which the last row is padded too. `.offsets.npy`, int64, holds the start of each
document in the flat array, and the end of the last one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robustok.corpus.read import read_chunk
from robustok.corpus.sources import Chunk, Column, Reject, as_text
from robustok.corpus.transform import SCHEMA, Retokenize
from robustok.errors import RobustokError
from robustok.runtime.files import find_damage, part_of, read_json_or_none, sha256_of, write_json

FORMATS = ("parquet", "packed")
COUNTED = ("rows", "changed", "tokens", "canonical_tokens", "splits", "distance")
# `datasets`, Spark and `pyarrow.dataset` skip folders whose name starts with an underscore.
RUN = "__run__"
_BATCH = 1 << 19  # bytes of text processed at once, divided by the number of draws
_LEAST = 1 << 16
_GROUP = 1 << 20  # least number of ids in a row group

ShardProgress = Callable[[int, int], None]  # chunk number, bytes read


@dataclass(frozen=True)
class Job:
    """The settings of all shards, and the output folder.

    ``digest`` identifies the settings and the input files; shards of another digest are ignored.
    """

    out: Path
    retokenize: Retokenize
    column: Column
    kept: tuple[pa.Field, ...]
    max_row_bytes: int
    format: str
    block_size: int
    end: int
    digest: str

    def manifest(self, chunk: Chunk) -> Path:
        return self.out / RUN / "manifests" / f"{chunk.name}.json"

    def rejects(self, chunk: Chunk) -> Path:
        return self.out / RUN / "rejects" / f"{chunk.name}.jsonl"


def make_shard(
    job: Job, chunk: Chunk, progress: Callable[[int], None] = lambda read: None
) -> dict[str, Any]:
    """Write the shard of a chunk, its rejects, and last its manifest, which is returned.

    A shard with a manifest and intact files is kept. ``progress`` is called with the number of
    input bytes read. The files depend on the bytes of the chunk and the settings only, and are
    renamed when complete: a kill loses the work on this shard only, and two workers that make the
    same shard write the same bytes.
    """
    existing = finished(job, chunk)
    if existing is not None:
        return existing
    counts: Counter[str] = Counter()
    files: list[dict[str, Any]] = []
    with ExitStack() as stack:
        path = job.out / "data" / chunk.name
        writer = (
            _ParquetShard(path, stack, job.kept)
            if job.format == "parquet"
            else _PackedShard(path, stack, job.retokenize.draws, job.end, job.block_size)
        )
        aside = _Rejects(job.rejects(chunk), stack)
        size = max(_BATCH // job.retokenize.draws, _LEAST)
        for batch in read_chunk(chunk, job.column, size, job.kept, job.max_row_bytes):
            tables, rejects = _transformed(job, batch.table, batch.positions)
            aside.write(chunk, [*batch.rejects, *rejects])
            for table in tables:
                writer.write(table)
                counts.update(_counts(table))
            progress(batch.read)
        writer.close()
        aside.close()
        parts = {f"data/{name}": part for name, part in writer.parts.items()}
        for name, part in (parts | aside.parts).items():
            size = part.stat().st_size
            files.append({"name": name, "bytes": size, "sha256": sha256_of(part)})
    manifest = {
        "shard": chunk.number,
        "input": {"file": chunk.source.name, "start": chunk.start, "stop": chunk.stop},
        "job": job.digest,
        "files": files,
        "documents": counts["rows"] // job.retokenize.draws,
        "rejects": aside.count,
        **{name: counts[name] for name in COUNTED},
    }
    write_json(job.manifest(chunk), manifest)
    return manifest


def finished(job: Job, chunk: Chunk) -> dict[str, Any] | None:
    """The manifest of a shard that is done and intact, or None."""
    manifest = read_json_or_none(job.manifest(chunk))
    if manifest is None or manifest.get("job") != job.digest:
        return None
    damage = find_damage(job.out, {file["name"]: file["sha256"] for file in manifest["files"]})
    return manifest if damage is None else None


def one_thread() -> None:
    """Limit Arrow to the calling thread and to an allocator that returns memory to the system."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())


def _transformed(
    job: Job, table: pa.Table, positions: np.ndarray
) -> tuple[list[pa.Table], list[Reject]]:
    """The drawn tables of a batch; rows that cannot be tokenized are isolated by bisection."""
    if not len(table):
        return [], []
    try:
        return [job.retokenize(table)], []
    except RobustokError as error:
        if len(table) == 1:
            row = as_text(table.column(job.column.name)[0].as_py())
            return [], [Reject(int(positions[0]), str(error), row)]
    half = len(table) // 2
    first = _transformed(job, table.slice(0, half), positions[:half])
    second = _transformed(job, table.slice(half), positions[half:])
    return first[0] + second[0], first[1] + second[1]


def _counts(table: pa.Table) -> dict[str, int]:
    """What `COUNTED` lists, of a table of draws."""
    splits, distance, canonical = (
        table.column(name).to_numpy() for name in ("splits", "distance", "canonical_tokens")
    )
    return {
        "rows": len(table),
        "changed": int(np.count_nonzero(distance)),
        "tokens": sum(len(chunk.values) for chunk in table.column("input_ids").chunks),
        "canonical_tokens": int(canonical.sum(dtype=np.int64)),
        "splits": int(splits.sum(dtype=np.int64)),
        "distance": int(distance.sum(dtype=np.int64)),
    }


class _Rejects:
    """Writes the rejected rows as JSON Lines; creates no file without any."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.count = 0
        self.parts: dict[str, Path] = {}
        self._path, self._stack = path, stack
        self._file: Any = None

    def write(self, chunk: Chunk, rejects: list[Reject]) -> None:
        for reject in rejects:
            if self._file is None:
                part = self._stack.enter_context(part_of(self._path))
                self._file = self._stack.enter_context(part.open("w", encoding="utf8"))
                self.parts = {f"{RUN}/rejects/{self._path.name}": part}
            row = {"file": chunk.source.name, **asdict(reject)}
            self._file.write(json.dumps(row, ensure_ascii=True) + "\n")
            self.count += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _ParquetShard:
    """One Parquet file, compressed with zstd, in row groups of about a million ids."""

    def __init__(self, path: Path, stack: ExitStack, kept: Sequence[pa.Field]) -> None:
        part = stack.enter_context(part_of(path.with_name(f"{path.name}.parquet")))
        self.parts = {f"{path.name}.parquet": part}  # final name to temporary file
        schema = pa.schema([*SCHEMA, *kept])
        self._writer = stack.enter_context(pq.ParquetWriter(part, schema, compression="zstd"))
        self._waiting: list[pa.Table] = []
        self._ids = 0

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._ids += sum(len(chunk.values) for chunk in table.column("input_ids").chunks)
        if self._ids >= _GROUP:
            self._flush()

    def close(self) -> None:
        if self._waiting:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        table = pa.concat_tables(self._waiting)
        self._writer.write_table(table, row_group_size=max(len(table), 1))
        self._waiting, self._ids = [], 0


class _PackedShard:
    """A pair of files for each draw: rows of ``block_size`` ids, and where the documents start.

    `numpy.load(file, mmap_mode="r")` maps them.
    """

    def __init__(self, path: Path, stack: ExitStack, draws: int, end: int, block_size: int) -> None:
        self.parts: dict[str, Path] = {}  # final name to temporary file
        self._end, self._block_size = end, block_size
        self._offsets = [[0] for _ in range(draws)]
        self._files: list[tuple[Any, Any]] = []
        for draw in range(draws):
            names = [f"{path.name}.draw{draw}{suffix}" for suffix in (".npy", ".offsets.npy")]
            parts = [stack.enter_context(part_of(path.with_name(name))) for name in names]
            self.parts |= dict(zip(names, parts, strict=True))
            tokens, offsets = (stack.enter_context(part.open("w+b")) for part in parts)
            _write_header(tokens, 0, block_size)
            self._files.append((tokens, offsets))

    def write(self, table: pa.Table) -> None:
        rows = table.column("input_ids").combine_chunks()
        values, offsets = rows.values.to_numpy(), rows.offsets.to_numpy()
        numbers = table.column("draw").to_numpy()
        for draw, (file, _) in enumerate(self._files):
            of_draw = np.flatnonzero(numbers == draw)
            ids = [x for i in of_draw for x in (values[offsets[i] : offsets[i + 1]], [self._end])]
            if ids:
                np.concatenate(ids).astype("<i4").tofile(file)
                lengths = offsets[of_draw + 1] - offsets[of_draw] + 1
                size = self._offsets[draw][-1]
                self._offsets[draw] += (size + np.cumsum(lengths, dtype=np.int64)).tolist()

    def close(self) -> None:
        for (tokens, offsets), starts in zip(self._files, self._offsets, strict=True):
            rows = -(-starts[-1] // self._block_size)
            np.full(rows * self._block_size - starts[-1], self._end, "<i4").tofile(tokens)
            tokens.seek(0)
            _write_header(tokens, rows, self._block_size)
            np.save(offsets, np.array(starts, "<i8"), allow_pickle=False)
            tokens.close()
            offsets.close()


def _write_header(file: Any, rows: int, block_size: int) -> None:
    """Write the header of a .npy file. NumPy pads it for a growing first dimension, so its length
    stays the same."""
    about = {"descr": "<i4", "fortran_order": False, "shape": (rows, block_size)}
    np.lib.format.write_array_header_1_0(file, about)
    file.flush()
