"""Pages from Jinja templates: an HTML page is one file without external resources."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robustok.display import markdown_table
from robustok.files import write_whole
from robustok.report.examples import colored
from robustok.report.style import TOKEN_COLORS, colors


def render(name: str, **values: Any) -> str:
    """The page of a template, such as ``report.html``. HTML is escaped, Markdown is not."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("robustok.report"),
        autoescape=jinja2.select_autoescape(["html.jinja"]),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["breakable"] = _breakable
    environment.filters["whole"] = _whole
    template = environment.get_template(f"{name}.jinja")
    return template.render(token_colors=TOKEN_COLORS, table=markdown_table, **values)


def _breakable(text: object) -> Any:
    """A spec that may be broken after its separators, so that columns fit the page."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([(,=→/-])(?=\S)", r"\1<wbr>", str(escape(text))))


def _whole(text: str) -> str:
    """A text whose intervals stay on one line each."""
    return re.sub(r"\[[^\]]*\]", lambda match: match[0].replace(", ", ",\N{NO-BREAK SPACE}"), text)


def write_inspection(
    path: Path,
    text: str,
    total: int,
    shown: Sequence[dict[str, Any]],
    bars: Sequence[tuple[int, float, float]],
    samples: int,
) -> None:
    """Write the page of one text: its draws by scheme, and exact against drawn distances.

    `shown` holds `{"scheme", "draws"}` with draws as lists of token bytes, `bars` the
    (distance, exact share, drawn share) of every distance.
    """
    schemes = [
        {
            "name": entry["scheme"],
            "color": color,
            "draws": [{"html": colored(draw), "count": len(draw)} for draw in entry["draws"]],
        }
        for entry, color in zip(shown, colors([e["scheme"] for e in shown]), strict=True)
    ]
    tallest = max((max(exact, drawn) for _, exact, drawn in bars), default=1.0)
    page = render(
        "inspect.html",
        text=text,
        total=f"{total:,}",
        schemes=schemes,
        bars=bars,
        tallest=tallest,
        samples=f"{samples:,}",
    )
    write_whole(path, page)
