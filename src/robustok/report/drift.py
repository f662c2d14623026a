"""The page and the tables of a drift audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from robustok.display import visible
from robustok.files import write_whole
from robustok.guard.audit import Drift, DriftExample
from robustok.report.examples import colored
from robustok.report.page import render
from robustok.vocabulary import Vocabulary

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]  # title, columns, rows


def drift_tables(drift: Drift) -> list[Table]:
    """The tables of an audit: by turn, role, position and token, and the exchanges of ids.

    >>> from robustok.guard import Audit
    >>> audit = Audit(vocab)
    >>> _ = audit.add([[*vocab.encode("t"), *vocab.encode("he")]], roles=["assistant"])
    >>> [(title, len(rows)) for title, _, rows in drift_tables(audit.report())]
    [('by role', 1), ('by position', 1), ('by token', 2), ('given', 1)]

    Args:
        drift: the totals. Tables without rows are left out.
    """
    counts = ("ids", "drifted", "share")
    grouped = ("sequences", "with drift", *counts)
    tables: list[Table] = [
        ("by turn", ("turn", *grouped), [_group_row(group) for group in drift.by_turn]),
        ("by role", ("role", *grouped), [_group_row(group) for group in drift.by_role]),
        ("by position", ("position", *counts), [
            (f"{p.begin} to {p.end - 1}", *_counts(p)) for p in drift.by_position
        ]),
        ("by token", ("token", *counts), [(repr(t.token), *_counts(t)) for t in drift.by_token]),
        ("given", ("given", "canonical", "times"), [
            (repr(e.given), repr(e.becomes), f"{e.times:,}") for e in drift.exchanges
        ]),
    ]  # fmt: skip
    return [table for table in tables if table[2]]


def write_drift(
    path: Path, drift: Drift, vocab: Vocabulary, name: str, where: Callable[[int], str]
) -> None:
    """Write the page of an audit.

    Args:
        path: the HTML file.
        drift: the totals.
        vocab: the vocabulary that the ids were checked against.
        name: what was audited.
        where: gives the place of a row, by its number.
    """
    page = render(
        "audit.html", drift=drift, share=share, path=name, tables=drift_tables(drift),
        examples=[_example(example, vocab, where) for example in drift.examples],
    )  # fmt: skip
    write_whole(path, page)


def share(part: int, whole: int) -> str:
    """A share in percent: two significant digits, no exponent, 100% only where it is all.

    >>> share(1, 800), share(799, 800), share(800, 800), share(996, 1000)
    ('0.12%', '99.9%', '100%', '99.6%')
    """
    if not part or part == whole:
        return "100%" if part else "0%"
    percent = 100 * part / whole
    if percent < 10:
        return f"{percent:.2g}%" if percent >= 0.0001 else "<0.0001%"
    return f"{min(percent, 99.9):.1f}%" if percent > 99 else f"{percent:.0f}%"


def _group_row(group: Any) -> tuple[str, ...]:
    return (group.name, f"{group.rows:,}", f"{group.drifted_rows:,}", *_counts(group))


def _counts(entry: Any) -> tuple[str, str, str]:
    return f"{entry.ids:,}", f"{entry.drifted:,}", share(entry.drifted, entry.ids)


def _example(
    example: DriftExample, vocab: Vocabulary, where: Callable[[int], str]
) -> dict[str, str]:
    place = where(example.row)
    if example.turn is not None:
        place += f", turn {example.turn} ({example.role})"
    known = [
        [vocab.tokens[i] if 0 <= i < vocab.size else f"<{i}?>".encode() for i in ids]
        for ids in (example.before, example.ids, example.canonical, example.after)
    ]
    before, ids, canonical, after = known
    return {
        "where": f"{place}, ids {example.begin} to {example.end - 1}",
        "given": _marked(before, ids, after),
        "canonical": _marked(before, canonical, after),
    }


def _marked(before: Sequence[bytes], tokens: Sequence[bytes], after: Sequence[bytes]) -> str:
    """The tokens of a finding as boxes, between plain text."""
    head, tail = (
        escape(visible(b"".join(part).decode(errors="replace").encode()))
        for part in (before, after)
    )
    return head + colored(tokens) + tail
