"""Questions of files and benchmarks in a study, and what studies read from the hub."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.oracles.data import data_path
from tests.study.conftest import tiny

from robustok import RobustokError
from robustok.study import find_study, plan, studies
from robustok.study.inputs import BenchmarkCell, DataCell, external_file
from robustok.tasks import HUB, Item, frequent_words, langgame, read_items, write_items

ITEMS = langgame(frequent_words(500), 12, seed=9)
WITH_SCRIPT = ("ybisk/piqa", "allenai/social_i_qa")  # datasets 5 refuses them
UNPINNED = ("toksuite",)  # whose commit is not known here


def data_cell(folder: Path, train: list[Item], test: list[Item], name: str = "own") -> DataCell:
    paths = [folder / f"{name}-{split}.jsonl" for split in ("train", "test")]
    for path, items in zip(paths, (train, test), strict=True):
        write_items(path, items)
    data = {"train": str(paths[0]), "test": str(paths[1])}
    study = tiny(task={"train": 6, "test": 4, "data": data}, evaluate={"items": 4}, finetune=None)
    (cell,) = (c for c in plan(study) if isinstance(c, DataCell))
    cell.path(folder).mkdir(parents=True, exist_ok=True)
    return cell


def finished(cell: BenchmarkCell, folder: Path) -> BenchmarkCell:
    cell.path(folder).mkdir(parents=True)
    cell.run(folder, lambda *_: None)
    return cell


def test_the_first_questions_of_the_files_are_used(tmp_path: Path) -> None:
    cell = data_cell(tmp_path, ITEMS[:8], ITEMS[8:])
    assert cell.run(tmp_path, lambda *_: None)["train"] == 6
    assert cell.training_items(tmp_path) == ITEMS[:6]
    assert read_items(cell.path(tmp_path) / "test.jsonl") == ITEMS[8:]


def test_questions_that_are_trained_on_are_no_test(tmp_path: Path) -> None:
    again = Item("again", ITEMS[5].question, ITEMS[5].choices, ITEMS[5].label)
    cell = data_cell(tmp_path, ITEMS[:8], [*ITEMS[8:11], again])
    with pytest.raises(RobustokError, match=r"shares 1 question .* such as 'again'"):
        cell.run(tmp_path, lambda *_: None)
    # The seventh is in the file and not trained on.
    assert data_cell(tmp_path, ITEMS[:8], ITEMS[6:10]).run(tmp_path, lambda *_: None)["test"] == 4


def test_the_content_of_the_files_is_in_the_key(tmp_path: Path) -> None:
    first = data_cell(tmp_path, ITEMS[:8], ITEMS[8:])
    same = data_cell(tmp_path, ITEMS[:8], ITEMS[8:], name="elsewhere")
    other = data_cell(tmp_path, ITEMS[1:8], ITEMS[8:], name="other")
    assert first.key == same.key != other.key


def test_questions_that_the_name_of_the_file_words_are_others(tmp_path: Path) -> None:
    row = {"question": "Which?", "query": "The sky _ blue", "choices": ["is", "are"], "label": 0}
    keys, questions = set(), set()
    for name in ("winogrande.jsonl", "own.jsonl"):
        (tmp_path / name).write_text(json.dumps(row) + "\n")
        data = dict.fromkeys(("train", "test"), str(tmp_path / name))
        study = tiny(task={"train": 1, "test": 1, "data": data}, evaluate=None, finetune=None)
        (cell,) = (c for c in plan(study) if isinstance(c, DataCell))
        keys.add(cell.key)
        questions.add(read_items(tmp_path / name)[0].question)
    assert len(questions) == len(keys) == 2


def test_questions_that_cannot_be_used_are_an_error_before_anything_is_trained(
    tmp_path: Path,
) -> None:
    for train, test, message in (
        (ITEMS[:8], [ITEMS[8]] * 4, "of line 1: give each its own"),
        (ITEMS[:5], ITEMS[8:], "has 5 questions: task.train is 6, give less"),
    ):
        with pytest.raises(RobustokError, match=message):
            data_cell(tmp_path, train, test).run(tmp_path, lambda *_: None)


def test_the_examples_of_a_file_are_its_last_questions_whatever_the_number(tmp_path: Path) -> None:
    write_items(tmp_path / "own.jsonl", ITEMS[:5])
    file = external_file(tmp_path / "own.jsonl")
    for most in (1, None):
        cell = finished(BenchmarkCell("own", most, file, None, 2, own=True), tmp_path)
        items, examples = cell.test_and_examples(tmp_path, 2)
        assert (items, examples) == (ITEMS[:3][:most], ITEMS[3:5])
    with pytest.raises(RobustokError, match="'own' has 5 questions: too few for 5 few-shot"):
        finished(BenchmarkCell("own", 15, file, None, 5), tmp_path)


def test_examples_come_from_the_training_split_with_keys_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import datasets

    def load(path: str, config: str, split: str, revision: str) -> Any:
        rows = [{"goal": f"{split} {i}", "sol1": "a", "sol2": "b", "label": 1} for i in range(9)]
        return datasets.Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", load)
    cell = finished(BenchmarkCell("piqa", 5, None, HUB["piqa"].revision, 3), tmp_path)
    items, examples = cell.test_and_examples(tmp_path, 3)
    assert [item.question for item in items] == [f"validation {i}" for i in range(5)]
    assert [item.question for item in examples] == [f"train {i}" for i in range(3)]
    assert len({item.key for item in items + examples}) == 8


def test_every_start_of_blimp_has_all_paradigms(tmp_path: Path) -> None:
    file = external_file(data_path("benchmarks", "blimp.jsonl"))
    cell = finished(BenchmarkCell("blimp", 134, file), tmp_path)
    items, _ = cell.test_and_examples(tmp_path, 0)
    counts = Counter(item.kind for item in items)
    assert (len(counts), set(counts.values())) == (67, {2})


def test_every_name_on_the_hub_has_its_commit() -> None:
    cells = [cell for name in studies() for cell in plan(find_study(name), by_content=False)]
    names = {name for cell in cells for name in cell.hub_names}
    assert "Qwen/Qwen3-0.6B" in {name.partition("@")[0] for name in names}
    names |= {one.name for one in HUB.values() if not one.name.startswith(UNPINNED)}
    for name in names:
        if not name.startswith(UNPINNED):
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", name), name
        assert name.partition("@")[0] not in WITH_SCRIPT


def test_each_seed_shows_other_training_questions(tmp_path: Path) -> None:
    cell = DataCell("langgame", 60, 7, 4, seed=0, format="short")
    cell.path(tmp_path).mkdir(parents=True)
    cell.run(tmp_path, lambda *_: None)
    train = cell.training_items(tmp_path)
    shown = [cell.test_and_examples(tmp_path, 3, seed)[1] for seed in range(3)]
    assert shown == [train[:3], train[3:6], [train[6], *train[:2]]]
    assert cell.test_and_examples(tmp_path, 3)[1] == shown[0]
