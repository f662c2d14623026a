"""The rows of a report as data frames: seeds merged, models named by what differs.

Also their intervals over seeds and questions. The statistics are those of
:mod:`robustok.evaluation.intervals`, and the comparison of two rows is that of
:mod:`robustok.evaluation.comparison`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from robustok.attack.settings import is_attack, is_worst
from robustok.checks import shown
from robustok.errors import RobustokError
from robustok.evaluation.comparison import Difference, difference, variance_of
from robustok.evaluation.intervals import interval
from robustok.evaluation.intervals import over_seeds as rights_over_seeds
from robustok.report.style import Row, colors, family, grouped, last_parts, scheme_and_strength
from robustok.runtime.environment import computed_once
from robustok.runtime.files import JsonFields, JsonObject
from robustok.samplers.spec import SCHEMES, Spec
from robustok.samplers.strength import splits_in
from robustok.study.models import FINETUNED, PUBLISHED, UNTRAINED
from robustok.study.run import first_change, measurement_of, model_name, subject_of, worst_rows

_AFTER_START = (
    "start_answers",
    "seconds",
    "proved",
    "splits",
    "distance",
    "length_ratio",
    "n_scored",
    "unsearched_ids",
)


def _with_starts(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows, and canonical questions where an attack on them alone was measured."""
    known = {subject_of(row) for row in rows if row.get("eval_scheme") == "canonical"}
    for row in rows:
        answers = row.get("start_answers")
        yield row
        if answers and "start_low" in row and subject_of(row) not in known:
            known.add(subject_of(row))
            start = {name: row[f"start_{name}"] for name in ("accuracy", "low", "high")}
            kept = {name: row[name] for name in row if name not in _AFTER_START}
            yield kept | start | {"eval_scheme": "canonical", "answers": answers}


_APART = "merge runs with the same settings, or name the models (NAME=FOLDER) or studies apart"

DataFrame = Any  # of pandas, whose methods return unions that no type checker narrows

# Fields that name a model if they vary; `model` is the name of one that exists.
SOURCES = ("study", "scale", "model")
VARYING = (*SOURCES, "task", "pretrain_scheme")
DEFAULTS = {
    "study": "", "scale": "full", "task": "", "pretrain_scheme": "canonical", "eval_scheme": "",
    "training": FINETUNED, "few_shot_scheme": "", "seed": 0, "draws": 1, "seconds": np.nan,
    "chance": np.nan, "start_accuracy": np.nan, "splits": np.nan, "distance": np.nan,
    "length_ratio": np.nan, "consistency": np.nan, "proved": np.nan, "answers": None, "cell": "",
}  # fmt: skip
LEAST_SEEDS = 3  # of a difference with a star: with two, a variance has one degree of freedom
_MEANS = (  # over seeds
    "start_accuracy", "splits", "distance", "length_ratio", "consistency", "proved"
)  # fmt: skip


def rows_with(rows: Sequence[JsonFields], measure: str) -> DataFrame:
    """The rows with one field."""
    chosen = [row for row in rows if measure in row]
    names = last_parts([model_name(row) for row in chosen])
    named = zip(chosen, names, strict=True)
    return pd.DataFrame(
        [{**DEFAULTS, **row, "model": name, "size": model_size(row)} for row, name in named]
    )


def model_size(row: JsonFields) -> str:
    """The size of a row's model, as `0.5M parameters` or `8.0B parameters`; empty if not known."""
    model = row.get("model")
    count = model.get("parameters") if isinstance(model, dict) else None
    if not count:
        return ""
    return f"{count / 1e9:.1f}B parameters" if count >= 1e9 else f"{count / 1e6:.1f}M parameters"


def _varying(frame: DataFrame, fields: Sequence[str], untrained: bool) -> list[str]:
    """The fields that differ, in their order; the model also where it is one that exists."""
    several = {name for name in fields if frame[name].nunique() > 1}
    if untrained and frame["model"].all():
        several.add("model")
    if not (frame["training"] == FINETUNED).any():
        several.discard("pretrain_scheme")
    return [name for name in fields if name in several]


def name_models(frame: DataFrame, by: str | None, fields: Sequence[str] = VARYING) -> list[str]:
    """Set `panel`, a row's values of the fields that differ, and `name`: `panel` and field `by`.

    Returns the fields that differ: `train_scheme` only of models named by their few-shot examples,
    `pretrain_scheme` only of models that were trained further.
    """
    if (frame["few_shot_scheme"] != "").any():
        fields = (*fields, "train_scheme")
    untrained = (frame["training"] == UNTRAINED).all()  # by the study: models that exist
    varying = _varying(frame, fields, untrained)
    values = frame[varying].itertuples(index=False)
    frame["panel"] = [tuple(str(value) for value in row if value != "") for row in values]
    if by is not None:
        alone = untrained and "train_scheme" not in fields  # named by the model, not by a training
        frame["name"] = [
            ", ".join(panel) if alone and panel else in_panel(panel, name)
            for panel, name in zip(frame["panel"], frame[by], strict=True)
        ]
    return varying


