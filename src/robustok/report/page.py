"""Pages from Jinja templates: an HTML page is one file without external resources or scripts."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from robustok.runtime.display import markdown, markdown_table
from robustok.runtime.files import write_whole


class Entry(NamedTuple):
    """A cell of a table that is more than text, such as an accuracy."""

    text: str
    interval: str = ""
    change: str = ""  # from canonical questions
    heat: float = 0.0  # the share that was lost, for the shade
    consistency: str = ""  # the share of questions with one answer in all draws
    color: str = ""  # of a dot before the text

    def __str__(self) -> str:
        """All of it on one line."""
        text = f"{self.text} {self.interval}".strip()
        return ", ".join(filter(None, (text, self.change, self.consistency)))


class Table(NamedTuple):
    """The head, the lines (each cell a text or an :class:`Entry`) and a note above a table."""

    head: list[str]
    lines: list[list[Any]]
    note: str = ""

    @property
    def texts(self) -> list[list[str]]:
        """The lines as text alone."""
        return [[str(entry) for entry in line] for line in self.lines]


class Section(NamedTuple):
    """A part of a report: a title, a caption, a figure or none, and tables."""

    name: str
    title: str
    caption: str = ""
    tables: Sequence[Table] = ()
    figure: Path | None = None  # of the SVG, without the ending
    texts: bool = False  # whether the tables hold sentences
    folded: bool = False  # whether a reader of HTML has to open it

    @property
    def image(self) -> str:
        """The figure as a link for a page."""
        assert self.figure is not None
        svg = self.figure.with_name(f"{self.figure.name}.svg").read_bytes()
        return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


_WITHOUT = {"name": "", "about": "", "note": "", "missing": None, "progress": ""}


def write_page(out: Path, sections: Sequence[Section], **values: object) -> Path:
    """Write report.html and report.md, and return the first; markup in ``values`` is escaped."""
    import jinja2
    from markupsafe import Markup

    def escaped(value: object) -> Any:
        return value if isinstance(value, Markup) else markdown(value)

    for suffix in ("html", "md"):
        environment = jinja2.Environment(
            loader=jinja2.PackageLoader("robustok.report"),
            autoescape=jinja2.select_autoescape(["html.jinja"]),
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
            finalize=escaped if suffix == "md" else None,
        )
        environment.filters |= {"breakable": _breakable, "whole": _whole}
        environment.globals["table"] = lambda head, lines: Markup(markdown_table(head, lines))
        template = environment.get_template(f"report.{suffix}.jinja")
        text = template.render({**_WITHOUT, **values, "sections": sections})
        write_whole(out / f"report.{suffix}", text)
    return out / "report.html"


def _breakable(text: object) -> Any:
    """A spec that may be broken after its separators, so that columns fit the page."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"((?<!\s)\(|[,=→/-])(?=\S)", r"\1<wbr>", str(escape(text))))


_UNBROKEN = re.compile(r"\[[^\]]*\]|\bn = \d+")


def _whole(text: str) -> str:
    """The text with intervals and numbers of questions that no line end breaks.

    >>> _whole("23.3 [9.9, 42.3], n = 30").split(" ")
    ['23.3', '[9.9,\xa042.3],', 'n\xa0=\xa030']
    """
    return _UNBROKEN.sub(lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
