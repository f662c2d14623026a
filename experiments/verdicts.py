"""Verdicts on the claims of `claims.yaml`, from the kept rows of `results/` alone.

Accuracies are compared by the package's one comparison, question by question and seed by seed, and
the comparisons of a family by Holm's method. Perplexities and distances have no answers: they are
paired by seed (Student's t). The counts of two samples of draws are compared by a χ² test. `judge`
makes the verdict of a test; :mod:`experiments.index` writes the page of all.

A pool is one difference of several parts, each with its weight. Seeds are paired by their number,
and a question that several parts ask is one cluster: its change is the sum of what the parts have.

A verdict is one of six: confirmed (the 95% interval excludes zero in the claim's direction),
contradicted here (it excludes the claim's direction), no loss larger than the margin (the 90%
interval ends above it), smaller than in the paper (the interval excludes the paper's difference
and not zero), undecided (none of these, or fewer seeds than planned), and not tested.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2

from experiments.claims import RESULTS, Claims, Part, Row, Test
from robustok.evaluation.comparison import Difference, clear_differences, difference
from robustok.evaluation.intervals import LEVEL, interval
from robustok.report.frame import Results
from robustok.report.source import with_questions
from robustok.runtime.inputs import read_rows

CONFIRMED, CONTRADICTED, UNDECIDED = "confirmed", "contradicted here", "undecided"
NO_LOSS, NOT_TESTED = "no loss larger than X", "not tested"
LARGER, SMALLER = "larger than in the paper", "smaller than in the paper"
ORDER = (CONFIRMED, NO_LOSS, CONTRADICTED, SMALLER, UNDECIDED, NOT_TESTED)
LEVEL_OF_NO_LOSS = 0.1
SEEDS_FOR_BOUNDS = 2  # the interval of one seed covers the questions only
POWER = 1.43  # (1.96 + 0.84) / 1.96: an effect of so many half widths is clear four times of five
LEAST_EXPECTED = 5  # draws of a number of splits; fewer join those beside it


@dataclass(frozen=True)
class Verdict:
    """What a test came to; `change` is None where nothing was measured."""

    verdict: str
    note: str = ""
    change: Difference | None = None
    measure: str = "accuracy"
    text: str = ""  # what stands for the difference, of a test that has none

    @property
    def is_decided(self) -> bool:
        """Whether a test came out for or against the claim."""
        return self.verdict not in (UNDECIDED, SMALLER, NOT_TESTED)

    @property
    def kind(self) -> str:
        """One of `ORDER`: the verdict without the margin's size."""
        return re.sub(r"[\d.]+$", "X", self.verdict)


@dataclass(frozen=True)
class Unit:
    """How differences of one measure are printed, and read from claims.yaml."""

    scale: float  # a difference times this is what the file has and the page prints
    digits: int
    name: str = ""
    is_ratio: bool = False  # the difference is that of logarithms

    def text(self, value: float, digits: int | None = None) -> str:
        digits = self.digits if digits is None else digits
        if self.is_ratio:
            return f"×{math.exp(value):.{digits}f}"
        text = f"{self.scale * value:+.{digits}f}".replace("-", "−")
        return text if float(text.replace("−", "-")) else text[1:]

    def size(self, half_width: float) -> str:
        return self.text(half_width).lstrip("+") + self.name

    def bounds(self, change: Difference, digits: int | None = None) -> str:
        if math.isinf(change.low):
            return "[–, –]"
        return f"[{self.text(change.low, digits)}, {self.text(change.high, digits)}]"

    def read(self, number: float) -> float:
        """A number of the file as a difference."""
        return math.log(number) if self.is_ratio else number / self.scale


UNITS = {
    "accuracy": Unit(100, 1, " points"),
    "distance": Unit(1, 3),
    "perplexity": Unit(1, 3, is_ratio=True),
    "bound": Unit(1, 3),
    "change": Unit(1, 2, is_ratio=True),
    "splits": Unit(1, 2, " splits"),
    "share": Unit(100, 1, " points"),
}


