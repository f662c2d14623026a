"""Maps an Arrow table of documents to a table of drawn tokenizations."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robustok.checks import check_list
from robustok.errors import RobustokError
from robustok.ragged import Ragged
from robustok.runtime.environment import computed_once
from robustok.samplers import Sampler, sampler
from robustok.samplers.strength import measure
from robustok.tokenizer.vocabulary import Vocabulary

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("key", pa.int64()),
        ("draw", pa.int32()),
        ("input_ids", pa.list_(pa.int32())),
        ("canonical_tokens", pa.int32()),
        ("splits", pa.int32()),
        ("distance", pa.int32()),
    ]
)
_IGNORED = -100  # label of an id outside of the loss
_MOST = 2**31 - 1  # ids of a list column and bytes of a text column: their offsets are int32


@dataclass(frozen=True)
class Retokenize:
    """A callable that draws ``draws`` tokenizations of every document of an Arrow table.

    >>> import pyarrow as pa
    >>> retokenize = Retokenize(vocab, "uniform-k(alpha=0.5)", seed=0)
    >>> retokenize(pa.table({"text": ["hello world"]})).column_names
    ['id', 'key', 'draw', 'input_ids', 'canonical_tokens', 'splits', 'distance']

    Args:
        vocab: the vocabulary.
        scheme: spec of the scheme.
        seed: any integer.
        epoch: an int64; each value gives other draws.
        draws: tokenizations of each document, at least 1.
        column: name of the column that holds texts (string or binary) or canonical ids (lists of
            integers).
        keep: names of columns that are repeated for every draw, after the others; none may have
            the name of an output column.

    The output has a row for each draw, those of a document one after another, with the schema
    :data:`SCHEMA`. An ``id`` column is copied. ``map_batches`` of Ray Data and
    ``map(..., batched=True)`` of `datasets` accept it as it is; batches may also be mappings of
    columns.

    A document's draws depend on its key (:func:`document_keys`), the seed, the epoch and the draw's
    number, and on nothing else.

    Raises RobustokError for a document that cannot be tokenized, a column of labels (the id itself
    or -100 at each place, whatever its name), a kept column with a value for each id, an ``id``
    that is neither a text nor a number, and a batch whose draws have more than 2**31 - 1 ids or
    bytes of a kept column.
    """

    vocab: Vocabulary
    scheme: str
    seed: int
    epoch: int = 0
    draws: int = 1
    column: str = "text"
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.column == "id":
            raise RobustokError(
                "the documents cannot be in the field 'id', which names them: rename the field"
            )
        keep = tuple(dict.fromkeys(check_list("keep", self.keep, "[column]")))
        if names := [name for name in keep if name in SCHEMA.names]:
            raise RobustokError(
                f"the field '{names[0]}' has the name of an output column and cannot be kept: "
                "rename it, or name the others to keep"
            )
        object.__setattr__(self, "keep", keep)

    def __call__(self, batch: pa.Table | Mapping[str, object]) -> pa.Table:
        table: Any = batch if isinstance(batch, pa.Table) else pa.table(dict(batch))
        has_id = "id" in table.column_names
        for name in (self.column, *self.keep, *(("id",) if has_id else ())):
            if (times := table.column_names.count(name)) != 1:
                columns = ", ".join(table.column_names)
                number = "no column" if not times else "several columns"
                raise RobustokError(f"the table has {number} '{name}': it has {columns}")
        names = document_ids(table.column("id")) if has_id else pa.nulls(len(table), pa.string())
        kept = [_kept(table.column(name)) for name in self.keep]
        for name, column in (("id", names), *zip(self.keep, kept, strict=True)):
            if not pa.types.is_dictionary(column.type):
                self._check_size(column.nbytes * self.draws, f"bytes of the column '{name}'")
        rows = self._canonical(table.column(self.column))
        self._check_beside(table, rows)
        keys = document_keys(names.to_pylist(), rows)
        samples = self._sampler.sample_batch(
            rows, seed=self.seed, draws=self.draws, keys=keys, epoch=self.epoch, threads=1
        )
        self._check_size(len(samples.values), "ids")
        strength = measure(self.vocab, rows, samples)
        again = pa.array(np.repeat(np.arange(len(rows)), self.draws))
        columns = {
            "id": names.take(again),
            "key": pa.array(keys).take(again),
            "draw": np.tile(np.arange(self.draws), len(rows)),
            "input_ids": pa.ListArray.from_arrays(
                samples.offsets.astype(np.int32), pa.array(samples.values)
            ),
            "canonical_tokens": strength.canonical,
            "splits": strength.splits,
            "distance": strength.distance,
        }
        out = pa.table(columns, schema=SCHEMA)
        for name, column in zip(self.keep, kept, strict=True):
            out = out.append_column(name, column.take(again))
        return out

    def _check_beside(self, table: pa.Table, rows: Ragged) -> None:
        """Raise RobustokError for labels, and for a kept column with a value for each id."""
        lengths = pa.array(rows.lengths)
        for name, column in zip(table.column_names, table.columns, strict=True):
            if name == self.column or not is_list(column.type) or not len(rows.values):
                continue
            of_rows = pc.call_function("list_value_length", [column])
            if not of_rows.combine_chunks().cast(pa.int64()).equals(lengths):
                continue
            values = np.asarray(column.combine_chunks().flatten())
            is_number = values.dtype.kind in "iu"
            if is_number and ((values == rows.values) | (values == _IGNORED)).all():
                raise RobustokError(
                    f"the column '{name}' holds labels (the id itself, or {_IGNORED}), and a draw "
                    "of the whole row would leave them wrong: draw rows that have labels with "
                    "Perturb or robustify, or remove the column"
                )
            if name in self.keep:
                raise RobustokError(
                    f"the column '{name}' has a value for each id and cannot be kept: a draw has "
                    "other ids"
                )

    def _check_size(self, size: int, what: str) -> None:
        if size > _MOST:
            raise RobustokError(
                f"{self.draws} draws have {size:,} {what}, more than the {_MOST:,} that a column "
                "holds: take fewer draws, or shorter documents"
            )

    def _canonical(self, column: pa.ChunkedArray) -> Ragged:
        if column.null_count:
            raise RobustokError(f"column '{self.column}' has null rows: fill or drop them first")
        if not is_list(column.type):
            return self.vocab.encode_batch(column.to_pylist())
        try:
            rows = Ragged.from_arrow(column.cast(pa.large_list(pa.field("i", pa.int32(), False))))
        except pa.ArrowInvalid as error:
            raise RobustokError(f"column '{self.column}' holds no token ids: {error}") from error
        # Arrow's memory is read-only, for which numba would compile the kernels again.
        return Ragged(rows.values.copy(), rows.offsets.copy())

    @computed_once
    def _sampler(self) -> Sampler:
        return sampler(self.scheme, self.vocab)

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without derived values."""
        return {name: vars(self)[name] for name in self.__dataclass_fields__}


