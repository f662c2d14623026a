"""Files of items, and the digest of items in resume files."""

from __future__ import annotations

import json
from pathlib import Path

from robustok.tasks import Item, write_items

ITEM = Item("a", "Which?", (" x", " y"), 1, "odd")


def test_a_file_holds_the_fields_of_an_item(tmp_path: Path) -> None:
    write_items(tmp_path / "a.jsonl", [ITEM])
    assert json.loads((tmp_path / "a.jsonl").read_text()) == {
        "key": "a", "question": "Which?", "choices": [" x", " y"], "label": 1, "kind": "odd",
    }  # fmt: skip
