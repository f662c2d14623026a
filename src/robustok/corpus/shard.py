"""Makes one shard from one chunk of input; the workers of every engine call this."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from robustok.corpus.read import read_chunk
from robustok.corpus.rows import Column, Reject
from robustok.corpus.sources import Chunk
from robustok.corpus.transform import Retokenize
from robustok.corpus.write import open_writer
from robustok.errors import RobustokError
from robustok.files import part_of, read_json_or_none, sha256_of, write_json

_BATCH = 1 << 19  # bytes of text processed at once, divided by the number of draws
_LEAST = 1 << 16

# `datasets`, Spark and `pyarrow.dataset` skip folders whose name starts with an underscore.
RUN = "__run__"

Progress = Callable[[int], None]


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

    @property
    def data(self) -> Path:
        return self.out / "data"

    def manifest(self, chunk: Chunk) -> Path:
        return self.out / RUN / "manifests" / f"{chunk.name}.json"

    def rejects(self, chunk: Chunk) -> Path:
        return self.out / RUN / "rejects" / f"{chunk.name}.jsonl"


def make_shard(job: Job, chunk: Chunk, progress: Progress = lambda read: None) -> dict[str, Any]:
    """Write the shard of a chunk, its rejects, and last its manifest, which is returned.

    A shard with a manifest and intact files is kept. ``progress`` is called with the number of
    input bytes read. The files depend on the bytes of the chunk and the settings only, and are
    renamed when complete: a kill loses the work on this shard only, and two workers that make the
    same shard write the same bytes.
    """
    existing = finished(job, chunk)
    if existing is not None:
        return existing
    counts: dict[str, int] = {}
    files: list[dict[str, Any]] = []
    with ExitStack() as stack:
        writer = open_writer(
            job.format, job.data / chunk.name, stack, draws=job.retokenize.draws, kept=job.kept,
            block_size=job.block_size, end=job.end, vocabulary=job.retokenize.vocab,
        )  # fmt: skip
        aside = _Rejects(job.rejects(chunk), stack)
        for batch in read_chunk(chunk, job.column, _batch_size(job), job.kept, job.max_row_bytes):
            tables, rejects = _transformed(job, batch.table, batch.positions)
            aside.write(chunk, [*batch.rejects, *rejects])
            for table in tables:
                writer.write(table)
                _count(counts, table)
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
        "documents": counts.get("rows", 0) // job.retokenize.draws,
        "rejects": aside.count,
        **{name: counts.get(name, 0) for name in COUNTED},
    }
    write_json(job.manifest(chunk), manifest)
    return manifest


COUNTED = ("rows", "changed", "tokens", "canonical_tokens", "splits", "distance")


def finished(job: Job, chunk: Chunk) -> dict[str, Any] | None:
    """The manifest of a shard that is done and intact, or None."""
    manifest = read_json_or_none(job.manifest(chunk))
    if manifest is None or manifest.get("job") != job.digest:
        return None
    for file in manifest["files"]:
        path = job.out / file["name"]
        if not path.is_file() or path.stat().st_size != file["bytes"]:
            return None
        if sha256_of(path) != file["sha256"]:
            return None
    return manifest


def _batch_size(job: Job) -> int:
    return max(_BATCH // job.retokenize.draws, _LEAST)


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
            row = _plain(table.column(job.column.name)[0].as_py())
            return [], [Reject(int(positions[0]), str(error), row)]
    half = len(table) // 2
    first = _transformed(job, table.slice(0, half), positions[:half])
    second = _transformed(job, table.slice(half), positions[half:])
    return first[0] + second[0], first[1] + second[1]


def _plain(row: Any) -> Any:
    return row.decode("utf8", errors="backslashreplace") if isinstance(row, bytes) else row


def _count(counts: dict[str, int], table: pa.Table) -> None:
    draws = table.column("input_ids").combine_chunks()
    splits, distance, canonical = (
        table.column(name).to_numpy() for name in ("splits", "distance", "canonical_tokens")
    )
    sums = {
        "rows": len(table),
        "changed": int(np.count_nonzero(distance)),
        "tokens": len(draws.values),
        "canonical_tokens": int(canonical.sum(dtype=np.int64)),
        "splits": int(splits.sum(dtype=np.int64)),
        "distance": int(distance.sum(dtype=np.int64)),
    }
    for name, number in sums.items():
        counts[name] = counts.get(name, 0) + number


class _Rejects:
    """Writes the rejected rows as JSON Lines; creates no file without any."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.count = 0
        self.parts: dict[str, Path] = {}
        self._path, self._stack = path, stack
        self._file: Any = None

    def write(self, chunk: Chunk, rejects: list[Reject]) -> None:
        for line in _lines(chunk, rejects):
            if self._file is None:
                part = self._stack.enter_context(part_of(self._path))
                self._file = self._stack.enter_context(part.open("w", encoding="utf8"))
                self.parts = {f"{RUN}/rejects/{self._path.name}": part}
            self._file.write(line)
            self.count += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _lines(chunk: Chunk, rejects: list[Reject]) -> Iterator[str]:
    for reject in rejects:
        yield json.dumps({"file": chunk.source.name, **asdict(reject)}, ensure_ascii=True) + "\n"