def judge_all(claims: Claims, results: Path = RESULTS) -> dict[Test, Verdict]:
    """The verdict of every test, with Holm's method within each family.

    A test that is left out of the tables still counts in its family. One that was decided at an
    earlier look stays decided: where all its seeds leave it open, the verdict is that of the look.
    """
    rows = {name: _rows(results / name) for name in claims.models}
    verdicts = _judged(claims.tests, rows)
    planned = [test for test in claims.tests if test.looks]
    earlier_looks = {look for test in planned for look in test.looks if look < test.seeds}
    for look in sorted(earlier_looks, reverse=True):
        at_look = _judged(planned, rows, look)
        for test, earlier in at_look.items():
            now = verdicts[test]
            seeds = now.change.seeds if now.change else 0
            if look in test.looks and look < seeds and not now.is_decided and earlier.is_decided:
                verdicts[test] = replace(earlier, change=now.change)
    return verdicts


def _judged(
    tests: Sequence[Test], rows: Mapping[str, list[Row]], seeds: int | None = None
) -> dict[Test, Verdict]:
    """The verdicts of tests, of whole families, by their first ``seeds`` seeds or all planned."""
    limits = {test: min(test.seeds, seeds or test.seeds) for test in tests}
    pairs = {test: pair for test in tests if (pair := _pair(test, rows, limits[test]))}
    families: dict[str, list[Test]] = {}
    for test in tests:
        if not test.distribution:
            families.setdefault(test.family, []).append(test)
    kept: set[Test] = set()
    others: dict[str, int] = {}
    for name, family in families.items():
        # A test that no look decides yet counts in the correction, and is not decided.
        own = {
            test: pairs[test] for test in family if test in pairs and level_of(test, pairs[test])
        }
        levels = {id(pair[1]): level_of(test, pair) / LEVEL for test, pair in own.items()}
        others[name] = waiting = len(family) - len(own)

        def at_its_level(
            first: Row,
            second: Row,
            level: float = LEVEL,
            levels: dict[int, float] = levels,
            waiting: int = waiting,
        ) -> Difference:
            corrected = LEVEL / (LEVEL / level + waiting)
            return compare(first, second, level=corrected * levels[id(second)])

        kept.update(clear_differences(own, compare=at_its_level))
    return {
        test: judge(
            test,
            pairs.get(test),
            is_clear=test in kept,
            at_chance=_at_chance(test, rows[test.results]),
            others=others.get(test.family, 0),
        )
        for test in tests
    }


def measure_of(rows: Mapping[str, Any]) -> str:
    """What the rows with these fields measure: a name of `UNITS`."""
    if "layer" in rows:
        return "distance"
    if "bound" in rows:
        return "change" if rows["bound"] == "measured" else "bound"
    return "perplexity" if rows.get("task") == "text" else "accuracy"


def level_of(test: Test, pair: tuple[Row, Row]) -> float:
    """The level of the test with its seeds: that of their look, 0.05, or 0 where they have none."""
    return test.looks.get(len(_by_seed(pair[1])), 0.0 if test.looks else LEVEL)


def judge(
    test: Test,
    pair: tuple[Row, Row] | None,
    *,
    is_clear: bool,
    at_chance: bool = False,
    others: int = 0,
) -> Verdict:
    """The verdict of one test.

    Args:
        test: the test.
        pair: the rows of `against` and of `of`, with answers or values by seed; None without rows.
        is_clear: whether Holm's method keeps the difference within the test's family.
        at_chance: whether neither side is above chance on canonical questions.
        others: tests of the family that are not decided yet. They count in Holm's correction; at a
            look the test is decided without them.
    """
    if pair is None:
        return Verdict(NOT_TESTED, measure=measure_of(test.parts[0].rows))
    if test.distribution:
        return _of_distribution(test, pair[1])
    change, measure, level = compare(*pair), pair[0]["measure"], level_of(test, pair)
    missing = f"{change.seeds} of {test.seeds} seeds" if change.seeds < test.seeds else ""
    is_look = change.seeds in test.looks
    if not missing and others and not is_look:
        missing = f"tests of its family without rows: {others}"
    verdict, note = UNDECIDED, ""
    if is_look or not missing:
        verdict, note = _decided(test, pair, change, is_clear=is_clear)
    if missing and verdict in (UNDECIDED, SMALLER):
        excluded = "" if at_chance else _paper_is_excluded(test, change, UNITS[measure])
        verdict, note = UNDECIDED, f"{missing}{excluded}"
    elif missing:
        note = f"at the look of {missing}, level {level:g}{note and '; '}{note}"
    elif verdict in (UNDECIDED, SMALLER) and at_chance:
        verdict, note = UNDECIDED, "neither side is above chance on canonical questions"
    return Verdict(verdict, note, change, measure)


