"""Repeats and runs merged, and ours beside the paper's, against numbers worked out by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from robustok.errors import RobustokError
from robustok.evaluation import intervals
from robustok.evaluation.comparison import clear_differences, difference
from robustok.evaluation.intervals import Z95
from robustok.report import Results, write_report
from robustok.report.figures import heat_panels, learning_curve, strength_panels
from robustok.report.frame import (
    mean_over_seeds,
    merged_layers,
    merged_perplexities,
)
from robustok.report.tables import accuracy_table, kinds_section, paper_section, perplexity_section
from robustok.runtime.files import write_rows

ATTACK = "adversarial(distances=(2), start=canonical, steps=10)"


def row(pretrain: str, scheme: str, accuracy: float, seed: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "study": "s", "scale": "full", "pretrain_scheme": pretrain, "train_scheme": "canonical",
        "eval_scheme": scheme,
        "accuracy": accuracy, "low": accuracy - 0.02 * Z95, "high": accuracy + 0.02 * Z95, "n": 100,
        "draws": 1, "seed": seed, "seconds": 1.0, "chance": 0.25,
        "cell": f"{pretrain}{scheme}{seed}",
    } | more  # fmt: skip


@pytest.mark.parametrize("seeds", [3, 8])
def test_the_interval_over_seeds_covers_the_mean(seeds: int) -> None:
    """Models differ with sd 0.03; all share questions that move them with sd 0.02."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        accuracies = 0.5 + rng.normal(0, 0.02) + rng.normal(0, 0.03, seeds)
        rows = [row("canonical", "uniform", float(a), s) for s, a in enumerate(accuracies)]
        _, low, high = mean_over_seeds(pd.DataFrame(rows), "accuracy", 100)
        covered += low <= 0.5 <= high
    assert 0.92 * 200 <= covered <= 0.99 * 200
    (one,) = Results(rows).rows
    assert (one["low"], one["high"]) == (pytest.approx(low), pytest.approx(high))


def test_two_seeds_have_the_quantile_of_one_degree_of_freedom() -> None:
    exact = {"low": 0.0, "high": 0.0}
    rows = [row("canonical", "uniform", a, s) | exact for s, a in enumerate((0.50, 0.51))]
    (one,) = Results(rows).rows
    assert one["high"] - one["accuracy"] == pytest.approx(12.706 * 0.005, rel=1e-3)


def test_the_interval_over_seeds_is_that_of_their_answers() -> None:
    rng = np.random.default_rng(0)
    answers = rng.binomial(3, 0.7, (3, 40)) / 3
    rows: list[dict[str, Any]] = [
        answered("uniform", seed, {str(i): x for i, x in enumerate(own.tolist())}) | {"draws": 3}
        for seed, own in enumerate(answers)
    ]
    (one,) = Results(rows).rows
    wanted = intervals.over_seeds(answers, draws=3)
    assert (one["accuracy"], one["low"], one["high"]) == pytest.approx(wanted)
    answers = {key: right for key, right in rows[1]["answers"].items() if key != "7"}
    rows[1] = rows[1] | {"answers": answers}
    (other,) = Results(rows).rows  # of other questions, so from the intervals of the seeds
    assert other["low"] != pytest.approx(wanted[1], abs=1e-3)


def answered(scheme: str, seed: int, rights: dict[str, float]) -> dict[str, Any]:
    mean = sum(rights.values()) / len(rights)
    return row("canonical", scheme, mean, seed) | {"answers": rights}


def test_equal_changes_of_few_questions_are_not_certain() -> None:
    before = {"answers": {0: {"a": 0.0, "b": 0.0}}}
    after = {"answers": {0: {"a": 1.0, "b": 1.0}}}
    change = difference(before, after)
    assert (change.mean, change.high) == (1.0, 1.0)
    assert not change.is_clear
    many = {str(i): 1.0 for i in range(30)}
    assert difference({"answers": {0: dict.fromkeys(many, 0.0)}}, {"answers": {0: many}}).is_clear


def test_holm_steps_end_at_the_first_difference_that_is_not_clear() -> None:
    def shifted(by: float) -> dict[str, Any]:
        return {"accuracy": 0.5 + by, "low": 0.46 + by, "high": 0.54 + by, "n": 1000}

    first = shifted(0.0)
    pairs = {by: (first, shifted(by)) for by in (0.0, 0.062, 0.2, 0.068)}
    kept = clear_differences(pairs)
    assert list(kept) == [0.2]  # 0.068 is clear alone, and with one other, but not with two
    assert list(clear_differences({0.068: pairs[0.068], 0.2: pairs[0.2]})) == [0.068, 0.2]
    assert kept[0.2].high - kept[0.2].low > 0.14  # an interval for four at once


