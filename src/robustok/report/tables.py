"""Tables of reports, from the :class:`~robustok.report.frame.Results` of a run, and the paper's.

A section is None where the results have nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from robustok.attack.settings import AttackSettings, is_attack, is_worst, named_settings
from robustok.evaluation.comparison import clear_differences, difference
from robustok.evaluation.intervals import clustered
from robustok.report.frame import (
    DEFAULTS,
    LEAST_SEEDS,
    DataFrame,
    Results,
    bounds,
    merged_layers,
    merged_perplexities,
    percent,
    points,
    points_text,
)
from robustok.report.page import Entry, Section, Table
from robustok.report.style import Row, grouped, one_line, short
from robustok.runtime.display import counted
from robustok.runtime.files import JsonFields
from robustok.study.models import FINETUNED, PRETRAINED
from robustok.tasks.benchmarks import HUB

FEW_SHOT = "few-shot examples"
NOT_RUN = "not run"


def missing_table(missing: Sequence[Row]) -> Table | None:
    """The planned measurements without a result (`missing` of run.json), by model and seed."""
    if not missing:
        return None
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
    """Accuracy on canonical questions, the most perturbed ones and under attack, by model."""
    schemes = compared(results)
    seeds = {
        name: max(len(row["seeds"]) for row in rows)
        for name, rows in grouped(results.rows, "name").items()
    }
    lines = [
        [
            Entry(
                name + _fewer_seeds(own, max(seeds.values())),
                color=results.colors[results.models[name]["spec"]],
            ),
            *(_entry(results, name, scheme, own) for scheme in schemes),
        ]
        for name, own in seeds.items()
    ]
    return Table([first_title(results.rows), *column_titles(schemes, results.eval_schemes)], lines)


def _fewer_seeds(seeds: int, most: int) -> str:
    """How many seeds a model, an accuracy or a difference has, where others have more."""
    return f" ({counted(seeds, 'seed')})" if seeds < most else ""


def accuracy_section(results: Results) -> Section | None:
    """The table of accuracies with its caption."""
    if results.frame.empty:
        return None
    return Section(
        "table",
        "Accuracy on canonical questions, on the most perturbed ones and under attack",
        "Accuracy in percent with its 95% interval. Beside it the change from the canonical "
        "tokenizations of the same questions, in points with its 95% interval: an attack is "
        "compared on the questions that it attacked. Consistency is the share of questions with "
        "the same answer, right or wrong, in all draws. Proved is the share of questions that no "
        "tokenization at an attack's distances breaks: all of them were scored.",
        [accuracy_table(results)],
    )


def compared(results: Results) -> list[str]:
    """Canonical questions, the most perturbed ones, and the attacks; all without any of these."""
    known = ("canonical", results.hardest or "", *results.attacks)
    return [scheme for scheme in known if scheme in results.eval_schemes] or results.eval_schemes


def _entry(results: Results, name: str, scheme: str, most_seeds: int) -> Entry:
    row = results.get(name, scheme)
    if row is None:
        return Entry(NOT_RUN)
    text = percent(row["accuracy"])
    interval = bounds(row) + _fewer_seeds(len(row["seeds"]), most_seeds)
    same = f"consistency {percent(row['consistency'])}" if row["consistency"] >= 0 else ""
    same = f"proved {percent(row['proved'])}" if row["proved"] >= 0 else same
    change = results.change(name, scheme) if scheme != "canonical" else None
    if change is None:
        return Entry(text, interval, consistency=same)
    against = f"{' '.join(points_text(change))} from {percent(change.before)}"
    if percent(change.after) != text:
        against += f" to {percent(change.after)}"
    return Entry(text, interval, against, min(max(-change.mean, 0.0), 1.0), same)


def kinds_section(results: Results) -> Section | None:
    """Accuracy on each kind of question, and others minus that, with a table for each model.

    The other questions are those of every scheme for the subsets of a benchmark, and attacked ones
    for the kinds of a game. None without questions of several kinds.
    """
    tables = [table for name in results.names if (table := _kinds_table(results, name))]
    caption = (
        "In percent, on canonical questions and on others; in brackets the difference from the "
        "canonical ones of the same questions in points, with 95% intervals over the seeds and the "
        "questions of the kind. A star marks the differences of a column that remain after Holm's "
        "correction."
    )
    title = "Accuracy by kind of question"
    return Section("kinds", title, caption, tables, folded=True) if tables else None


def _kinds_table(results: Results, name: str) -> Table | None:
    """A line for each kind of question, a column for each evaluation scheme; None without kinds."""
    base = results.get(name, "canonical")
    if base is None or not isinstance(base.get("kinds"), dict):
        return None
    schemes = results.eval_schemes if base["task"] in HUB else results.attacks
    rows = {scheme: results.get(name, scheme) for scheme in schemes if scheme != "canonical"}
    others = {scheme: row for scheme, row in rows.items() if row and _shares_answers(base, row)}
    keys: dict[str, set[str]] = {}
    for key, kind in base["kinds"].items():
        keys.setdefault(kind, set()).add(key)
    columns = [_texts_by_kind(base, other, keys) for other in others.values()]
    lines = [
        [kind, str(len(own)), _share(_part(base, own)), *(texts[kind] for texts in columns)]
        for kind, own in keys.items()
    ]
    head = name if len(results.names) > 1 else "kind"
    heads = [head, "questions", "canonical", *column_titles(others, results.eval_schemes)]
    return Table(heads, lines) if others else None


def _texts_by_kind(base: Row, other: Row, keys: Mapping[str, set[str]]) -> dict[str, str]:
    """The accuracy and its difference on each kind of question, as text."""
    pairs = {kind: (_part(base, own), _part(other, own)) for kind, own in keys.items()}
    known = {kind: pair for kind, pair in pairs.items() if _shares_answers(*pair)}
    changes = _change_texts(known)
    texts = {kind: f"{_share(pair[1])} ({changes[kind]})" for kind, pair in known.items()}
    return dict.fromkeys(keys, NOT_RUN) | texts


def _share(row: Row) -> str:
    """The accuracy of a row over its answers, in percent."""
    shares = [share for answers in row["answers"].values() for share in answers.values()]
    return percent(sum(shares) / len(shares)) if shares else NOT_RUN


def _part(row: Row, keys: set[str]) -> Row:
    """The answers of a row to some of its questions."""
    return {
        "answers": {
            seed: {key: share for key, share in answers.items() if key in keys}
            for seed, answers in row["answers"].items()
        }
    }


def _shares_answers(first: Row, second: Row) -> bool:
    """Whether both have answers to one question, in every seed that both have."""
    before, after = first["answers"], second["answers"]
    shared = [before[seed].keys() & after[seed] for seed in before if seed in after]
    return bool(shared and set.intersection(*map(set, shared)))


def versus_canonical(results: Results) -> Section | None:
    """Accuracy of every model minus that of canonical training, or of the first that exists."""
    bases = [n for n in results.names if results.exist or results.models[n]["spec"] == "canonical"]
    base = next(iter(bases), None)
    others = [name for name in results.names if name != base]
    if base is None or not others or set(results.varying) - {"pretrain_scheme"}:
        return None
    schemes = compared(results)
    columns = [_differences(results, scheme, base, others) for scheme in schemes]
    lines = [[name, *(column.get(name, NOT_RUN) for column in columns)] for name in others]
    table = Table([f"minus {base}", *column_titles(schemes, results.eval_schemes)], lines)
    what = FEW_SHOT if first_title(results.rows) == FEW_SHOT else "training"
    stars = "" if results.exist else ", given from three seeds on"
    return Section(
        "versus",
        f"Difference to {base if results.exist else f'canonical {what}'}",
        "In points, with 95% intervals, over the seeds and questions that both models have. A star "
        f"marks the differences of a column that remain after Holm's correction{stars}; the others "
        "establish no order.",
        [table],
    )


def _differences(results: Results, scheme: str, base: str, others: Sequence[str]) -> dict[str, str]:
    """Each model minus the first one under an evaluation scheme, where both were measured."""
    pairs = {
        name: (before, after)
        for name in others
        if (before := results.get(base, scheme)) and (after := results.get(name, scheme))
    }
    return _change_texts(pairs, 1 if results.exist else LEAST_SEEDS)


def _change_texts(pairs: Mapping[str, tuple[Row, Row]], least_seeds: int = 1) -> dict[str, str]:
    """The difference of each pair of rows, with a star where Holm's method keeps it."""
    kept = clear_differences(pairs)
    starred = {name for name, change in kept.items() if change.seeds >= least_seeds}
    changes = {name: difference(*pair) for name, pair in pairs.items()}
    most = max((change.seeds for change in changes.values()), default=0)
    return {
        name: " ".join(points_text(change))
        + " *" * (name in starred)
        + _fewer_seeds(change.seeds, most)
        for name, change in changes.items()
    }