def _decided(
    test: Test, pair: tuple[Row, Row], change: Difference, *, is_clear: bool
) -> tuple[str, str]:
    """The verdict and its note from the intervals alone, however many seeds they are of."""
    unit = UNITS[pair[0]["measure"]]
    if test.hypothesis in ("no loss", "equal"):
        verdict, note = _within_margin(test, pair, change, is_clear=is_clear)
        return verdict, note or _why_undecided(test, pair, change) * (verdict == UNDECIDED)
    if is_clear:
        is_right = (change.mean > 0) == (test.hypothesis == "higher")
        verdict = CONFIRMED if is_right else CONTRADICTED
        return verdict, _beside_paper(test, change, unit) if is_right else ""
    if test.margin:  # so small a change is none
        at_90, inside = _interval_of_test(test, pair, LEVEL_OF_NO_LOSS, max(2, unit.digits))
        if max(-at_90.low, at_90.high) < unit.read(test.margin):
            return CONTRADICTED, f"the same within ±{test.margin:g}, {inside}"
    excluded, why = _paper_is_excluded(test, change, unit), _why_undecided(test, pair, change)
    if excluded == SHORT and not change.is_clear:
        return SMALLER, why
    return UNDECIDED, f"{why}{excluded}"


def _within_margin(
    test: Test, pair: tuple[Row, Row], change: Difference, *, is_clear: bool
) -> tuple[str, str]:
    """The verdict of a test with a margin, from the 90% interval, and its note."""
    unit = UNITS[pair[0]["measure"]]
    at_90, inside = _interval_of_test(test, pair, LEVEL_OF_NO_LOSS, max(2, unit.digits))
    margin = unit.read(test.margin)
    inside += "†" if test.margin_fixed == "after" else ""
    is_loss = is_clear and change.mean < 0
    if test.hypothesis == "no loss" and at_90.low > -margin:
        smaller = "; a smaller loss is clear" if is_loss else ""
        return NO_LOSS.replace("X", f"{test.margin:g}"), f"{inside}{smaller}"
    if test.hypothesis == "equal" and -margin < at_90.low and at_90.high < margin:
        return CONFIRMED, f"within ±{test.margin:g}, {inside}"
    if is_loss or (is_clear and test.hypothesis == "equal"):
        is_beyond = at_90.high < -margin or (test.hypothesis == "equal" and at_90.low > margin)
        change_name = "loss" if test.hypothesis == "no loss" else "change"
        smaller = f"a {change_name} smaller than {test.margin:g} is not excluded, {inside}"
        return CONTRADICTED, "" if is_beyond else smaller
    return UNDECIDED, ""


def _why_undecided(test: Test, pair: tuple[Row, Row], change: Difference) -> str:
    unit = UNITS[pair[0]["measure"]]
    if not change.is_clear:
        return f"80% power at {unit.size(POWER * (change.high - change.low) / 2)}"
    at_level, bounds = _interval_of_test(test, pair, LEVEL, unit.digits)
    if at_level.is_clear:
        return "by Holm's correction"
    return f"level {level_of(test, pair):g}, {bounds}"


