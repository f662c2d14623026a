"""The first lines of a report are what its rows say, and the models that exist have their names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.test_merge import row

from robustok.evaluation.comparison import difference
from robustok.report import Results, write_report
from robustok.report.figures import attack_panels, draw_heatmap, heat_panels
from robustok.report.frame import percent, points_text
from robustok.report.write import answer_lines, where
from robustok.runtime.files import write_rows

ATTACK = "adversarial(distances=(2), start=canonical, steps=10)"
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
