"""Outputs as other programs read them, each by a reader written here from the format's facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.corpus.conftest import documents, write_jsonl, write_rows
from tests.corpus.test_run import rows_of

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