def in_panel(panel: Sequence[str], name: str) -> str:
    """As `copa, small → uniform`; the name alone without a panel."""
    return f"{', '.join(panel)} → {name}" if panel else name


class Results:
    """The accuracies of one or more runs: a row for each model and evaluation scheme.

    >>> rows = [{"train_scheme": "uniform", "eval_scheme": "canonical", "accuracy": a,
    ...          "low": a - 0.04, "high": a + 0.04, "n": 100, "seed": s}
    ...         for s, a in enumerate((0.5, 0.6))]
    >>> row = Results(rows).get("uniform", "canonical")
    >>> row["accuracy"], round(row["low"], 3), row["seeds"]
    (0.55, 0.0, [0, 1])

    Args:
        rows: rows of results.jsonl, of one run or several. A cell that several runs of a study
            share counts once. Those of models kept on the way to the last step are left out.
            Where a model has several attacks, the worst of them by question is one more row.

    `frame` has a row for each model and evaluation scheme, in the order of the rows: repeats with
    other seeds are one row with an interval over them. Beside the fields of results.jsonl it has
    `spec`, which the model was trained with or its examples drawn with, and of models that exist
    their name; `scheme` and `strength`, its two parts as text; `panel`, a tuple of the fields that
    also differ between models; and `name`, panel and spec.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        distinct = {(row.get("cell") or id(row), measurement_of(row)): row for row in rows}
        self.all_rows: Sequence[Row] = [*distinct.values()]
        """The rows as they were measured, of any kind, seeds and steps not merged."""
        finished = [row for row in _with_starts(self.all_rows) if "step" not in row]
        self.frame: DataFrame = rows_with([*finished, *worst_rows(finished)], "accuracy")
        self.exist = False
        """Whether the models exist, so that each is called by its name and no training."""
        self.varying: list[str] = []
        """The fields that the panel of a model is made of."""
        if not self.frame.empty:
            self._merge_seeds(self.frame)
        self.rows: list[Row] = self.frame.to_dict("records")
        """The rows of `frame`, as dictionaries."""
        self.models = {name: own[0] for name, own in grouped(self.rows, "name").items()}
        """The first row of each model."""
        self.names = [*self.models]
        """The models."""
        self.panels = grouped(self.rows, "panel")
        """The rows by what models are grouped by, such as how they were pre-trained; empty if not
        at all."""
        self.colors = colors(row["spec"] for row in self.rows)
        """A color for each spec that a model was trained with, the same in every panel."""
        self.eval_schemes = [*grouped(self.rows, "eval_scheme")]
        self.attacks = [spec for spec in self.eval_schemes if is_attack(spec) or is_worst(spec)]
        by_name = {(row["name"], row["eval_scheme"]): row for row in reversed(self.rows)}
        self._by_name: dict[tuple[str, str], Row] = by_name

    def _merge_seeds(self, measured: DataFrame) -> None:
        few_shot = measured["few_shot_scheme"]
        untrained = (measured["training"] == UNTRAINED) & (measured["model"] != "")
        self.exist = bool((untrained & (few_shot == "")).all())
        if self.exist:
            self._name_existing(measured)
        else:
            specs = few_shot.where(few_shot != "", measured["train_scheme"])
            measured["spec"] = specs
            measured[["scheme", "strength"]] = [scheme_and_strength(spec) for spec in specs]
            self.varying = name_models(measured, "spec")
        names = ["panel", "spec", "eval_scheme"]
        _check_repeats(measured, names)
        groups = measured.groupby(names, sort=False)
        self.frame = pd.DataFrame([_over_seeds(group) for _, group in groups])

    def _name_existing(self, measured: DataFrame) -> None:
        """Call models that exist by their name, with the scheme of a recorded training."""
        known = zip(measured["model"], measured["train_scheme"], strict=True)
        measured["spec"] = [
            model if scheme in (PUBLISHED, "canonical") else f"{model} ({scheme})"
            for model, scheme in known
        ]
        measured["scheme"], measured["strength"] = measured["spec"], ""
        self.varying = name_models(measured, "spec", [one for one in VARYING if one != "model"])
        named = zip(measured["spec"], measured["panel"], strict=True)
        measured["name"] = [", ".join((spec, *panel)) for spec, panel in named]

    @computed_once
    def hardest(self) -> str | None:
        """The random scheme furthest from canonical: without parameters, else of most splits."""
        for spec in self.eval_schemes:
            scheme = SCHEMES.find(family(spec))
            if scheme and not scheme.parameters and not scheme.deterministic:
                return spec
        splits = [spec for strength, spec in self.splits() if strength > 0]
        return splits[-1] if splits else None

    def get(self, name: str, eval_scheme: str) -> Row | None:
        """The row of the model ``name`` and the scheme ``eval_scheme``; None without one."""
        return self._by_name.get((name, eval_scheme))

    def splits(self) -> list[tuple[float, str]]:
        """Evaluation schemes with a strength, by this strength; one of those that are canonical."""
        strengths = [(nominal_splits(spec), spec) for spec in self.eval_schemes]
        positive = sorted(((x, spec) for x, spec in strengths if x), key=lambda one: one[0])
        return [*[(x, spec) for x, spec in strengths if x == 0][:1], *positive]

    def change(self, name: str, eval_scheme: str) -> Difference | None:
        """Accuracy on questions of ``eval_scheme`` minus that on canonical ones; None without both.

        ``name`` is that of the model. An attack is compared on the questions that it attacked,
        where the answers are known.
        """
        before, after = self.get(name, "canonical"), self.get(name, eval_scheme)
        return difference(before, after) if before and after else None


def _check_repeats(measured: DataFrame, names: list[str]) -> None:
    """Refuse rows that these fields call repeats and that are none."""
    for _, group in measured.groupby(names, sort=False):
        rows = group.to_dict("records")
        check_repeats(f"'{rows[0]['name']}' on {rows[0]['eval_scheme']}", rows)


def check_repeats(name: str, rows: Sequence[JsonFields]) -> None:
    """Refuse results that are no repeats of one measurement with other seeds.

    >>> row = {"seed": 0, "n": 9, "configuration": {"seed": 0, "draws": 3}}
    >>> check_repeats("'a' on uniform", [row, row | {"seed": 1}])

    ``name`` is what was measured. Rows of other precisions are repeats.
    """
    for row in rows[1:]:
        if change := first_change(_settings(rows[0]), _settings(row)):
            field, one, other = change
            raise RobustokError(
                f"two results of {name} differ in {field} ({shown(one)} and {shown(other)}): "
                f"{_APART}"
            )
    seeds = [row["seed"] for row in rows]
    if repeated := [seed for i, seed in enumerate(seeds) if seed in seeds[:i]]:
        raise RobustokError(f"two results of {name} have the seed {repeated[0]}: {_APART}")


def _settings(row: JsonFields) -> JsonObject:
    """What decided a row, but the seeds of its training and measurement."""
    configuration = row.get("configuration")
    if isinstance(configuration, dict):  # a frame has NaN for None
        return {"configuration": without_seeds(configuration)}
    return {field: row.get(field) for field in ("n", "draws")}


def without_seeds(node: Any, role: str = "") -> Any:
    """A configuration without the seeds of cells, but for those that generated questions."""
    if not isinstance(node, dict):
        return node
    is_data = role == "data" or role.startswith("questions-")
    kept = (name for name in node if name != "seed" or is_data)
    return {name: without_seeds(node[name], name) for name in kept}


def still_missing(missing: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """The planned measurements (`missing` of run.json) that no row is of, each once."""
    distinct = [one for place, one in enumerate(missing) if one not in missing[:place]]
    return [one for one in distinct if not any(one.items() <= row.items() for row in rows)]


def precisions_text(rows: Sequence[JsonFields]) -> str:
    """A sentence where seeds of one measurement were computed in several precisions.

    >>> rows = [{"seed": s, "precision": "float32" if s > 2 else "bfloat16"} for s in range(5)]
    >>> precisions_text(rows), precisions_text(rows[:3])
    ('Some seeds were computed in bfloat16, others in float32.', '')
    """
    known: dict[tuple[Any, ...], set[str]] = {}
    for row in rows:
        known.setdefault(measurement_of(row), set()).update({row.get("precision", "")} - {""})
    several = [precisions for precisions in known.values() if len(precisions) > 1]
    names = ", others in ".join(sorted(set().union(*several)))
    return f"Some seeds were computed in {names}." if names else ""


def _over_seeds(group: DataFrame) -> Row:
    """One row from those of several seeds."""
    row: Row = group.iloc[0].to_dict()
    row["seeds"], row["cells"] = group["seed"].tolist(), group["cell"].tolist()
    row["answers"] = {r["seed"]: r["answers"] for _, r in group.iterrows() if r["answers"]}
    if len(group) > 1:
        answers = list(row["answers"].values())
        if len(answers) == len(group) and all(one.keys() == answers[0].keys() for one in answers):
            rights = np.array([[one[key] for key in answers[0]] for one in answers], np.float64)
            mean, low, high = rights_over_seeds(rights, row["draws"])
        else:
            mean, low, high = mean_over_seeds(group, "accuracy", row["n"])
        row |= {"accuracy": mean, "low": max(0.0, low), "high": min(1.0, high)}
        row["seconds"] = group["seconds"].sum()
        row |= group[list(_MEANS)].mean(skipna=False).to_dict()
    return row


def merged_perplexities(rows: Sequence[JsonFields]) -> DataFrame:
    """A row for each pre-trained model and scheme: the geometric mean perplexity over seeds."""
    frame = rows_with(rows, "perplexity")
    if frame.empty:
        return frame
    name_models(frame, "pretrain_scheme", SOURCES)
    frame["log"] = np.log(frame["perplexity"])
    names = ["name", "pretrain_scheme", "eval_scheme"]
    _check_repeats(frame, names)
    groups = frame.groupby(names, sort=False, as_index=False)
    merged = groups.agg(
        log=("log", "mean"),
        lowest=("perplexity", "min"),
        highest=("perplexity", "max"),
        bits_per_byte=("bits_per_byte", "mean"),
        seeds=("seed", "count"),
        training=("training", "first"),
    )
    return merged.assign(perplexity=np.exp(merged["log"]))


def entries_of(rows: Sequence[JsonFields], field: str) -> DataFrame:
    """The entries of a field that is a list, of all rows; `model` names each model in a figure."""
    measured = rows_with(rows, field)
    if measured.empty:
        return measured
    name_models(measured, None, (*SOURCES, "task", "few_shot_scheme"))
    measured["name"] = [_name_in_figure(row, field) for _, row in measured.iterrows()]
    _check_repeats(measured, ["name", "eval_scheme"])
    named = zip(measured["name"], measured[field], strict=True)
    return pd.DataFrame([entry | {"model": name} for name, own in named for entry in own])


def _name_in_figure(row: Any, field: str) -> str:
    """The model of the entries of a row, without the number of a repeat, as in `canonical #1`."""
    panel = row["panel"]
    if panel and row["training"] == UNTRAINED:
        return ", ".join(panel)
    return in_panel(panel, re.sub(r" #\d+$", "", row[field][0]["model"]))


def merged_layers(rows: Sequence[JsonFields]) -> DataFrame:
    """One row for each model, sentence and layer, with a 95% interval over seeds and words."""
    layers = entries_of(rows, "layers")
    if layers.empty:
        return layers
    merged = []
    for _, group in layers.groupby(["model", "sentence", "layer"], sort=False):
        row = group.iloc[0].to_dict() | {"seeds": len(group)}
        if len(group) > 1:
            mean, low, high = mean_over_seeds(group, "mean", int(row["words"]))
            row |= {"mean": mean, "low": max(low, 0.0), "high": high}
        merged.append(row)
    return pd.DataFrame(merged)


def nominal_splits(eval_scheme: str) -> float | None:
    """The strength on the axis of a figure, as 0.5 of `stochastok(alpha=0.5)`; None without one."""
    scheme = SCHEMES.find(family(eval_scheme))
    if scheme is None or scheme.nominal_splits is None or splits_in(eval_scheme) is not None:
        return None
    if isinstance(scheme.nominal_splits, str):
        splits = Spec.parse(eval_scheme).params[scheme.nominal_splits]
        return splits if isinstance(splits, float) else None  # no schedule
    return scheme.nominal_splits


def percent(share: float) -> str:
    """A share as `92.5`."""
    return f"{100 * share:.1f}"


def bounds(row: JsonFields) -> str:
    """The interval of a row in percent, as `[80.0, 95.0]`."""
    return f"[{percent(row['low'])}, {percent(row['high'])}]"


def points_text(change: Difference) -> tuple[str, str]:
    """A difference of accuracies in points, and its interval."""
    return points(change.mean), f"[{points(change.low)}, {points(change.high)}]"


def points(difference: float) -> str:
    """A difference in points, as `−29.8`."""
    text = f"{100 * difference:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")


def mean_over_seeds(rows: DataFrame, field: str, items: int) -> tuple[float, float, float]:
    """Mean of a field over seeds that share so many ``items``, with its 95% bounds.

    For a field that is no share, and for accuracies without the answers to each question.
    """
    mean = math.fsum(rows[field]) / len(rows)
    shared = float(variance_of(rows).mean())
    between = float(rows[field].var()) / len(rows)
    low, high, _ = interval(mean, [(between, len(rows) - 1), (shared, max(items - 1, 1))])
    return mean, low, high
