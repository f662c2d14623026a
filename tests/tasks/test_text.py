from __future__ import annotations

import gzip
import json
import lzma

import pytest

from robustok.errors import RobustokError
from robustok.tasks import read_texts

DOCUMENTS = ["one\ntwo", "naïve\u2028 🦜", ""]
LINES = "".join(json.dumps({"text": d}, ensure_ascii=False) + "\n" for d in DOCUMENTS)


def test_documents_come_from_every_kind_of_file(tmp_path):
    (tmp_path / "a.jsonl").write_text(LINES, encoding="utf-8")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(LINES.encode()))
    (tmp_path / "c.jsonl.xz").write_bytes(lzma.compress(LINES.encode()))
    (tmp_path / "d.txt").write_bytes(b"a\r\nb")
    for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.xz"):
        assert list(read_texts(tmp_path / name)) == DOCUMENTS
    assert list(read_texts([tmp_path / "d.txt", tmp_path / "a.jsonl"])) == ["a\r\nb", *DOCUMENTS]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "neither"),
        ("a.jsonl", b'{"text": 3}', "a.jsonl:1 has no text"),
        ("a.jsonl", b'{"text": "x"}\n{', "a.jsonl:2 is not JSON"),
        ("a.txt", b"\xff", "UTF-8"),
        ("a.jsonl.gz", b"no", "cannot be read"),
        ("a.jsonl.xz", b"no", "cannot be read"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RobustokError, match=message):
        list(read_texts(tmp_path / name))
    with pytest.raises(RobustokError, match="no file"):
        list(read_texts(tmp_path / "none.txt"))