def first_title(rows: Sequence[JsonFields]) -> str:
    """Title of the column that names the models, by their training."""
    if any(row.get("few_shot_scheme") for row in rows):
        return FEW_SHOT
    trainings = {row.get("training", FINETUNED) for row in rows}
    names = {FINETUNED: "fine-tuned", PRETRAINED: "pre-trained"}
    return next((names[training] for training in names if training in trainings), "model")


def column_titles(schemes: Iterable[str], among: Sequence[str]) -> list[str]:
    """Evaluation schemes as titles of columns; attacks as :func:`short` names them."""
    return [
        one_line(short(scheme, among)) if is_attack(scheme) or is_worst(scheme) else scheme
        for scheme in schemes
    ]


def perplexity_section(results: Results) -> Section | None:
    """A line for each pre-trained model, a column for each evaluation scheme."""
    merged = merged_perplexities(results.all_rows)
    if merged.empty:
        return None
    merged["text"] = [
        f"{row['perplexity']:.1f}"
        + f" [{row['lowest']:.1f}, {row['highest']:.1f}]" * (row["seeds"] > 1)
        + f", {row['bits_per_byte']:.3f} bits/byte"
        for _, row in merged.iterrows()
    ]
    trained = merged["training"].astype(bool).any()
    table = pivot(merged, "name", "eval_scheme", "pre-trained" if trained else "model")
    return Section(
        "perplexity",
        "Perplexity of held-out text",
        "Perplexity is per token of the drawn sequence; bits per byte are comparable between "
        "schemes and vocabularies. Brackets hold the lowest and the highest of the seeds.",
        [table],
    )