def _interval_of_test(
    test: Test, pair: tuple[Row, Row], level: float, digits: int
) -> tuple[Difference, str]:
    """The comparison at a level, less at a look, and its interval as `97.5% [−1.4, +40.2]`."""
    level *= level_of(test, pair) / LEVEL
    change = compare(*pair, level=level)
    bounds = UNITS[pair[0]["measure"]].bounds(change, digits)
    return change, f"{100 * (1 - level):.3g}% {bounds}"


SHORT = "; the paper's difference is excluded"


def _paper_is_excluded(test: Test, change: Difference, unit: Unit) -> str:
    """That the whole interval is short of the paper's difference, from two seeds on."""
    if test.paper is None or change.seeds < SEEDS_FOR_BOUNDS:
        return ""
    if unit is UNITS["accuracy"] and change.before + unit.read(test.paper) > 1:
        return f"; no room for the paper's difference above {100 * change.before:.1f}%"
    return SHORT if _beside_paper(test, change, unit) == SMALLER else ""


def _beside_paper(test: Test, change: Difference, unit: Unit) -> str:
    """The side of the paper's difference that the whole interval is on, from two seeds on."""
    if test.paper is None or change.seeds < SEEDS_FOR_BOUNDS:
        return ""
    paper = unit.read(test.paper)
    is_above, is_below = change.low > paper, change.high < paper
    if test.hypothesis == "lower":
        is_above, is_below = is_below, is_above
    return LARGER if is_above else SMALLER if is_below else ""


def _of_distribution(test: Test, row: Row) -> Verdict:
    """Whether draws and the paper's shares are of one distribution, by a χ² test.

    The paper's are those of as many draws as it has, or exact ones, whose rest is in the last bin.
    """
    length = max(len(row["shares"]), len(test.distribution["shares"]))
    both = np.zeros((2, length))
    for own, shares in zip(both, (row["shares"], test.distribution["shares"]), strict=True):
        own[: len(shares)] = shares
    largest = 100 * float(np.abs(both[0] - both[1]).max())
    draws, theirs = row["draws"], test.distribution["draws"]
    if theirs is None:
        both[1, -1] += 1 - both[1].sum()
        expected, worth, least = both[1], draws, draws
    else:
        expected = (both[0] * draws + both[1] * theirs) / (draws + theirs)
        worth, least = draws * theirs / (draws + theirs), min(draws, theirs)
    bins, count, total = np.zeros(length, int), 0, 0.0
    for place in range(length - 1, -1, -1):  # from the right, so that the tail has draws enough
        bins[place], total = count, total + expected[place] * least
        if total >= LEAST_EXPECTED:
            count, total = count + 1, 0.0
    bins = np.minimum(bins, count - 1)
    changes = np.bincount(bins, both[0] - both[1])
    statistic = float((worth * changes**2 / np.bincount(bins, expected)).sum())
    p = float(chi2.sf(statistic, count - 1))
    shown = "< 0.001" if p < 0.001 else f"= {p:.2g}"
    return Verdict(
        CONFIRMED if p >= LEVEL else CONTRADICTED,
        f"largest difference of a share {largest:.1f} points",
        text=f"χ² {statistic:.1f} with {count - 1} degrees of freedom, p {shown}",
    )


def _at_chance(test: Test, rows: list[Row]) -> bool:
    """Whether neither side is above chance on canonical questions: then no effect can show.

    As the test itself, it has no more seeds than planned. A pool has several kinds of models.
    """
    if len(test.parts) != 1:
        return False
    (part,) = test.parts
    for side in (part.of, part.against):
        chosen = _chosen(rows, part.rows | side | {"eval_scheme": "canonical"})
        by_seed = sorted((row for row in chosen if "chance" in row), key=_seed)
        merged = Results(by_seed[: test.seeds]).rows
        if not merged or merged[0]["low"] > merged[0]["chance"]:
            return False
    return True


