"""Checks of a browser's requests: every value is bounded, which limits the time of an answer."""

from __future__ import annotations

import json
from typing import Any

from robustok.errors import RobustokError
from robustok.samplers.parameters import Number, schemes_in
from robustok.samplers.registry import scheme_class
from robustok.samplers.spec import Spec

LONGEST = 200  # characters of a text
OPTIONS = 8  # of a question, at most
DEEPEST = 2  # schemes inside one another


def read_question(body: bytes) -> dict[str, Any]:
    """The JSON object of a request; raises RobustokError for anything else.

    >>> read_question(b'{"text": "hello"}')
    {'text': 'hello'}
    """
    try:
        question = json.loads(body, parse_constant=_no_constant)
        # A lone surrogate can be written in JSON, but is no text.
        json.dumps(question, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise RobustokError("the question is not JSON") from None
    if not isinstance(question, dict):
        raise RobustokError("ask with a JSON object")
    return question


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def text_of(question: dict[str, Any]) -> str:
    """The text of a question."""
    return check_text(question.get("text"))


def check_text(text: Any) -> str:
    """The text; raises RobustokError if it is not a string or too long."""
    if not isinstance(text, str) or not text:
        raise RobustokError("type a text")
    if len(text) > LONGEST:
        raise RobustokError(f"a text of at most {LONGEST} characters; this one has {len(text)}")
    return text


def options_of(question: dict[str, Any]) -> list[str]:
    """The options of a question, the right one first."""
    options = question.get("options")
    if not isinstance(options, list) or not all(isinstance(o, str) and o for o in options):
        raise RobustokError("give the options, a line each, the right one first")
    if not 2 <= len(options) <= OPTIONS:
        raise RobustokError(f"give 2 to {OPTIONS} options, the right one first")
    return [check_text(option) for option in options]


def seed_of(question: dict[str, Any]) -> int:
    """The seed of a question, 0 if it has none."""
    seed = question.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise RobustokError("a seed is a whole number from 0 to 2147483647")
    return seed


def spec_of(question: dict[str, Any]) -> str:
    """The spec of a question, checked by :func:`check_spec`."""
    spec = question.get("scheme", "uniform")
    if not isinstance(spec, str) or len(spec) > 200:
        raise RobustokError("name a scheme, such as uniform")
    check_spec(spec)
    return spec


def check_spec(spec: str | Spec, depth: int = 1) -> None:
    """Raise RobustokError for a spec whose draws may take long.

    >>> check_spec("stochastok(alpha=5000)")
    Traceback (most recent call last):
    ...
    robustok.errors.RobustokError: stochastok: alpha is 5000, and at most 1000 here
    """
    parsed = Spec.parse(spec)
    if depth > DEEPEST:
        raise RobustokError(f"at most {DEEPEST} schemes inside one another here")
    scheme = scheme_class(parsed.name)
    for name, value in parsed.params.items():
        kind = scheme.parameters[name]
        if isinstance(kind, Number) and isinstance(value, int | float) and value > kind.quick:
            raise RobustokError(
                f"{parsed.name}: {name} is {value:g}, and at most {kind.quick:g} here"
            )
        for inner in schemes_in(value):
            inner_scheme = scheme_class(inner.name)
            if scheme.repeats and inner_scheme.inner:
                raise RobustokError(
                    f"{parsed.name} takes no {inner.name} here: it would draw too often"
                )
            check_spec(inner, depth + 1)
