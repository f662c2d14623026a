"""robustok data: the folder is a data set, its card is true, and other languages work."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Shell

from robustok.tasks import read_items


@pytest.mark.parametrize(("game", "language"), [("langgame", "en"), ("cute", "de")])
def test_the_folder_is_a_data_set(game: str, language: str, tmp_path: Path, shell: Shell) -> None:
    import datasets

    out = tmp_path / "made"
    size = f"--words 300 --train 420 --test 420 --language {language}"
    record = shell.json(f"data {game} --seed 0 --out {out} {size}")
    loaded = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in loaded.items()} == {"train": 420, "test": 420}
    items = read_items(out / "test.jsonl")
    row = loaded["test"][0]
    assert (row["question"], tuple(row["choices"])) == (items[0].question, items[0].choices)
    chance = sum(1 / len(item.choices) for item in items) / len(items)
    # A sixth of LangGame asks for the longest word and a sixth for the shortest: 0.33 is theirs.
    # Beyond that, three standard errors of 420 questions.
    assert all(abs(share - chance) < 0.085 + 0.06 for share in record["baselines"].values()), record
    card = (out / "README.md").read_text(encoding="utf-8")
    for kind in {item.kind for item in items}:
        assert f"| {kind} |" in card
    assert f"Chance is {100 * chance:.1f}." in card
