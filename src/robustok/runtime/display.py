"""Tokens, tables and progress as text, the same in every command and page."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal

Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""


def no_progress(done: int, total: int) -> None:
    """What is called by default, which reports nothing."""


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "text"), counted(2000, "text")
    ('1 text', '2,000 texts')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


_VISIBLE = {" ": "·", "\n": "↵", "\t": "⇥"}


def visible(token: bytes) -> str:
    """The bytes of a token as text, with visible marks for invisible characters.

    >>> visible(b" a"), visible(b"\\xe2")
    ('·a', '<E2>')

    A space is a middle dot, a line feed `↵`, a tab `⇥`. Another unprintable character is its
    code, and a token that is not UTF-8 by itself its bytes, in hexadecimal.
    """
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "".join(f"<{byte:02X}>" for byte in token)
    return "".join(_VISIBLE.get(c, c if c.isprintable() else f"<{ord(c):02X}>") for c in text)


# What begins code, a tag, an entity or a link, or ends a cell; all other text stays as it is.
_MARKUP = re.compile(r"[`|]|\\(?=[!-/:-@\[-`{-~])|<(?=[A-Za-z/!?])|&(?=#?\w+;)|\](?=[(\[:])")

_ENTITIES = {"<": "&lt;", "&": "&amp;"}  # not every reader takes a backslash before these


def markdown(text: object) -> str:
    """A text as one line of Markdown that shows it: code, tags, links and pipes are escaped.

    >>> print(markdown("<b> | [a](b)"))
    &lt;b> \\| [a\\](b)
    """
    line = " ".join(str(text).splitlines())
    return _MARKUP.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), line)


def markdown_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, its first column aligned to the left and the others to the right.

    Markup in a cell is shown as :func:`markdown` does.

    >>> print(markdown_table(["task", "n"], [["copa", "100"]]))
    | task | n |
    | --- | --: |
    | copa | 100 |
    """
    rule = ["---", *["--:"] * (len(head) - 1)]
    cells = [[markdown(cell) for cell in line] for line in (head, rule, *lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def power_text(number: int | Decimal) -> str:
    """A large number by its power of ten.

    >>> power_text(13 * 10**345)
    '≈ 1.3·10³⁴⁶'
    """
    digits, _, power = f"{Decimal(number):.1e}".partition("e+")
    return f"≈ {digits}·10{power.translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
