from __future__ import annotations

import json

import pytest

from robustok.errors import RobustokError
from robustok.tasks import Item, frequent_words, read_items, read_words, write_items

ITEM = Item("k", "Which starts with 'b'? Answer:", (" up", " b\u2028y"), 1, "starts")


def test_items_come_back_as_they_were_written(tmp_path):
    write_items(tmp_path / "a.jsonl", [ITEM, ITEM])
    assert read_items(tmp_path / "a.jsonl") == [ITEM, ITEM]
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.jsonl"
    write_items(path, [ITEM])

    def broken():
        yield ITEM
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_items(path, broken())
    assert read_items(path) == [ITEM]


def test_other_peoples_files_are_read(tmp_path):
    path = tmp_path / "b.jsonl"
    row = {"id": "x-1", "query": "q", "choices": ["a", "b"], "label": 0, "source": "s", "task": "t"}
    path.write_text(json.dumps(row) + "\n\n")
    assert read_items(path) == [Item("x-1", "q", (" a", " b"), 0, "t")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "not a JSON object"),
        ('{"query": "q", "label": 0}', "lacks 'choices'"),
        ('{"query": "q", "choices": ["a"], "label": 0}', "fewer than 2"),
        ('{"query": "q", "choices": ["a", "b"], "label": 2}', "label 2"),
        ('{"query": "q", "choices": ["a", "b"], "label": true}', "the number of the right"),
        ('{"query": "q", "choices": ["a", ""], "label": 0}', "empty choice"),
        ('{"query": "q", "choices": "ab", "label": 0}', "list of strings"),
        ("", "holds no questions"),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, message):
    path = tmp_path / "c.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(RobustokError, match=message):
        read_items(path)


def test_words_of_a_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("The\nthe\na\nit's\n  naïve \nx2\n")
    assert read_words(path) == ["the", "naïve"]
    path.write_text("1 2\n")
    with pytest.raises(RobustokError, match="no words"):
        read_words(path)
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(RobustokError, match="UTF-8"):
        read_words(path)
    with pytest.raises(RobustokError, match="no file"):
        read_words(tmp_path / "none.txt")


def test_frequent_words():
    words = frequent_words(300)
    assert words[:3] == ["the", "to", "and"]
    assert len(set(words)) == 300
    assert all(w.isalpha() and len(w) > 1 for w in words)
    with pytest.raises(RobustokError, match="choose from"):
        frequent_words(5, language="zz")