def model_row(name: str, accuracy: float = 0.5, seed: int = 0, **more: Any) -> dict[str, Any]:
    model = {"name": name, "parameters": 7}
    return row("canonical", "canonical", accuracy, seed, model=model, cell=f"{name}{seed}") | more


FEW_SHOT: dict[str, Any] = {"few_shot_scheme": "canonical", "training": "pre-training"}


@pytest.mark.parametrize(("rows", "names"), [
    ([row("canonical", "canonical", 0.5)] * 2, ["canonical"]),  # one cell of two runs
    ([row(name, "canonical", 0.5) for name in ("canonical", "uniform")],
     ["canonical → canonical", "uniform → canonical"]),
    ([model_row("runs/a/model"), model_row("b")], ["model → canonical", "b → canonical"]),
    ([model_row("runs/a/model"), model_row("runs/b/model")],
     ["a/model → canonical", "b/model → canonical"]),
    ([row("canonical", "uniform", 0.5, train_scheme=t, cell=t, **FEW_SHOT)
      for t in ("canonical", "uniform")], ["canonical → canonical", "uniform → canonical"]),
])  # fmt: skip
def test_models_that_differ_are_no_seeds_and_have_names(
    rows: list[dict[str, Any]], names: list[str]
) -> None:
    results = Results(rows)
    assert results.names == names
    assert [one["seeds"] for one in results.rows] == [[0]] * len(names)


def test_two_results_of_one_seed_are_no_repeats() -> None:
    rows = [row("canonical", "uniform", a, cell=str(a)) for a in (0.5, 0.6)]
    with pytest.raises(RobustokError, match="two results of 'canonical' on uniform have the seed"):
        Results(rows)


LAYER = {"model": "canonical", "sentence": "", "layer": 0, "low": 0.3, "high": 0.5, "words": 9}


@pytest.mark.parametrize("measured", [
    {"accuracy": 0.5, "low": 0.4, "high": 0.6, "n": 9},
    {"perplexity": 9.0, "bits_per_byte": 1.0},
    {"layers": [LAYER | {"mean": 0.4}]},
])  # fmt: skip
def test_results_of_other_settings_or_of_one_seed_are_no_repeats(
    measured: dict[str, Any], tmp_path: Path
) -> None:
    """Of every measurement. Two folders of a command have models of one name, the last part."""

    def write(seed: int, weights: str) -> Path:
        folder = tmp_path / f"{seed}{weights}"
        folder.mkdir(exist_ok=True)
        names = {"pretrain_scheme": "canonical", "train_scheme": "canonical", "training": ""}
        model = {"name": "model", "parameters": 7}
        used = {"seed": seed, "inputs": {"model": {"model": {"identity": weights}, "seed": seed}}}
        own = {"eval_scheme": "uniform", "seed": seed, "cell": folder.name, "configuration": used}
        write_rows(folder / "results.jsonl", [names | own | measured | {"model": model}])
        return folder

    first = write(0, "ab")
    write_report(first, [write(1, "ab")], out=tmp_path / "both")
    differing = r"'model( → canonical)?' on uniform differ in configuration.inputs.model.model.ide"
    with pytest.raises(RobustokError, match=differing):
        write_report(first, [write(1, "cd")], out=tmp_path / "other")
    again = tmp_path / "again"
    again.mkdir()
    text = (first / "results.jsonl").read_text().replace('"0ab"', '"1ab"')
    (again / "results.jsonl").write_text(text)
    with pytest.raises(RobustokError, match="on uniform have the seed 0: merge runs"):
        write_report(first, [again], out=tmp_path / "other")


def test_seeds_of_other_precisions_are_merged_and_the_page_says_which(tmp_path: Path) -> None:
    rows = [
        row("canonical", scheme, 0.5, seed, precision="float32" if seed > 2 else "bfloat16")
        for seed in range(5) for scheme in ("canonical", "uniform")
    ]  # fmt: skip
    write_rows(tmp_path / "results.jsonl", rows)
    text = write_report(tmp_path).with_name("report.md").read_text()
    assert text.count("Some seeds were computed in bfloat16, others in float32.") == 1
    assert [len(one["seeds"]) for one in Results(rows).rows] == [5, 5]


def test_a_cell_that_two_studies_share_is_shown_for_both() -> None:
    shared = [row("canonical", "canonical", 0.9, cell="x", study=name) for name in ("one", "two")]
    rows = [*shared, row("canonical", "uniform", 0.6, cell="y", study="one")]
    one, two = accuracy_table(Results(rows)).texts
    assert one[1].startswith("90.0") and one[2].startswith("60.0")
    assert two[1].startswith("90.0") and two[2] == "not run"


def test_an_accuracy_of_fewer_seeds_than_others_of_its_model_says_so() -> None:
    rows = [row("canonical", "canonical", 0.9, seed) for seed in range(3)]
    ((_, canonical, attacked),) = accuracy_table(
        Results([*rows, row("canonical", ATTACK, 0.2)])
    ).texts
    assert "seed" not in canonical
    assert attacked.startswith("20.0 [16.1, 23.9] (1 seed)")


