"""The order of a plan, and the keys of cells: every field enters, but those of no result."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.study.conftest import QUICK, TINY, tiny

from robustok.errors import RobustokError
from robustok.study import Cell, Study, find_study, load_study, models, plan
from robustok.study.inputs import (
    BenchmarkCell,
    CorpusCell,
    DataCell,
    External,
    external_model,
)
from robustok.study.models import BaseCell, FinetuneCell
from robustok.tasks import HUB


def keys(text: str) -> dict[str, str]:
    return {cell.label: cell.key for cell in plan(load_study(text, "a"))}


def changed(text: str) -> set[str]:
    before, after = keys(QUICK), keys(text)
    return {label.split()[0] for label in before if before[label] != after.get(label)}


# Perplexity before the fine-tuning is measured on the questions of all tasks.
TASKS = {"kind": "cute", "format": "short", "words": 40, "train": 64, "test": 12}
ON_QUESTIONS = tiny(other_tasks=[TASKS], perplexity={"eval_schemes": ["canonical"]})


@pytest.mark.parametrize("study", [load_study(QUICK, "a"), ON_QUESTIONS], ids=lambda one: one.name)
def test_every_cell_comes_after_its_inputs(study: Study) -> None:
    seen: set[str] = set()
    for cell in plan(study):
        assert all(other.key in seen for other in cell.inputs.values())
        assert cell.key not in seen
        seen.add(cell.key)


def test_a_field_changes_what_depends_on_it_and_no_more() -> None:
    assert changed(QUICK.replace("  draws: 10", "  draws: 5")) == {"evaluate"}
    assert changed(QUICK.replace("2.0e-3", "1.0e-3")) == {"finetune", "evaluate", "attack"}
    assert changed(QUICK.replace("  size: 600", "  size: 900")) == {
        "tokenizer", "pretrain", "finetune", "evaluate", "attack",
    }  # fmt: skip
    assert changed(QUICK.replace("  layers: 2\n", "  layers: 2\n  architecture: gpt2\n")) == {
        "pretrain", "finetune", "evaluate", "attack",
    }  # fmt: skip
    assert changed(QUICK.replace("  layers: 2\n", "  layers: 2\n  architecture: llama\n")) == set()
    assert changed(QUICK.replace("title: Stoch", "title: A stoch")) == set()


def test_an_ensemble_adds_a_column_and_keeps_the_keys_of_the_others() -> None:
    before = keys(QUICK)
    after = keys(QUICK.replace("  draws: 10", "  draws: 10\n  ensemble: 8"))
    assert before.items() < after.items()
    assert all("ensemble(" in label and "draws=8" in label for label in after.keys() - before)


def test_every_model_is_trained_from_every_base() -> None:
    text = QUICK.replace("  schemes: [canonical]", "  schemes: [canonical, uniform]", 1)
    cells = plan(load_study(text, "a"))
    kinds, labels = Counter(cell.kind for cell in cells), {cell.label for cell in cells}
    assert (kinds["pretrain"], kinds["finetune"], len(labels)) == (2, 2 * 4, len(cells))
    assert "finetune uniform, then canonical" in labels


def test_the_bound_of_a_model_is_computed_beside_benchmarks() -> None:
    study = tiny(task=None, pretrain=None, finetune=None, tokenizer=None, evaluate=None, bound={},
                 benchmarks={"names": ["copa"]},
                 model={"name": "smollm2-135m"} | dict.fromkeys(TINY["model"]))  # fmt: skip
    assert "bound" in {cell.kind for cell in plan(study, by_content=False)}


def test_a_word_file_counts_by_its_words(tmp_path: Path) -> None:
    def key(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return plan(load_study(QUICK, "a", words_file=str(tmp_path / name)))[0].key

    assert key("a.txt", "street\nhouse\n") == key("b.txt", "street\nhouse\n")
    assert key("a.txt", "street\nhouse\n") != key("b.txt", "street\nwater\n")
    with pytest.raises(RobustokError, match="no words"):
        key("empty.txt", "\n")


def test_first_repeat_adds_seeds_to_those_of_an_earlier_run() -> None:
    def keys(first: int, count: int) -> set[str]:
        study = load_study(QUICK, "a", first_repeat=first, repeats=count)
        return {cell.key for cell in plan(study)}

    first, others = keys(0, 1), keys(1, 2)
    assert first | others == keys(0, 3)
    shared = {cell.kind for cell in plan(load_study(QUICK, "a")) if cell.key in first & others}
    assert shared == {"data", "tokenizer"}  # the questions are those of seed 0


def test_text_counts_by_its_content(tmp_path: Path) -> None:
    text = QUICK.replace("  schemes: [canonical]", "  schemes: [canonical]\n  source: corpus", 1)
    text += "\ncorpus: {}\n"

    def key(name: str, content: str) -> str:
        (tmp_path / name).write_text(content)
        cells = plan(load_study(text, "a", corpus=(str(tmp_path / name),)))
        return next(cell.key for cell in cells if cell.kind == "pretrain")

    assert key("a.txt", "one text") == key("b.txt", "one text") != key("b.txt", "another")
    rows = '{"text": "one"}'  # of which a line is another document in a text file
    assert key("a.txt", rows) != key("a.jsonl", rows) == key("b.jsonl", rows)
    with pytest.raises(RobustokError, match="cannot be read"):
        plan(load_study(text, "a", corpus=(str(tmp_path / "none.txt"),)))


def test_text_to_train_on_is_read_only_where_a_model_is_trained_on_it() -> None:
    study = find_study("tiny-llm-perplexity")
    (trained,) = (c for c in plan(study, by_content=False) if isinstance(c, CorpusCell))
    assert study.corpus and study.corpus.hub and trained.text.documents == study.corpus.documents
    fields = {"model": {"name": "gpt2"}, "pretrain": None, "tokenizer": None}
    named = load_study(json.dumps(study.as_dict() | fields), "named")
    (measured,) = (c for c in plan(named, by_content=False) if isinstance(c, CorpusCell))
    assert (measured.text.documents, measured.text.measured) == (0, trained.text.measured)


def test_another_revision_of_the_hub_is_another_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    def keys(commit: str) -> set[str]:
        monkeypatch.setattr("robustok.study.inputs.pinned", lambda name, kind: f"{name}@{commit}")
        study = find_study("gpt2-xl-langgame")
        return {cell.key for cell in plan(study) if cell.kind in ("base", "tokenizer")}

    assert keys("a" * 40) == keys("a" * 40)
    assert not keys("a" * 40) & keys("b" * 40)


CELLS = plan(load_study(QUICK, "a"))


@pytest.mark.parametrize("cell", {cell.kind: cell for cell in CELLS}.values(), ids=lambda c: c.kind)
def test_every_number_and_text_of_a_cell_enters_its_key(cell: Cell) -> None:
    for field in dataclasses.fields(cell):  # type: ignore[arg-type]
        value = getattr(cell, field.name)
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            other = dataclasses.replace(cell, **{field.name: value * 2 + type(value)("1")})  # type: ignore
            same = field.name in ("repeat", "parameters")
            assert (other.key == cell.key) == same, field.name

    cell = next(cell for cell in CELLS if isinstance(cell, FinetuneCell))
    assert "schemes" not in cell.fields["options"]  # only its own


def test_the_place_of_a_file_does_not_enter_the_key() -> None:
    here, there = (BaseCell(External(name, "digest"), 1e6) for name in ("a", "b"))
    assert here.key == there.key != BaseCell(External("a", "other"), 1e6).key


@pytest.mark.parametrize("name", [
    "tokenizer.model", "adapter_config.json", "generation_config.json", "chat_template.jinja",
    "additional_chat_templates/tools.jinja",
])  # fmt: skip
def test_every_file_of_a_model_folder_that_is_read_enters_the_key(
    tmp_path: Path, name: str
) -> None:
    identities = set()
    for content in ("one", "other"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
        identities.add(external_model(str(tmp_path)).identity)
    assert len(identities) == 2


def test_the_base_of_lora_weights_enters_the_key(tmp_path: Path) -> None:
    base, lora = tmp_path / "base", tmp_path / "lora"
    base.mkdir()
    lora.mkdir()
    (lora / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    identities = set()
    for weights in (b"one", b"other"):
        (base / "model.safetensors").write_bytes(weights)
        identities.add(external_model(str(lora)).identity)
    assert len(identities) == 2
    (lora / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(lora)}))
    assert external_model(str(lora)).identity not in identities  # beside its base


def test_models_that_a_study_trains_are_measured_in_its_precision(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loaded: list[Any] = []
    monkeypatch.setattr(models, "load_model", lambda _, **options: loaded.append(options["dtype"]))
    name = {"name": "smollm2-135m"} | dict.fromkeys(TINY["model"])
    named = tiny(model={"dtype": "bfloat16"} | name, tokenizer=None, pretrain=None)
    for study in (named, tiny(model={"dtype": "bfloat16"})):
        for cell in plan(study, by_content=False):
            if isinstance(cell, models.ModelCell):
                cell.load(tmp_path)
    assert loaded == ["bfloat16"] * 4


def test_a_version_enters_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = BenchmarkCell("copa", 10).key
    monkeypatch.setattr(BenchmarkCell, "version", 2)
    assert BenchmarkCell("copa", 10).key != before
    assert DataCell("cute", 100, 8, 8, 0).version == 1


def test_the_commit_of_a_hub_benchmark_enters_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    text = QUICK + "benchmarks: {names: [copa], items: 10}\n"
    keys = set()
    for commit in ("a" * 40, "b" * 40):
        monkeypatch.setitem(HUB, "copa", HUB["copa"]._replace(revision=commit))
        (cell,) = (c for c in plan(load_study(text, "a")) if isinstance(c, BenchmarkCell))
        assert cell.hub_names == (f"aps/super_glue@{commit}",)
        keys.add(cell.key)
    assert len(keys) == 2
