"""Checks of what a browser asks: every value is bounded, so that every answer comes soon."""

from __future__ import annotations

import json
from typing import Any

from robustok.errors import RobustokError
from robustok.samplers.registry import SCHEMES, parse

LONGEST = 200  # characters of a text
OPTIONS = 8  # of a question, at most
LARGEST = 1000  # of a number in a spec
MOST_WAYS = 4  # tokens that stochastok replaces one by; the list grows exponentially
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
    """The text, or RobustokError where it is none or too long."""
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


def check_spec(spec: str, depth: int = 1) -> None:
    """Raise RobustokError for a spec whose draws may take long.

    >>> check_spec("stochastok(alpha=1e9)")
    Traceback (most recent call last):
    ...
    robustok.errors.RobustokError: stochastok: alpha is 1e+09, and at most 1000 here
    """
    if depth > DEEPEST:
        raise RobustokError(f"at most {DEEPEST} schemes inside one another here")
    name, arguments = parse(spec)
    inner = SCHEMES[name].inner
    for parameter, value in arguments.items():
        if parameter == inner:
            for part in value:
                _check_inner(name, part, depth)
            continue
        limit = MOST_WAYS if parameter == "ways" else LARGEST
        if isinstance(value, int | float) and not -limit <= value <= limit:
            raise RobustokError(f"{name}: {parameter} is {value:g}, and at most {limit} here")


def _check_inner(outer: str, part: str, depth: int) -> None:
    weight, _, rest = part.partition(" ")  # mix(0.5 uniform, 0.5 canonical)
    spec = rest if rest and weight.replace(".", "", 1).isdecimal() else part
    if outer == "exactly" and parse(spec)[0] in ("exactly", "mix"):
        raise RobustokError("exactly takes no exactly and no mix here: it would draw too often")
    check_spec(spec, depth + 1)
