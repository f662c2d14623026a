"""The pages of docs/results are those that today's code draws from results/."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.oracles.models import tiny_model
from tests.oracles.scripts import ROOT
from tests.report.test_merge import row

from experiments import keep, pages
from experiments.claims import RESULTS
from robustok import Vocabulary
from robustok.errors import RobustokError
from robustok.evaluation.comparison import difference
from robustok.evaluation.intervals import clustered, mean_of
from robustok.models import add_lora, load_model
from robustok.models.load import save_tokenizer
from robustok.report import Results
from robustok.report.frame import points_text
from robustok.report.source import read_source
from robustok.report.style import Row
from robustok.report.tables import kinds_section
from robustok.runtime.files import write_rows
from robustok.study.run import NAMES

MOST_BYTES = 16_000_000  # of results/

DRAWN = pages.pages()
KEPT = [run for runs in DRAWN.values() for run in runs]


@pytest.mark.parametrize("name", (*DRAWN, *pages.OF_ALL))
def test_a_page_is_what_today_s_code_draws_from_the_kept_results(name: str, tmp_path: Path) -> None:
    page = (pages.PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert page == pages.draw(name, tmp_path), f"run: python -m experiments draw {name}"
    shown = re.findall(r"\]\(figures/([^)]+)\)", page)
    assert len(shown) == len({*shown})
    assert {*shown} <= {figure.name for figure in tmp_path.iterdir()}
    assert all((pages.PAGES / "figures" / figure).is_file() for figure in shown)


# Differences on canonical questions that no page has: the run, and two trainings.
DIFFERENCES = (
    ("finetuning-curve-1500", "stochastok(alpha=1)", "uniform-k(alpha=1)"),
    ("finetuning-curve-1500", "canonical", "stochastok(alpha=1)"),
    ("finetuning-curve-1500", "canonical", "uniform-k(alpha=1)"),
    ("finetuning-table-strength", "canonical", "uniform"),
)


def bits_saved(eval_scheme: str) -> str:
    """By pre-training with `stochastok(0.1)`, per byte; the pages have the two sides of it."""
    by_seed: dict[str, list[float]] = {"canonical": [], "stochastok(alpha=0.1)": []}
    for one in read_source(pages.RESULTS / "tiny-llm-perplexity").rows:
        if one["eval_scheme"] == eval_scheme and one["train_scheme"] in by_seed:
            by_seed[one["train_scheme"]].append(one["bits_per_byte"])
    first, second = by_seed.values()
    mean, half = mean_of(np.subtract(second, first)[:, None])
    low, high = mean - half, mean + half
    return f"{mean[0]:.2f} [{low[0]:.2f}, {high[0]:.2f}]"


@pytest.mark.parametrize("name", ["README.md", "docs/training.md"])
def test_the_intervals_of_a_text_are_those_of_the_pages(name: str) -> None:
    """With either sign, as a gain or a loss."""

    def plain(text: str) -> str:
        return re.sub(r"\s+", " ", re.sub("[+%*]", "", text.replace("−", "-")))

    def negated(number: str) -> str:
        return number[1:] if number.startswith("-") else "-" * bool(float(number)) + number

    known = [page.read_text(encoding="utf-8") for page in pages.PAGES.glob("*.md")]
    known += [(ROOT / "docs/serving.md").read_text(encoding="utf-8")]
    known += [bits_saved("canonical"), bits_saved("uniform")]
    for run, before, after in DIFFERENCES:
        results = Results(read_source(pages.RESULTS / run).rows)
        first, second = (results.get(one, "canonical") for one in (before, after))
        assert first and second
        known.append(" ".join(points_text(difference(first, second))))
    shown = plain("\n".join(known))
    text = plain((ROOT / name).read_text(encoding="utf-8"))
    number = r"(-?\d+\.\d+)"
    found = re.findall(rf"{number}[a-z ]{{0,25}} \[{number}, {number}\]", text)
    assert found
    for mean, low, high in found:
        loss = f"{negated(mean)} [{negated(high)}, {negated(low)}]"
        assert f"{mean} [{low}, {high}]" in shown or loss in shown


def test_every_page_has_results_and_a_place_in_the_site() -> None:
    names = {page.stem for page in pages.PAGES.glob("*.md")}
    assert names == {*DRAWN, *pages.OF_ALL}
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f"results/{name}.md" in site for name in names)
    assert KEPT and len(KEPT) == len({*KEPT})
    assert {*KEPT} == {path.parent.name for path in pages.RESULTS.glob("*/run.json")}


def test_no_figure_is_left_from_a_page_that_is_gone() -> None:
    texts = [page.read_text(encoding="utf-8") for page in pages.PAGES.glob("*.md")]
    for figure in (pages.PAGES / "figures").iterdir():
        assert any(f"(figures/{figure.name})" in text for text in texts), figure.name


def test_the_kept_results_are_small() -> None:
    files = [path for path in pages.RESULTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    assert all(path.stat().st_size < 1_000_000 for path in files if "adapters" in path.parts)


@pytest.mark.parametrize("name", [n for n in KEPT if (pages.RESULTS / n / "study.json").exists()])
def test_accuracies_follow_from_the_kept_answers(name: str) -> None:
    rows = [one for one in read_source(pages.RESULTS / name).rows if "accuracy" in one]
    assert rows or name in ("bound-smollm2", "embeddings", "tiny-llm-perplexity")  # other measures
    for one in rows:
        answers = list(one["answers"].values())
        assert len(answers) == one["n"]
        wanted = one["accuracy"], one["low"], one["high"]
        assert clustered(answers, one["draws"]) == pytest.approx(wanted, abs=1e-4)
    assert all(one["answers"] for one in Results(rows).rows)


def test_a_run_is_kept_with_its_answers_and_joined_by_other_seeds(
    tmp_path: Path, monkeypatch: Any
) -> None:
    run = tmp_path / "run"
    (run / "items").mkdir(parents=True)

    def configuration(seed: int, draws: int = 3, data: int = 0) -> Row:
        inputs = {"data": {"seed": data}, "model": {"seed": seed}}
        trained = {"steps": 5, "lora": None, "inputs": inputs}
        return {"seed": seed, "draws": draws, "inputs": {"model": trained}}

    of = {"n": 2, "draws": 3, "cell": "evaluate-1", "configuration": configuration(0)}
    first = row("canonical", "canonical", 0.5, train_scheme="uniform", **of)
    (run / "results.jsonl").write_text(json.dumps(first) + "\n")
    items = [{"key": "a", "correct": 2 / 3}, {"key": "b", "correct": 1 / 3}]
    (run / "items/evaluate-1.jsonl").write_text("".join(json.dumps(one) + "\n" for one in items))
    (run / "study.json").write_text(json.dumps({"name": "own", "title": "Own"}))
    versions = dict.fromkeys(("robustok", "torch", "transformers"), "1")
    record = {"study": "own", "scale": "full", "seeds": [0], "versions": versions, "missing": []}
    (run / "run.json").write_text(json.dumps(record))
    for module in (keep, pages):
        monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    keep.keep(run, "own", "abc123")
    (kept,) = read_source(tmp_path / "results/own").rows
    assert kept["answers"] == {"a": 0.66667, "b": 0.33333}
    assert kept["configuration"]["inputs"]["model"].keys() == {"steps", "inputs"}
    text = pages.section("own", tmp_path / "figures", "Own: a figure")
    assert "at commit abc123" in text
    _, *bounds = clustered([0.66667, 0.33333], draws=3)
    assert [kept["low"], kept["high"]] == [float(f"{one:.8g}") for one in bounds]  # not the run's

    more = first | {"seed": 1, "cell": "evaluate-2", "configuration": configuration(1)}
    (run / "results.jsonl").write_text(json.dumps(more) + "\n")
    (run / "items/evaluate-1.jsonl").rename(run / "items/evaluate-2.jsonl")
    # The plan of this run names the cell of the other seed by another key, and one of a step.
    names = {name: first[name] for name in NAMES if name in first}
    planned = names | {"seed": 0, "cell": "evaluate-7"}
    of_step = planned | {"step": 5, "cell": "evaluate-8"}
    (run / "run.json").write_text(
        json.dumps(record | {"seeds": [1], "missing": [planned, of_step]})
    )
    keep.keep(run, "own", "def456")
    both = read_source(tmp_path / "results/own")
    assert [one["seed"] for one in both.rows] == [0, 1]
    assert both.record["seeds"] == [0, 1]
    assert both.record["missing"] == [of_step]
    keep.keep(run, "own", "def456")  # again changes nothing
    assert read_source(tmp_path / "results/own") == both
    assert "at commit abc123, def456" in pages.section("own", tmp_path / "figures", "Own: a figure")

    for name, settings in (
        (r"draws \(3 and 5\): merge runs", configuration(1, draws=5)),
        (r"inputs.model.inputs \(", configuration(1, data=7)),
    ):
        other = more | {"cell": "evaluate-3", "configuration": settings}
        (run / "results.jsonl").write_text(json.dumps(other) + "\n")
        with pytest.raises(SystemExit, match="differ in configuration." + name):
            keep.keep(run, "own")


def test_generated_questions_of_another_seed_do_not_join() -> None:
    """As those of a study with few-shot examples, whose questions are in `questions-0`."""
    of = {"seed": 0, "inputs": {"model": {"seed": 0}, "questions-0": {"seed": 0}}}
    first = row("canonical", "uniform", 0.5, configuration=of)
    trained = {"seed": 1, "inputs": {"model": {"seed": 1}, "questions-0": {"seed": 0}}}
    more = row("canonical", "uniform", 0.5, 1, configuration=trained)
    keep._check_same_settings([first], [more])
    other = {"seed": 1, "inputs": {"model": {"seed": 1}, "questions-0": {"seed": 7}}}
    with pytest.raises(SystemExit, match=r"inputs.questions-0.seed \(0 and 7\)"):
        keep._check_same_settings([first], [more | {"configuration": other}])


def test_questions_are_kept_once_and_read_for_every_row(tmp_path: Path) -> None:
    kinds = {"a": "x", "b": "y", "c": "x"}
    rows = [
        row("canonical", "uniform", 0.5, task=task, kinds={key: kinds[key] for key in answers})
        | {"cell": cell, "answers": answers}
        for cell, task, answers in (
            ("1", "blimp", {"a": 0.5, "b": 0.0}),
            ("2", "blimp", {"a": 1.0, "b": 0.2, "c": 0.4}),
            ("3", "blimp", {"c": 1.0, "a": 0.2}),
            ("4", "cute", {"b": 0.1}),
        )
    ]
    kept = keep._questions_once(rows)
    assert kept[0]["answers"] == [0.5, 0.0]
    assert [row["cell"] for row in kept if "kinds" in row] == ["2", "4"]
    assert kept[1]["kinds"] == ["x", "y", "x"]
    write_rows(tmp_path / "results.jsonl", kept)
    assert read_source(tmp_path).rows == rows
    write_rows(tmp_path / "results.jsonl", kept[:1])
    with pytest.raises(RobustokError, match=r"results\.jsonl has answers to questions without a"):
        read_source(tmp_path)


def test_a_kept_adapter_becomes_a_model_again(tmp_path: Path) -> None:
    base, run = tmp_path / "base", tmp_path / "run"
    tiny_model("llama", Vocabulary.load("demo").size).save_pretrained(base)
    save_tokenizer("demo", base)
    light = add_lora(load_model(base), seed=0)
    for name, weights in light.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, generator=torch.Generator().manual_seed(1))
    trained = run / "cells/finetune-1/model"
    light.save_pretrained(str(trained))
    (run / "study.json").write_text(json.dumps({"model": {"name": str(base)}}))
    record = {"fields": {"scheme": "uniform-k(alpha=1)", "seed": 2}}
    (trained.parent / "cell.json").write_text(json.dumps(record))
    keep._keep_adapters(run, tmp_path / "results/own")
    kept = tmp_path / "results/own/adapters/uniform-k-alpha=1-2"
    assert {path.name for path in kept.iterdir()} == {
        "adapter_config.json", "adapter_model.safetensors",
    }  # fmt: skip
    with pytest.raises(RobustokError, match=r"did you mean 'own/uniform-k-alpha=1-2'"):
        keep.restore_adapter("own/uniform-k-alpha=1-3", tmp_path / "x", tmp_path / "results")
    out = keep.restore_adapter("own/uniform-k-alpha=1-2", tmp_path / "m", tmp_path / "results")
    ids = torch.tensor([[1, 2, 3]])
    (trained / "adapter_config.json").write_text((kept / "adapter_config.json").read_text())
    same, wanted = (load_model(folder)(ids).logits for folder in (out, trained))
    assert torch.allclose(same, wanted, atol=0.05)
    assert not torch.allclose(same, load_model(base)(ids).logits, atol=0.05)
    assert (out / "tokenizer.json").is_file()


def test_attacked_questions_are_shown_by_kind() -> None:
    results = Results(read_source(RESULTS / "quick").rows)
    section = kinds_section(results)
    assert section is not None
    assert [table.head[0] for table in section.tables] == results.names
    for table in section.tables:
        row = results.get(table.head[0], results.attacks[0])
        assert row is not None
        asked = [row["kinds"][key] for key in row["answers"][row["seeds"][0]]]
        share = {line[0]: float(line[3].partition(" ")[0]) for line in table.texts}
        mean = sum(share[kind] for kind in asked) / len(asked)
        assert mean == pytest.approx(100 * row["accuracy"], abs=0.06)
