from __future__ import annotations

import gzip
import json
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robustok.errors import RobustokError
from robustok.tasks import read_texts

DOCUMENTS = ["one\ntwo", "naïve\u2028 🦜", ""]
LINES = "".join(json.dumps({"text": d}, ensure_ascii=False) + "\n" for d in DOCUMENTS)


def test_documents_come_from_every_kind_of_file(tmp_path):
    (tmp_path / "a.jsonl").write_text(LINES, encoding="utf-8")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(LINES.encode()))
    (tmp_path / "c.jsonl.xz").write_bytes(lzma.compress(LINES.encode()))
    pq.write_table(pa.table({"text": DOCUMENTS}), tmp_path / "d.parquet")
    for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.xz", "d.parquet"):
        assert list(read_texts(tmp_path / name)) == DOCUMENTS
    (tmp_path / "e.txt").write_bytes(b"a\r\nb")
    both = [tmp_path / "e.txt", tmp_path / "a.jsonl"]
    assert list(read_texts(both)) == ["a", "b", *DOCUMENTS]
    assert list(read_texts(both, sample_by="document")) == ["a\r\nb", *DOCUMENTS]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "is not read: give .parquet, .jsonl"),
        ("a.jsonl", b'{"text": 3}', "a.jsonl:1 has no text in the field 'text'"),
        ("a.jsonl", b'{"text": "x"}\n{', "a.jsonl:2 is not JSON"),
        ("a.txt", b"\xff", "a.txt is not UTF-8 text"),
        ("a.jsonl.gz", b"no", r"a\.jsonl\.gz cannot be read after line 0"),
        ("a.jsonl.xz", b"no", r"a\.jsonl\.xz cannot be read after line 0"),
        ("a.parquet", b"PAR1", r"a\.parquet: the file cannot be read as Parquet"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RobustokError, match=message):
        list(read_texts(tmp_path / name))
    with pytest.raises(RobustokError, match="no such file"):
        list(read_texts(tmp_path / "none.txt"))