def pivot(frame: DataFrame, line: str, column: str, head: str, missing: str = NOT_RUN) -> Table:
    """The `text` of each row of a frame, by two of its columns in the order of the rows."""
    lines, columns = frame[line].unique(), frame[column].unique()
    texts = frame.pivot_table("text", line, column, "first").reindex(lines, columns=columns)
    values = texts.fillna(missing).to_numpy().tolist()
    return Table(
        [head, *map(str, columns)],
        [[str(name), *row] for name, row in zip(lines, values, strict=True)],
    )


def measurement_section(results: Results) -> Section | None:
    """Every row as text."""
    head = [first_title(results.rows), "evaluated with", "accuracy", "95% interval", "consistency",
            "n", "draws", "seeds", "seconds"]  # fmt: skip
    lines = [
        [
            row["name"],
            row["eval_scheme"],
            percent(row["accuracy"]),
            f"{percent(row['low'])} to {percent(row['high'])}",
            percent(row["consistency"]) if row["consistency"] >= 0 else "",
            str(row["n"]),
            str(row["draws"]),
            str(len(row["seeds"])),
            f"{row['seconds']:.1f}" if row["seconds"] >= 0 else "",
        ]
        for row in results.rows
    ]
    tables = [Table(head, lines)]
    if not lines:
        return None
    return Section("measurements", "All measurements", tables=tables, texts=True, folded=True)


PaperRow = Mapping[str, Any]  # of a study's `paper.tables`


