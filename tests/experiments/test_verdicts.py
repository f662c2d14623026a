"""The verdicts on claims, from rows that are made up so that each verdict is known."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from experiments.claims import read_claims
from experiments.verdicts import judge_all

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
        "page": "{headlines}\n\n{counts}\n\n{models}",
        "headlines": {"first": "It helps"},
        "left_out": {"one seed": "There is one seed."},
        "families_text": "",
        "not_run_text": "",
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
     "80% power at .*"),
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
    (HALF, (0.52, 0.51, 0.5), {"hypothesis": "higher", "paper": 40}, "smaller than in the paper",
     "80% power at .*"),
    (HALF, (0.52, 0.51, 0.5), {"hypothesis": "higher"}, "undecided", "80% power at .*"),
    (HALF, (0.5, 0.5, 0.5), {"hypothesis": "lower"} | MARGIN, "contradicted here",
     "the same within ±5, 90% .*"),
    (HALF, (0.3, 0.31, 0.3), {"hypothesis": "lower"} | MARGIN, "confirmed", ""),
    # At a planned look a level decides with fewer seeds.
    (HALF, (0.9, 0.9), {"hypothesis": "higher", "looks": {2: 0.01, 3: 0.045}}, "confirmed",
     "at the look of 2 of 3 seeds, level 0.01"),
    (HALF, (0.9, 0.9), {"hypothesis": "higher", "looks": {2: 1e-60, 3: 0.045}}, "undecided",
     "2 of 3 seeds"),
    (HIGH, (0.9, 0.9), MARGIN | {"hypothesis": "no loss", "looks": {2: 0.01, 3: 0.045}},
     "no loss larger than 5", "at the look of 2 of 3 seeds, level 0.01; 98% .*"),
    # What was decided at a look stays decided.
    (HALF, (0.9, 0.9, 0.2), {"hypothesis": "higher", "looks": {2: 0.01, 3: 0.045}}, "confirmed",
     "at the look of 2 of 3 seeds, level 0.01"),
    (HALF, (0.9, 0.9, 0.2), {"hypothesis": "higher", "looks": {2: 1e-60, 3: 0.045}}, "undecided",
     "80% power at .*"),
    (HALF, (0.9, 0.9, 0.9), {"hypothesis": "higher", "looks": {2: 0.01, 3: 0.045}}, "confirmed",
     ""),
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
    assert verdict(tmp_path, at(0.5, 0.5, 0.5), **fields).verdict == "smaller than in the paper"


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
    assert "by Holm's correction" in first.note
    missing = family[0] | {"of": {"train_scheme": "missing"}}
    first, second = verdicts(tmp_path, rows, [family[0], missing])
    assert (first.verdict, second.verdict) == ("undecided", "not tested")
    assert first.note == "tests of its family without rows: 1"


def test_at_a_look_the_correction_counts_tests_that_cannot_be_decided_yet(tmp_path: Path) -> None:
    rows = accuracies(*HALF[:2], scheme="canonical") + accuracies(0.62, 0.6, scheme="new")
    rows += accuracies(0.9, scheme="one seed")
    alone = {"hypothesis": "higher", "family": "two"}
    p = verdict(tmp_path, rows, **alone).change.p
    planned = alone | {"looks": {2: 1.5 * p, 3: 0.045}}
    assert verdict(tmp_path, rows, **planned).verdict == "confirmed"
    for scheme in ("one seed", "missing"):
        other = planned | {"of": {"train_scheme": scheme}}
        assert verdicts(tmp_path, rows, [planned, other])[0].verdict == "undecided"
        stronger = {"looks": {2: 2.5 * p, 3: 0.045}}
        tests = [planned | stronger, other | stronger]
        assert verdicts(tmp_path, rows, tests)[0].verdict == "confirmed"


def test_a_difference_that_its_level_does_not_keep_has_the_interval_of_the_level(
    tmp_path: Path,
) -> None:
    rows = accuracies(*HALF[:2], scheme="canonical") + accuracies(0.65, 0.64, scheme="new")
    p = verdict(tmp_path, rows, hypothesis="higher").change.p
    own = verdict(tmp_path, rows, hypothesis="higher", seeds=2, looks={2: p / 2})
    assert own.verdict == "undecided" and own.change.is_clear
    parts = re.fullmatch(r"level (.*), .*% \[(.*), (.*)\]", own.note)
    assert parts is not None
    name, low, high = parts.groups()
    assert float(name) == pytest.approx(p / 2, rel=1e-4)
    assert low.startswith("−") and high.startswith("+")


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
    rows += [row(seed, "new", 38 + seed / 5000, 3) for seed in range(SEEDS)]
    own = verdict(tmp_path, rows, rows={"bound": what}, hypothesis="lower")
    assert (own.verdict, own.change.n) == ("confirmed", n)
    assert own.change.mean == pytest.approx(mean, abs=1e-3)


def test_draws_are_compared_with_the_number_of_the_paper(tmp_path: Path) -> None:
    row = {"analysis": "dropout", "scheme": "new", "draws": 50000, "value": 3.03,
           "standard_error": 0.0085}  # fmt: skip
    for paper, wanted in ((3.01, "confirmed"), (22.41, "contradicted here")):
        own = verdict(
            tmp_path, [row], of={"scheme": "new"}, against={}, paper=paper, seeds=1,
            hypothesis="equal", margin=0.1, margin_fixed="after",
        )  # fmt: skip
        assert own.verdict == wanted
        assert own.change.mean == pytest.approx(3.03 - paper)


def split_counts(shares: list[float]) -> list[dict[str, Any]]:
    return [
        {"analysis": "split-counts", "scheme": "new", "splits": splits, "draws": 50000,
         "value": share, "standard_error": 0.002}
        for splits, share in enumerate(shares)
    ]  # fmt: skip


@pytest.mark.parametrize(("shares", "draws", "wanted"), [
    ([0.5, 0.3, 0.15, 0.05], 50000, "confirmed"),
    ([0.5, 0.3, 0.15], None, "confirmed"),  # the rest is the last number of splits
    ([0.49, 0.31, 0.15, 0.05], 50000, "contradicted here"),
    ([0.49, 0.31, 0.15, 0.05], 500, "confirmed"),  # so few draws do not tell
    ([0.48, 0.32, 0.15, 0.05], None, "contradicted here"),
])  # fmt: skip
def test_distributions_are_compared_as_wholes(
    tmp_path: Path, shares: list[float], draws: int | None, wanted: str
) -> None:
    ours = [0.501, 0.3, 0.149, 0.05]
    own = verdict(
        tmp_path, split_counts(ours), of={"scheme": "new"}, against={}, seeds=1, hypothesis="same",
        rows={"analysis": "split-counts"}, distribution={"shares": shares, "draws": draws},
    )  # fmt: skip
    assert own.verdict == wanted
    assert re.fullmatch(r"χ² [\d.]+ with 3 degrees of freedom, p .*", own.text)


def test_the_test_of_distributions_is_that_of_a_table_of_counts(tmp_path: Path) -> None:
    from scipy.stats import chi2_contingency

    ours, theirs, draws = [0.5, 0.3, 0.2], [0.47, 0.31, 0.22], 2000
    own = verdict(
        tmp_path, split_counts(ours), of={"scheme": "new"}, against={}, seeds=1, hypothesis="same",
        distribution={"shares": theirs, "draws": draws},
    )  # fmt: skip
    counts = [[50000 * share for share in ours], [draws * share for share in theirs]]
    statistic: Any = chi2_contingency(counts, correction=False)[0]
    assert f"χ² {statistic:.1f} with 2" in own.text


def test_a_pool_is_the_weighted_sum_of_its_parts(tmp_path: Path) -> None:
    rows = accuracies(*HALF, scheme="canonical") + accuracies(0.8, 0.81, 0.79, scheme="new")
    rows += accuracies(0.6, 0.62, 0.61, scheme="other")
    both = [{"of": {"train_scheme": "new"}}, {"of": {"train_scheme": "other"}}]
    fields = {"hypothesis": "higher", "name": "two schemes"}
    mean = verdict(tmp_path, rows, pool=both, **fields)
    assert mean.change.mean == pytest.approx(0.205, abs=2e-3)
    assert (mean.verdict, mean.change.n, mean.change.seeds) == ("confirmed", QUESTIONS, SEEDS)
    weights = [part | {"weight": weight} for part, weight in zip(both, (1, -1), strict=True)]
    difference = verdict(tmp_path, rows, pool=weights, **fields)
    direct = verdict(tmp_path, rows, against={"train_scheme": "other"}, hypothesis="higher")
    assert difference.change.mean == pytest.approx(direct.change.mean)
    # Each question of both parts is one cluster: the interval is that of the plain difference.
    assert difference.change.low == pytest.approx(direct.change.low, abs=0.02)
    # Of one part that is there twice the pool is the part.
    twice = verdict(tmp_path, rows, pool=both[:1] * 2, **fields)
    alone = verdict(tmp_path, rows, **both[0], hypothesis="higher")
    assert (twice.change.low, twice.change.high) == pytest.approx(
        (alone.change.low, alone.change.high)
    )


@pytest.mark.parametrize(
    ("words", "asked"), [((100, 1000), 2 * QUESTIONS), ((100, 100), QUESTIONS)]
)
def test_a_question_of_several_parts_is_one_cluster_where_its_data_is_the_same(
    words: tuple[int, int], asked: int, tmp_path: Path
) -> None:
    rows, parts = [], []
    for name, count in zip(("data", "questions-0"), words, strict=True):
        answers = accuracies(*HALF, scheme="canonical") + accuracies(0.8, 0.81, 0.79, scheme="new")
        inputs = {"inputs": {name: {"game": "langgame", "words": count}}}
        rows += [row | {"configuration": inputs, "study": name} for row in answers]
        parts.append({"rows": {"study": name}})
    both = verdict(tmp_path, rows, pool=parts, name="both", hypothesis="higher")
    assert both.change.n == asked
    assert both.change.mean == pytest.approx(0.3, abs=2e-3)


def test_a_test_that_is_left_out_counts_in_its_family(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = accuracies(0.5, 0.5, 0.5, scheme="canonical") + accuracies(0.6, 0.56, 0.62, scheme="new")
    rows += accuracies(*random.uniform(0.4, 0.6, SEEDS), scheme="other")
    first = {"hypothesis": "higher", "family": "two"}
    other = first | {"of": {"train_scheme": "other"}, "left_out": "one seed"}
    assert verdicts(tmp_path, rows, [first, other])[0].verdict == "undecided"


def test_a_wrong_claim_is_refused(tmp_path: Path) -> None:
    for fields in (
        {"hypothesis": "better"},
        {"hypothesis": "no loss"},
        {"hypothesis": "equal", "margin": 5, "margin_fixed": "later"},
        {"hypothesis": "higher", "family": "unknown"},
        {"hypothesis": "higher", "results": "unknown"},
        {"hypothesis": "higher", "left_out": "unknown"},
        {"hypothesis": "higher", "headline": "unknown"},
        {"hypothesis": "same"},
        {"hypothesis": "higher", "looks": {2: 0.01}},
    ):
        with pytest.raises(ValueError, match=r"margin|family|model|text|distribution|look"):
            verdict(tmp_path, [], **fields)
