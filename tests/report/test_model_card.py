"""The study of a model that exists: what it measures, its report, and its README.md."""

import re
import shutil
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from robustok import RobustokError
from robustok.cli.app import run
from robustok.models import Shape, add_lora, load_model, small_model, train_tokenizer
from robustok.models.load import Lora
from robustok.report.figures import Panel, draw_bars
from robustok.report.readme import write_readme
from robustok.runtime.files import write_json, write_rows
from robustok.runtime.inputs import read_rows
from robustok.runtime.records import write_record
from robustok.study import find_study, load_study, plan, studies
from robustok.tasks import Item, frequent_words, write_items

COPA = "aps/super_glue"  # which the benchmark copa is from
SHAPE = Shape(layers=1, width=16, heads=2, kv_heads=2, feed_forward=32, max_length=160)
SMALL = (
    ("test: 100", "test: 6"),
    ("items: 100", "items: 4"),
    ("draws: 5", "draws: 3"),
    ("items: 10, max_scored: 80", "items: 3, max_scored: 4"),
    ("threads: 1 ", "threads: null "),
)


def small_card_yaml() -> str:
    text = studies()["model-card"]
    for old, new in SMALL:
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama, saved as any model of transformers."""
    folder = tmp_path_factory.mktemp("models") / "random-llama"
    tokenizer = train_tokenizer([" ".join(frequent_words(200))] * 3, 500)
    small_model(tokenizer.get_vocab_size(), SHAPE, seed=0, end_id=0).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def folder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a card's run, with a local benchmark."""
    place = tmp_path_factory.mktemp("cards")
    (place / "card.yaml").write_text(small_card_yaml())
    (place / "own").mkdir()
    items = [{"id": f"q{i}", "question": f"Is {i} even?", "choices": [" yes", " no"],
              "label": i % 2} for i in range(5)]  # fmt: skip
    write_rows(place / "own/evenness.jsonl", items)
    copa = [Item(f"c{i}", f"It rained on day {i}. effect?", (" It was wet.", " It was dry."), i % 2)
            for i in range(4)]  # fmt: skip
    write_items(place / "own/copa.jsonl", copa)
    with (place / "printed.txt").open("w", encoding="utf-8") as out, redirect_stdout(out):
        assert run([
            "study", "run", str(place / "card.yaml"), "--model", str(model),
            "--benchmarks", str(place / "own"), "--out", str(place / "run"),
        ]) == 0  # fmt: skip
    return place / "run"


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return read_rows(folder / "results.jsonl")


def test_every_task_is_measured_and_shown_on_a_page_that_fetches_nothing(folder: Path) -> None:
    rows, page = rows_of(folder), (folder / "report.html").read_text(encoding="utf-8")
    accuracies = [row for row in rows if "accuracy" in row]
    schemes = {row["eval_scheme"] for row in accuracies}
    assert {(row["task"], row["eval_scheme"]) for row in accuracies} == {
        (task, scheme) for task in ("langgame", "cute", "evenness", "copa") for scheme in schemes
    }
    assert [row["texts"] for row in rows if "perplexity" in row] == [6 + 6 + 4 + 4] * 4
    text = (folder / "report.md").read_text(encoding="utf-8")
    for row in accuracies:
        assert f"{100 * row['accuracy']:.1f} | {100 * row['low']:.1f} to " in text
    assert 'src="http' not in page
    assert "<script" not in page
    assert page.count('<div class="scroll" tabindex="0"') == page.count("<table>")
    assert 'src="data:image/svg+xml' in page


def test_the_accuracies_are_printed_at_the_end(folder: Path) -> None:
    printed = (folder.parent / "printed.txt").read_text(encoding="utf-8")
    row = next(row for row in rows_of(folder) if row.get("task") == "evenness")
    (line,) = (one for one in printed.splitlines() if one.startswith("random-llama, evenness "))
    low, high = 100 * row["low"], 100 * row["high"]
    assert row["eval_scheme"] == "canonical"
    assert f"{100 * row['accuracy']:.1f} [{low:.1f}, {high:.1f}]" in line
    assert printed.splitlines().index(line) < printed.splitlines().index(
        f"The report is at {folder / 'report.html'}"
    )


