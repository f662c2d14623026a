"""The order of a plan, the keys of cells, and questions of files and benchmarks in a study."""

import dataclasses
import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.oracles.data import data_path
from tests.study.conftest import QUICK, TINY, tiny

from robustok.errors import RobustokError
from robustok.study import Cell, Study, find_study, load_study, models, plan, studies
from robustok.study.inputs import (
    BenchmarkCell,
    CorpusCell,
    DataCell,
    External,
    HubText,
    external_file,
    external_model,
)
from robustok.study.measurements import MeasuredCell
from robustok.study.models import BaseCell, FinetuneCell
from robustok.tasks import HUB, Item, frequent_words, langgame, read_items, write_items


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


def test_the_bound_has_no_few_shot_examples_and_is_measured_once() -> None:
    few_shot = "few_shot: {examples: 2, schemes: [canonical, uniform]}"
    cells = plan(load_study(f"{QUICK}\n{few_shot}\nbound: {{attack: false}}\n", "a"))
    bounds = [cell for cell in cells if isinstance(cell, MeasuredCell) and cell.kind == "bound"]
    assert len(bounds) == len({cell.model.key for cell in bounds}) == 4
    assert all(cell.few_shot is None for cell in bounds)


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
    of_pattern = set()
    for content in ("one", "two", "two"):
        (tmp_path / "b.txt").write_text(content)
        (corpus,) = (c for c in plan(load_study(text, "a", corpus=(f"{tmp_path}/*.txt",)))
                     if isinstance(c, CorpusCell))  # fmt: skip
        of_pattern.add(corpus.key)
    assert len(of_pattern) == 2
    with pytest.raises(RobustokError, match="no such file or folder, and no file matches it"):
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


def test_files_of_sentences_alone_are_not_attacked(tmp_path: Path) -> None:
    pair = Item("p", "", (" one sentence", " one sentences"), 0)
    write_items(tmp_path / "pairs.jsonl", [pair])
    write_items(tmp_path / "games.jsonl", ITEMS[:2])
    study = tiny(benchmarks={"folder": str(tmp_path)}, attacks=[{"items": 2}])
    tasks: dict[str, set[str]] = {}
    for cell in plan(study):
        tasks.setdefault(cell.kind, set()).add(getattr(cell, "task", ""))
    assert (tasks["evaluate"], tasks["attack"]) == (
        {"langgame", "games", "pairs"}, {"langgame", "games"}
    )  # fmt: skip


def test_a_compressed_file_of_questions_has_the_name_of_its_benchmark(tmp_path: Path) -> None:
    rows = '{"question": "Odd?", "choices": ["1", "2"], "label": 0}\n'
    files = [tmp_path / "games.jsonl", tmp_path / "games.jsonl.gz"]
    files[0].write_text(rows)
    files[1].write_bytes(gzip.compress(rows.encode()))
    names = set()
    for path in files:
        (cell,) = (c for c in plan(tiny(questions={"items": str(path)}))
                   if isinstance(c, BenchmarkCell))  # fmt: skip
        names.add((cell.task, read_items(path)[0].key))
    assert names == {("games", "games-1")}
    with pytest.raises(RobustokError, match="no benchmark 'arc_esy': did you mean 'arc_easy'"):
        plan(tiny(questions={"items": "arc_esy"}))


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
    row = {"question": "The sky _ blue", "choices": ["is", "are"], "label": 0}
    keys, questions = set(), set()
    for name in ("winogrande.jsonl", "own.jsonl"):
        (tmp_path / name).write_text(json.dumps(row) + "\n")
        data = dict.fromkeys(("train", "test"), str(tmp_path / name))
        study = tiny(
            task={"train": 1, "test": 1, "data": data}, finetune=None, evaluate={"items": 1}
        )
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


def test_text_of_a_hub_out_of_reach_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any, **__: Any) -> None:
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr("datasets.load_dataset", load)
    with pytest.raises(RobustokError, match="text 'org/text': connect, or give files"):
        next(HubText(1, 1, "org/text@main").training())


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
