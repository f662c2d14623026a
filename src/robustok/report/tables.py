"""Tables and headlines of reports.

They are made from rows of results.jsonl, or the :class:`~robustok.report.frame.Results` of them; a
section is None where the rows have nothing for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from robustok.attack.settings import AttackSettings, is_attack, is_suite, named_settings
from robustok.errors import RobustokError
from robustok.evaluation.comparison import clear_differences, difference
from robustok.evaluation.intervals import clustered
from robustok.report.frame import (
    DEFAULTS,
    LEAST_SEEDS,
    DataFrame,
    Difference,
    Results,
    Row,
    bounds,
    change_text,
    merged_layers,
    merged_perplexities,
    name_models,
    percent,
    points,
    rows_with,
)
from robustok.report.names import one_line, short
from robustok.report.page import Entry, Section, Table
from robustok.report.style import grouped
from robustok.runtime.display import markdown_table
from robustok.runtime.files import write_whole
from robustok.study.cells.models import FINETUNED, PRETRAINED, UNTRAINED
from robustok.tasks.benchmarks import HUB

FEW_SHOT = "few-shot examples"
NOT_RUN = "not run"
_FEW = 4  # models that are compared with each other, too
_ELSEWHERE = (
    "name",
    "title",
    "about",
    "scale",
    "threads",
    "examples",
    "paper",
    "readme",
)  # on the page
PaperRow = Mapping[str, Any]  # of a study's `paper.tables`


def settings_table(study: Mapping[str, Any]) -> Table:
    """What a study ran: the fields of each section that have a value, by their names in the YAML.

    >>> study = {"model": {"name": "gpt2", "layers": None}, "seed": 0,
    ...          "perplexity": {"eval_schemes": ["canonical", "uniform"]}}
    >>> settings_table(study).lines
    [['model', 'name gpt2'], ['seed', '0'], ['perplexity', 'eval_schemes canonical, uniform']]

    Args:
        study: the resolved configuration, as in study.json; no lines without one.
    """
    lines = [
        [name, _value_text(part)]
        for name, value in study.items()
        if "model" in study and name not in _ELSEWHERE
        for part in (value if isinstance(value, list) else [value])
        if part is not None
    ]
    return Table(["section", "fields"], lines)


def _value_text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(
            name if one is True else f"{name} {_value_text(one)}"
            for name, one in value.items()
            if not (one is None or one is False or one == [])
        )
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def missing_table(missing: Sequence[Row]) -> Table:
    """The planned measurements without a result (`missing` of run.json), by model and seed."""
    if not missing:
        return Table([], [])
    titles = {
        "pretrain_scheme": "pre-trained",
        "train_scheme": "fine-tuned",
        "few_shot_scheme": FEW_SHOT,
        "seed": "seed",
    }
    frame: DataFrame = pd.DataFrame(missing).reindex(columns=[*titles])
    frame = frame.dropna(axis="columns", how="all").rename(columns=titles)
    groups = frame.groupby([*frame], sort=False, dropna=False)
    counts = groups.size().reset_index(name="missing").fillna("")
    return Table([*counts], counts.astype(str).to_numpy().tolist())


def accuracy_table(results: Results) -> Table:
    """Accuracy on canonical questions, the most perturbed ones and under attack, a model a line.

    >>> row = {"train_scheme": "uniform", "eval_scheme": "canonical", "n": 9}
    >>> results = Results([row | {"accuracy": 0.9, "low": 0.8, "high": 0.95}])
    >>> accuracy_table(results).texts
    [['uniform', '90.0 [80.0, 95.0]']]
    """
    compared = _compared(results)
    lines = [
        [
            Entry(name, color=results.colors[results.models[name]["bar"]]),
            *(_entry(results, name, scheme) for scheme in compared),
        ]
        for name in results.names
    ]
    return Table([first_title(results.rows), *map(title, compared)], lines)


def accuracy_section(results: Results) -> Section | None:
    """The table of accuracies with its caption."""
    if results.frame.empty:
        return None
    return Section(
        "table",
        "Accuracy on canonical questions, on the most perturbed ones and under attack",
        "Accuracy in percent with its 95% interval. Below it the change from the canonical "
        "tokenizations of the same questions, in points with its 95% interval: an attack is "
        "compared on the questions that it attacked. Consistency is the share of questions with "
        "the same answer, right or wrong, in all draws.",
        [accuracy_table(results)],
    )


def _compared(results: Results) -> list[str]:
    """Canonical questions, the most perturbed ones, and the attacks."""
    return [scheme for scheme in ("canonical", results.hardest, *results.attacks) if scheme]


def _entry(results: Results, name: str, scheme: str) -> Entry:
    row = results.get(name, scheme)
    if row is None:
        return Entry(NOT_RUN)
    text = percent(row["accuracy"])
    same = f"consistency {percent(row['consistency'])}" if row["consistency"] >= 0 else ""
    change = results.change(name, scheme) if scheme != "canonical" else None
    if change is None:
        return Entry(text, bounds(row), consistency=same)
    against = f"{' '.join(change_text(change))} from {percent(change.before)}"
    if percent(change.after) != text:
        against += f" to {percent(change.after)}"
    return Entry(text, bounds(row), against, min(max(-change.mean, 0.0), 1.0), same)


def write_table(path: Path, results: Results) -> None:
    """Write the accuracies as a table in Markdown, with intervals, and changes from canonical.

    >>> row = {"train_scheme": "uniform", "eval_scheme": "canonical", "n": 9}
    >>> results = Results([row | {"accuracy": 0.9, "low": 0.8, "high": 0.95}])
    >>> write_table(Path("table.md"), results)
    >>> print(Path("table.md").read_text().splitlines()[2])
    | uniform | 90.0 [80.0, 95.0] |

    Args:
        path: the file to write.
        results: the results.

    Raises RobustokError for results without accuracies.
    """
    if results.frame.empty:
        raise RobustokError("there are no accuracies to write as a table")
    table = accuracy_table(results)
    texts = [
        [str(e._replace(change=e.change and f"change {e.change}")) for e in line]
        for line in table.lines
    ]
    write_whole(path, markdown_table(table.head, texts) + "\n")


def kinds_section(results: Results) -> Section | None:
    """Accuracy on each subset of a benchmark, and of every evaluation scheme minus canonical there.

    A table a model. The differences are paired over the questions of the subset; a star marks those
    of a column that Holm's method keeps. None without a benchmark whose questions are of several
    kinds.
    """
    tables = []
    for name in results.names:
        rows = {s: row for s in results.eval_schemes if (row := results.get(name, s))}
        rows = {s: row for s, row in rows.items() if isinstance(row.get("kinds"), dict)}
        base = rows.pop("canonical", None)
        if base and rows and base["task"] in HUB:
            head = name if len(results.names) > 1 else "subset"
            tables.append(_by_kind(head, base, rows))
    if not tables:
        return None
    return Section(
        "kinds",
        "Accuracy by subset",
        "In percent on canonical questions; of the other schemes in points from there, with 95% "
        "intervals over the seeds and the questions of the subset, question by question. A star "
        "marks the differences of a column that remain after Holm's correction.",
        tables,
    )


def _by_kind(head: str, base: Row, others: Mapping[str, Row]) -> Table:
    """A line a kind of question, a column an evaluation scheme."""
    kinds = grouped([{"key": k, "kind": kind} for k, kind in base["kinds"].items()], "kind")
    keys = {kind: {row["key"] for row in own} for kind, own in kinds.items()}
    cells: dict[tuple[str, str], str] = {}
    for scheme, other in others.items():
        pairs = {kind: (_part(base, own), _part(other, own)) for kind, own in keys.items()}
        kept = clear_differences(pairs)
        for kind, pair in pairs.items():
            cells[kind, scheme] = " ".join(change_text(difference(*pair))) + " *" * (kind in kept)
    lines = []
    for kind, own in keys.items():
        shares = [s for answers in _part(base, own)["answers"].values() for s in answers.values()]
        accuracy = percent(sum(shares) / len(shares))
        lines.append([kind, str(len(own)), accuracy, *(cells[kind, scheme] for scheme in others)])
    return Table([head, "questions", "canonical", *map(title, others)], lines)


def _part(row: Row, keys: set[str]) -> Row:
    """The answers of a row to some of its questions."""
    return {
        "answers": {
            seed: {key: share for key, share in answers.items() if key in keys}
            for seed, answers in row["answers"].items()
        }
    }


def versus_canonical(results: Results) -> Section | None:
    """Accuracy of every model minus that of canonical training, on the same seeds and questions.

    >>> rows = [{"train_scheme": t, "eval_scheme": "canonical", "n": 9, "accuracy": 0.9,
    ...          "low": 0.8, "high": 0.95} for t in ("canonical", "uniform")]
    >>> versus_canonical(Results(rows)).tables[0].lines
    [['uniform', '0.0 [−12.5, +12.5]']]

    A star marks the differences of a column that Holm's method keeps, where they are over three
    seeds or more. None where no model was trained canonically, and where several tasks or studies
    are shown.
    """
    base = next((n for n in results.names if results.models[n]["bar"] == "canonical"), None)
    others = [name for name in results.names if name != base]
    if base is None or not others or set(results.varying) - {"pretrain_scheme"}:
        return None
    tables = [_differences(results, f"minus {base}", {name: (base, name) for name in others})]
    if 1 < len(others) <= _FEW:
        pairs = {f"{b} minus {a}": (a, b) for a, b in combinations(others, 2)}
        tables.append(_differences(results, "with each other", pairs))
    what = FEW_SHOT if first_title(results.rows) == FEW_SHOT else "training"
    return Section(
        "versus",
        f"Difference to canonical {what}",
        "In points, with 95% intervals, over the seeds and questions that both models have. A star "
        "marks the differences of a column that remain after Holm's correction, given from three "
        "seeds on; the others establish no order.",
        tables,
    )


def _differences(results: Results, head: str, pairs: Mapping[str, tuple[str, str]]) -> Table:
    """The second model minus the first of each pair, a column an evaluation scheme."""
    compared = _compared(results)
    texts: dict[tuple[str, str], str] = {}
    for scheme in compared:
        rows = {
            label: (before, after)
            for label, (first, second) in pairs.items()
            if (before := results.get(first, scheme)) and (after := results.get(second, scheme))
        }
        kept = clear_differences(rows)
        for label, pair in rows.items():
            star = label in kept and kept[label].seeds >= LEAST_SEEDS
            texts[label, scheme] = " ".join(change_text(difference(*pair))) + (" *" if star else "")
    lines = [[label, *(texts.get((label, s), NOT_RUN) for s in compared)] for label in pairs]
    return Table([head, *map(title, compared)], lines)


def first_title(rows: Sequence[Mapping[str, Any]]) -> str:
    """Title of the column that names the models, by their training."""
    if any(row.get("few_shot_scheme") for row in rows):
        return FEW_SHOT
    trainings = {row.get("training", FINETUNED) for row in rows}
    names = {FINETUNED: "fine-tuned", PRETRAINED: "pre-trained"}
    return next((names[training] for training in names if training in trainings), "model")


def title(scheme: str) -> str:
    """An evaluation scheme as the title of a column."""
    return one_line(short(scheme)) if is_attack(scheme) or is_suite(scheme) else scheme


def perplexity_section(results: Results) -> Section | None:
    """A line a pre-trained model, a column an evaluation scheme."""
    merged = merged_perplexities(results.all_rows)
    if merged.empty:
        return None
    merged["text"] = [perplexity_text(row) for _, row in merged.iterrows()]
    trained = merged["training"].astype(bool).any()
    table = pivot(merged, "name", "eval_scheme", "pre-trained" if trained else "model")
    return Section(
        "perplexity",
        "Perplexity of held-out text",
        "Perplexity is per token of the drawn sequence; bits per byte are comparable between "
        "schemes and vocabularies. Brackets hold the lowest and the highest of the seeds.",
        [table],
    )


def perplexity_text(row: Any) -> str:
    text = f"{row['perplexity']:.1f}"
    if row.get("seeds", 1) > 1:
        text += f" [{row['lowest']:.1f}, {row['highest']:.1f}]"
    return f"{text}, {row['bits_per_byte']:.3f} bits/byte"


def pivot(frame: DataFrame, line: str, column: str, head: str, missing: str = NOT_RUN) -> Table:
    """The `text` of each row of a frame, by two of its columns in the order of the rows."""
    lines, columns = frame[line].unique(), frame[column].unique()
    texts = frame.pivot_table("text", line, column, "first").reindex(lines, columns=columns)
    values = texts.fillna(missing).to_numpy().tolist()
    return Table(
        [head, *map(str, columns)],
        [[str(name), *row] for name, row in zip(lines, values, strict=True)],
    )


def other_section(results: Results) -> Section | None:
    """Measurements of any other kind: the mean of each number over the seeds.

    An interval of one seed is not one over several, so several seeds have none.
    """
    frame = rows_with(results.all_rows, None)
    if frame.empty:
        return None
    known = {"seed", "seconds", "draws", "chance", "start_accuracy"}
    numbers = [c for c in frame.select_dtypes("number").dropna(axis=1, how="all") if c not in known]
    name_models(frame, "train_scheme")
    names = ["name", "eval_scheme"]
    groups = frame.groupby(names, sort=False)
    if groups.size().max() > 1:
        numbers = [column for column in numbers if column not in ("low", "high")]
    means = groups[numbers].mean().reset_index()
    lines = [[*row[:2], *map(_shown, row[2:])] for row in means.to_numpy()]
    table = Table([first_title(results.all_rows), "measured", *numbers], lines)
    return Section("others", "Other measurements", tables=[table])


def _shown(value: float) -> str:
    if value != value:  # NaN: the group does not measure it
        return ""
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


def measurement_table(results: Results) -> Table:
    """Every row as text."""
    first = first_title(results.rows)
    lines = [
        {
            first: row["name"],
            "evaluated with": row["eval_scheme"],
            "accuracy": percent(row["accuracy"]),
            "95% interval": f"{percent(row['low'])} to {percent(row['high'])}",
            "consistency": percent(row["consistency"]) if row["consistency"] >= 0 else "",
            "n": str(row["n"]),
            "draws": str(row["draws"]),
            "seeds": str(len(row["seeds"])),
            "seconds": f"{row['seconds']:.1f}" if row["seconds"] >= 0 else "",
        }
        for row in results.rows
    ]
    return Table.of(lines)


@dataclass(frozen=True)
class Headline:
    """A difference in accuracy, what it is a difference of, and the color of its model.

    >>> Headline("+10.0", "points on uniform questions", "#009e73").number
    '+10.0'

    Args:
        number: the difference in points, or how many of the tasks have one.
        text: what it is a difference of, with its interval.
        color: of the model in figures.
    """

    number: str
    text: str
    color: str


def find_headlines(results: Results) -> list[Headline]:
    """The main results of a study, computed from the rows.

    >>> same = {"task": "langgame", "n": 100, "low": 0.6, "high": 0.8}
    >>> rows = [same | {"train_scheme": "canonical", "eval_scheme": scheme, "accuracy": accuracy}
    ...         for scheme, accuracy in (("canonical", 0.9), ("uniform", 0.5))]
    >>> [headline.number for headline in find_headlines(Results(rows))]
    ['−40.0']

    Args:
        results: the results.

    First the loss of canonical training, then the lead of the best other one. A difference is
    stated only where its interval excludes zero, which holds for all tasks, or for all schemes of
    which it is the best, at once (:func:`clear_differences`). Of several tasks the number is stated
    that have such a difference. Where models were pre-trained differently, canonical training is
    the first of them.
    """
    if results.frame.empty:
        return []
    bases = _canonical_by_group(results)
    schemes = [scheme for scheme in (results.hardest, *results.attacks) if scheme]
    stated = [_loss(results, list(bases), scheme) for scheme in schemes[:1]]
    stated += [_lead(results, bases, scheme) for scheme in schemes]
    return [headline for headline in stated if headline]


def _canonical_by_group(results: Results) -> dict[str, list[str]]:
    """The first canonically trained model of each task, study and scale, with the others of it."""
    bases = {}
    for _, own in results.frame.drop_duplicates("name").groupby("group", sort=False):
        is_canonical = own["bar"] == "canonical"
        for base in own["name"][is_canonical][:1]:
            bases[base] = own["name"][~is_canonical].tolist()
    return bases


def _loss(results: Results, bases: Sequence[str], scheme: str) -> Headline | None:
    """What canonical training loses from canonical questions to others."""
    pairs = {base: results.before_and_after(base, scheme) for base in bases}
    kept = clear_differences({base: pair for base, pair in pairs.items() if pair})
    how = _canonical(results, bases)
    what = f"from canonical questions to {_questions(scheme)}" + (f", with {how}" if how else "")
    return _headline(results, bases, kept, {base: base for base in kept}, what, "change")


def _lead(results: Results, bases: Mapping[str, Sequence[str]], scheme: str) -> Headline | None:
    """The best scheme of each group where it is better than the canonical one, and its lead."""
    pairs = {
        name: (before, after)
        for base, others in bases.items()
        for name in others
        if (before := results.get(base, scheme)) and (after := results.get(name, scheme))
    }
    kept = clear_differences(pairs)
    best: dict[str, str] = {}
    compared = 0
    for base, others in bases.items():
        measured = [name for name in others if name in pairs]
        top = max(measured, key=lambda name: pairs[name][1]["accuracy"], default="")
        if top in kept and kept[top].mean > 0:
            best[base], compared = top, len(measured)
    if not best:
        return None
    top = next(iter(best.values()))
    of = f", the best of {compared}" if compared > 1 else ""
    seeds = ", one seed" if kept[top].seeds == 1 else ""
    model = results.models[top]["bar"]
    if len(bases) > 1 and compared > 1:
        model, of = f"the best of {compared}", ""
    how = _canonical(results, list(bases)) or "canonical"
    what = f"on {_questions(scheme)}, with {model} instead of {how}{of}{seeds}"
    changes = {base: kept[top] for base, top in best.items()}
    return _headline(results, list(bases), changes, best, what, "gain")


def _headline(
    results: Results,
    bases: Sequence[str],
    changes: Mapping[str, Difference],
    models: Mapping[str, str],
    what: str,
    verb: str,
) -> Headline | None:
    """A headline from clear changes, and the models that have them, by the model of ``bases``."""
    if not changes:
        return None
    base, change = next(iter(changes.items()))
    color = results.colors[results.models[models[base]]["bar"]]
    if len(bases) == 1:
        shares = f"{percent(change.before)}% → {percent(change.after)}%"
        mean, bounds = change_text(change)
        return Headline(mean, f"points {bounds} {what} ({shares})", color)
    tasks = "tasks" if set(results.varying) <= {"task", "pretrain_scheme"} else "groups of models"
    of_each = "; ".join(
        " ".join([results.models[base]["group"], *change_text(change)])
        for base, change in changes.items()
    )
    text = f"{tasks} {verb} {what}: {of_each}"
    return Headline(f"{len(changes)} of {len(bases)}", text, color)


def _questions(scheme: str) -> str:
    """An evaluation scheme in a few words."""
    name = one_line(short(scheme))
    attacked = is_attack(scheme) or is_suite(scheme)
    return f"questions under {name}" if attacked else f"{name} questions"


def _canonical(results: Results, bases: Sequence[str]) -> str:
    """What is canonical in the models that others are compared with; empty where nothing is."""
    row = next((results.models[base] for base in bases), None)
    if row is None:
        return ""
    if row["few_shot_scheme"]:
        return f"canonical {FEW_SHOT}"
    if "pretrain_scheme" in results.varying:
        return "canonical pre-training and fine-tuning"
    return "" if row["training"] == UNTRAINED else f"canonical {row['training']}"


def paper_section(paper: Mapping[str, Any], rows: Sequence[Row]) -> Section | None:
    """The paper's tables with ours in each cell: "ours [interval] / paper's (difference)".

    ``paper`` is that of the study and may be empty; the rows are of this study alone. ``not run``
    marks a missing result. At another scale than the full one the model is another one, and no
    difference is shown.
    """
    tables = [
        _BESIDE[table["measure"]](table, rows) for table in paper.get("tables", ()) if table["rows"]
    ]
    claims = " ".join(f"The paper: {claim}" for claim in paper.get("claims", ()))
    where = f"Comparison with the paper: {paper.get('where')}"
    return Section("paper", where, claims, tables) if tables else None


def _accuracies_beside(table: Mapping[str, Any], rows: Sequence[Row]) -> Table:
    papers, columns = table["rows"], table["columns"]
    results = Results(_with_kinds(rows, papers))
    ours = {
        (row["pretrain_scheme"], row["task"], row["bar"], row["eval_scheme"]): row
        for row in results.rows
    }
    task = next((row["task"] for row in results.rows), "")
    is_full = all(row.get("scale", DEFAULTS["scale"]) == "full" for row in rows)
    schemes = {column: _measured_as(column, rows) for column in columns}
    titles = {"task": "task", "pretrain_scheme": "pre-trained", "train_scheme": first_title(rows)}
    names = [name for name in titles if any(row.get(name) for row in papers)]
    lines = []
    for paper in papers:
        model = paper["pretrain_scheme"] or "canonical", paper.get("task") or task
        cells = []
        for column, theirs in zip(columns, paper["values"], strict=True):
            row = ours.get((*model, paper["train_scheme"], schemes[column]))
            text = f"{percent(row['accuracy'])} {bounds(row)}" if row else NOT_RUN
            text += f" / {_number_of_paper(theirs, 1)}"
            if row and theirs is not None and is_full:
                text += f" ({points(row['accuracy'] - theirs / 100)})"
            cells.append(text)
        lines.append([*(paper[name] or "pre-trained" for name in names), *cells])
    note = "Each cell: our value with its 95% interval / the paper's value, "
    note += "and the difference in points." if is_full else "of a larger model."
    head = [*(titles[name] for name in names), *map(title, columns)]
    return Table(head, lines, _after_own_note(table, note))


def _perplexities_beside(table: Mapping[str, Any], rows: Sequence[Row]) -> Table:
    ours = {
        (row["pretrain_scheme"], row["eval_scheme"]): f"{row['perplexity']:.1f}"
        for _, row in merged_perplexities(rows).iterrows()
    }
    lines = []
    for paper in table["rows"]:
        model = paper["pretrain_scheme"]
        values = zip(table["columns"], paper["values"], strict=True)
        cells = [
            f"{ours.get((model or 'canonical', column), NOT_RUN)} / {_number_of_paper(theirs, 1)}"
            for column, theirs in values
        ]
        lines.append([model or "pre-trained", *cells])
    note = (
        "Each cell: our value / the paper's value. Perplexities of different vocabularies do not "
        "compare as numbers."
    )
    head = [first_title(rows), *map(title, table["columns"])]
    return Table(head, lines, _after_own_note(table, note))


def _distances_beside(table: Mapping[str, Any], rows: Sequence[Row]) -> Table:
    """A line a layer. A model of another depth has other layers, which have no value of ours."""
    ours = {
        (row["model"], str(row["layer"])): f"{row['mean']:.3f}"
        for _, row in merged_layers(rows).iterrows()
    }
    models = {model for model, _ in ours}
    lines = []
    for number, layer in enumerate(table["columns"]):
        cells = []
        for paper in table["rows"]:
            model = paper["train_scheme"]
            text = ours.get((model, layer), "–" if model in models else NOT_RUN)
            cells.append(f"{text} / {_number_of_paper(paper['values'][number], 3)}")
        lines.append([layer, *cells])
    head = ["layer", *(paper["train_scheme"] for paper in table["rows"])]
    note = "Each cell: our value / the paper's value, by the number of the layer."
    return Table(head, lines, _after_own_note(table, note))


_BESIDE = {  # a table of the paper with ours, by its measure
    "accuracy": _accuracies_beside,
    "perplexity": _perplexities_beside,
    "embeddings": _distances_beside,
}


def _after_own_note(table: Mapping[str, Any], note: str) -> str:
    return f"{table.get('note', '')} {note}".lstrip()


def _number_of_paper(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _measured_as(column: str, rows: Sequence[Row]) -> str:
    """The scheme of our rows for the paper's: of an attack, that with the settings it names."""
    if not is_attack(column):
        return column
    wanted = named_settings(column)
    schemes = {row.get("eval_scheme", "") for row in rows}
    same = [
        scheme
        for scheme in filter(is_attack, schemes)
        if all(getattr(AttackSettings.parse(scheme), n) == v for n, v in wanted.items())
    ]
    return same[0] if len(same) == 1 else column


def _with_kinds(rows: Sequence[Row], papers: Sequence[PaperRow]) -> list[Row]:
    """The rows, and those of the subsets of a task that the paper names, as ``toksuite/lowercase``.

    The accuracy of a subset is that over its questions, with its interval.
    """
    named = [str(row["task"]).partition("/") for row in papers if "/" in str(row.get("task"))]
    subsets = dict.fromkeys((task, kind) for task, _, kind in named)
    parts = list(rows)
    for row in rows:
        for task, kind in subsets:
            keys = [key for key, own in row.get("kinds", {}).items() if own == kind]
            if row.get("task") != task or not keys:
                continue
            answers = {key: row["answers"][key] for key in keys}
            accuracy, low, high = clustered(list(answers.values()), row.get("draws", 1))
            parts.append(
                row
                | {"task": f"{task}/{kind}", "cell": f"{row.get('cell')}/{kind}", "n": len(keys)}
                | {"accuracy": accuracy, "low": low, "high": high, "answers": answers}
            )
    return parts
