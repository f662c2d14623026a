"""Questions of files in a study, instead of generated ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.study.conftest import tiny

from robustok import RobustokError
from robustok.study import plan
from robustok.study.cells.inputs import BenchmarkCell, DataCell, external_file
from robustok.tasks import Item, frequent_words, langgame, read_items, write_items

ITEMS = langgame(frequent_words(500), 12, seed=9)


def data_cell(folder: Path, train: list[Item], test: list[Item], name: str = "own") -> DataCell:
    paths = [folder / f"{name}-{split}.jsonl" for split in ("train", "test")]
    for path, items in zip(paths, (train, test), strict=True):
        write_items(path, items)
    data = {"train": str(paths[0]), "test": str(paths[1])}
    study = tiny(task={"train": 6, "test": 4, "data": data}, evaluate={"items": 4}, finetune=None)
    (cell,) = (c for c in plan(study) if isinstance(c, DataCell))
    return cell


def test_the_first_questions_of_the_files_are_used(tmp_path: Path) -> None:
    cell = data_cell(tmp_path, ITEMS[:8], ITEMS[8:])
    cell.path(tmp_path).mkdir(parents=True)
    assert cell.run(tmp_path, lambda *_: None)["train"] == 6
    assert cell.training_items(tmp_path) == ITEMS[:6]
    assert read_items(cell.path(tmp_path) / "test.jsonl") == ITEMS[8:]


def test_the_content_of_the_files_is_in_the_key(tmp_path: Path) -> None:
    first = data_cell(tmp_path, ITEMS[:8], ITEMS[8:])
    same = data_cell(tmp_path, ITEMS[:8], ITEMS[8:], name="elsewhere")
    other = data_cell(tmp_path, ITEMS[1:8], ITEMS[8:], name="other")
    assert first.key == same.key != other.key


def test_two_test_questions_of_one_key_are_an_error_before_anything_is_trained(
    tmp_path: Path,
) -> None:
    cell = data_cell(tmp_path, ITEMS[:8], [ITEMS[8]] * 4)
    cell.path(tmp_path).mkdir(parents=True)
    with pytest.raises(RobustokError, match="two items have the key"):
        cell.run(tmp_path, lambda *_: None)


def test_a_benchmark_has_more_questions_than_examples(tmp_path: Path) -> None:
    write_items(tmp_path / "own.jsonl", ITEMS[:5])
    benchmark = BenchmarkCell("own", 15, external_file(tmp_path / "own.jsonl"))
    benchmark.path(tmp_path).mkdir(parents=True)
    benchmark.run(tmp_path, lambda *_: None)
    items, examples = benchmark.test_and_examples(tmp_path, 4)
    assert {item.key for item in items}.isdisjoint(item.key for item in examples)
    for count in (5, 10):
        with pytest.raises(RobustokError, match=rf"own has 5 questions: .* is {count}, give less"):
            benchmark.test_and_examples(tmp_path, count)


def test_too_few_questions_are_one_line(tmp_path: Path) -> None:
    cell = data_cell(tmp_path, ITEMS[:5], ITEMS[8:])
    cell.path(tmp_path).mkdir(parents=True)
    with pytest.raises(RobustokError, match=r"has 5 questions: task.train is 6, give less"):
        cell.run(tmp_path, lambda *_: None)