def test_schemes_of_one_strength_have_a_group_each() -> None:
    schemes = ("canonical", "stochastok(alpha=0)", "stochastok(alpha=0.5)",
               "stochastok(alpha=0.5, ways=3)", "stochastok(alpha=1)")  # fmt: skip
    results = Results([row("canonical", scheme, 0.5) for scheme in schemes])
    assert [scheme for _, scheme in results.splits()] == [schemes[0], *schemes[2:]]
    (panel,) = strength_panels(results)
    assert [*panel.groups.values()] == ["0", "stochastok\n0.5", "stochastok\n0.5\n3 ways", "1"]


def test_distances_in_a_sentence_are_not_the_papers() -> None:
    table = {"measure": "embeddings", "columns": ["0"],
             "rows": [{"train_scheme": "canonical", "values": [1.2]}]}  # fmt: skip
    rows = [
        row("canonical", "embeddings", 0.5, cell=sentence, layers=[LAYER | measured])
        | {"eval_scheme": f"embeddings {sentence}"}
        for sentence, mean in (("", 0.4), ("I said {word}.", 0.01))
        for measured in [{"mean": mean, "sentence": sentence}]
    ]
    section = paper_section({"where": "F", "tables": [table]}, rows)
    assert section and section.tables[0].lines == [["0", "0.400 / 1.200"]]


def test_layers_stand_beside_the_papers_at_the_same_depth() -> None:
    table = {"measure": "embeddings", "columns": ["0", "1", "2", "3", "4"],
             "rows": [{"train_scheme": "canonical", "values": [5, 4, 3, 2, 1]}]}  # fmt: skip
    layers = [LAYER | {"layer": layer, "mean": 0.1 * layer} for layer in range(3)]
    section = paper_section(
        {"where": "F", "tables": [table]}, [row("canonical", "embeddings", 0.5, layers=layers)]
    )
    assert section and section.tables[0].lines == [
        ["0 / 0", "0.000 / 5.000"], ["1 / 2", "0.100 / 3.000"], ["2 / 4", "0.200 / 1.000"],
    ]  # fmt: skip


def test_subsets_of_which_no_seed_has_both_schemes_have_no_difference() -> None:
    def on(scheme: str, seed: int, *keys: str) -> dict[str, Any]:
        own = {key: {"a": "x", "b": "y"}[key] for key in keys}
        answers = dict.fromkeys(keys, 1.0)
        return row("canonical", scheme, 0.5, seed, task="blimp", kinds=own, answers=answers)

    base = on("canonical", 0, "a", "b")
    assert kinds_section(Results([base, on("uniform", 1, "a", "b")])) is None
    section = kinds_section(Results([base, on("uniform", 0, "a")]))
    assert section and section.tables[0].lines[1] == ["y", "1", "100.0", "not run"]


@pytest.mark.parametrize("field", ["study", "model"])
def test_other_measurements_of_two_studies_or_models_are_not_averaged(field: str) -> None:
    values = ("one", "two") if field == "study" else ({"name": "one"}, {"name": "two"})
    names = {"pretrain_scheme": "canonical", "train_scheme": "canonical", "eval_scheme": "uniform"}
    rows = [
        names | {field: value, "seed": 0, "cell": f"{kind}{n}"} | measured
        for n, value in enumerate(values, 1)
        for kind, measured in {
            "text": {"perplexity": 10.0 * n, "bits_per_byte": 1.0, "training": ""},
            "layers": {"layers": [LAYER | {"mean": 0.1 * n}]},
        }.items()
    ]
    named = ["one → canonical", "two → canonical"]
    perplexities, layers = merged_perplexities(rows), merged_layers(rows)
    assert perplexities["name"].tolist() == ["one", "two"]  # models that no study trained
    assert layers["model"].tolist() == named
    assert perplexities["perplexity"].tolist() == pytest.approx([10, 20])
    assert layers["mean"].tolist() == pytest.approx([0.1, 0.2])


def test_repeats_have_the_mean_and_of_perplexities_the_geometric_one() -> None:
    names = {"pretrain_scheme": "canonical", "train_scheme": "canonical", "eval_scheme": "uniform"}
    rows = [
        names | {"seed": seed, "perplexity": value, "bits_per_byte": 1.0, "cell": str(seed)}
        for seed, value in enumerate((10.0, 40.0))
    ]
    (one,) = merged_perplexities(rows).to_dict("records")
    assert (one["perplexity"], one["lowest"], one["highest"]) == pytest.approx((20, 10, 40))
    section = perplexity_section(Results(rows))
    assert section and section.tables[0].texts == [
        ["canonical", "20.0 [10.0, 40.0], 1.000 bits/byte"]
    ]


