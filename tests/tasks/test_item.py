"""Items keep the names and digests that files of earlier releases hold."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from robustok.evaluation.resume import items_digest
from robustok.tasks import Item, write_items

ITEM = Item("a", "Which?", (" x", " y"), 1, "odd")


def test_the_old_name_of_the_question_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match=r"Item\.question"):
        assert ITEM.query == "Which?"


def test_files_hold_the_question_as_query(tmp_path: Path) -> None:
    write_items(tmp_path / "a.jsonl", [ITEM])
    assert json.loads((tmp_path / "a.jsonl").read_text()) == {
        "key": "a", "query": "Which?", "choices": [" x", " y"], "label": 1, "kind": "odd",
    }  # fmt: skip


def test_resume_files_of_earlier_releases_are_recognized() -> None:
    text = "[Item(key='a', query='Which?', choices=(' x', ' y'), label=1, kind='odd')]"
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    assert items_digest([ITEM]) == digest
