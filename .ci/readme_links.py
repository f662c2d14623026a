"""Make the relative links of README.md absolute, for a package index.

    python .ci/readme_links.py README.md https://github.com/OWNER/NAME TAG

The file is replaced. Images point to the raw files of the tag, and other links to its pages.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

IMAGES = (".png", ".svg")
# A link or an image in Markdown, but not one to another site or within the page.
_RELATIVE = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def absolute(text: str, repository: str, tag: str) -> str:
    """The text with absolute links.

    >>> absolute("![a](docs/a.png) [b](docs/b.md#c)", "https://github.com/o/n", "v1")
    '![a](https://github.com/o/n/raw/v1/docs/a.png) [b](https://github.com/o/n/blob/v1/docs/b.md#c)'
    """

    def link(match: re.Match[str]) -> str:
        kind = "raw" if match[1].endswith(IMAGES) else "blob"
        return f"]({repository}/{kind}/{tag}/{match[1]})"

    return _RELATIVE.sub(link, text)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(absolute(path.read_text("utf-8"), *sys.argv[2:]), "utf-8")
