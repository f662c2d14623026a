"""The folders of a report as data frames: seeds merged, models named by what differs.

Also their intervals over seeds and questions. The statistics are those of
:mod:`robustok.evaluation.intervals`, and the comparison of two rows is that of
:mod:`robustok.evaluation.comparison`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from robustok.attack.settings import is_attack, is_suite
from robustok.errors import RobustokError
from robustok.evaluation.comparison import Difference, difference, variance_of
from robustok.evaluation.intervals import interval
from robustok.evaluation.intervals import over_seeds as rights_over_seeds
from robustok.report.style import Row, colors, family, grouped, last_parts, scheme_and_strength
from robustok.runtime.environment import computed_once
from robustok.runtime.files import JsonFields, JsonObject, read_object, read_rows
from robustok.samplers.spec import SCHEMES, Spec
from robustok.samplers.strength import splits_in
from robustok.study.cells.models import FINETUNED, UNTRAINED
from robustok.study.run import answers_of

ACCEPTED = "give the folder of a study or of a command"
_NAMES = {"train_scheme", "eval_scheme", "seed"}  # of every row
_MEASUREMENT = {  # of a row with this measure
    "accuracy": {"low", "high", "n"},
    "perplexity": {"pretrain_scheme", "bits_per_byte"},
}


@dataclass(frozen=True)
class ReportSource:
    """A folder, its rows of results.jsonl, study.json, and run.json; empty where it has none.

    A row with accuracies has how far each question was answered, by its key, as `answers`, and
    where there are several kinds of questions these as `kinds`.
    """

    folder: Path
    rows: list[Row]
    study: JsonObject
    record: JsonObject


def read_source(folder: Path) -> ReportSource:
    """Read a folder of results; raises RobustokError for one without them."""
    results = folder / "results.jsonl"
    if not results.is_file():
        raise RobustokError(f"{folder} has no results.jsonl: {ACCEPTED}")
    rows = read_rows(results)
    if not rows:
        raise RobustokError(f"{results} has no rows yet: let the study finish a measurement")
    for row in rows:
        needed = _NAMES.union(*(_MEASUREMENT.get(one, ()) for one in MEASURES if one in row))
        if not isinstance(row, dict) or not needed <= row.keys():
            raise RobustokError(f"{results} holds no results that a report shows: {ACCEPTED}")
    files = (folder / name for name in ("study.json", "run.json"))
    study, record = (read_object(file) if file.is_file() else {} for file in files)
    return ReportSource(folder, [row | _answers(row, folder) for row in rows], study, record)


def _answers(row: Row, folder: Path) -> Row:
    """What a report needs of the results for each question."""
    path = folder / "items" / f"{row.get('cell')}.jsonl"
    if "accuracy" not in row or not path.is_file():
        return {}
    items = read_rows(path)
    answers = answers_of(items)
    if not answers:
        return {}
    kinds = {item["key"]: item["kind"] for item in items if item.get("kind")}
    parts: Row = {"answers": answers}
    if len(set(kinds.values())) > 1:
        parts["kinds"] = kinds
    return parts


DataFrame = Any  # a pandas DataFrame; its methods return unions that no type checker narrows

# Fields that name a model if they vary; `model` is the name of one that exists.
SOURCES = ("study", "scale", "model")
VARYING = (*SOURCES, "task", "pretrain_scheme")
# The field that tells what a row measured.
MEASURES = ("accuracy", "perplexity", "layers", "gap", "bound")
DEFAULTS = {
    "study": "", "scale": "full", "task": "", "pretrain_scheme": "canonical",
    "training": FINETUNED, "few_shot_scheme": "", "seed": 0, "draws": 1, "seconds": np.nan,
    "chance": np.nan, "start_accuracy": np.nan, "splits": np.nan, "distance": np.nan,
    "length_ratio": np.nan, "consistency": np.nan, "answers": None,
}  # fmt: skip
LEAST_SEEDS = 3  # of a difference with a star: with two, a variance has one degree of freedom
_MEANS = ("start_accuracy", "splits", "distance", "length_ratio", "consistency")  # over seeds


def rows_with(rows: Sequence[JsonFields], measure: str) -> DataFrame:
    """The rows with one field; each cell of a model once.

    >>> rows_with([{"accuracy": 0.5, "cell": "a"}, {"accuracy": 0.5, "cell": "a"}],
    ...           "accuracy")["draws"].tolist()
    [1]
    """
    distinct = {(row.get("cell") or id(row), model_name(row)): row for row in rows}.values()
    chosen = [row for row in distinct if measure in row]
    names = last_parts([model_name(row) for row in chosen])
    named = zip(chosen, names, strict=True)
    return pd.DataFrame([{**DEFAULTS, **row, "model": name} for row, name in named])


def model_name(row: JsonFields) -> str:
    """The name of a model that exists; empty for one from random weights."""
    model = row.get("model")
    return model.get("name") or "" if isinstance(model, dict) else ""


def name_models(frame: DataFrame, by: str | None, fields: Sequence[str] = VARYING) -> list[str]:
    """Set `panel`, a row's values of the fields that differ, and `name`: `panel` and field `by`.

    Returns the names of the fields that differ.

    `train_scheme` counts only where models are named by their few-shot examples: else it is the
    name within the panel. `pretrain_scheme` counts only where a model was trained further.
    """
    if (frame["few_shot_scheme"] != "").any():
        fields = (*fields, "train_scheme")
    finetuned = (frame["training"] == FINETUNED).any()
    untrained = (frame["training"] == UNTRAINED).all()  # by the study: models that exist
    varying = [
        name
        for name in fields
        if (frame[name].nunique() > 1 or (name == "model" and untrained and frame[name].all()))
        and (finetuned or name != "pretrain_scheme")
    ]
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
    """
    >>> in_panel(("copa", "small"), "uniform"), in_panel((), "uniform")
    ('copa, small → uniform', 'uniform')
    """
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
        rows: rows of results.jsonl, of one run or several. A cell that several runs share counts
            once. Those of models kept on the way to the last step are left out.

    `frame` has a row for each model and evaluation scheme, in the order of the rows: repeats with
    other seeds are one row with an interval over them. Beside the fields of results.jsonl it has
    `spec`, which the model was trained with or its examples drawn with; `scheme` and `strength`,
    its two parts as text; `panel`, a tuple of the fields that also differ between models; and
    `name`, panel and spec.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.all_rows = rows
        """The rows as they were measured, of any kind, seeds and steps not merged."""
        self.frame: DataFrame = rows_with([r for r in rows if "step" not in r], "accuracy")
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
        specs = [*grouped(self.rows, "spec")]
        self.colors = dict(zip(specs, colors(specs), strict=True))
        """A color for each spec that a model was trained with, the same in every panel."""
        self.eval_schemes = [*grouped(self.rows, "eval_scheme")]
        self.attacks = [spec for spec in self.eval_schemes if is_attack(spec) or is_suite(spec)]
        by_name = {(row["name"], row["eval_scheme"]): row for row in reversed(self.rows)}
        self._by_name: dict[tuple[str, str], Row] = by_name

    def _merge_seeds(self, measured: DataFrame) -> None:
        few_shot = measured["few_shot_scheme"]
        measured["spec"] = few_shot.where(few_shot != "", measured["train_scheme"])
        measured[["scheme", "strength"]] = [scheme_and_strength(spec) for spec in measured["spec"]]
        self.varying = name_models(measured, "spec")
        _check_seeds(measured)
        groups = measured.groupby(["panel", "spec", "eval_scheme"], sort=False)
        self.frame = pd.DataFrame([_over_seeds(group) for _, group in groups])

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
        """The row of a model and an evaluation scheme; None without one.

        Args:
            name: name of the model.
            eval_scheme: spec of the evaluation scheme.
        """
        return self._by_name.get((name, eval_scheme))

    def splits(self) -> list[tuple[float, str]]:
        """Evaluation schemes with a strength, by this strength; 0 is the canonical scheme."""
        by_strength = {nominal_splits(spec): spec for spec in reversed(self.eval_schemes)}
        return sorted((x, spec) for x, spec in by_strength.items() if x is not None)

    def change(self, name: str, eval_scheme: str) -> Difference | None:
        """Accuracy on questions of another scheme minus that on canonical ones, with its interval.

        Args:
            name: name of the model.
            eval_scheme: spec of the evaluation scheme.

        None where one of the two was not measured. Where the answers to each question are not
        known, an attack from canonical tokenizations is compared with its own start, on the
        questions that it attacked.
        """
        before, after = self.get(name, "canonical"), self.get(name, eval_scheme)
        if not before or not after:
            return None
        known = before["answers"] and after["answers"]
        if not known and after["start_accuracy"] >= 0 and "start=canonical" in eval_scheme:
            wider = (before["n"] / after["n"]) ** 0.5
            start, half = after["start_accuracy"], wider * (before["high"] - before["low"]) / 2
            before = before | {"accuracy": start, "low": start - half, "high": start + half}
        return difference(before, after)


def _check_seeds(measured: DataFrame) -> None:
    """Refuse two results of one seed, which are no repeats: of runs with other settings."""
    repeated = measured[measured.duplicated(["name", "eval_scheme", "seed"])]
    if not repeated.empty:
        row = repeated.iloc[0]
        raise RobustokError(
            f"two results of '{row['name']}' on {row['eval_scheme']} have the seed {row['seed']}: "
            "merge runs of other seeds, or of studies with other names"
        )


def _over_seeds(group: DataFrame) -> Row:
    """One row from those of several seeds."""
    row: Row = group.iloc[0].to_dict()
    row["seeds"] = group["seed"].tolist()
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
    """The entries of a field that is a list, of all rows; `model` names each model in a figure.

    The number of a repeat at the end of a model's name, as in `canonical #1`, is left out.
    """
    measured = rows_with(rows, field)
    if measured.empty:
        return measured
    name_models(measured, None, (*SOURCES, "task"))
    entries = []
    for _, row in measured.iterrows():
        panel, is_untrained = row["panel"], row["training"] == UNTRAINED
        for entry in row[field]:
            model = re.sub(r" #\d+$", "", entry["model"])
            name = ", ".join(panel) if panel and is_untrained else in_panel(panel, model)
            entries.append(entry | {"model": name})
    return pd.DataFrame(entries)


def merged_layers(rows: Sequence[JsonFields]) -> DataFrame:
    """One row for each model, sentence and layer, with a 95% interval over seeds and words.

    >>> layer = {"model": "canonical", "sentence": "", "layer": 0, "low": 0.3, "high": 0.5,
    ...          "words": 9, "mean": 0.4}
    >>> merged_layers([{"layers": [layer]}])[["mean", "seeds"]].values.tolist()
    [[0.4, 1.0]]

    Args:
        rows: rows of results.jsonl; those with `layers` count.

    Every seed has the same words, so more seeds do not shrink the part of the words.
    """
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
    """The strength on the axis of a figure, or None for a scheme of another kind.

    >>> nominal_splits("canonical"), nominal_splits("stochastok(alpha=0.5)")
    (0.0, 0.5)
    >>> nominal_splits("uniform")
    """
    scheme = SCHEMES.find(family(eval_scheme))
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


def bounds(row: JsonFields) -> str:
    """The interval of a row in percent.

    >>> bounds({"low": 0.8, "high": 0.95})
    '[80.0, 95.0]'
    """
    return f"[{percent(row['low'])}, {percent(row['high'])}]"


def points_text(change: Difference) -> tuple[str, str]:
    """The difference of the two accuracies as they are printed, in points, and its interval."""
    mean = points(round(change.after, 3) - round(change.before, 3))
    return mean, f"[{points(change.low)}, {points(change.high)}]"


def points(difference: float) -> str:
    """
    >>> points(-0.298), points(0)
    ('−29.8', '0.0')
    """
    text = f"{100 * difference:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")


def mean_over_seeds(rows: DataFrame, field: str, items: int) -> tuple[float, float, float]:
    """Mean of a field over several seeds that share their items, with its 95% bounds.

    >>> rows = pd.DataFrame([{"accuracy": a, "low": a, "high": a} for a in (0.5, 0.6)])
    >>> [round(x, 2) for x in mean_over_seeds(rows, "accuracy", 9)]
    [0.55, -0.09, 1.19]

    ``rows`` are two or more, one a seed, with the field and its own bounds `low` and `high`;
    ``items`` is the number of the items, such as questions or words. For a field that is no share,
    and for accuracies without the answers to each question.
    """
    mean = math.fsum(rows[field]) / len(rows)
    shared = float(variance_of(rows).mean())
    between = float(rows[field].var()) / len(rows)
    low, high, _ = interval(mean, [(between, len(rows) - 1), (shared, max(items - 1, 1))])
    return mean, low, high
