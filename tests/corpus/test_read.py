"""Files found and cut: every document once, wherever the cuts fall, and bad rows set aside."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.corpus.conftest import write_jsonl, write_rows

from robustok.corpus.read import find_column, find_kept, read_chunk
from robustok.corpus.sources import (
    DOCUMENT,
    IDS,
    TEXT,
    DamagedFile,
    Reject,
    batch_schema,
    cut_chunks,
    find_sources,
)
from robustok.errors import RobustokError

LIMIT = 1000


def read(
    path: Path, document: pa.Field = DOCUMENT, shard: int = 40, size: int = 30,
    limit: int = 1 << 24, sample_by: str = "line",
) -> tuple[list[Any], list[Reject]]:  # fmt: skip
    """All documents and all rejects, through every chunk, as `make_shard` keeps them."""
    rows: list[Any] = []
    rejects: list[Reject] = []
    for chunk in cut_chunks(find_sources(path, sample_by), shard):
        try:
            batches = list(read_chunk(chunk, batch_schema(document), size, max_row_bytes=limit))
        except DamagedFile as error:
            rejects.append(Reject(-1, str(error)))
            continue
        for batch in batches:
            assert len(batch.positions) == len(batch.table)
            assert 0 <= batch.read <= chunk.size
            rows += batch.table.column(0).to_pylist()
            rejects += batch.rejects
    return rows, rejects


lines = st.lists(st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]),
                         max_size=20), max_size=30)  # fmt: skip


@given(
    lines=lines,
    shard=st.integers(1, 60),
    end=st.sampled_from([b"\n", b"\r\n"]),
    ends=st.booleans(),
    limit=st.integers(1, 90),
)
@settings(max_examples=120)
def test_every_line_is_a_document_of_one_chunk_or_a_reject(
    lines: list[str], shard: int, end: bytes, ends: bool, limit: int
) -> None:
    data = end.join(line.encode() for line in lines) + (end if ends else b"")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.txt"
        path.write_bytes(data)
        rows, rejects = read(path, shard=shard, limit=limit)
    encoded = [line.encode() for line in lines if line]
    assert rows == [line for line in encoded if len(line) <= limit]
    long = [line for line in encoded if len(line) > limit]
    assert len(rejects) == len(long)
    for reject, line in zip(rejects, long, strict=True):
        assert data[reject.position :].startswith(line)
        assert (reject.row, "more than" in reject.reason) == (None, True)


def compressed(kind: str, data: bytes) -> bytes:
    if kind == ".gz":
        return gzip.compress(data[:100]) + gzip.compress(data[100:])
    if kind == ".xz":
        return lzma.compress(data)
    squeeze = zstandard.ZstdCompressor().compress
    return squeeze(data[:100]) + squeeze(data[100:])


@pytest.mark.parametrize("kind", [".gz", ".zst", ".xz"])
def test_a_compressed_file_is_read_as_far_as_it_is_whole(tmp_path: Path, kind: str) -> None:
    data = "".join(json.dumps({"text": f"document {i * i}"}) + "\n" for i in range(9000)).encode()
    path, content = tmp_path / f"a.jsonl{kind}", compressed(kind, data)
    texts = [f"document {i * i}".encode() for i in range(9000)]
    path.write_bytes(content)
    assert read(tmp_path, size=1 << 16) == (texts, [])
    path.write_bytes(content[: len(content) // 2])
    rows, rejects = read(tmp_path, size=1 << 16)
    assert [reject.reason.count("damaged") for reject in rejects] == [1]
    assert rows == texts[: len(rows)]
    path.write_bytes(content[:4] + b"#" * 100)
    with pytest.raises(RobustokError, match=r"a\.jsonl\..*: the file is damaged, and nothing"):
        find_column(find_sources(tmp_path), None)


@pytest.mark.parametrize("kind", [".gz", ".zst", ".xz"])
def test_no_row_of_a_file_whose_checksum_fails_is_read(tmp_path: Path, kind: str) -> None:
    lines = [json.dumps({"text": f"document {i * i}"}) for i in range(900)]
    data, random = "\n".join(lines).encode(), np.random.default_rng(0)
    zstd = zstandard.ZstdCompressor(write_checksum=True).compress
    content = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd}[kind](data)
    path, texts = tmp_path / f"a.jsonl{kind}", [f"document {i * i}".encode() for i in range(900)]
    n_damaged = 0
    for _ in range(30):
        damaged = bytearray(content)
        damaged[random.integers(len(content))] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        try:
            rows, rejects = read(tmp_path, size=1 << 16)
        except RobustokError:  # of a file that is none of this kind
            continue
        assert rows == texts[: len(rows)]
        assert len(rejects) == (len(rows) < len(texts))
        n_damaged += any("nothing of it is read" in reject.reason for reject in rejects)
    assert n_damaged > 15


@pytest.mark.parametrize("groups", [1, 7, 100])
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.list_(pa.int64()), pa.large_list(pa.uint16()), pa.list_(pa.int32(), 3)]
)
def test_parquet(tmp_path: Path, kind: pa.DataType, groups: int) -> None:
    is_text = kind == pa.string()
    rows: list[Any] = [f"document {i}" if is_text else [i, i + 1, i + 2] for i in range(40)]
    rows[::7] = [None] * 6
    if not pa.types.is_fixed_size_list(kind):
        rows[5] = "x" * (LIMIT + 1) if is_text else [1] * (LIMIT // 4 + 1)
    table = pa.table({"other": [b""] * 40, "ids": pa.array(rows, kind), "id": range(40)})
    table = table.rename_columns(["other", "text", "id"]) if is_text else table
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=groups)
    document = find_column(find_sources(tmp_path), None)
    assert document == (DOCUMENT if is_text else pa.field("ids", IDS))
    read_rows, rejects = read(tmp_path, document, limit=LIMIT)
    short = [row for row in rows if row and len(row) < 20]
    assert read_rows == [row.encode() if is_text else row for row in short]
    reasons = {reject.position: reject.reason for reject in rejects}
    assert len(rejects) == len(reasons) == 40 - len(short)
    for position, reason in reasons.items():
        assert ("null" if rows[position] is None else "more than 1,000") in reason


@pytest.mark.parametrize("sizes", [[40], [1, 38, 1], [0, 20, 0, 20], [13, 13, 14]])
def test_a_large_row_group_is_cut(tmp_path: Path, sizes: list[int]) -> None:
    texts = [f"document {i}" * 9 for i in range(sum(sizes))]
    path, begin = tmp_path / "a.parquet", 0
    schema = pa.schema([("text", pa.string())])
    with pq.ParquetWriter(path, schema, use_dictionary=False) as file:
        for size in sizes:
            file.write_table(pa.table({"text": texts[begin : begin + size]}, schema))
            begin += size
    chunks = cut_chunks(find_sources(path), 500)
    assert len(chunks) > len([size for size in sizes if size])
    assert [c.start for c in chunks[1:]] == [c.stop for c in chunks[:-1]]
    assert read(path, shard=500) == ([text.encode() for text in texts], [])
    assert len(cut_chunks(find_sources(path), 1)) <= 16 * len(sizes)


def test_rejects_say_why_and_where(tmp_path: Path) -> None:
    good = '{"text": "good"}'
    bad = {
        '{"text": ': "not JSON",
        "[1, 2]": "not a JSON object",
        '{"body": "x"}': "no field 'text'",
        '{"text": null}': "field 'text' is null",
        '{"text": 5}': "field 'text' is not a string",
        '{"text": "a\\ud800"}': r"lone surrogate (U+D800 at position 1)",
        '{"text": "a", "id": "\\ud800"}': "its id holds a lone surrogate",
        '{"text": "a", "id": [1]}': "field 'id' is neither a text nor a number",
        '{"text": "a", "id": {"a": 1}}': "field 'id' is neither a text nor a number",
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


def test_rejected_lines_fill_batches_as_others_do(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n' + '{"body": "x"}\n' * 1000)
    (chunk,) = cut_chunks(find_sources(path, "line"), 1 << 20)
    batches = [*read_chunk(chunk, batch_schema(), size=100)]
    assert max(len(batch.rejects) for batch in batches) < 20
    assert sum(len(batch.rejects) for batch in batches) == 1000


def test_ids_in_json(tmp_path: Path) -> None:
    rows = [[1, 2], [], "text", [1.5], [[1]], [-1], [2**40], ["a"], {"a": 1}]
    batches, rejects = read(write_jsonl(tmp_path / "a.jsonl", rows, "ids"), pa.field("ids", IDS))
    assert batches == [[1, 2], []]
    assert len(rejects) == 7


def test_the_files_of_a_folder_are_listed(tmp_path: Path) -> None:
    for name in ("b/x.jsonl", "a.txt", "c.jsonl.zst", ".hidden/x.jsonl", "_temp/x.txt", "d.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert [s.name for s in find_sources(tmp_path)] == ["a.txt", "b/x.jsonl", "c.jsonl.zst"]
    sources = find_sources([tmp_path / "*.txt", tmp_path / "**" / "*.jsonl", tmp_path / "a.txt"])
    assert len(sources) == 2
    for missing, message in (("nothing", "no such file"), ("*.parquet", "no file matches"),
                          ("d.csv", "ends in"), ("_temp/../.hidden/..", "")):  # fmt: skip
        if message:
            with pytest.raises(RobustokError, match=message):
                find_sources(tmp_path / missing)


def test_the_text_field_is_detected(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["x"], "body")
    with pytest.raises(RobustokError, match="its fields are 'body'; give its name as column"):
        find_column(find_sources(path), None)
    assert find_column(find_sources(path), "body") == pa.field("body", TEXT)
    with pytest.raises(RobustokError, match="'id', which names them"):
        find_column(find_sources(path), "id")
    assert find_column(find_sources(write_jsonl(path, [[5]], "ids")), None).type == IDS
    assert find_column(find_sources(write_jsonl(tmp_path / "0.txt", ["x"])), None) == DOCUMENT


def test_a_text_file_can_be_one_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\n\ntwo\r\n" * 20)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"x" * (LIMIT + 1)))
    (tmp_path / "c.txt").write_bytes(b"")
    rows, rejects = read(tmp_path, limit=LIMIT, sample_by="document")
    assert rows == [b"one\n\ntwo\r\n" * 20]
    assert [reject.position for reject in rejects] == [0]
    with pytest.raises(RobustokError, match="unknown sample_by 'lines': did you mean 'line'"):
        find_sources(tmp_path, "lines")


BOMBS = """
import json, resource, sys
from pathlib import Path
import pyarrow
from robustok.corpus.read import find_column, read_chunk
from robustok.corpus.sources import batch_schema, cut_chunks, find_sources
pyarrow.array([])  # imports pandas, where it is installed
limit = int(Path("/proc/self/statm").read_text().split()[0]) * 4096 + (200 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[1:]:
    sources, rows, rejects = find_sources(path), 0, 0
    try:
        find_column(sources, None)
    except ValueError as error:
        assert "none of the first lines" in str(error), error
    for chunk in cut_chunks(sources):
        for batch in read_chunk(chunk, batch_schema(), 1 << 19):
            rows, rejects = rows + len(batch.table), rejects + len(batch.rejects)
    print(json.dumps([Path(path).name, rows, rejects]))
"""


def test_files_that_expand_are_read_in_bounded_memory(tmp_path: Path) -> None:
    """Lines of 220 MB, 220 MB in one page, and 1 MB in a dictionary that 220 rows repeat."""
    wanted = {"a.jsonl.gz": (0, 1), "a.jsonl.zst": (0, 1), "a.jsonl.xz": (0, 1)}
    block = b"x" * (1 << 20)
    for name in wanted:
        (tmp_path / name).write_bytes(compressed(Path(name).suffix, block * 10) * 22)
    table = pa.table({"text": [block.decode()] * 220})
    for name, dictionary in (("page.parquet", False), ("dictionary.parquet", True)):
        pq.write_table(table, tmp_path / name, compression="zstd", use_dictionary=dictionary)
        wanted[name] = (220, 0) if dictionary else (0, 1)
    paths = [tmp_path / name for name in wanted]
    assert max(path.stat().st_size for path in paths) < 1 << 20
    done = subprocess.run(
        [sys.executable, "-c", BOMBS, *map(str, paths)], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    read = {name: tuple(counts) for name, *counts in map(json.loads, done.stdout.splitlines())}
    assert read == wanted


def test_links_and_pipes_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_jsonl(folder / "a.jsonl", ["x"])
    (folder / "b.jsonl").symlink_to("a.jsonl")
    assert [s.name for s in find_sources(folder)] == ["a.jsonl"]
    (tmp_path / "secret").write_text("root:x:0:0")
    (folder / "c.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(RobustokError, match=r"c\.txt is a link to .*secret, outside"):
        find_sources(folder)
    assert len(find_sources(folder / "c.txt")) == 1, "a link that is named is followed"
    (folder / "c.txt").unlink()
    os.mkfifo(folder / "d.jsonl")
    for path in (folder, folder / "d.jsonl", folder / "d.*"):
        with pytest.raises(RobustokError, match=r"d\.jsonl is not a regular file"):
            find_sources(path)


@pytest.mark.parametrize("left", [0, 3, 100, -1])
def test_a_truncated_parquet_file_is_a_reject(tmp_path: Path, left: int) -> None:
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "b.parquet")
    content = (tmp_path / "b.parquet").read_bytes()[:left]
    (tmp_path / "a.parquet").write_bytes(content)
    assert find_column(find_sources(tmp_path), None) == DOCUMENT
    rows, rejects = read(tmp_path)
    assert rows == [b"a", b"b"]
    assert [(r.position, r.row) for r in rejects] == [(-1, None)]
    assert rejects[0].reason.startswith("not a Parquet file, or a damaged one (")
    with pytest.raises(RobustokError, match=r"a\.parquet: not a Parquet file, or a damaged one"):
        find_column(find_sources(tmp_path / "a.parquet"), None)
    assert find_kept(find_sources(tmp_path / "a.parquet"), "all", DOCUMENT) == ()


@pytest.mark.parametrize("has_checksums", [False, True])
def test_a_damaged_parquet_file_is_read_as_far_as_it_is_whole(
    tmp_path: Path, has_checksums: bool
) -> None:
    """Without checksums, what shows is an index outside a dictionary."""
    path = tmp_path / "a.parquet"
    texts = [f"document {i % 60}" for i in range(500)]
    pq.write_table(pa.table({"text": texts}), path, write_page_checksum=has_checksums)
    data = path.read_bytes()
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    damaged = refused = 0
    # Odd places of the metadata, since pyarrow aborts the process at place 20.
    for at in (*range(4, pages, 18), *range(pages + 1, len(data), 6)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        try:
            rows, rejects = read(tmp_path, find_column(find_sources(tmp_path), None), 1 << 20)
        except RobustokError as error:
            assert at >= pages and "\n" not in str(error)
            refused += 1
            continue
        if at < pages:
            assert len(rejects) <= 1
            assert not has_checksums or [row.decode() for row in rows] == texts[: len(rows)]
            damaged += len(rejects)
    assert min(damaged, refused) > 10


@pytest.mark.parametrize(("columns", "reason"), [
    ([("body", "x")], r"b\.parquet: no field 'text'"),
    ([("text", "x"), ("id", {"a": 1})], "the field 'id' is a struct<a: int64>"),
    ([("text", "x"), ("id", [1])], "the field 'id' is a list<"),
    ([("text", "x"), ("id", b"\xff")], "the field 'id' is not string"),
    ([("text", "x"), ("text", "y")], "two columns are named 'text'"),
])  # fmt: skip
def test_parquet_columns_that_cannot_be_read(tmp_path: Path, columns: Any, reason: str) -> None:
    names, values = zip(*columns, strict=True)
    table = pa.Table.from_arrays([pa.array([value]) for value in values], names=list(names))
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "a.parquet")
    pq.write_table(table, tmp_path / "b.parquet")
    with pytest.raises(RobustokError, match=reason):
        read(tmp_path)


def test_the_id_of_a_document_is_the_same_in_json_and_parquet(tmp_path: Path) -> None:
    for ids in ([1.0, 2.5, 1e22, 0.1], [True, False], [1, 2**62], ["1.0", "é"]):
        rows = [{"text": "x", "id": name} for name in ids]
        write_rows(tmp_path / "a.jsonl", rows)
        pq.write_table(pa.table({"text": ["x"] * len(ids), "id": ids}), tmp_path / "a.parquet")
        json_ids, parquet_ids = (
            [
                name
                for chunk in cut_chunks(find_sources(tmp_path / name), 1 << 20)
                for batch in read_chunk(chunk, batch_schema(), 1000)
                for name in batch.table.column("id").to_pylist()
            ]
            for name in ("a.jsonl", "a.parquet")
        )
        assert json_ids == parquet_ids and len(json_ids) == len(ids)
