"""The two kinds of shards: Parquet with a row for each draw, and full blocks as `.npy`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robustok.corpus.transform import SCHEMA
from robustok.files import part_of

FORMATS = ("parquet", "packed")
_GROUP = 1 << 20  # ids in a row group, at least


class ShardWriter(Protocol):
    """Takes the tables of one shard; its files appear when the stack it was opened on closes."""

    parts: dict[str, Path]  # the name each file will have, and where it is being written

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class ParquetShard:
    """One Parquet file, compressed with zstd, in row groups of some million ids."""

    def __init__(self, folder: Path, name: str, stack: ExitStack) -> None:
        part = stack.enter_context(part_of(folder / f"{name}.parquet"))
        self.parts = {f"{name}.parquet": part}
        self._writer = stack.enter_context(pq.ParquetWriter(part, SCHEMA, compression="zstd"))
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


class PackedShard:
    """Documents end to end, cut into rows of ``context`` ids: an int32 array in `.npy` a draw.

    After each document comes ``end``, and the last row is filled up with it. A draw has a file of
    its own, so that a model that is trained on one after the other does not meet a document twice
    in a row. `numpy.load(file, mmap_mode="r")` opens it without reading it.
    """

    def __init__(
        self, folder: Path, name: str, stack: ExitStack, draws: int, context: int, end: int
    ) -> None:
        names = [f"{name}.draw{draw}.npy" for draw in range(draws)]
        self.parts = {n: stack.enter_context(part_of(folder / n)) for n in names}
        self._files = [stack.enter_context(part.open("w+b")) for part in self.parts.values()]
        self._sizes = [0] * draws
        self._context, self._end = context, end
        for file in self._files:
            _write_header(file, 0, context)

    def write(self, table: pa.Table) -> None:
        rows = table.column("input_ids").combine_chunks()
        values, offsets = rows.values.to_numpy(), rows.offsets.to_numpy()
        for draw, file in enumerate(self._files):
            mine = np.flatnonzero(table.column("draw").to_numpy() == draw)
            ids = [x for i in mine for x in (values[offsets[i] : offsets[i + 1]], [self._end])]
            if ids:
                flat = np.concatenate(ids).astype("<i4")
                flat.tofile(file)
                self._sizes[draw] += len(flat)

    def close(self) -> None:
        for file, size in zip(self._files, self._sizes, strict=True):
            blocks = -(-size // self._context)
            np.full(blocks * self._context - size, self._end, "<i4").tofile(file)
            file.seek(0)
            _write_header(file, blocks, self._context)
            file.close()


def _write_header(file: Any, rows: int, context: int) -> None:
    """NumPy leaves room in it for a first dimension that grows, so it keeps its length."""
    about = {"descr": "<i4", "fortran_order": False, "shape": (rows, context)}
    np.lib.format.write_array_header_1_0(file, about)
    file.flush()
