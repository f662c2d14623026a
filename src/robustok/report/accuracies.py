"""Tables of accuracy: of each model by evaluation scheme, and against canonical training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robustok.display import markdown_table
from robustok.errors import RobustokError
from robustok.files import write_whole
from robustok.report.comparison import Difference, clear_differences, difference
from robustok.report.merge import training
from robustok.report.names import one_line, short
from robustok.report.table import Results, Row, percent, points
from robustok.study.cells.models import FINETUNED, PRETRAINED

NOT_RUN = "not run"
FEW_SHOT = "few-shot examples"
Entry = dict[str, Any]


def accuracy_table(results: Results) -> tuple[list[str], list[list[Entry]]]:
    """Accuracy on canonical questions, on the most perturbed ones and under attack.

    >>> row = {"train": "uniform", "query": "canonical", "n": 9}
    >>> results = Results([row | {"accuracy": 0.9, "low": 0.8, "high": 0.95}])
    >>> accuracy_table(results)[1][0][1]["text"]
    '90.0'

    Args:
        results: merged rows.

    Returns the head and the lines. An entry of a line has `text`, the `interval` (empty where not
    measured), the `change` from canonical questions, `heat` from 0 to 1 for its shade, and all of
    it in `words`.
    """
    against = _compared(results)[1:]
    head = [first_title(results.rows), "canonical", *map(title, against)]
    lines = []
    for train in results.trains:
        line = [_entry(train)]
        for query in ("canonical", *against):
            row = results.get(train, query)
            change = results.change(train, query) if query != "canonical" else None
            line.append(_measured(row, change) if row else _entry(NOT_RUN))
        lines.append(line)
    return head, lines


def write_table(path: Path, results: Results) -> None:
    """Write the accuracies and their intervals as a table in Markdown, as README has it.

    >>> row = {"train": "uniform", "query": "canonical", "n": 9}
    >>> results = Results([row | {"accuracy": 0.9, "low": 0.8, "high": 0.95}])
    >>> write_table(Path("table.md"), results)
    >>> print(Path("table.md").read_text().splitlines()[2])
    | uniform | 90.0 [80.0, 95.0] |

    Args:
        path: the file to write.
        results: merged rows.

    Raises RobustokError for results without accuracies.
    """
    if not results.rows:
        raise RobustokError("there are no accuracies to write as a table: leave --table out")
    head, lines = accuracy_table(results)
    texts = [[f"{one['text']} {one['interval']}".strip() for one in line] for line in lines]
    write_whole(path, markdown_table(head, texts) + "\n")


def versus_canonical(results: Results) -> tuple[list[str], list[list[str]]]:
    """Accuracy of every model minus that of canonical training, on the same seeds and questions.

    >>> rows = [{"train": t, "query": "canonical", "n": 9, "accuracy": 0.9, "low": 0.8,
    ...          "high": 0.95} for t in ("canonical", "uniform")]
    >>> versus_canonical(Results(rows))[1]
    [['uniform', '0.0 [−11.5, +11.5]']]

    Args:
        results: merged rows.

    A star marks the differences of a column that Holm's method keeps. No lines where no model was
    trained canonically, or where several tasks or studies are shown.
    """
    base = next((t for t, bar in results.bars.items() if bar == "canonical"), None)
    others = [train for train in results.trains if train != base]
    varying = {name for row in results.rows for name in row.get("varying", ())}
    if base is None or varying - {"pretrain"}:
        return [], []
    columns = _compared(results)
    texts: dict[tuple[str, str], str] = {}
    for query in columns:
        first = results.get(base, query)
        rows = {train: row for train in others if first and (row := results.get(train, query))}
        kept = clear_differences({t: (first, row) for t, row in rows.items() if first})
        for train, row in rows.items():
            assert first is not None
            text = _change(difference(first, row))
            texts[train, query] = f"{text} *" if train in kept else text
    lines = [
        [train, *(texts.get((train, query), NOT_RUN) for query in columns)] for train in others
    ]
    return [f"minus {base}", *map(title, columns)], lines


def _compared(results: Results) -> list[str]:
    """Canonical questions, the most perturbed ones, and the attacks."""
    return [q for q in ("canonical", results.hardest, *results.attacks) if q]


def first_title(rows: Sequence[Row]) -> str:
    """Title of the column that names the models: by their training, or by the file of results."""
    if any("file" in row for row in rows):
        return "results of"
    if any("context" in row for row in rows):
        return FEW_SHOT
    kinds = {training(row) for row in rows}
    return "fine-tuned" if FINETUNED in kinds else "pre-trained" if PRETRAINED in kinds else "model"


def title(query: str) -> str:
    """An evaluation scheme as the title of a column."""
    from robustok.attack_settings import is_attack, is_suite

    return one_line(short(query)) if is_attack(query) or is_suite(query) else query


def _entry(text: str, **more: Any) -> Entry:
    return {"text": text, "interval": "", "change": "", "heat": 0.0, "words": text} | more


def _measured(row: Row, change: Difference | None) -> Entry:
    text = percent(row["accuracy"])
    interval = f"[{percent(row['low'])}, {percent(row['high'])}]"
    if change is None:
        return _entry(text, interval=interval, words=f"{text} {interval}")
    against = f"{_change(change)} from {percent(change.before)}"
    if percent(change.after) != text:
        against += f" to {percent(change.after)}"
    return _entry(
        text,
        interval=interval,
        change=against,
        heat=min(max(-change.mean, 0.0), 1.0),
        words=f"{text} {interval}, {against}",
    )


def _change(change: Difference) -> str:
    """The difference of the two accuracies as they are printed, and its interval."""
    mean = points(round(change.after, 3) - round(change.before, 3))
    return f"{mean} [{points(change.low)}, {points(change.high)}]"