def test_a_readme_with_metadata_is_beside_the_weights(folder: Path, model: Path) -> None:
    _, block, text = (model / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    metadata = yaml.safe_load(block)
    assert metadata["library_name"] == "transformers" and "base_model" not in metadata
    (index,) = metadata["model-index"]
    assert index["name"] == "random-llama"
    metrics = {
        (result["dataset"]["type"], metric["name"]): metric["value"]
        for result in index["results"]
        for metric in result["metrics"]
    }
    worst = {key: metrics.pop(key) for key in [*metrics] if key[1].startswith("accuracy, worst of")}
    assert {task for task, _ in worst} == {"langgame", "cute", "evenness", COPA}
    assert metrics == {
        (COPA if row["task"] == "copa" else row["task"], f"{name}, {row['eval_scheme']}"): round(
            row[name], 4
        )
        for row in rows_of(folder)
        for name in ("accuracy", "consistency")
        if name in row and row["eval_scheme"] in ("canonical", "stochastok(alpha=1)")
    }  # what the table of the page has
    assert text.lstrip().startswith("# random-llama\n\n```python\nimport transformers\n")
    assert text.count("| evenness |") == 1 and str(model.parent) not in text
    for image in re.findall(r"!\[.*\]\((.*)\)", text):
        assert (model / image).is_file()


def test_accuracies_on_benchmarks_of_the_hub_are_where_the_hub_reads_them(
    folder: Path, model: Path
) -> None:
    entries = yaml.safe_load((model / ".eval_results/robustok.yaml").read_text(encoding="utf-8"))
    read = [
        (entry.dataset_id, entry.task_id, entry.value, str(entry.notes).rpartition(": ")[2])
        for entry in parse_eval_result_entries(entries)
    ]
    shown = ("canonical", "stochastok(alpha=1)")  # and the worst attack, as the page's table
    rows = [
        row
        for row in rows_of(folder)
        if row.get("task") == "copa" and "accuracy" in row and row["eval_scheme"] in shown
    ]
    expected = [(COPA, "copa", round(100 * r["accuracy"], 2), r["eval_scheme"]) for r in rows]
    assert read[: len(expected)] == expected
    assert [notes[:9] for *_, notes in read[len(expected) :]] == ["worst of "]


def test_a_readme_of_another_stays(folder: Path, model: Path, tmp_path: Path) -> None:
    run_folder, weights = tmp_path / "run", tmp_path / "weights"
    shutil.copytree(folder, run_folder)
    shutil.copytree(model, weights)
    rows = [row | {"model": {"name": str(weights)}} for row in rows_of(folder)]
    write_json(weights / "training.json", {"base_model": "org/base"})
    assert write_readme(rows, run_folder) == weights / "README.md"  # its own is replaced
    own = (weights / "README.md").read_text(encoding="utf-8")
    assert "\nbase_model: org/base\n" in own
    for other in ("# Mine\n", own.replace("## Robustness", "## My robustness", 1)):
        (weights / "README.md").write_text(other, encoding="utf-8")
        assert write_readme(rows, run_folder) == run_folder / "README.md"
        assert (weights / "README.md").read_text(encoding="utf-8") == other
    (run_folder / "README.md").write_text("# Mine\n")
    assert write_readme(rows, run_folder) is None


def test_lora_weights_get_the_readme_in_place_of_pefts_blanks(
    folder: Path, model: Path, tmp_path: Path
) -> None:
    run_folder, weights = tmp_path / "run", tmp_path / "weights"
    shutil.copytree(folder, run_folder)
    lora = add_lora(load_model(str(model)), Lora(rank=2), seed=0)
    lora.save_pretrained(str(weights))
    rows = [row | {"model": {"name": str(weights)}} for row in rows_of(folder)]
    blanks = (weights / "README.md").read_text(encoding="utf-8")
    assert "base_model:adapter:" in blanks and "# Model Card for Model ID" in blanks
    write_json(weights / "training.json", {"base_model": "org/base"})
    for _ in range(2):  # the second time it replaces its own
        assert write_readme(rows, run_folder) == weights / "README.md"
        _, block, text = (weights / "README.md").read_text(encoding="utf-8").split("---\n", 2)
        metadata = yaml.safe_load(block)
        assert (metadata["library_name"], metadata["base_model"]) == ("peft", "org/base")
        assert "## Robustness " in text and "Model ID" not in text
    filled = blanks.replace("[More Information Needed]", "LangGame", 1)
    (weights / "README.md").write_text(filled, encoding="utf-8")
    assert write_readme(rows, run_folder) == run_folder / "README.md"


def test_each_group_has_the_line_of_its_chance_where_they_differ() -> None:
    interval: dict[str, Any] = {"accuracy": 0.5, "low": 0.4, "high": 0.6, "seeds": [0]}
    panels = [
        Panel(name, {"m": "m"}, {"0": "0", "worst": "worst"},
              {("m", "0"): interval | {"chance": 0.25},
               ("m", "worst"): interval | {"chance": last}},
              {"m": "#000000"}, "splits")
        for name, last in (("alike", 0.26), ("other", 0.375))
    ]  # fmt: skip
    alike, other = draw_bars(panels).axes[:2]
    lines: Any = other.collections
    (line,) = alike.get_lines()
    assert np.asarray(line.get_ydata())[0] == pytest.approx(25.5)
    segments = [tuple(line.get_segments()[0].flat) for line in lines
                if line.get_linestyle()[0][1]]  # fmt: skip
    assert segments == [(-0.5, 25.0, 0.5, 25.0), (0.5, 37.5, 1.5, 37.5)]


def test_the_start_token_of_another_model_is_that_of_its_fine_tuning_or_tokenizer(
    model: Path, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    token = next(iter(t.content for t in tokenizer.get_added_tokens_decoder().values()))
    number = tokenizer.token_to_id(token)
    tokenizer.post_processor = TemplateProcessing(f"{token} $A", special_tokens=[(token, number)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert find_study("model-card", model=str(tmp_path)).model.start_token == token
    assert find_study("model-card", model=str(model)).model.start_token is None
    tokenizer.post_processor = TemplateProcessing(f"$A {token}", special_tokens=[(token, number)])
    (tmp_path / "ending").mkdir()
    tokenizer.save(str(tmp_path / "ending" / "tokenizer.json"))
    assert find_study("model-card", model=str(tmp_path / "ending")).model.start_token is None
    record = tmp_path / "training.json"
    write_record(record, {"identity": {"prefix": None}})
    assert find_study("model-card", model=str(tmp_path)).model.start_token is None
    (tmp_path / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
    write_record(record, {"identity": {"prefix": [number]}})
    assert find_study("model-card", model=str(tmp_path)).model.start_token == token
    text = studies()["model-card"] + "\ntokenizer: {name: smollm2-135m}\n"
    assert load_study(text, "card").tokenizer
    assert load_study(text, "card", model=str(model)).tokenizer is None
    named = find_study("model-card", model="smollm2-135m")
    assert named == find_study("model-card")


def test_two_tasks_of_one_name_and_a_model_for_a_study_of_its_own_are_one_line() -> None:
    twice = small_card_yaml().replace("kind: cute", "kind: langgame")
    with pytest.raises(RobustokError, match="two tasks are called 'langgame'"):
        plan(load_study(twice, "card"), by_content=False)
    with pytest.raises(RobustokError, match="leave model out"):
        find_study("quick", model="smollm2-135m")
