"""Writes shards: Parquet with a row for each draw, or token files for training.

The token files of a shard have one set for each draw, so that training on one after the other does
not repeat a document immediately. Each document is followed by the end token.

- ``packed``: `.npy`, int32 of shape [rows, block_size]; the last row is padded with the end
  token. `.offsets.npy`, int64: the start of each document in the flat array, and the end of the
  last one.
- ``megatron``: the indexed data set of Megatron-LM, `.bin` and `.idx`; each document is a sequence.
- ``nanotron``: the token files of datatrove, `.ds`, `.ds.index` and `.ds.metadata`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robustok.corpus.transform import SCHEMA
from robustok.files import part_of
from robustok.vocabulary import Vocabulary

FORMATS = ("parquet", "packed", "megatron", "nanotron")
_GROUP = 1 << 20  # least number of ids in a row group
# The largest vocabularies whose ids take two bytes, as each reader expects it.
_UINT16 = {"megatron": 65499, "nanotron": 65536}
_MEGATRON_CODES = {"<u2": 8, "<i4": 4}  # of NumPy types, in the index


class ShardWriter(Protocol):
    """Takes the tables of one shard; its files are renamed when its exit stack closes."""

    parts: dict[str, Path]  # final name to temporary file

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


def open_writer(
    format: str,
    path: Path,
    stack: ExitStack,
    *,
    draws: int,
    kept: Sequence[pa.Field],
    block_size: int,
    end: int,
    vocabulary: Vocabulary,
) -> ShardWriter:
    """The writer of a shard; its files are ``path`` with a suffix of the format."""
    if format == "parquet":
        return ParquetShard(path, stack, kept)
    if format == "packed":
        return PackedShard(path, stack, draws, end, block_size)
    if format == "megatron":
        return MegatronShard(path, stack, draws, end, vocabulary)
    return NanotronShard(path, stack, draws, end, vocabulary)


class ParquetShard:
    """One Parquet file, compressed with zstd, in row groups of about a million ids."""

    def __init__(self, path: Path, stack: ExitStack, kept: Sequence[pa.Field]) -> None:
        part = stack.enter_context(part_of(path.with_name(f"{path.name}.parquet")))
        self.parts = {f"{path.name}.parquet": part}
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


class _TokenShard:
    """Files of concatenated documents, and the end of each document."""

    def __init__(
        self,
        path: Path,
        stack: ExitStack,
        draws: int,
        end: int,
        dtype: str,
        suffixes: Sequence[str],
    ) -> None:
        self.parts: dict[str, Path] = {}
        self._end, self._dtype = end, np.dtype(dtype)
        self._ends: list[list[int]] = [[] for _ in range(draws)]
        self._files: list[list[Any]] = []
        for draw in range(draws):
            names = [f"{path.name}.draw{draw}{suffix}" for suffix in suffixes]
            parts = [stack.enter_context(part_of(path.with_name(name))) for name in names]
            self.parts |= dict(zip(names, parts, strict=True))
            self._files.append([stack.enter_context(part.open("w+b")) for part in parts])

    def write(self, table: pa.Table) -> None:
        rows = table.column("input_ids").combine_chunks()
        values, offsets = rows.values.to_numpy(), rows.offsets.to_numpy()
        numbers = table.column("draw").to_numpy()
        for draw, (file, *_) in enumerate(self._files):
            of_draw = np.flatnonzero(numbers == draw)
            ids = [x for i in of_draw for x in (values[offsets[i] : offsets[i + 1]], [self._end])]
            if ids:
                np.concatenate(ids).astype(self._dtype).tofile(file)
                lengths = offsets[of_draw + 1] - offsets[of_draw] + 1
                self._ends[draw] += (self._size(draw) + np.cumsum(lengths, dtype=np.int64)).tolist()

    def close(self) -> None:
        for draw, files in enumerate(self._files):
            self._finish(files, self._size(draw), np.array(self._ends[draw], np.int64))
            for file in files:
                file.close()

    def _size(self, draw: int) -> int:
        return self._ends[draw][-1] if self._ends[draw] else 0

    def _finish(self, files: Sequence[Any], size: int, ends: np.ndarray) -> None:
        """Write the other files; there are ``size`` tokens, and documents end at ``ends``."""
        raise NotImplementedError


class PackedShard(_TokenShard):
    """Rows of ``block_size`` ids. `numpy.load(file, mmap_mode="r")` maps them."""

    def __init__(self, path: Path, stack: ExitStack, draws: int, end: int, block_size: int) -> None:
        super().__init__(path, stack, draws, end, "<i4", (".npy", ".offsets.npy"))
        self._block_size = block_size
        for file, _ in self._files:
            _write_header(file, 0, block_size)

    def _finish(self, files: Sequence[Any], size: int, ends: np.ndarray) -> None:
        tokens, offsets = files
        rows = -(-size // self._block_size)
        np.full(rows * self._block_size - size, self._end, "<i4").tofile(tokens)
        tokens.seek(0)
        _write_header(tokens, rows, self._block_size)
        np.save(offsets, np.concatenate([[0], ends]).astype("<i8"), allow_pickle=False)


class MegatronShard(_TokenShard):
    """An indexed data set of Megatron-LM: `megatron.core.datasets.indexed_dataset` reads it."""

    def __init__(
        self, path: Path, stack: ExitStack, draws: int, end: int, vocabulary: Vocabulary
    ) -> None:
        dtype = "<u2" if vocabulary.size <= _UINT16["megatron"] else "<i4"
        super().__init__(path, stack, draws, end, dtype, (".bin", ".idx"))

    def _finish(self, files: Sequence[Any], size: int, ends: np.ndarray) -> None:
        _, index = files
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)[: len(ends)]
        code = _MEGATRON_CODES[self._dtype.str]
        documents = np.arange(len(ends) + 1)
        index.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(ends), len(documents)))
        index.write((ends - starts).astype("<i4").tobytes())
        index.write((starts * self._dtype.itemsize).astype("<i8").tobytes())
        index.write(documents.astype("<i8").tobytes())


class NanotronShard(_TokenShard):
    """Token files of datatrove, which nanotron trains on."""

    def __init__(
        self, path: Path, stack: ExitStack, draws: int, end: int, vocabulary: Vocabulary
    ) -> None:
        dtype = "<u2" if vocabulary.size <= _UINT16["nanotron"] else "<u4"
        super().__init__(path, stack, draws, end, dtype, (".ds", ".ds.index", ".ds.metadata"))
        self._fingerprint = vocabulary.fingerprint

    def _finish(self, files: Sequence[Any], size: int, ends: np.ndarray) -> None:
        _, index, metadata = files
        index.write(ends.astype("<u8").tobytes())
        # The tokenizer and the bytes of a token, and the number of tokens, twice.
        about = f"{self._fingerprint}|{self._dtype.itemsize}\n{size}\n{size:,} tokens"
        metadata.write(about.encode())


def _write_header(file: Any, rows: int, block_size: int) -> None:
    """Write the header of a .npy file. NumPy pads it for a growing first dimension, so its length
    stays the same."""
    about = {"descr": "<i4", "fortran_order": False, "shape": (rows, block_size)}
    np.lib.format.write_array_header_1_0(file, about)
    file.flush()
