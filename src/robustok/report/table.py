"""Results as a table: a line for each model, a column for each evaluation scheme."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from robustok.attack_settings import is_attack, is_suite
from robustok.report.comparison import Difference, difference
from robustok.report.style import colors, family
from robustok.samplers.registry import find_scheme
from robustok.samplers.spec import Spec
from robustok.study.equal_strength import splits_in

Row = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """Rows of results.jsonl by model and eval scheme.

    >>> results = Results([{"train": "canonical", "query": "uniform", "accuracy": 0.5}])
    >>> results.get("canonical", "uniform")["accuracy"]
    0.5

    Args:
        rows: merged rows, in the order in which models and schemes are shown.
    """

    rows: list[Row]

    @cached_property
    def trains(self) -> list[str]:
        return list(dict.fromkeys(row["train"] for row in self.rows))

    @cached_property
    def panels(self) -> list[str]:
        """What models are grouped by, such as how they were pre-trained; one empty name if not."""
        return list(dict.fromkeys(row.get("panel", "") for row in self.rows))

    @cached_property
    def bars(self) -> dict[str, str]:
        """The spec that each model was last trained with."""
        return {row["train"]: row.get("bar", row["train"]) for row in self.rows}

    @cached_property
    def colors(self) -> dict[str, str]:
        """A color for each model: the same for the same training in every panel."""
        specs = list(dict.fromkeys(self.bars.values()))
        chosen = dict(zip(specs, colors(specs), strict=True))
        return {train: chosen[bar] for train, bar in self.bars.items()}

    @cached_property
    def hardest(self) -> str | None:
        """The random scheme furthest from canonical: without parameters, else of most splits."""
        for spec in self.eval_schemes:
            scheme = find_scheme(family(spec))
            if scheme and not scheme.parameters and not scheme.deterministic:
                return spec
        splits = [spec for strength, spec in self.splits() if strength > 0]
        return splits[-1] if splits else None

    def inside(self, panel: str) -> list[str]:
        """The models of a panel."""
        trains = (row["train"] for row in self.rows if row.get("panel", "") == panel)
        return list(dict.fromkeys(trains))

    @cached_property
    def eval_schemes(self) -> list[str]:
        return list(dict.fromkeys(row["query"] for row in self.rows))

    @cached_property
    def attacks(self) -> list[str]:
        return [spec for spec in self.eval_schemes if is_attack(spec) or is_suite(spec)]

    def get(self, train: str | None, eval_scheme: str) -> Row | None:
        """The first row of a model and an eval scheme; None without one.

        Args:
            train: name of the model; None for no model.
            eval_scheme: spec of the eval scheme.
        """
        return next(
            (r for r in self.rows if r["train"] == train and r["query"] == eval_scheme), None
        )

    def splits(self) -> list[tuple[float, str]]:
        """Evaluation schemes on the axis of normalized splits, by their strength.

        Strength 0 is the canonical scheme.
        """
        by_strength = {splits_of(spec): spec for spec in reversed(self.eval_schemes)}
        return sorted((x, spec) for x, spec in by_strength.items() if x is not None)

    def before_and_after(self, train: str, eval_scheme: str) -> tuple[Row, Row] | None:
        """A model's rows of canonical questions and of another scheme; None without both.

        Args:
            train: name of the model.
            eval_scheme: spec of the eval scheme.

        Where the answers to each question are not known, an attack from canonical tokenizations is
        compared with its own start, on the questions that it attacked.
        """
        before, after = self.get(train, "canonical"), self.get(train, eval_scheme)
        if not before or not after:
            return None
        known = before.get("answers") and after.get("answers")
        if not known and "start_accuracy" in after and "start=canonical" in eval_scheme:
            wider = (before["n"] / after["n"]) ** 0.5
            start, half = after["start_accuracy"], wider * (before["high"] - before["low"]) / 2
            before = before | {"accuracy": start, "low": start - half, "high": start + half}
        return before, after

    def change(self, train: str, eval_scheme: str) -> Difference | None:
        """Accuracy on questions of another scheme minus that on canonical ones, with its interval.

        Args:
            train: name of the model.
            eval_scheme: spec of the eval scheme.

        None where one of the two was not measured.
        """
        rows = self.before_and_after(train, eval_scheme)
        return difference(*rows) if rows else None


def splits_of(eval_scheme: str) -> float | None:
    """The normalized splits that a scheme draws at, or None for a scheme of another kind.

    >>> splits_of("canonical"), splits_of("stochastok(alpha=0.5)"), splits_of("uniform")
    (0.0, 0.5, None)
    """
    scheme = find_scheme(family(eval_scheme))
    if scheme is None or scheme.nominal_splits is None or splits_in(eval_scheme) is not None:
        return None
    if isinstance(scheme.nominal_splits, str):
        splits = Spec.parse(eval_scheme).params[scheme.nominal_splits]
        return splits if isinstance(splits, float) else None  # no schedule
    return scheme.nominal_splits


def percent(share: float) -> str:
    """
    >>> percent(0.9251)
    '92.5'
    """
    return f"{100 * share:.1f}"


def points(difference: float) -> str:
    """
    >>> points(-0.298), points(0)
    ('−29.8', '0.0')
    """
    text = f"{100 * difference:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")
