"""Files cut into tasks: every document once, wherever the cuts fall, and bad rows set aside."""

import gzip
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.corpus.conftest import write_jsonl, write_rows

from robustok.corpus import documents
from robustok.corpus.documents import (
    IDS,
    POSITION,
    TEXT,
    DamagedFile,
    Reject,
    Task,
    cut_tasks,
    find_fields,
    read_task,
)
from robustok.errors import RobustokError
from robustok.runtime.inputs import TOO_LONG, find_inputs

DOCUMENT = pa.field("text", TEXT)


def fields_of(path: Any, column: str | None = None, keep: Any = ()) -> pa.Schema:
    return find_fields(find_inputs(path).files, column, keep)


def tasks_of(path: Path, size: int) -> list[Task]:
    """The tasks of a file where each has about this many bytes."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_SMALLEST", "_LARGEST"):
            patch.setattr(documents, name, size)
        return cut_tasks(find_inputs(path).files)


def read(
    path: Path, document: pa.Field = DOCUMENT, shard: int = 40, size: int = 30
) -> tuple[list[Any], list[Reject]]:
    """All documents and all rejects, through every task, as `make_shard` keeps them."""
    rows: list[Any] = []
    rejects: list[Reject] = []
    schema = pa.schema([document, pa.field("id", pa.string())])
    for task in tasks_of(path, shard):
        try:
            tables = list(read_task(task, schema, size))
        except DamagedFile as error:
            rejects.append(Reject(-1, str(error)))
            continue
        for table, set_aside in tables:
            assert table.schema == schema.append(POSITION)
            rows += table.column(0).to_pylist()
            rejects += set_aside
    return rows, rejects


@given(
    lines=st.lists(st.one_of(st.text(max_size=20), st.none()), max_size=30),
    shard=st.integers(1, 60),
    end=st.sampled_from([b"\n", b"\r\n"]),
    ends=st.booleans(),
)
@settings(max_examples=60)
def test_every_line_is_a_document_of_one_task_or_a_reject(
    lines: list[str | None], shard: int, end: bytes, ends: bool
) -> None:
    data = end.join(json.dumps({"text": line}).encode() for line in lines) + (end if ends else b"")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        path.write_bytes(data)
        rows, rejects = read(path, shard=shard)
    assert rows == [line.encode() for line in lines if line is not None]
    assert len(rejects) == lines.count(None)
    for reject in rejects:
        assert data[reject.position :].startswith(b'{"text": null}')
        assert (reject.row, reject.reason) == ('{"text": null}', "field 'text' is null")


@pytest.mark.parametrize("groups", [1, 7, 100])
@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.int64()),
        pa.list_view(pa.int32()),
        pa.list_(pa.int32(), 3),
    ],
    ids=str,
)
def test_parquet(tmp_path: Path, kind: pa.DataType, groups: int) -> None:
    is_text = not pa.types.is_nested(kind)
    rows: list[Any] = [f"document {i}" if is_text else [i, i + 1, i + 2] for i in range(40)]
    rows[::7] = [None] * 6
    name = "text" if is_text else "ids"
    columns = {"other": [b""] * 40, name: pa.array(rows, kind), "id": range(40)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=groups)
    document = fields_of(tmp_path).field(0)
    assert document == (DOCUMENT if is_text else pa.field("ids", IDS))
    read_rows, rejects = read(tmp_path, document)
    assert read_rows == [row.encode() if is_text else row for row in rows if row]
    assert [reject.position for reject in rejects] == [*range(0, 40, 7)]
    assert {reject.reason for reject in rejects} == {f"field '{name}' is null"}


def test_a_parquet_file_without_rows_is_sound(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "b.parquet")
    assert read(tmp_path) == ([b"x"], [])


def test_small_row_groups_are_put_together(tmp_path: Path) -> None:
    texts = [f"document {i}" * 9 for i in range(40)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=2, use_dictionary=False)
    tasks = tasks_of(path, 500)
    assert 1 < len(tasks) < 20
    assert [t.start for t in tasks] == [0, *(t.stop for t in tasks[:-1])]
    assert tasks[-1].stop == 20
    assert read(path, shard=500) == ([text.encode() for text in texts], [])


def test_rows_that_are_no_documents_are_rejects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = '{"text": "good"}'
    bad = {
        "{": "not JSON",
        "[1]": "not a JSON object",
        '{"body": "x"}': "no field 'text'",
        '{"text": null}': "field 'text' is null",
        '{"text": 5}': "field 'text' is not a string",
        '{"text": "a\\ud800"}': r"lone surrogate (U+D800 at position 1)",
        '{"text": "a", "id": "\\ud800"}': "field 'id' holds a lone surrogate",
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
    ids = [[1, 2], [], "text", [1.5], [[1]], [-1], [2**40], ["a"], {"a": 1}]
    batches, rejects = read(write_jsonl(path, ids, "ids"), pa.field("ids", IDS))
    assert (batches, len(rejects)) == ([[1, 2], []], 7)
    # They fill batches as others do; of a long line nothing is kept.
    path.write_text(good + "\n" + '{"body": "x"}\n' * 1000)
    (task,) = tasks_of(path, 1 << 20)
    counts = [len(rejects) for _, rejects in read_task(task, fields_of(path), size=100)]
    assert max(counts) < 20 and sum(counts) == 1000
    monkeypatch.setattr("robustok.runtime.inputs.MAX_LINE", 1 << 20)
    path.write_text("x" * (3 << 20) + f"\n{good}")
    rows, rejects = read(path, shard=1 << 30)
    assert (rows, rejects) == ([b"good"], [Reject(0, TOO_LONG)])


def test_the_field_of_the_documents_is_found(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["x"], "body")
    with pytest.raises(RobustokError, match="its fields are 'body'; give the one of the documents"):
        fields_of(path)
    assert fields_of(path, "body").field(0) == pa.field("body", TEXT)
    assert fields_of(write_jsonl(path, [[5]], "ids")).field(0).type == IDS
    write_jsonl(path, [*[None] * 300, "x"], "body")
    assert fields_of(path, "body").field(0).type == TEXT
    write_rows(path, [*[{"text": "a"}] * 100, {"text": "a", "url": "x"}])
    with pytest.raises(RobustokError, match="no field 'url' to keep"):
        fields_of(path, None, ["url"])
    problems = {
        "[1]\n": r"no JSON objects \(a list: write an object a line",
        "x\n": "no JSON objects .*Expecting value",
    }
    for text, problem in problems.items():
        path.write_text(text)
        with pytest.raises(RobustokError, match=problem):
            fields_of(path)
    path.write_text('{"text": "a"}\n', encoding="utf-16")
    with pytest.raises(RobustokError, match=r"no JSON objects .*UTF-16: save the file as UTF-8"):
        fields_of(path)


def test_links_and_pipes_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_jsonl(folder / "a.jsonl", ["x"])
    (folder / "b.jsonl").symlink_to("a.jsonl")
    assert [file.name for file in find_inputs(folder).files] == ["a.jsonl"]
    (tmp_path / "secret").write_text("root:x:0:0")
    (folder / "c.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(RobustokError, match=r"c\.jsonl is a link to .*secret, outside"):
        find_inputs(folder)
    assert len(find_inputs(folder / "c.jsonl").files) == 1, "a link that is named is followed"
    (folder / "c.jsonl").unlink()
    os.mkfifo(folder / "d.jsonl")
    for path in (folder, folder / "d.jsonl", folder / "d.*"):
        with pytest.raises(RobustokError, match=r"d\.jsonl is not a regular file"):
            find_inputs(path)


@pytest.mark.parametrize("left", [0, 3, 100, -1])
def test_a_truncated_parquet_file_is_a_reject(tmp_path: Path, left: int) -> None:
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "b.parquet")
    content = (tmp_path / "b.parquet").read_bytes()[:left]
    (tmp_path / "a.parquet").write_bytes(content)
    assert fields_of(tmp_path).field(0) == DOCUMENT
    rows, rejects = read(tmp_path)
    assert rows == [b"a", b"b"]
    assert [(r.position, r.row) for r in rejects] == [(-1, None)]
    assert rejects[0].reason.startswith("the file cannot be read as Parquet")
    with pytest.raises(RobustokError, match=r"a\.parquet: the file cannot be read as Parquet"):
        fields_of(tmp_path / "a.parquet")


def test_no_row_of_a_damaged_page_of_parquet_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"document {i}" for i in range(500)]
    pq.write_table(pa.table({"text": texts}), path, write_page_checksum=True, row_group_size=250)
    data = path.read_bytes()
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    damaged = 0
    halves = ([text.encode() for text in texts[:250]], [text.encode() for text in texts[250:]])
    for at in range(4, pages, 60):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        rows, rejects = read(tmp_path, shard=100)
        assert rows == halves[0] + halves[1] or (rows in halves and len(rejects) == 1)
        damaged += len(rejects)
    assert damaged > 10


@pytest.mark.parametrize(("columns", "reason"), [
    ([("body", "x")], "field 'text' is null"),
    ([("text", 5)], "Unsupported cast from int64 to large_binary"),
    ([("text", "x"), ("id", {"a": 1})], "Unsupported cast from struct<a: int64>"),
    ([("text", "x"), ("id", [1])], "Unsupported cast from list<"),
    ([("text", "x"), ("id", b"\xff")], "Invalid UTF8"),
    ([("text", "x"), ("text", "y")], "duplicate field names"),
])  # fmt: skip
def test_parquet_columns_that_cannot_be_read(tmp_path: Path, columns: Any, reason: str) -> None:
    """A type that cannot be cast ends the run; other faults are rejects."""
    names, values = zip(*columns, strict=True)
    table = pa.Table.from_arrays([pa.array([value]) for value in values], names=list(names))
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "a.parquet")
    pq.write_table(table, tmp_path / "b.parquet")
    if "cast" in reason:
        with pytest.raises(RobustokError, match=rf"b\.parquet: .*{reason}"):
            read(tmp_path)
    else:
        rows, rejects = read(tmp_path)
        assert rows == [b"x"]
        assert len(rejects) == 1 and re.search(reason, rejects[0].reason)


def test_the_id_of_a_document_is_the_same_in_json_and_parquet(tmp_path: Path) -> None:
    for ids in ([1.0, 2.5, 1e22, 0.1], [True, False], [1, 2**62], ["1.0", "é"]):
        write_rows(tmp_path / "a.jsonl", [{"text": "x", "id": name} for name in ids])
        pq.write_table(pa.table({"text": ["x"] * len(ids), "id": ids}), tmp_path / "a.parquet")
        json_ids, parquet_ids = (
            [
                name
                for task in cut_tasks(find_inputs(path).files)
                for table, _ in read_task(task, fields_of(path), 1000)
                for name in table.column("id").to_pylist()
            ]
            for path in (tmp_path / "a.jsonl", tmp_path / "a.parquet")
        )
        assert json_ids == parquet_ids and len(json_ids) == len(ids)


@pytest.mark.parametrize("change", ["cut", "replaced", "removed"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_a_file_that_changes_while_it_is_read_is_an_error(
    tmp_path: Path, name: str, change: str
) -> None:
    path, texts = tmp_path / name, [f"document {i * i}" for i in range(4000)]
    if name == "a.parquet":
        pq.write_table(pa.table({"text": texts}), path)
    else:
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
        path.write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
    (task, *_) = cut_tasks(find_inputs(path).files)
    batches = read_task(task, fields_of(path), 100)
    next(batches)
    if change == "cut":
        os.truncate(path, path.stat().st_size // 2)
    else:
        path.rename(tmp_path / "old")
    if change == "replaced":
        path.write_bytes(b"x")
    with pytest.raises(RobustokError, match=r"has changed during the run|cannot be read \(No such"):
        list(batches)
