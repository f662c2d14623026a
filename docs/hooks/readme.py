"""For the index: `{{ README }}` is the README, with its links as seen from this folder.

A link to a file outside `docs/` becomes its text, since the site does not have that file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

README = Path(__file__).parents[2] / "README.md"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)\s]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace("{{ README }}", in_docs(README.read_text(encoding="utf-8")))


def in_docs(text: str) -> str:
    """The text with links that are relative to `docs/`.

    >>> in_docs("[Train](docs/training.md#a), [Apache-2.0](LICENSE)")
    '[Train](training.md#a), Apache-2.0'
    """

    def link(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        inside = target.removeprefix("docs/")
        return f"{mark}[{label}]({inside})" if inside != target else label

    return _LINK.sub(link, text)
