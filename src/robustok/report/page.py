"""Pages from Jinja templates: an HTML page is one file without external resources or scripts.

Beside the page of a report: tokenizations in color, and the page of an audit.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from robustok.guard.audit import Drift, DriftExample
from robustok.report.style import TOKEN_COLORS, colors
from robustok.runtime.display import markdown, markdown_table, visible
from robustok.runtime.files import JsonFields, JsonObject, write_whole
from robustok.tokenizer.vocabulary import Vocabulary


class Entry(NamedTuple):
    """A cell of a table that is more than text, such as an accuracy.

    ``interval`` is empty where it was not measured, ``change`` is that from canonical questions,
    ``heat`` the share of it that was lost, from 0 to 1, for the shade, ``consistency`` the share of
    questions with one answer in all draws; ``color`` is that of a dot before the text.
    """

    text: str
    interval: str = ""
    change: str = ""
    heat: float = 0.0
    consistency: str = ""
    color: str = ""

    def __str__(self) -> str:
        """All of it on one line."""
        text = f"{self.text} {self.interval}".strip()
        return ", ".join(filter(None, (text, self.change, self.consistency)))


class Table(NamedTuple):
    """The head, the lines (each cell a text or an :class:`Entry`) and a note above a table."""

    head: list[str]
    lines: list[list[Any]]
    note: str = ""

    @classmethod
    def of(cls, lines: Sequence[JsonFields]) -> Table:
        """A table of lines that name their cells.

        >>> Table.of([{"task": "copa", "n": "100"}])
        Table(head=['task', 'n'], lines=[['copa', '100']], note='')
        """
        head = [*lines[0]] if lines else []
        return cls(head, [[line[name] for name in head] for line in lines])

    @property
    def texts(self) -> list[list[str]]:
        """The lines as text alone."""
        return [[str(entry) for entry in line] for line in self.lines]


class Section(NamedTuple):
    """A part of a report: a title, a caption, a figure or none, and tables.

    ``figure`` is the path of its SVG without the ending.
    """

    name: str
    title: str
    caption: str = ""
    tables: Sequence[Table] = ()
    figure: Path | None = None

    @property
    def image(self) -> str:
        """The figure as a link for a page."""
        assert self.figure is not None
        svg = self.figure.with_name(f"{self.figure.name}.svg").read_bytes()
        return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def write_page(out: Path, **values: object) -> Path:
    """Write report.html and report.md of a study, and return the first."""
    for suffix in ("html", "md"):
        write_whole(out / f"report.{suffix}", render(f"report.{suffix}", **values))
    return out / "report.html"


def render(name: str, /, **values: object) -> str:
    """The page of a template, such as ``report.html``. Markup in the values is escaped."""
    import jinja2
    from markupsafe import Markup

    def escaped(value: object) -> Any:
        return value if isinstance(value, Markup) else markdown(value)

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("robustok.report"),
        autoescape=jinja2.select_autoescape(["html.jinja"]),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=escaped if name.endswith(".md") else None,
    )
    environment.filters["breakable"] = _breakable
    environment.filters["whole"] = _whole
    environment.globals |= {
        "token_colors": TOKEN_COLORS,
        "table": lambda head, lines: Markup(markdown_table(head, lines)),
    }
    return environment.get_template(f"{name}.jinja").render(**values)


def _breakable(text: object) -> Any:
    """A spec that may be broken after its separators, so that columns fit the page."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([(,=→/-])(?=\S)", r"\1<wbr>", str(escape(text))))


_UNBROKEN = re.compile(r"\[[^\]]*\]|\bn = \d+")


def _whole(text: str) -> str:
    """The text with intervals and numbers of questions that no line end breaks.

    >>> _whole("23.3 [9.9, 42.3], n = 30").split(" ")
    ['23.3', '[9.9,\xa042.3],', 'n\xa0=\xa030']
    """
    return _UNBROKEN.sub(lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), text)


def colored(tokens: Sequence[bytes]) -> str:
    """One tokenization as a row of boxes.

    >>> colored([b"un", b" it"])
    '<span class="tok t0">un</span><span class="tok t1">·it</span>'

    A space is shown as a middle dot, and bytes that are no text of their own as `<E2>`.
    """
    return "".join(
        f'<span class="tok t{i % len(TOKEN_COLORS)}">{escape(visible(token))}</span>'
        for i, token in enumerate(tokens)
    )


def example_groups(examples: Sequence[JsonObject]) -> list[JsonObject]:
    """The record of the examples cell, grouped by text and then by scheme."""
    by_text: dict[str, list[JsonObject]] = {}
    for entry in examples:
        draws = [[token.encode("latin-1") for token in draw] for draw in entry["draws"]]
        by_text.setdefault(entry["text"], []).append(entry | {"draws": draws})
    return [{"text": text, "schemes": _draws(drawn)} for text, drawn in by_text.items()]


def _draws(entries: Sequence[JsonObject]) -> list[JsonObject]:
    """The draws of each scheme as HTML, with the number of tokens."""
    tints = colors([entry["scheme"] for entry in entries])
    return [
        {
            "name": entry["scheme"],
            "color": color,
            "draws": [{"html": colored(draw), "count": len(draw)} for draw in entry["draws"]],
        }
        for entry, color in zip(entries, tints, strict=True)
    ]


DriftTable = tuple[str, tuple[str, ...], list[tuple[str, ...]]]  # title, columns, rows


def drift_tables(drift: Drift) -> list[DriftTable]:
    """The tables of an audit that have rows: by turn, role, position, token; exchanges of ids.

    >>> from robustok.guard import Audit
    >>> audit = Audit(vocab)
    >>> _ = audit.add([[*vocab.encode("t"), *vocab.encode("he")]], roles=["assistant"])
    >>> [(title, len(rows)) for title, _, rows in drift_tables(audit.report())]
    [('by role', 1), ('by position', 1), ('by token', 2), ('given', 1)]
    """
    counts = ("ids", "drifted", "share")
    grouped = ("sequences", "with drift", *counts)
    tables: list[DriftTable] = [
        ("by turn", ("turn", *grouped), [_group_line(group) for group in drift.by_turn]),
        ("by role", ("role", *grouped), [_group_line(group) for group in drift.by_role]),
        (
            "by position",
            ("position", *counts),
            [(f"{p.begin} to {p.end - 1}", *_drift_counts(p)) for p in drift.by_position],
        ),
        (
            "by token",
            ("token", *counts),
            [(repr(t.token), *_drift_counts(t)) for t in drift.by_token],
        ),
        (
            "given",
            ("given", "canonical", "times"),
            [(repr(e.given), repr(e.becomes), f"{e.times:,}") for e in drift.exchanges],
        ),
    ]
    return [table for table in tables if table[2]]


def write_drift(
    path: Path, drift: Drift, vocab: Vocabulary, name: str, where: Callable[[int], str]
) -> None:
    """Write the page of an audit of ``name``; ``where`` gives the place of a row by its number."""
    page = render(
        "audit.html",
        drift=drift,
        share=share,
        path=name,
        tables=drift_tables(drift),
        examples=[_drift_example(example, vocab, where) for example in drift.examples],
    )
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


def _group_line(group: Any) -> tuple[str, ...]:
    return (group.name, f"{group.rows:,}", f"{group.drifted_rows:,}", *_drift_counts(group))


def _drift_counts(entry: Any) -> tuple[str, str, str]:
    return f"{entry.ids:,}", f"{entry.drifted:,}", share(entry.drifted, entry.ids)


def _drift_example(
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
