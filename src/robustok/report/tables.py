"""Tables of reports, from the :class:`~robustok.report.frame.Results` of a run, and the paper's.

A section is None where the results have nothing for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    Row,
    bounds,
    merged_layers,
    merged_perplexities,
    percent,
    points,
    points_text,
)
from robustok.report.page import Entry, Section, Table
from robustok.report.style import grouped, one_line, short
from robustok.runtime.files import JsonFields
from robustok.study.cells.models import FINETUNED, PRETRAINED
from robustok.tasks.benchmarks import HUB

FEW_SHOT = "few-shot examples"
NOT_RUN = "not run"
_ELSEWHERE = (
    "name",
    "title",
    "about",
    "scale",
    "threads",
    "paper",
    "readme",
    "repeats",  # as seeds
    "first_repeat",
)  # on the page
_NOT_OF_NAMED = ("tied", "architecture", "parameters")  # a model with a name has its own


def settings_section(study: JsonFields) -> Section | None:
    """What a study ran: the fields of each section that have a value, by their YAML names."""
    lines = [
        [name, _value_text(part)]
        for name, value in study.items()
        if "model" in study and name not in _ELSEWHERE
        for part in (value if isinstance(value, list) else [value])
        if part is not None
    ]
    table = Table(["section", "fields"], lines)
    return Section("settings", "Settings", tables=[table], texts=True) if lines else None


def _value_text(value: object) -> str:
    if isinstance(value, dict):
        left_out = _NOT_OF_NAMED if value.get("name") else ()
        return "; ".join(
            name if one is True else f"{name} {_value_text(one)}"
            for name, one in value.items()
            if not (one is None or one is False or one == [] or name in left_out)
        )
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


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
    """Accuracy on canonical questions, the most perturbed ones and under attack, a model a line."""
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
    return Table([first_title(results.rows), *map(title, schemes)], lines)


def _fewer_seeds(seeds: int, most: int) -> str:
    """How many seeds a model, an accuracy or a difference has, where others have more."""
    return f" ({seeds} seed{'s' * (seeds > 1)})" if seeds < most else ""


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
    """Accuracy on each subset of a benchmark, and of every evaluation scheme minus canonical there.

    A table a model; none without a benchmark whose questions are of several kinds.
    """
    tables = [table for name in results.names if (table := _kinds_table(results, name))]
    caption = (
        "In percent on canonical questions; of the other schemes in points from there, with "
        "95% intervals over the seeds and the questions of the subset, question by question. "
        "A star marks the differences of a column that remain after Holm's correction."
    )
    return Section("kinds", "Accuracy by subset", caption, tables) if tables else None


def _kinds_table(results: Results, name: str) -> Table | None:
    """A line a kind of question of a benchmark, a column an evaluation scheme; None elsewhere."""
    rows = {scheme: results.get(name, scheme) for scheme in results.eval_schemes}
    base = rows.pop("canonical", None)
    if base is None or base["task"] not in HUB or not isinstance(base.get("kinds"), dict):
        return None
    others = {scheme: row for scheme, row in rows.items() if row and _shares_answers(base, row)}
    keys: dict[str, set[str]] = {}
    for key, kind in base["kinds"].items():
        keys.setdefault(kind, set()).add(key)
    changes = [_changes_by_kind(base, other, keys) for other in others.values()]
    lines = [
        [kind, str(len(own)), _share(_part(base, own)), *(texts[kind] for texts in changes)]
        for kind, own in keys.items()
    ]
    head = name if len(results.names) > 1 else "subset"
    return Table([head, "questions", "canonical", *map(title, others)], lines) if others else None


def _changes_by_kind(base: Row, other: Row, keys: Mapping[str, set[str]]) -> dict[str, str]:
    """The difference on each kind of question, as text."""
    pairs = {kind: (_part(base, own), _part(other, own)) for kind, own in keys.items()}
    known = {kind: pair for kind, pair in pairs.items() if _shares_answers(*pair)}
    return dict.fromkeys(keys, NOT_RUN) | _change_texts(known)


def attacked_kinds_section(results: Results) -> Section | None:
    """Accuracy under attack on each kind of question of a game: a table an attack, a line a model.

    None without questions of several kinds that were attacked.
    """
    tables = []
    for scheme in results.attacks:
        rows = {name: results.get(name, scheme) for name in results.names}
        kept = {name: row for name, row in rows.items() if row and _is_of_game(row)}
        keys: dict[str, set[str]] = {}
        for row in kept.values():
            for key in next(iter(row["answers"].values())):
                keys.setdefault(row["kinds"].get(key, ""), set()).add(key)
        if len(keys) > 1:
            heads = [f"{kind} ({len(own)})" for kind, own in keys.items()]
            parts = {name: [_part(row, own) for own in keys.values()] for name, row in kept.items()}
            lines = [[name, *map(_share, own)] for name, own in parts.items()]
            tables.append(Table([title(scheme), *heads], lines))
    caption = (
        "Accuracy in percent, over all seeds; in brackets the number of attacked questions of the "
        "kind. One mean over kinds hides how different they are."
    )
    about = "Accuracy under attack, by kind of question"
    return Section("attacked-kinds", about, caption, tables) if tables else None


def _is_of_game(row: Row) -> bool:
    """Whether a row has answers to questions of several kinds, and is of no benchmark."""
    return bool(row["answers"]) and isinstance(row.get("kinds"), dict) and row["task"] not in HUB


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
    """Accuracy of every model minus that of canonical training, or of the first that exists.

    None where no model was trained canonically, and where several tasks or studies are shown.
    """
    bases = [n for n in results.names if results.exist or results.models[n]["spec"] == "canonical"]
    base = next(iter(bases), None)
    others = [name for name in results.names if name != base]
    if base is None or not others or set(results.varying) - {"pretrain_scheme"}:
        return None
    tables = [_differences(results, f"minus {base}", {name: (base, name) for name in others})]
    what = FEW_SHOT if first_title(results.rows) == FEW_SHOT else "training"
    stars = "" if results.exist else ", given from three seeds on"
    return Section(
        "versus",
        f"Difference to {base if results.exist else f'canonical {what}'}",
        "In points, with 95% intervals, over the seeds and questions that both models have. A star "
        f"marks the differences of a column that remain after Holm's correction{stars}; the others "
        "establish no order.",
        tables,
    )


def _differences(results: Results, head: str, pairs: Mapping[str, tuple[str, str]]) -> Table:
    """The second model minus the first of each pair, a column an evaluation scheme."""
    schemes = compared(results)
    columns = [
        _change_texts(
            {
                label: (before, after)
                for label, (first, second) in pairs.items()
                if (before := results.get(first, scheme)) and (after := results.get(second, scheme))
            },
            1 if results.exist else LEAST_SEEDS,
        )
        for scheme in schemes
    ]
    lines = [[label, *(column.get(label, NOT_RUN) for column in columns)] for label in pairs]
    return Table([head, *map(title, schemes)], lines)


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


def title(scheme: str) -> str:
    """An evaluation scheme as the title of a column."""
    return one_line(short(scheme)) if is_attack(scheme) or is_worst(scheme) else scheme


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
    if row["seeds"] > 1:
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
    tables = [
        _BESIDE[table["measure"]](table, rows) for table in paper.get("tables", ()) if table["rows"]
    ]
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
    task = next((row["task"] for row in results.rows), "")
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
    head = [*(titles[name] for name in names), *map(title, columns)]
    return Table(head, lines, _after_own_note(table, note))


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
    head = [first_title(rows), *map(title, table["columns"])]
    return Table(head, lines, _after_own_note(table, note))


def _distances_beside(table: JsonFields, rows: Sequence[Row]) -> Table:
    """A line a layer, of words alone, as the paper measured them.

    A model of another depth stands beside the paper's layers at the same share of its depth, the
    last one beside the last.
    """
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
    return Table(head, lines, _after_own_note(table, note))


_BESIDE = {  # a table of the paper with ours, by its measure
    "accuracy": _accuracies_beside,
    "perplexity": _perplexities_beside,
    "embeddings": _distances_beside,
}


def _after_own_note(table: JsonFields, note: str) -> str:
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