def document_keys(names: Sequence[str | None], rows: Ragged) -> np.ndarray:
    """The key of each document, int64: a hash of its id, if it has one, and its canonical ids.

    >>> document_keys(["a", None], Ragged.from_rows([[5, 6], [5, 6]]))
    array([ 6933950176632136053, -4556091524326757107])

    It is the first eight bytes of BLAKE2b over the id in UTF-8, a zero byte, and the ids as
    little-endian int32, the same for a text and its ids.
    """
    content = rows.values.astype("<i4", copy=False).tobytes()
    edges = (4 * rows.offsets).tolist()
    digests = [
        hashlib.blake2b((name or "").encode() + b"\0" + content[a:b], digest_size=8).digest()
        for name, a, b in zip(names, edges, edges[1:], strict=False)
    ]
    return np.frombuffer(b"".join(digests), "<i8").astype(np.int64)


def document_ids(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The ids of documents as strings; raises RobustokError for other types than texts and numbers.

    >>> document_ids(pa.chunked_array([[1.0, 2.5]])).to_pylist()
    ['1', '2.5']
    """
    if pa.types.is_nested(column.type):
        raise RobustokError(
            f"the field 'id' is a {column.type}; a document's id is a text or a number: drop or "
            "rename the field"
        )
    try:
        return column.cast(pa.string()).combine_chunks()
    except pa.ArrowException as error:
        raise RobustokError(f"the field 'id' is not text: {error}") from None


def is_list(kind: pa.DataType) -> bool:
    """Whether a column is of lists, of any layout."""
    return pa.types.is_nested(kind) and hasattr(kind, "value_type")


def _kept(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A kept column; the binary documents of a corpus are kept as text."""
    if not pa.types.is_large_binary(column.type):
        return column
    try:
        return column.cast(pa.large_string()).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise RobustokError(f"a text to keep is not UTF-8: {error}") from None