def compare(first: Row, second: Row, *, level: float = LEVEL) -> Difference:
    """Second minus first, from the answers to each question, or from one value a seed."""
    if "answers" in first:
        change, scale = difference(first, second, level=level), second.get("scale", 1.0)
        names = ("before", "after", "low", "high")
        return replace(change, **{name: scale * getattr(change, name) for name in names})
    seeds = sorted(first["values"].keys() & second["values"].keys())
    changes = [second["values"][seed] - first["values"][seed] for seed in seeds]
    mean = math.fsum(changes) / len(changes)
    before = math.fsum(first["values"][seed] for seed in seeds) / len(seeds)
    low, high, p = -math.inf, math.inf, 1.0
    if "standard_error" in second:  # of as many draws on both sides
        parts = [(2 * second["standard_error"] ** 2, second["n"] - 1)]
        low, high, p = interval(mean, parts, level=level)
    elif len(seeds) > 1:
        variance = math.fsum((change - mean) ** 2 for change in changes) / (len(seeds) - 1)
        parts = [(variance / len(seeds), len(seeds) - 1)]
        low, high, p = interval(mean, parts, level=level)
    return Difference(
        before=before, after=before + mean, low=low, high=high, p=p, n=second["n"], seeds=len(seeds)
    )


def _rows(folder: Path) -> list[Row]:
    """The kept rows of a folder; none where it was not run."""
    file = folder / "results.jsonl"
    return with_questions(read_rows(file), file) if file.is_file() else []


def _by_seed(row: Row) -> dict[int, Any]:
    """The answers or the value of each seed, which can be changed; none of a distribution."""
    return row.get("answers") or row.get("values") or {}


def _pair(test: Test, rows: Mapping[str, list[Row]], seeds: int) -> tuple[Row, Row] | None:
    """The merged rows of both sides, of the first seeds that all share; None without such rows.

    At most ``seeds`` count, those planned: more, run for another test, would be a second chance.
    """
    parts = []
    for part in test.parts:
        second = _merged(rows[part.results], part.rows | part.of)
        if part.against:
            first = _merged(rows[part.results], part.rows | part.against)
        else:
            measure = second.get("measure", "accuracy")
            first = {"measure": measure, "values": {0: UNITS[measure].read(test.paper or 0.0)}}
        if not first or not second:
            return None
        parts.append((first, second))
    if test.distribution:
        return parts[0]
    by_seed = [_by_seed(side) for pair in parts for side in pair]
    shared = sorted(set(by_seed[0]).intersection(*by_seed[1:]))[:seeds]
    for own in by_seed:
        for seed in own.keys() - set(shared):
            del own[seed]
    if not shared:
        return None
    if len(parts) == 1 and test.parts[0].weight == 1:
        return parts[0]
    return _pooled(test.parts, parts, shared)


def _pooled(
    parts: tuple[Part, ...], pairs: list[tuple[Row, Row]], seeds: list[int]
) -> tuple[Row, Row]:
    """The sum of several differences, each times its weight, as one pair of rows."""
    measure = pairs[0][0]["measure"]
    weighted = [
        # A part with a negative weight counts on the other side.
        (abs(part.weight), (second, first) if part.weight < 0 else (first, second))
        for part, (first, second) in zip(parts, pairs, strict=True)
    ]
    if measure == "accuracy":
        return _pooled_answers(weighted, seeds)
    first, second = (
        {
            "measure": measure,
            "values": {
                seed: math.fsum(weight * pair[side]["values"][seed] for weight, pair in weighted)
                for seed in seeds
            },
        }
        for side in (0, 1)
    )
    return first, second | {"n": max(pair[1]["n"] for pair in pairs)}


