"""Tokenizations in color as HTML without scripts: one box for each token."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from robustok.display import visible
from robustok.report.style import TOKEN_COLORS, colors


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


def groups(examples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The record of the examples cell, grouped by text and then by scheme."""
    schemes = list(dict.fromkeys(entry["scheme"] for entry in examples))
    color = dict(zip(schemes, colors(schemes), strict=True))
    by_text: dict[str, list[dict[str, Any]]] = {}
    for entry in examples:
        draws = [[token.encode("latin-1") for token in draw] for draw in entry["draws"]]
        by_text.setdefault(entry["text"], []).append(
            {
                "name": entry["scheme"],
                "color": color[entry["scheme"]],
                "draws": [{"html": colored(draw), "count": len(draw)} for draw in draws],
            }
        )
    return [{"text": text, "schemes": drawn} for text, drawn in by_text.items()]
