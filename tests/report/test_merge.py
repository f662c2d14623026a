"""Repeats and runs merged, ours beside the paper's, and first lines, against numbers by hand."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustok.errors import RobustokError
from robustok.evaluation import intervals
from robustok.evaluation.comparison import clear_differences, difference
from robustok.evaluation.intervals import Z95
from robustok.report import Results, write_report
from robustok.report.figures import (
    attack_panels,
    draw_heatmap,
    heat_panels,
    learning_curve,
    strength_panels,
)
from robustok.report.frame import (
    mean_over_seeds,
    merged_layers,
    merged_perplexities,
    percent,
    points_text,
)
from robustok.report.tables import (
    accuracy_table,
    kinds_section,
    measurement_section,
    paper_section,
    perplexity_section,
)
from robustok.report.write import answer_lines, where
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


def test_an_attack_that_two_runs_share_is_one_attack() -> None:
    attacks = [answered(name, 0, {"a": 1.0, "b": 0.0}) for name in (ATTACK, "adversarial(steps=3)")]
    first, second = (one | {"n_scored": 9} for one in attacks)
    assert Results([first, dict(first)]).attacks == [ATTACK]
    *_, worst = Results([first, second, dict(second)]).rows
    assert (worst["eval_scheme"], worst["n_scored"]) == ("worst of 2 attacks", 18)


def test_the_worst_of_attacks_is_over_runs_whose_trainings_took_other_times() -> None:
    """Of a model by its name: each run trained the same one, in a time of its own."""
    attacks = {ATTACK: {"a": 1.0, "b": 0.0}, "adversarial(steps=3)": {"a": 0.0, "b": 1.0}}
    rows = [
        answered(name, 0, rights) | {"model": {"name": None, "training_seconds": float(seconds)}}
        for seconds, (name, rights) in enumerate(attacks.items())
    ]
    *_, worst = Results(rows).rows
    assert (worst["eval_scheme"], worst["accuracy"]) == ("worst of 2 attacks", 0.0)


def test_the_worst_of_attacks_is_over_seeds_whose_attacks_ran_in_another_order() -> None:
    names = [ATTACK, "adversarial(steps=3)"]
    rows = [
        answered(name, seed, {"a": 1.0, "b": 0.0}) | {"configuration": {"attack": name}}
        for seed, order in enumerate([names, names[::-1]])
        for name in order
    ]
    *_, worst = Results(rows).rows
    assert (worst["eval_scheme"], worst["seeds"]) == ("worst of 2 attacks", [0, 1])


def test_canonical_questions_of_an_attack_have_its_answers_and_not_its_seconds() -> None:
    start = {"start_accuracy": 1.0, "start_low": 0.3, "start_high": 1.0}
    attack = answered(ATTACK, 0, {"a": 1.0, "b": 0.0}) | start | {"seconds": 60.0}
    results = Results([attack | {"start_answers": {"a": 1.0, "b": 1.0}}])
    canonical = results.get("canonical", "canonical")
    assert canonical is not None and canonical["accuracy"] == 1.0
    section = measurement_section(results)
    assert section is not None
    assert [line[-1] for line in section.tables[0].texts] == ["60.0", ""]


def test_the_curve_ends_at_the_interval_of_the_table_and_a_text_is_shown_once(
    tmp_path: Path,
) -> None:
    """Four questions of two seeds; of the merged folders one has both cells, one the first."""
    step = {"ids": [5], "n_scored": 1, "score": -1.5, "log_probs": []}
    attack = {
        "fields": {}, "steps": [step], "score": -1.5, "canonical_score": -1.5, "n_scored": 9,
        "canonical_ids": [5], "canonical_tokens": ["up"], "tokens": ["up"],
    }  # fmt: skip
    rows = [answered(ATTACK, seed, dict.fromkeys("abcd", 0.0) | {"d": 1.0}) for seed in range(2)]
    for folder, own in (("one", rows[:1]), ("two", rows)):
        (tmp_path / folder / "items").mkdir(parents=True)
        kept = [{name: value for name, value in one.items() if name != "answers"} for one in own]
        write_rows(tmp_path / folder / "results.jsonl", kept)
        for one in own:
            items = [
                attack | {"key": key, "text": f"text {key}", "success": not right}
                | {"reached_at": None if right else 7}
                for key, right in one["answers"].items()
            ]  # fmt: skip
            write_rows(tmp_path / folder / "items" / f"{one['cell']}.jsonl", items)
    page = write_report(tmp_path / "one", [tmp_path / "two"], out=tmp_path / "both")
    curve = pd.read_csv(tmp_path / "both/figures/curve.csv")
    (merged,) = Results(rows).rows
    ends = {"accuracy": 0.25, "low": merged["low"], "high": merged["high"]}
    assert curve.iloc[-1][[*ends]].to_dict() == pytest.approx(ends)
    shown = re.findall("text [a-d]", page.with_name("report.md").read_text())
    assert sorted(shown) == ["text a", "text b", "text d"]


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


def test_what_another_run_has_is_not_missing(tmp_path: Path) -> None:
    rows = [row("canonical", scheme, 0.5) for scheme in ("canonical", "uniform")]
    names = {name: rows[1][name] for name in ("pretrain_scheme", "eval_scheme", "seed", "cell")}
    other = names | {"cell": "of another model"}
    for folder, own, missing in (("0", rows[:1], [names, other]), ("1", rows, [other])):
        (tmp_path / folder).mkdir()
        write_rows(tmp_path / folder / "results.jsonl", own)
        (tmp_path / folder / "run.json").write_text(json.dumps({"missing": missing}))
    write_report(tmp_path / "0", [tmp_path / "1"], out=tmp_path / "both")
    text = (tmp_path / "both" / "report.md").read_text()
    assert "2 of 3 measurements are finished" in text


SCHEMES = ("canonical", "uniform", ATTACK)


def trained(accuracies: dict[str, tuple[float, ...]], seeds: int = 3) -> list[dict[str, Any]]:
    """Rows of trainings with narrow intervals, an accuracy for each of `SCHEMES`."""
    return [
        row(
            "canonical",
            scheme,
            share,
            seed,
            train_scheme=train,
            low=share - 0.01,
            high=share + 0.01,
        )
        for train, shares in accuracies.items()
        for scheme, share in zip(SCHEMES, shares, strict=True)
        for seed in range(seeds)
    ]


def existing(**trained_with: str) -> list[dict[str, Any]]:
    """Rows of models that exist, by their name and the scheme of their training."""
    shares = zip(SCHEMES, (0.8, 0.4, 0.1), strict=True)
    measured = [row("canonical", scheme, share, training="") for scheme, share in shares]
    return [
        one | {"train_scheme": spec, "model": {"name": f"runs/{name}", "parameters": 7}}
        for name, spec in trained_with.items()
        for one in measured
    ]


def test_the_attack_of_most_runs_is_in_the_sentence() -> None:
    shares = {"canonical": (0.99, 0.28, 0.0), "uniform": (0.92, 0.75, 0.32)}
    rows = trained(shares)
    other = next(r for r in rows if r["eval_scheme"] == SCHEMES[-1])
    more = other | {"eval_scheme": "adversarial(distances=(2, 4))", "cell": "more"}
    lines = answer_lines(Results([*rows, more]))
    assert any(line.startswith("Under attack d = 2 0.0% → 32.0%") for line in lines)


def test_trainings_are_compared_with_the_canonical_one() -> None:
    shares = {"canonical": (0.99, 0.28, 0.0), "uniform": (0.92, 0.75, 0.32)}
    head, *lines = answer_lines(Results(trained(shares)))
    assert "canonical training → with other training," in head
    assert [re.sub(r" \[[^]]*\]", "", line) for line in lines] == [
        "Under uniform draws 28.0% → 75.0%: +47.0 points.",
        "Under attack d = 2 0.0% → 32.0%: +32.0 points.",
        "On canonical questions 99.0% → 92.0%: −7.0 points.",
    ]


def test_of_several_schemes_the_ends_are_named_and_what_is_undecided() -> None:
    shares = {
        "canonical": (0.99, 0.28, 0.0),
        "uniform": (0.92, 0.75, 0.32),
        "uniform-k(alpha=1)": (0.989, 0.89, 0.62),
    }
    head, drawn, attacked, canonical = answer_lines(Results(trained(shares)))
    assert "(2 schemes)" in head
    assert drawn.startswith("Under uniform draws 28.0% → 75.0 to 89.0%: +47.0 [")
    assert "] (uniform) to +61.0 [" in drawn and drawn.endswith("] (uniform-k 1) points.")
    assert "undecided" not in attacked
    assert canonical.endswith("points; undecided: uniform-k 1.")


def test_fewer_than_three_seeds_decide_nothing() -> None:
    shares = {"canonical": (0.99, 0.28, 0.0), "uniform": (0.92, 0.75, 0.32)}
    for seeds in (1, 2):
        lines = answer_lines(Results(trained(shares, seeds)))[1:]
        assert len(lines) == 3 and all(line.endswith("points; undecided.") for line in lines)


def test_differences_are_over_the_seeds_that_both_trainings_have() -> None:
    shares = {"canonical": (0.99, 0.28, 0.0), "uniform": (0.92, 0.75, 0.32)}
    rows = [one for one in trained(shares) if one["train_scheme"] == "canonical" or not one["seed"]]
    lines = answer_lines(Results(rows))[1:]
    end = "points over the seeds that both have; undecided."
    assert len(lines) == 3 and all(line.endswith(end) for line in lines)


@given(st.tuples(*[st.floats(0.05, 0.95)] * 4))
def test_the_numbers_are_those_of_the_rows(shares: tuple[float, ...]) -> None:
    names = ("canonical", "uniform", "stochastok(alpha=1)", "uniform-k(alpha=1)")
    rows = trained({name: (share,) * 3 for name, share in zip(names, shares, strict=True)})
    results = Results(rows)
    for scheme, line in zip(
        ("uniform", ATTACK, "canonical"), answer_lines(results)[1:], strict=True
    ):
        own = {name: results.get(name, scheme) for name in names}
        base: Any = own.pop("canonical")
        changes = [difference(base, other) for other in own.values() if other]
        for end in (min, max):
            assert " ".join(points_text(end(changes, key=lambda change: change.mean))) in line
            assert percent(end(shares[1:])) in line
        assert f" {percent(shares[0])}% → " in line


def test_models_that_exist_have_their_accuracies_by_name() -> None:
    results = Results(existing(a="as published", b="uniform-k(alpha=1)"))
    assert results.names == ["a", "b (uniform-k(alpha=1))"]
    lines = answer_lines(results)
    pattern = (
        r"{}: 80.0% on canonical questions → 40.0% under uniform draws \(−40.0 \[[^]]+\] points\) "
        r"→ 10.0% under attack d = 2 \(−70.0 \[[^]]+\] points\)\."
    )
    for name, line in zip(results.names, lines, strict=True):
        assert re.fullmatch(pattern.format(re.escape(name)), line)


def test_the_rows_of_a_heat_map_are_models_and_its_axes_have_titles() -> None:
    results = Results(existing(a="as published", b="uniform-k(alpha=1)"))
    (panel,) = heat_panels(results)
    assert [*panel.series.values()] == results.names
    assert (panel.lines, panel.axis) == ("model", "questions")
    (bars,) = attack_panels(results)
    assert [*bars.series.values()] == results.names
    figure: Any = draw_heatmap(results)
    assert figure.get_supylabel() == "model"
    assert figure.axes[0].get_xlabel() == "questions"
    shares = {"canonical": (0.99, 0.28, 0.0), "uniform": (0.92, 0.75, 0.32)}
    (panel,) = heat_panels(Results(trained(shares)))
    assert (panel.lines, panel.axis) == ("model, by its training", "questions")


def test_a_panel_below_another_one_has_the_rows_of_its_own_tasks() -> None:
    """In the heat map of many tasks, whose panels are models and whose rows are tasks."""
    rows = [
        {**row, "task": task, "few_shot_scheme": examples, "train_scheme": "canonical"}
        for examples, tasks in {"canonical": "abcdef", "uniform": "f"}.items()
        for task in tasks
        for row in existing(**{"m" * 60: "as published"})
    ]
    figure: Any = draw_heatmap(Results(rows))
    names = [[tick.get_text()[-1] for tick in axes.get_yticklabels()] for axes in figure.axes]
    assert names == [[*"abcdef"], ["f"]]
    figure.draw_without_rendering()  # which sets the positions
    heights = [axes.get_position().height for axes in figure.axes]
    assert heights[0] == pytest.approx(6 * heights[1])


def test_a_long_name_of_a_model_is_broken_into_lines(tmp_path: Path) -> None:
    """A figure is as wide as another one, and matplotlib warns of nothing."""
    long = "Meta-Llama-3.1-8B-Instruct-finetuned-on-stochastic-tokenizations-of-questions"
    widths = []
    for name in ("short", long):
        folder = tmp_path / name
        write_rows(folder / "results.jsonl", existing(**{name: "as published", "b": "uniform"}))
        write_report(folder)
        images = [path.read_bytes() for path in sorted(folder.glob("figures/*.png"))]
        widths.append([int.from_bytes(image[16:20]) for image in images])
    assert widths[0] == pytest.approx(widths[1], abs=9) and len(widths[0]) == 2


@pytest.mark.parametrize("rows", [[], trained({"uniform": (0.9, 0.8, 0.7)})])
def test_without_a_comparison_there_are_no_lines(rows: list[dict[str, Any]]) -> None:
    assert answer_lines(Results(rows)) == []


def test_a_page_begins_with_the_lines_and_says_what_was_done(tmp_path: Path) -> None:
    about = "What was\n  done & how."
    study = {"name": "own", "title": "Own", "about": about}
    (tmp_path / "study.json").write_text(json.dumps(study))
    rows = trained({"canonical": (0.99, 0.28, 0.0), "uniform": (0.92, 0.75, 0.32)})
    write_rows(tmp_path / "results.jsonl", rows)
    html = write_report(tmp_path).read_text()
    first = (tmp_path / "report.md").read_text().partition("\n## ")[0]
    assert first.startswith("# Own\n\n- Accuracy with canonical training → ")
    assert first.count("\n- ") == 4
    assert "What was done & how." in first.replace("&amp;", "&")
    assert html.index("Under uniform draws") < html.index("What was done &amp; how.")
    assert html.index("What was done") < html.index("<h2>")


def test_questions_in_a_sentence() -> None:
    assert where("stochastok(alpha=0.5)") == "under stochastok 0.5 draws"
