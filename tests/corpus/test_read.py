"""Files found and cut: every document once, wherever the cuts fall, and bad rows set aside."""

from __future__ import annotations

import gzip
import json
import lzma
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.corpus.conftest import write_jsonl

from robustok.corpus.read import Column, Reject, find_column, read_chunk
from robustok.corpus.sources import cut_chunks, find_sources
from robustok.errors import RobustokError

TEXT = Column("text", "text")


def read(path: Path, column: Column = TEXT, shard: int = 40, size: int = 30) -> tuple[list, list]:
    """All documents and all rejects, through every chunk."""
    rows: list[Any] = []
    rejects: list[Reject] = []
    for chunk in cut_chunks(find_sources(path), shard):
        for batch in read_chunk(chunk, column, size):
            assert len(batch.positions) == len(batch.table)
            assert 0 <= batch.read <= chunk.size
            rows += batch.table.column(column.name).to_pylist()
            rejects += batch.rejects
    return rows, rejects


lines = st.lists(st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]),
                         max_size=20), max_size=30)  # fmt: skip


@given(lines=lines, shard=st.integers(1, 60), ends=st.booleans())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_lines_fall_into_one_chunk_each(lines: list[str], shard: int, ends: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.txt"
        path.write_bytes("\n".join(lines).encode() + (b"\n" if ends else b""))
        assert read(path, shard=shard) == ([line.encode() for line in lines if line], [])


def compressed(kind: str, data: bytes) -> bytes:
    if kind == ".gz":
        return gzip.compress(data[:100]) + gzip.compress(data[100:])
    if kind == ".xz":
        return lzma.compress(data)
    squeeze = zstandard.ZstdCompressor().compress
    return squeeze(data[:100]) + squeeze(data[100:])


@pytest.mark.parametrize("kind", [".gz", ".zst", ".xz"])
def test_compressed(tmp_path: Path, kind: str) -> None:
    data = "".join(json.dumps({"text": f"document {i}"}) + "\n" for i in range(50)).encode()
    (tmp_path / f"a.jsonl{kind}").write_bytes(compressed(kind, data))
    rows, rejects = read(tmp_path)
    assert rows == [f"document {i}".encode() for i in range(50)]
    assert not rejects


@pytest.mark.parametrize("kind", [".gz", ".zst", ".xz"])
def test_damaged_file_gives_what_can_be_read(tmp_path: Path, kind: str) -> None:
    data = "".join(json.dumps({"text": f"document {i * i}"}) + "\n" for i in range(20000)).encode()
    whole = compressed(kind, data)
    (tmp_path / f"a.jsonl{kind}").write_bytes(whole[: len(whole) // 2])
    rows, rejects = read(tmp_path, size=1 << 16)
    assert "damaged" in rejects[-1].reason
    assert len(rejects) == 1
    assert rows == [f"document {i * i}".encode() for i in range(len(rows))]


@pytest.mark.parametrize("groups", [1, 7, 100])
def test_parquet(tmp_path: Path, groups: int) -> None:
    texts = [f"document {i}" if i % 7 else None for i in range(40)]
    table = pa.table({"other": range(40), "text": texts, "id": range(40)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=groups)
    rows, rejects = read(tmp_path)
    assert rows == [t for t in texts if t]
    assert [r.position for r in rejects] == list(range(0, 40, 7))
    assert rejects[0].reason == "field 'text' is null"


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.uint16()),
                                  pa.list_(pa.int32(), 3)])  # fmt: skip
def test_parquet_of_ids(tmp_path: Path, kind: pa.DataType) -> None:
    rows = [[i, i + 1, i + 2] for i in range(10)]
    table = pa.table({"ids": pa.array(rows, kind)})
    pq.write_table(table, tmp_path / "a.parquet")
    column = find_column(find_sources(tmp_path), None)
    assert column == Column("ids", "ids")
    assert read(tmp_path, column) == (rows, [])


def test_rejects_say_why_and_where(tmp_path: Path) -> None:
    good = '{"text": "good"}'
    bad = {
        '{"text": ': "not JSON",
        "[1, 2]": "not a JSON object",
        '{"body": "x"}': "no field 'text'",
        '{"text": 5}': "field 'text' is not a string",
        '{"text": "a\\ud800"}': r"lone surrogate (U+D800 at position 1)",
        '{"text": "a", "id": "\\ud800"}': "its id holds a lone surrogate",
    }
    path = tmp_path / "a.jsonl"
    path.write_bytes(("\n".join([good, *bad, "", good]) + "\n").encode() + b'{"text": "\xff"}\n')
    rows, rejects = read(path, shard=1000)
    assert rows == [b"good", b"good"]
    for reject, (line, reason) in zip(rejects, bad.items(), strict=False):
        assert reason in reject.reason
        assert reject.row == line
        with path.open("rb") as file:
            file.seek(reject.position)
            assert file.readline().decode().rstrip("\n") == line
    assert len(rejects) == len(bad) + 1
    assert rejects[-1].row == '{"text": "\\xff"}'


def test_ids_in_json(tmp_path: Path) -> None:
    column = Column("ids", "ids")
    rows = [[1, 2], [], "text", [1.5], [[1]], [-1], [2**40], ["a"], {"a": 1}]
    found, rejects = read(write_jsonl(tmp_path / "a.jsonl", rows, "ids"), column)
    assert found == [[1, 2], []]
    assert len(rejects) == 7


def test_which_files_there_are(tmp_path: Path) -> None:
    for name in ("b/x.jsonl", "a.txt", "c.jsonl.zst", ".hidden/x.jsonl", "_temp/x.txt", "d.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert [s.name for s in find_sources(tmp_path)] == ["a.txt", "b/x.jsonl", "c.jsonl.zst"]
    found = find_sources([tmp_path / "*.txt", tmp_path / "**" / "*.jsonl", tmp_path / "a.txt"])
    assert len(found) == 2
    for missing, said in (("nothing", "no such file"), ("*.parquet", "no file matches"),
                          ("d.csv", "ends in"), ("_temp/../.hidden/..", "")):  # fmt: skip
        if said:
            with pytest.raises(RobustokError, match=said):
                find_sources(tmp_path / missing)
    with pytest.raises(RobustokError, match="not a Parquet file"):
        (tmp_path / "e.parquet").write_text("hello, I am not one")
        cut_chunks(find_sources(tmp_path / "e.parquet"))


def test_which_field_there_is(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["x"], "body")
    with pytest.raises(RobustokError, match="there are 'body'; name it with --column"):
        find_column(find_sources(path), None)
    assert find_column(find_sources(path), "body") == Column("body", "text")
    assert find_column(find_sources(write_jsonl(path, [[5]], "ids")), None).kind == "ids"
    assert find_column(find_sources(write_jsonl(tmp_path / "0.txt", ["x"])), None) == TEXT


def test_files_of_one_corpus_agree(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(RobustokError, match=r"b\.parquet: no field 'text'"):
        read(tmp_path)
