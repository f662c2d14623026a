"""The verdicts on claims, from rows that are made up so that each verdict is known."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from experiments.verdicts import judge_all, read_claims

QUESTIONS, SEEDS = 300, 3
FAMILY = {"two": {"fixed": "before"}}


def accuracies(*shares: float, scheme: str) -> list[dict[str, Any]]:
    """Rows of a training scheme, a seed each, whose answers agree with a share of the questions."""
    return [
        {"train_scheme": scheme, "eval_scheme": "uniform", "seed": seed, "accuracy": share,
         "answers": {f"q{i}": float(i < share * QUESTIONS) for i in range(QUESTIONS)}}
        for seed, share in enumerate(shares)
    ]  # fmt: skip


def verdict(tmp_path: Path, measured: list[dict[str, Any]], /, **fields: Any) -> Any:
    """The verdict of `new` against `canonical` from these rows."""
    return verdicts(tmp_path, measured, [fields])[0]


def verdicts(tmp_path: Path, rows: list[dict[str, Any]], tests: list[dict[str, Any]]) -> list[Any]:
    folder = tmp_path / "own"
    folder.mkdir(exist_ok=True)
    if rows:
        (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = {"results": "own", "of": {"train_scheme": "new"}, "seeds": SEEDS,
              "against": {"train_scheme": "canonical"}}  # fmt: skip
    claim = {"topic": "Topic", "claim": "It helps", "where": "Table 9"}
    content = {
        "page": "{tests} tests: {counts}, {untested} claims\n\n{models}",
        "families_text": "",
        "not_run_text": "",
        "runs_text": "",
        "pages": {"all": {"title": "All", "about": "", "runs": ["own"]}},
        "models": {"own": {"model": "own model", "about": "made up"}},
        "families": FAMILY if any("family" in test for test in tests) else {},
        "claims": [claim | {"tests": [common | test for test in tests]}],
    }  # fmt: skip
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump(content))
    claims = read_claims(tmp_path / "claims.yaml")
    found = judge_all(claims, tmp_path)
    return list(found.values())


HALF, HIGH = (0.5, 0.5, 0.5), (0.9, 0.9, 0.9)
MARGIN = {"margin": 5, "margin_fixed": "after"}


@pytest.mark.parametrize(("before", "after", "fields", "wanted", "note"), [
    (HALF, (0.8, 0.81, 0.79), {"hypothesis": "higher"}, "confirmed", None),
    (HALF, (0.8, 0.81, 0.79), {"hypothesis": "lower"}, "contradicted here", None),
    (HALF, (0.8, 0.81, 0.79), {"hypothesis": "higher", "paper": 30}, "confirmed", ""),
    (HALF, (0.8, 0.81, 0.79), {"hypothesis": "higher", "paper": 10}, "confirmed",
     "larger than in the paper"),
    (HALF, (0.8, 0.81, 0.79), {"hypothesis": "higher", "paper": 50}, "confirmed",
     "smaller than in the paper"),
    ((0.8, 0.81, 0.79), HALF, {"hypothesis": "lower", "paper": -10}, "confirmed",
     "larger than in the paper"),
    # No loss: the 90% interval is above the margin.
    (HIGH, (0.9, 0.9, 0.89), MARGIN | {"hypothesis": "no loss"}, "no loss larger than 5", None),
    (HIGH, (0.9, 0.9, 0.89), MARGIN | {"hypothesis": "no loss", "margin": 0.5}, "undecided",
     ".*smallest visible effect.*"),
    (HIGH, (0.7, 0.71, 0.7), MARGIN | {"hypothesis": "no loss"}, "contradicted here", ""),
    (HIGH, (0.84, 0.85, 0.84), MARGIN | {"hypothesis": "no loss"}, "contradicted here",
     "a loss smaller than 5 is not excluded, .*"),
    (HIGH, (0.84, 0.85, 0.84), MARGIN | {"hypothesis": "no loss", "margin": 12},
     "no loss larger than 12", ".*; a smaller loss is clear"),
    (HIGH, (0.99, 1.0, 1.0), MARGIN | {"hypothesis": "no loss"}, "no loss larger than 5", None),
    (HIGH, (0.99, 1.0, 1.0), MARGIN | {"hypothesis": "equal"}, "contradicted here", None),
    (HIGH, (0.9, 0.9, 0.89), MARGIN | {"hypothesis": "equal"}, "confirmed", None),
    # Of more seeds than planned the first ones count: with the fourth this would be undecided.
    ((*HALF, 0.9), (0.8, 0.81, 0.79, 0.5), {"hypothesis": "higher"}, "confirmed", ""),
    # Fewer seeds than planned decide nothing.
    (HALF, (0.9, 0.9), {"hypothesis": "higher", "paper": 48}, "undecided",
     "2 of 3 seeds; the paper's difference is excluded"),
    (HALF, (0.9, 0.9), {"hypothesis": "higher", "paper": 60}, "undecided",
     "2 of 3 seeds; no room for the paper's difference above 50.0%"),
    (HALF[:1], (0.9,), {"hypothesis": "higher", "paper": 48}, "undecided", "1 of 3 seeds"),
    ((), (), {"hypothesis": "higher"}, "not tested", None),
    (HALF, (), {"hypothesis": "higher"}, "not tested", None),
])  # fmt: skip
def test_the_verdict_follows_the_interval_of_the_difference(
    before: tuple[float, ...], after: tuple[float, ...], fields: dict[str, Any], wanted: str,
    note: str | None, tmp_path: Path,
) -> None:  # fmt: skip
    rows = accuracies(*before, scheme="canonical") + accuracies(*after, scheme="new")
    result = verdict(tmp_path, rows, **fields)
    assert result.verdict == wanted
    assert note is None or re.fullmatch(note, result.note)


def test_an_undecided_test_of_models_at_chance_says_so(tmp_path: Path) -> None:
    def at(*canonical: float) -> list[dict[str, Any]]:
        drawn = accuracies(0.2, 0.2, 0.2, scheme="canonical") + accuracies(
            0.2, 0.2, 0.2, scheme="new"
        )
        rows = [row | {"eval_scheme": "canonical"} for row in accuracies(*canonical, scheme="new")]
        rows += [row | {"train_scheme": "canonical"} for row in rows]
        return [row | {"chance": 0.25} for row in drawn + rows]

    fields = {"rows": {"eval_scheme": "uniform"}, "hypothesis": "higher", "paper": 30}
    guesses = [0.24, 0.24, 0.24]
    for canonical in (guesses, guesses + 9 * [0.9]):  # seeds beyond those planned do not count
        guessing = verdict(tmp_path, at(*canonical), **fields)
        assert guessing.verdict == "undecided"
        assert guessing.note == "neither side is above chance on canonical questions"
    assert "is excluded" in verdict(tmp_path, at(0.5, 0.5, 0.5), **fields).note


def test_holm_corrects_a_family_and_a_test_alone_is_not(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = accuracies(0.5, 0.5, 0.5, scheme="canonical") + accuracies(0.6, 0.56, 0.62, scheme="new")
    rows += accuracies(*random.uniform(0.4, 0.6, SEEDS), scheme="other")
    alone = {"hypothesis": "higher"}
    other = alone | {"of": {"train_scheme": "other"}}
    assert [one.verdict for one in verdicts(tmp_path, rows, [alone, other])] == [
        "confirmed", "undecided",
    ]  # fmt: skip
    family = [test | {"family": "two"} for test in (alone, other)]
    first, second = verdicts(tmp_path, rows, family)
    assert first.verdict == second.verdict == "undecided"
    assert "Holm's correction does not keep it" in first.note
    missing = family[0] | {"of": {"train_scheme": "missing"}}
    first, second = verdicts(tmp_path, rows, [family[0], missing])
    assert (first.verdict, second.verdict) == ("undecided", "not tested")
    assert first.note == "tests of its family without rows: 1"


@pytest.mark.parametrize("scheme", ["before fine-tuning", "canonical"])
def test_distances_are_those_of_a_model_and_paired_by_seed(tmp_path: Path, scheme: str) -> None:
    def row(seed: int, model: str, mean: float) -> dict[str, Any]:
        layers = [
            {"model": model, "mean": 9.0, "words": 5},
            {"model": model, "mean": mean, "words": 5},
        ]
        return {"train_scheme": "canonical", "seed": seed, "layers": layers}

    rows = [row(0, scheme, 0.5), row(1, f"{scheme} #1", 0.6), row(2, f"{scheme} #2", 0.7)]
    rows += [row(0, "new", 0.4), row(1, "new #1", 0.5), row(2, "new #2", 0.6001)]
    own = verdict(
        tmp_path, rows, rows={"layer": -1}, against={"train_scheme": scheme}, hypothesis="lower"
    )
    assert own.verdict == "confirmed"
    assert own.change.mean == pytest.approx(-0.1, abs=1e-3)


@pytest.mark.parametrize(
    ("what", "mean", "n"), [("theorem", -2.0, 0), ("measured", np.log(0.5), 7)]
)
def test_bounds_are_of_the_whole_model_and_changes_of_its_logits(
    tmp_path: Path, what: str, mean: float, n: int
) -> None:
    def row(seed: int, scheme: str, gamma: float, change: float) -> dict[str, Any]:
        bound = [{"layer": 1, "log10_gamma_theorem": 9.0},
                 {"layer": "whole", "log10_gamma_theorem": gamma + seed / 100}]  # fmt: skip
        changes = [{"kind": "sampled", "depth": 0, "mean": 9.0},
                   {"kind": "sampled", "depth": 1, "mean": change + seed / 1000},
                   {"kind": "theorem", "depth": 1, "mean": 9.0}]  # fmt: skip
        return {"train_scheme": scheme, "seed": seed, "n": 7, "bound": bound, "changes": changes}

    rows = [row(seed, "canonical", 40, 6) for seed in range(SEEDS)]
    rows += [row(seed, "new", 38, 3) for seed in range(SEEDS)]
    own = verdict(tmp_path, rows, rows={"bound": what}, hypothesis="lower")
    assert (own.verdict, own.change.n) == ("confirmed", n)
    assert own.change.mean == pytest.approx(mean, abs=1e-3)


@pytest.mark.parametrize(("paper", "wanted"), [(63.0, "confirmed"), (39.2, "contradicted here")])
def test_draws_are_compared_with_the_number_of_the_paper(
    tmp_path: Path, paper: float, wanted: str
) -> None:
    row = {"analysis": "split-counts", "scheme": "new", "splits": 0, "draws": 50000,
           "value": 0.631, "standard_error": 0.0022}  # fmt: skip
    own = verdict(
        tmp_path, [row], of={"scheme": "new"}, against={}, paper=paper, seeds=1,
        hypothesis="equal", margin=1, margin_fixed="after",
    )  # fmt: skip
    assert own.verdict == wanted
    assert own.change.mean == pytest.approx(0.631 - paper / 100)


def test_a_wrong_claim_is_refused(tmp_path: Path) -> None:
    for fields in (
        {"hypothesis": "better"},
        {"hypothesis": "no loss"},
        {"hypothesis": "equal", "margin": 5, "margin_fixed": "later"},
        {"hypothesis": "higher", "family": "unknown"},
        {"hypothesis": "higher", "results": "unknown"},
    ):
        with pytest.raises(ValueError, match=r"margin|family|model"):
            verdict(tmp_path, [], **fields)
