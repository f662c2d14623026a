"""What a cell's key depends on, and the order of a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustok.errors import RobustokError
from robustok.study import load_study, plan

QUICK = (Path(__file__).parent / "study.yaml").read_text(encoding="utf-8")


def keys(text: str) -> dict[str, str]:
    return {cell.label: cell.key for cell in plan(load_study(text, "a"))}


def changed(text: str) -> set[str]:
    before, after = keys(QUICK), keys(text)
    return {label.split()[0] for label in before if before[label] != after.get(label)}


def test_every_cell_comes_after_its_inputs() -> None:
    seen: set[str] = set()
    for cell in plan(load_study(QUICK, "a")):
        assert all(other.key in seen for other in cell.inputs.values())
        assert cell.key not in seen
        seen.add(cell.key)


def test_the_same_study_has_the_same_keys() -> None:
    assert keys(QUICK) == keys(QUICK)


def test_a_field_changes_what_depends_on_it_and_no_more() -> None:
    assert changed(QUICK.replace("  draws: 10", "  draws: 5")) == {"evaluate"}
    assert changed(QUICK.replace("2.0e-3", "1.0e-3")) == {"finetune", "evaluate", "attack"}
    assert changed(QUICK.replace("  size: 600", "  size: 900")) == {
        "tokenizer", "examples", "pretrain", "finetune", "evaluate", "attack",
    }  # fmt: skip
    assert changed(QUICK.replace("title: Stoch", "title: A stoch")) == set()


def test_two_studies_share_the_cells_that_are_the_same() -> None:
    longer = QUICK.replace("    - canonical\n", "    - canonical\n    - uniform\n", 1)
    mine, other = keys(QUICK), keys(longer)
    assert mine["pretrain canonical"] == other["pretrain canonical"]
    assert set(mine.values()) - set(other.values()) == {mine["examples"]}


def test_a_word_file_counts_by_its_words(tmp_path: Path) -> None:
    here, there = tmp_path / "a.txt", tmp_path / "b.txt"
    here.write_text("street\nhouse\n")
    there.write_text("street\nhouse\n")
    first, second = (
        plan(load_study(QUICK, "a", words_file=str(path)))[0].key for path in (here, there)
    )
    there.write_text("street\nwater\n")
    third = plan(load_study(QUICK, "a", words_file=str(there)))[0].key
    assert first == second != third


def test_an_empty_word_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("\n")
    with pytest.raises(RobustokError, match="no words"):
        plan(load_study(QUICK, "a", words_file=str(path)))