def paper_section(paper: JsonFields, rows: Sequence[Row]) -> Section | None:
    """The paper's tables with ours in each cell: "ours [interval] / paper's (difference)".

    ``paper`` is that of the study and may be empty; the rows are of this study alone. At another
    scale than the full one the model is another one, and no difference is shown.
    """
    tables = []
    for table in paper.get("tables", ()):
        if table["rows"]:
            beside = _BESIDE[table["measure"]](table, rows)
            tables.append(beside._replace(note=f"{table.get('note', '')} {beside.note}".lstrip()))
    claims = " ".join(f"The paper: {claim}" for claim in paper.get("claims", ()))
    where = f"Comparison with the paper: {paper.get('where')}"
    return Section("paper", where, claims, tables) if tables else None


def _accuracies_beside(table: JsonFields, rows: Sequence[Row]) -> Table:
    papers, columns = table["rows"], table["columns"]
    results = Results(_with_kinds(rows, papers))
    ours = {
        (row["pretrain_scheme"], row["task"], row["spec"], row["eval_scheme"]): row
        for row in results.rows
    }
    task = next(iter(grouped(results.rows, "task")), "")
    is_full = all(row.get("scale", DEFAULTS["scale"]) == "full" for row in rows)
    schemes = [_measured_as(column, rows) for column in columns]
    titles = {"task": "task", "pretrain_scheme": "pre-trained", "train_scheme": first_title(rows)}
    names = [name for name in titles if any(row.get(name) for row in papers)]
    lines = []
    for paper in papers:
        model = paper["pretrain_scheme"] or "canonical", paper.get("task") or task
        cells = [
            _accuracy_beside(ours.get((*model, paper["train_scheme"], scheme)), theirs, is_full)
            for scheme, theirs in zip(schemes, paper["values"], strict=True)
        ]
        lines.append([*(paper[name] or "pre-trained" for name in names), *cells])
    note = "Each cell: our value with its 95% interval / the paper's value, "
    note += "and the difference in points." if is_full else "of a larger model."
    head = [*(titles[name] for name in names), *column_titles(columns, columns)]
    return Table(head, lines, note)


def _accuracy_beside(row: Row | None, theirs: float | None, is_full: bool) -> str:
    """Our accuracy beside the paper's, in percent, with the difference at the full scale."""
    text = f"{percent(row['accuracy'])} {bounds(row)}" if row else NOT_RUN
    text += f" / {_number_of_paper(theirs, 1)}"
    if row and theirs is not None and is_full:
        text += f" ({points(row['accuracy'] - theirs / 100)})"
    return text


def _perplexities_beside(table: JsonFields, rows: Sequence[Row]) -> Table:
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
    head = [first_title(rows), *column_titles(table["columns"], table["columns"])]
    return Table(head, lines, note)


def _distances_beside(table: JsonFields, rows: Sequence[Row]) -> Table:
    """A line for each layer, of words alone, beside the paper's at the same share of the depth."""
    ours = {
        (row["model"], int(row["layer"])): f"{row['mean']:.3f}"
        for _, row in merged_layers(rows).iterrows()
        if not row["sentence"]
    }
    models, deepest = {model for model, _ in ours}, len(table["columns"]) - 1
    last = max((layer for _, layer in ours), default=deepest)
    lines = []
    for layer in range(last + 1):
        theirs = round(layer * deepest / max(last, 1))
        cells = []
        for paper in table["rows"]:
            model = paper["train_scheme"]
            text = ours.get((model, layer), "–" if model in models else NOT_RUN)
            cells.append(f"{text} / {_number_of_paper(paper['values'][theirs], 3)}")
        lines.append([str(layer) if last == deepest else f"{layer} / {theirs}", *cells])
    head = ["layer", *(paper["train_scheme"] for paper in table["rows"])]
    note = "Each cell: our value / the paper's value, at the same share of the layers."
    return Table(head, lines, note)


_BESIDE = {  # a table of the paper with ours, by its measure
    "accuracy": _accuracies_beside,
    "perplexity": _perplexities_beside,
    "embeddings": _distances_beside,
}


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
    """The rows, and those of the subsets of a task that the paper names: ``toksuite/lowercase``."""
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