def test_the_last_step_of_a_curve_has_the_task_of_the_others() -> None:
    ends = {"configuration": {"inputs": {"model": {"options": {"steps": 5}}}}, "task": "langgame"}
    rows = [
        row("canonical", "uniform", 0.5, step=2, **ends),
        row("canonical", "uniform", 0.6, **ends) | {"cell": "last"},
        row("canonical", "uniform", 0.7, **ends) | {"cell": "other", "task": "copa"},
        row("canonical", "uniform", 0.8, task="langgame") | {"cell": "one more", "study": "other"},
    ]
    points = [(point["name"], point["step"], point["accuracy"]) for point in learning_curve(rows)]
    assert points == [("canonical", 2, 0.5), ("canonical", 5, 0.6)]


def test_tasks_have_panels_and_pretrained_models_are_bars(tmp_path: Path) -> None:
    schemes = ("canonical", "stochastok(alpha=0.5)")
    rows = [
        row(scheme, asked, 0.5, task=task, train_scheme=scheme, training="pre-training",
            splits=splits if asked != "canonical" else 0.0, cell=f"{task}{scheme}{asked}")
        for task, splits in (("copa", 0.2), ("piqa", 0.4))
        for scheme in schemes for asked in schemes
    ]  # fmt: skip
    first, second = strength_panels(Results(rows))
    assert (first.title, second.title) == ("copa", "piqa")
    assert list(first.series) == list(schemes)
    assert [list(panel.groups.values())[-1] for panel in (first, second)] == [
        "0.20\nα 0.5", "0.40\nα 0.5",
    ]  # fmt: skip
    assert "measured splits" in first.axis
    unmeasured = [r | {"splits": float("nan")} for r in rows]
    assert strength_panels(Results(unmeasured))[0].axis.startswith("α of the scheme")


def test_a_heat_map_of_many_tasks_has_a_row_for_each() -> None:
    rows = [
        row("canonical", "uniform", 0.5, task=f"task-{i}", train_scheme=scheme, cell=f"{i}{scheme}")
        for i in range(10) for scheme in ("canonical", "uniform")
    ]  # fmt: skip
    panels = heat_panels(Results(rows))
    assert [panel.title for panel in panels] == ["canonical", "uniform"]
    assert (len(panels[0].series), len(panels[0].groups)) == (10, 1)


PAPER = {
    "where": "Figure 9",
    "claims": ["It works."],
    "tables": [
        {
            "measure": "accuracy",
            "columns": ["canonical", "adversarial(start=canonical)", "uniform"],
            "rows": [
                {"pretrain_scheme": None, "train_scheme": "canonical", "values": [52.0, 10.0, None]}
            ],
        }
    ],
}


def test_ours_stand_beside_the_papers() -> None:
    rows = [row("canonical", "canonical", 0.5), row("canonical", ATTACK, 0.2)]
    section = paper_section(PAPER, rows)
    assert section
    (table,) = section.tables
    assert table.head == ["fine-tuned", "canonical", "attack d = 2", "uniform"]
    assert table.lines == [
        ["canonical", "50.0 [46.1, 53.9] / 52.0 (−2.0)", "20.0 [16.1, 23.9] / 10.0 (+10.0)",
         "not run / –"]
    ]  # fmt: skip


def test_a_smaller_model_is_not_subtracted_from_the_papers() -> None:
    section = paper_section(PAPER, [row("canonical", "canonical", 0.5, scale="cpu")])
    assert section
    (table,) = section.tables
    assert table.lines[0][1] == "50.0 [46.1, 53.9] / 52.0"
    assert "of a larger model" in table.note


def test_runs_are_merged_into_one_report_and_the_paper_compared_with_its_own(
    tmp_path: Path,
) -> None:
    model = {"parameters": 7, "layers": 1, "width": 2, "architecture": "llama"}
    runs = (("a", 0, 0.4), ("a", 1, 0.6), ("b", 0, 0.9))
    for folder, (name, seed, accuracy) in zip("012", runs, strict=True):
        (tmp_path / folder).mkdir()
        own = row("canonical", "canonical", accuracy, seed, study=name, cell=folder, model=model)
        write_rows(tmp_path / folder / "results.jsonl", [own])
        study = {"name": name, "title": "T", "paper": PAPER}
        (tmp_path / folder / "study.json").write_text(json.dumps(study))
    others = [tmp_path / "1", tmp_path / "2"]
    page = write_report(tmp_path / "0", others, out=tmp_path / "both")
    text = page.with_name("report.md").read_text()
    assert "seeds 0, 1" in text
    assert "all seeds share. Those of one seed cover the questions only." in text
    assert "| a → canonical | canonical | 50.0 |" in text
    assert re.search(r"\| canonical \| 50.0 \[[^]]*\] / 52.0", text)
