"""What a cell's key depends on, and the order of a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustok.errors import RobustokError
from robustok.study import find_study, load_study, plan
from robustok.study.cells import FinetuneCell

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
    assert changed(QUICK.replace("  layers: 2\n", "  layers: 2\n  architecture: gpt2\n")) == {
        "pretrain", "finetune", "evaluate", "attack",
    }  # fmt: skip
    assert changed(QUICK.replace("  layers: 2\n", "  layers: 2\n  architecture: llama\n")) == set()
    assert changed(QUICK.replace("title: Stoch", "title: A stoch")) == set()


def test_two_studies_share_the_cells_that_are_the_same() -> None:
    longer = QUICK.replace("    - canonical\n", "    - canonical\n    - uniform\n", 1)
    first, other = keys(QUICK), keys(longer)
    assert first["pretrain canonical"] == other["pretrain canonical"]
    assert set(first.values()) - set(other.values()) == {first["examples"]}


def test_a_word_file_counts_by_its_words(tmp_path: Path) -> None:
    here, other = tmp_path / "a.txt", tmp_path / "b.txt"
    here.write_text("street\nhouse\n")
    other.write_text("street\nhouse\n")
    first, second = (
        plan(load_study(QUICK, "a", words_file=str(path)))[0].key for path in (here, other)
    )
    other.write_text("street\nwater\n")
    third = plan(load_study(QUICK, "a", words_file=str(other)))[0].key
    assert first == second != third


def test_an_empty_word_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("\n")
    with pytest.raises(RobustokError, match="no words"):
        plan(load_study(QUICK, "a", words_file=str(path)))


TWICE = QUICK.replace("seed: 0\n", "seed: 0\nrepeats: 2\n", 1)


def test_repeats_take_the_next_seeds_and_share_the_data() -> None:
    once, twice = plan(load_study(QUICK, "a")), plan(load_study(TWICE, "a"))
    assert {cell.key for cell in once} < {cell.key for cell in twice}
    assert sum(cell.kind == "data" for cell in twice) == 1
    assert {c.seed for c in twice if isinstance(c, FinetuneCell)} == {0, 1}


def test_every_model_is_trained_from_every_base() -> None:
    text = QUICK.replace("  schemes: [canonical]", "  schemes: [canonical, uniform]", 1)
    cells = plan(load_study(text, "a"))
    kinds = [cell.kind for cell in cells]
    assert kinds.count("pretrain") == 2
    assert kinds.count("finetune") == 2 * 4
    labels = {cell.label for cell in cells}
    assert "finetune uniform, then canonical" in labels
    assert len(labels) == len(cells)


def test_text_counts_by_its_content(tmp_path: Path) -> None:
    text = QUICK.replace("  schemes: [canonical]", "  schemes: [canonical]\n  source: corpus", 1)
    text += "\ncorpus: {}\n"
    here, other = tmp_path / "a.txt", tmp_path / "b.txt"
    here.write_text("one text")
    other.write_text("one text")

    def key(path: Path) -> str:
        cells = plan(load_study(text, "a", corpus=(str(path),)))
        return next(cell.key for cell in cells if cell.kind == "pretrain")

    assert key(here) == key(other)
    other.write_text("another")
    assert key(here) != key(other)
    with pytest.raises(RobustokError, match="cannot be read"):
        key(tmp_path / "none.txt")


def test_another_revision_of_the_hub_is_another_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    def keys(commit: str) -> set[str]:
        monkeypatch.setattr("robustok.models.hub.pinned", lambda name, kind: f"{name}@{commit}")
        study = find_study("gpt2-xl-langgame")
        return {cell.key for cell in plan(study) if cell.kind in ("base", "tokenizer")}

    assert keys("a" * 40) == keys("a" * 40)
    assert not keys("a" * 40) & keys("b" * 40)


def test_cell_keys_hash_the_first_names_of_training_options() -> None:
    cells = plan(load_study(QUICK, "a"))
    fields = next(cell.fields for cell in cells if cell.kind == "pretrain")
    assert {"warmup", "final_rate", "accumulate"} <= set(fields)
    assert not {"warmup_steps", "min_lr_ratio", "gradient_accumulation_steps"} & set(fields)
