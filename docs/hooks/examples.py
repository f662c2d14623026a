"""For the reference: the examples of docstrings are shown as code, and so are Sphinx's roles."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
_ROLE = re.compile(r":[a-z]+:`(?:~[\w.]+\.)?([^`]+)`")  # of "~a.b.c" the last part


class Examples(griffe.Extension):
    """Puts a fence around every block that starts with a prompt, and makes code of every role."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            text = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
            obj.docstring.value = _ROLE.sub(r"`\1`", text)
