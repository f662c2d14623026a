"""The report says what the rows say, in one file that fetches nothing."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from robustok.cli.app import run
from robustok.errors import RobustokError
from robustok.report import merged, write, write_report
from robustok.report.accuracies import accuracy_table, versus_canonical
from robustok.report.paper import beside_paper
from robustok.report.sources import read_source
from robustok.report.statements import findings
from robustok.report.style import colors
from robustok.report.table import Results

ATTACK = "adversarial(distances=(2), start=canonical, steps=10)"
ACCURACY = {"canonical": 0.95, "stochastok(alpha=0.5)": 0.7, "uniform": 0.4, ATTACK: 0.25}


def row(train: str, query: str, accuracy: float) -> dict[str, Any]:
    return {
        "study": "quick", "train": train, "query": query, "accuracy": accuracy,
        "low": accuracy - 0.03, "high": accuracy + 0.03, "n": 200, "draws": 10, "seed": 0,
        "seconds": 2.5, "chance": 0.25, "versions": {"robustok": "0"},
        "model": {"architecture": "llama", "layers": 3, "width": 128, "heads": 4,
                  "parameters": 700_000, "training_seconds": 60.0},
    }  # fmt: skip


ROWS = [row("canonical", query, share) for query, share in ACCURACY.items()] + [
    row("uniform-k(alpha=1)", query, 0.95 - 0.02 * i) for i, query in enumerate(ACCURACY)
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    study = {"name": "quick", "title": "A <title> & more", "about": "What it is."}
    (tmp_path / "study.json").write_text(json.dumps(study))
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ROWS))
    examples = tmp_path / "cells" / "examples-0"
    examples.mkdir(parents=True)
    shown = [{"text": "a <b>", "scheme": "canonical", "draws": [["a ", "<b>"], ["a", " \xe2"]]}]
    (examples / "examples.json").write_text(json.dumps(shown))
    return tmp_path


def test_findings_are_the_differences_of_the_rows() -> None:
    numbers = [finding.number for finding in findings(Results(merged(ROWS)))]
    assert numbers == ["−55.0", "+51.0", "+64.0"]


def test_a_difference_whose_interval_holds_zero_is_no_finding() -> None:
    close = [r | {"accuracy": 0.5 + 0.01 * i, "low": 0.4, "high": 0.6} for i, r in enumerate(ROWS)]
    assert findings(Results(merged(close))) == []


def test_the_best_of_several_schemes_says_so_and_is_corrected() -> None:
    schemes = [f"stochastok(alpha={i})" for i in range(1, 9)]
    base = [row("canonical", "canonical", 0.9), row("canonical", "uniform", 0.5)]
    lucky = [row(s, "uniform", 0.5 + (0.055 if s == schemes[3] else 0.0)) for s in schemes]
    found = [finding.text for finding in findings(Results(merged(base + lucky)))]
    assert not any("instead of canonical" in text for text in found)  # p = 0.011 times 8
    alone = [finding.text for finding in findings(Results(merged([*base, lucky[3]])))]
    assert any("instead of canonical" in text for text in alone)
    better = [row(s, "uniform", 0.7) for s in schemes]
    found = [finding.text for finding in findings(Results(merged(base + better)))]
    assert any("the best of 8" in text for text in found)


def test_findings_about_examples_speak_of_examples_and_of_one_task() -> None:
    rows = [
        row("canonical", query, share) | {"context": context, "task": task}
        for task, worse, loss in (("copa", 0.0, 0.3), ("piqa", -0.2, 0.4))
        for context, better in (("canonical", 0.0), ("uniform", 0.1 + worse / 5))
        for query, share in (("canonical", 0.8), ("uniform", 0.8 - loss + better))
    ]
    texts = [finding.number + " " + finding.text for finding in findings(Results(merged(rows)))]
    assert texts == [
        "2 of 2 tasks change from canonical questions to uniformly drawn questions, with canonical "
        "few-shot examples: copa −30.0 [−34.3, −25.7]; piqa −40.0 [−44.9, −35.1]",
        "2 of 2 tasks gain on uniformly drawn questions, with uniform instead of canonical "
        "few-shot examples, one seed: copa +10.0 [+5.1, +14.9]; piqa +6.0 [+1.7, +10.3]",
    ]
    one = [r for r in rows if r["task"] == "copa"]
    texts = [finding.number + " " + finding.text for finding in findings(Results(merged(one)))]
    assert texts == [
        "−30.0 points [−34.3, −25.7] from canonical questions to uniformly drawn questions, with "
        "canonical few-shot examples (80.0% to 50.0%)",
        "+10.0 points [+5.7, +14.3] on uniformly drawn questions, with uniform few-shot examples "
        "instead of canonical few-shot examples, one seed (60.0% against 50.0%)",
    ]


def test_the_first_sentence_is_of_the_configuration_that_was_run() -> None:
    from robustok.report.about import about
    from robustok.study import find_study

    study = find_study("finetuning-table", scale="cpu").model_dump(mode="json")
    text = about(study, ROWS)
    assert "Llama" not in text
    assert "1,200 steps of 64, with 11 schemes" in text
    small = about(find_study("llama-adversarial", scale="small").model_dump(mode="json"), [])
    assert small.startswith("The model is smollm2-135m, with the start token <|endoftext|>.")
    assert small.endswith("Intervals cover the 3 seeds, and the questions, which all seeds share.")
    assert text.endswith(
        "There is one seed: intervals cover the choice of questions, not the training."
    )


def test_the_table_has_accuracies_and_changes_that_add_up() -> None:
    head, lines = accuracy_table(Results(merged(ROWS)))
    assert head == ["fine-tuned", "canonical", "uniform", "attack d = 2"]
    assert [entry["text"] for entry in lines[0]] == ["canonical", "95.0", "40.0", "25.0"]
    assert lines[0][2]["interval"] == "[37.0, 43.0]"
    assert lines[0][2]["change"] == "−55.0 [−59.3, −50.7] from 95.0"


def test_an_attack_is_compared_on_the_questions_that_it_attacked() -> None:
    plain = {f"q{i}": float(i >= 20) for i in range(200)}  # 160 of 180 right, and 90 of 100
    attacked = {f"q{i}": float(i >= 60) for i in range(100)}
    rows = [
        row("canonical", "canonical", 0.9) | {"answers": plain},
        row("canonical", ATTACK, 0.4) | {"answers": attacked, "n": 100},
    ]
    (line,) = accuracy_table(Results(merged(rows)))[1]
    assert line[1]["text"] == "90.0"
    assert line[2]["text"] == "40.0"
    assert line[2]["change"].startswith("−40.0 [") and line[2]["change"].endswith("] from 80.0")


def test_differences_to_canonical_training_are_marked_where_holm_keeps_them() -> None:
    base = row("canonical", "uniform", 0.5)
    near, far = row("stochastok(alpha=1)", "uniform", 0.55), row("uniform", "uniform", 0.9)
    head, lines = versus_canonical(Results(merged([base, near, far])))
    assert head == ["minus canonical", "canonical", "uniform"]
    assert [line[2].endswith("*") for line in lines] == [True, True]
    more = [row(f"uniform-k(alpha={i})", "uniform", 0.5) for i in range(1, 9)]
    lines = versus_canonical(Results(merged([base, near, far, *more])))[1]
    assert [line[2].endswith("*") for line in lines[:2]] == [False, True]


def test_differences_between_few_shot_examples_are_not_called_training() -> None:
    rows = [row(context, "uniform", 0.5) for context in ("canonical", "uniform")]
    assert write._versus_title(Results(merged(rows))) == {}
    rows = [r | {"context": r["train"]} for r in rows]
    title = write._versus_title(Results(merged(rows)))["versus"]
    assert title == "Difference to canonical few-shot examples"


def test_report_writes_the_table_of_readme(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "table.md"
    assert run(["report", str(folder), "--table", str(path)]) == 0
    assert path.read_text().splitlines() == [
        "| fine-tuned | canonical | uniform | attack d = 2 |",
        "| --- | --: | --: | --: |",
        "| canonical | 95.0 [92.0, 98.0] | 40.0 [37.0, 43.0] | 25.0 [22.0, 28.0] |",
        "| uniform-k(alpha=1) | 95.0 [92.0, 98.0] | 91.0 [88.0, 94.0] | 89.0 [86.0, 92.0] |",
    ]


def test_several_searches_of_a_suite_count_a_question_once(folder: Path) -> None:
    (folder / "items").mkdir()
    rows = [{"key": "a", "search": "greedy", "success": True},
            {"key": "a", "search": "random", "success": False},
            {"key": "b", "search": "greedy", "success": False},
            {"key": "b", "search": "random", "success": False}]  # fmt: skip
    (folder / "items" / "c.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    one = row("canonical", "standard-suite(query_budget=9)", 0.5) | {"cell": "c"}
    (folder / "results.jsonl").write_text(json.dumps(one) + "\n")
    assert read_source(folder).rows[0]["answers"] == {"a": 0.0, "b": 1.0}


def test_a_value_that_was_not_run_says_so() -> None:
    rows = [r for r in ROWS if (r["train"], r["query"]) != ("canonical", "uniform")]
    assert accuracy_table(Results(merged(rows)))[1][0][2]["text"] == "not run"


def test_the_page_is_one_file_with_every_number(folder: Path) -> None:
    page = write_report(folder).read_text()
    assert "A &lt;title&gt; &amp; more" in page
    assert "&lt;b&gt;" in page and "·&lt;E2&gt;" not in page and "&lt;20&gt;&lt;E2&gt;" in page
    assert "−55.0" in page
    assert page.count("<tr>") == 3 + len(ROWS) + 2 + 1
    fetched = re.findall(r'(?:src|href|srcset)="([^"]*)"', page)
    assert fetched and all(url.startswith("data:image/svg+xml;base64,") for url in fetched)
    assert "@import" not in page and "url(" not in page


def test_the_figures_exist_in_three_forms(folder: Path) -> None:
    write_report(folder)
    for name in ("teaser", "heatmap"):
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (folder / "figures" / f"{name}.svg").read_text()
    with (folder / "figures" / "teaser.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [(r["query"], float(r["accuracy"])) for r in read[:2]] == [
        ("canonical", 0.95), ("stochastok(alpha=0.5)", 0.7),
    ]  # fmt: skip


def test_the_same_rows_give_the_same_bytes(folder: Path) -> None:
    files = ("report.html", "report.md", "figures/teaser.png", "figures/heatmap.svg")
    write_report(folder)
    first = [(folder / name).read_bytes() for name in files]
    write_report(folder)
    assert [(folder / name).read_bytes() for name in files] == first


def test_the_markdown_has_every_row(folder: Path) -> None:
    write_report(folder)
    text = (folder / "report.md").read_text()
    assert text.startswith("# A <title> & more\n")
    assert sum(line.startswith(("| canonical |", "| uniform-k")) for line in text.splitlines()) == (
        len(ROWS) + 3
    )
    assert (folder / "figures/teaser.png").exists() and "(figures/teaser.png)" in text


def test_a_folder_without_results_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RobustokError, match=r"has no results\.jsonl"):
        write_report(tmp_path)


def test_two_strengths_of_a_scheme_have_two_colors() -> None:
    result = colors(["canonical", "stochastok(alpha=0.1)", "stochastok(alpha=1)", "mine"])
    assert len(set(result)) == 4


def test_rows_open_in_pandas_and_datasets_in_one_line(folder: Path) -> None:
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    path = str(folder / "results.jsonl")
    table = pandas.read_json(path, lines=True)
    for name in ("train", "query"):
        assert table[name].tolist() == [r[name] for r in ROWS]
    assert table["accuracy"].tolist() == pytest.approx([r["accuracy"] for r in ROWS])
    rows = datasets.load_dataset(
        "json", data_files=path, split="train", cache_dir=str(folder / "cache")
    )
    assert rows["accuracy"][:] == [r["accuracy"] for r in ROWS]


def test_an_ensemble_is_a_column_of_the_report(folder: Path) -> None:
    query = "ensemble(uniform, draws=8)"
    more = [row(train, query, 0.8) for train in ("canonical", "uniform-k(alpha=1)")]
    with (folder / "results.jsonl").open("a") as file:
        file.write("".join(json.dumps(r) + "\n" for r in more))
    page = write_report(folder).read_text()
    assert "ensemble(uniform, draws=8)" in page


def test_a_table_of_the_paper_has_its_note(tmp_path: Path) -> None:
    from robustok.study import find_study

    study = find_study("tiny-llm-langgame").model_dump(mode="json")
    rows = [row("canonical", "canonical", 0.5) | {"pretrain": "canonical"}]
    tables = beside_paper(study, rows)
    assert [table["note"].split(".")[0] for table in tables] == [
        "Figure 2, left panel", "Figure 2, right panel", "The grid in the appendix",
    ]  # fmt: skip
    _, right, grid = tables
    values = {line[1]: [cell.split("/ ")[1] for cell in line[2:]] for line in right["lines"]}
    assert values["stochastok(alpha=0.1)"] == ["81.4", "81.1", "80.8", "79.3", "73.9"]
    assert values["stochastok(alpha=0.5)"] == ["78.0", "78.5", "78.8", "78.6", "78.1"]
    assert grid["lines"][0][2].startswith("50.0 [")
    (teaser,) = find_study("teaser").paper.tables  # type: ignore[union-attr]
    assert "not plain StochasTok" in teaser.note