def _pooled_answers(
    weighted: list[tuple[float, tuple[Row, Row]]], seeds: list[int]
) -> tuple[Row, Row]:
    """Answers whose mean is the weighted sum of the parts' accuracies, divided by `scale`.

    A part with weight w gives each of its n questions w / n of the sum. A question that several
    parts ask has the sum of what they give it. No answer is above 1, by `scale`.
    """
    asked = [
        {key for key in pair[0]["answers"][seeds[0]] if all(
            key in side["answers"][seed] for side in pair for seed in seeds
        )}
        for _, pair in weighted
    ]  # fmt: skip
    sums: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
    counts: dict[tuple[str, str], float] = defaultdict(float)
    for (weight, pair), keys in zip(weighted, asked, strict=True):
        for key in keys:
            counts[pair[0]["data"], key] += weight / len(keys)
    scale = max(1.0, len(counts) * max(counts.values()))
    for (weight, pair), keys in zip(weighted, asked, strict=True):
        share = weight / len(keys) * len(counts) / scale
        for side, row in zip(sums, pair, strict=True):
            for seed in seeds:
                answers, own = side.setdefault(seed, {}), row["answers"][seed]
                for key in sorted(keys):
                    cluster = (row["data"], key)
                    answers[cluster] = answers.get(cluster, 0.0) + share * own[key]
    first, second = ({"measure": "accuracy", "answers": side} for side in sums)
    return first, second | {"scale": scale}


def _merged(rows: list[Row], wanted: Row) -> Row:
    """The rows with these fields as one, with the answers or the value of each seed."""
    layer, bound = wanted.get("layer"), wanted.get("bound")
    chosen = _chosen(rows, wanted)
    if (
        chosen and chosen[0].get("analysis") == "split-counts"
    ):  # the shares of all numbers of splits
        shares = [row["value"] for row in sorted(chosen, key=lambda row: row["splits"])]
        return {"measure": "share", "shares": shares, "draws": chosen[0]["draws"]}
    seeds = {_seed(row): row for row in chosen}
    if len(seeds) < len(chosen):
        raise ValueError(f"{wanted} is true of several rows of one seed")
    if not seeds:
        return {}
    first = chosen[0]
    if "standard_error" in first:  # of an analysis without a model
        error = first["standard_error"]
        values = {0: first["value"]}
        return {"measure": "splits", "values": values, "n": first["draws"], "standard_error": error}
    if "accuracy" in first:
        answers = {seed: row["answers"] for seed, row in seeds.items()}
        return {"measure": "accuracy", "answers": answers, "data": _data_of(first)}
    if layer is not None:
        values = {seed: row["layers"][layer]["mean"] for seed, row in seeds.items()}
        return {"measure": "distance", "values": values, "n": first["layers"][layer]["words"]}
    if bound == "measured":
        changes = {
            seed: [one["mean"] for one in row["changes"] if one["kind"] == "sampled"]
            for seed, row in seeds.items()
        }
        values = {seed: math.log(means[-1]) for seed, means in changes.items()}  # the logits
        return {"measure": "change", "values": values, "n": first["n"]}
    if bound is not None:  # of the whole model, whose row comes last
        values = {seed: row["bound"][-1][f"log10_gamma_{bound}"] for seed, row in seeds.items()}
        return {"measure": "bound", "values": values, "n": 0}
    values = {seed: math.log(row["perplexity"]) for seed, row in seeds.items()}
    return {"measure": "perplexity", "values": values, "n": first["texts"]}


def _chosen(rows: list[Row], wanted: Row) -> list[Row]:
    """The rows with these fields, of which `layer` and `bound` only say what a row measured."""
    fields = {name: value for name, value in wanted.items() if name not in ("layer", "bound")}
    return [
        row
        for row in rows
        if ("step" in row) == ("step" in wanted)
        and ("layers" in row) == ("layer" in wanted)
        and ("bound" in row) == ("bound" in wanted)
        and all(_field(row, name) == value for name, value in fields.items())
    ]


def _data_of(row: Row) -> str:
    """What the questions of a row are: those of equal data with one key are the same ones."""
    inputs = row.get("configuration", {}).get("inputs", {})
    data = inputs.get("questions-0") or inputs.get("data") or {}
    names = ("game", "words", "format", "seed", "files", "file")
    return json.dumps([row.get("task"), {name: data.get(name) for name in names}], sort_keys=True)


def _seed(row: Row) -> int:
    return row.get("seed", 0)


def _field(row: Row, name: str) -> Any:
    """A field; of a row of distances, whose model may not be fine-tuned, the model's own name."""
    if name == "train_scheme" and "layers" in row:
        return re.sub(r" #\d+$", "", row["layers"][0]["model"])
    return row.get(name)
