"""Outputs as other programs read them, each by a reader written here from the format's facts."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.corpus.conftest import documents, write_jsonl, write_rows
from tests.corpus.test_run import rows_of
from tests.oracles.scripts import script

import robustok as rt
from robustok.errors import RobustokError

pytestmark = pytest.mark.usefixtures("inline")


def test_datasets_loads_the_output_folder(tmp_path: Path, run: Any) -> None:
    datasets = pytest.importorskip("datasets")
    write_jsonl(tmp_path / "in" / "a.jsonl", [*documents(10), 5])  # the last one is a reject
    assert run(tmp_path / "in").rejects == 1
    wanted = [row["input_ids"] for row in rows_of(tmp_path / "out")]
    cache = str(tmp_path / "cache")
    for call in ({"path": str(tmp_path / "out")},
                 {"path": "parquet", "data_dir": str(tmp_path / "out")}):  # fmt: skip
        rows = datasets.load_dataset(**call, split="train", cache_dir=cache)
        assert rows["input_ids"][:] == wanted


TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
         pa.binary_view()]  # fmt: skip


@pytest.mark.parametrize("kind", [*TEXTS, None, pa.list_(pa.int64()), pa.large_list(pa.uint16())])
def test_documents_of_every_type_are_read_and_kept(
    tmp_path: Path, run: Any, vocab: rt.Vocabulary, kind: pa.DataType | None
) -> None:
    """Of each type of Parquet, and ids in JSON Lines."""
    ids = [row.tolist() for row in vocab.encode_batch(documents(3))]
    values: Any = documents(3) if kind in TEXTS else ids
    if kind is None:
        source = write_jsonl(tmp_path / "a.jsonl", values, "x")
    else:
        source = tmp_path / "a.parquet"
        table = pa.table({"x": pa.array(values).cast(kind)})
        if kind in TEXTS:
            table = table.append_column("note", pa.array(["a", None, "c" * 20]).cast(kind))
        pq.write_table(table, source)
    run(source, column="x", keep_columns=["x", *(["note"] if kind in TEXTS else [])])
    rows = rows_of(tmp_path / "out")
    assert [row["x"] for row in rows] == values
    if kind in TEXTS:
        notes = [row["note"] for row in rows]
        assert [n.decode() if isinstance(n, bytes) else n for n in notes] == ["a", None, "c" * 20]
    run(write_jsonl(tmp_path / "same.jsonl", documents(3)), "same")
    assert [r["input_ids"] for r in rows] == [r["input_ids"] for r in rows_of(tmp_path / "same")]


def test_columns_are_kept(tmp_path: Path, run: Any) -> None:
    texts = documents(4)
    lines: list[dict[str, Any]] = [
        {"text": texts[0], "url": "a", "score": 1, "ok": True, "meta": {"x": [1]}, "n": None},
        {"text": texts[1], "url": None, "score": 0.5, "more": "é", "n": 7},
        *[{"text": "a b"}] * 110,  # fields are looked for among the first 100 rows
        {"text": texts[2], "score": "high"},
    ]
    write_rows(tmp_path / "in" / "a.jsonl", lines)
    url = pa.array(["b"]).dictionary_encode()
    table = pa.table({"text": texts[3:], "url": url, "id": [7], "score": [5]})
    pq.write_table(table, tmp_path / "in" / "b.parquet")

    def kept(columns: Any, name: str) -> list[dict[str, Any]]:
        run(tmp_path / "in", name, draws=2, keep_columns=columns)
        tables = [pq.read_table(p) for p in sorted((tmp_path / name / "data").iterdir())]
        assert len({str(table.schema) for table in tables}) == 1
        first, second, *_, third, last = pa.concat_tables(tables).to_pylist()[::2]
        return [first, second, third, last]

    rows = kept(["url", "text"], "two")
    assert [row["url"] for row in rows] == ["a", None, None, "b"]
    assert [row["text"] for row in rows] == texts
    rows = kept("all", "all")
    assert list(rows[0])[7:] == ["url", "score", "ok", "meta", "n", "more"]
    assert [row["score"] for row in rows] == ["1", "0.5", "high", "5"]
    assert [row["meta"] for row in rows] == ['{"x": [1]}', None, None, None]
    assert [row["ok"] for row in rows] == ["true", None, None, None]
    assert [row["n"] for row in rows] == [None, "7", None, None]
    assert [row["input_ids"] for row in kept((), "no")] == [row["input_ids"] for row in rows]


def test_parquet_fields_keep_their_type(tmp_path: Path, run: Any) -> None:
    columns = {"text": documents(1), "n": [5], "x": [[1.5]], "empty": [None]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    run(tmp_path / "a.parquet", keep_columns="all")
    (row,) = rows_of(tmp_path / "out")
    assert (row["n"], row["x"], row["empty"]) == (5, [1.5], None)


@pytest.mark.parametrize(("columns", "reason"), [
    (["body"], "no field 'body' to keep"),
    ("all", "name of an output"),
    (["draw"], "name of an output column"),
])  # fmt: skip
def test_columns_that_cannot_be_kept(tmp_path: Path, run: Any, columns: Any, reason: str) -> None:
    source = write_rows(tmp_path / "a.jsonl", [{"text": "a b c", "draw": 1, "url": "a"}])
    with pytest.raises(RobustokError, match=reason):
        run(source, keep_columns=columns)


def read_megatron(path: Path) -> list[list[int]]:
    """Sequences of an indexed data set, whose every document is one sequence."""
    index = path.with_suffix(".idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, documents = struct.unpack("<QBQQ", index[9:34])
    assert version == 1
    dtype = np.dtype({4: np.int32, 8: np.uint16}[code])
    at = 34
    lengths = np.frombuffer(index, np.int32, sequences, at)
    pointers = np.frombuffer(index, np.int64, sequences, at := at + 4 * sequences)
    starts = np.frombuffer(index, np.int64, documents, at := at + 8 * sequences)
    assert len(index) == at + 8 * documents
    assert starts.tolist() == list(range(sequences + 1))
    tokens = path.with_suffix(".bin").read_bytes()
    assert len(tokens) == lengths.sum() * dtype.itemsize
    return [
        np.frombuffer(tokens, dtype, n, p).tolist() for n, p in zip(lengths, pointers, strict=True)
    ]


def read_nanotron(path: Path) -> list[list[int]]:
    """Documents of a token file of datatrove."""
    size = int(Path(f"{path}.metadata").read_text().splitlines()[0].rpartition("|")[2])
    tokens = np.fromfile(path, {2: np.uint16, 4: np.uint32}[size])
    ends = np.fromfile(f"{path}.index", np.uint64).astype(int)
    assert ends[-1] == len(tokens) == int(Path(f"{path}.metadata").read_text().splitlines()[1])
    return [part.tolist() for part in np.split(tokens, ends)[:-1]]


READERS = {"megatron": (read_megatron, ".bin"), "nanotron": (read_nanotron, ".ds")}


@pytest.mark.parametrize("format", READERS)
def test_token_files(
    tmp_path: Path, tokenizer: Path, run: Any, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", [*documents(20), ""])
    run(source, "rows", draws=2)
    example = script("examples/token_files.py")
    example.main(str(tmp_path / "rows"), str(tmp_path / "narrow"), str(tokenizer), format)
    monkeypatch.setitem(example.UINT16, format, 0)  # a large vocabulary has wider tokens
    example.main(str(tmp_path / "rows"), str(tmp_path / "wide"), str(tokenizer), format)
    (end,) = rt.Vocabulary.load(str(tokenizer)).special
    rows = rows_of(tmp_path / "rows")
    read, suffix = READERS[format]
    for draw in range(2):
        name = f"part-000000.draw{draw}{suffix}"
        narrow, wide = tmp_path / "narrow" / name, tmp_path / "wide" / name
        assert read(narrow) == [[*row["input_ids"], end] for row in rows if row["draw"] == draw]
        assert read(wide) == read(narrow)
        assert wide.stat().st_size == 2 * narrow.stat().st_size
