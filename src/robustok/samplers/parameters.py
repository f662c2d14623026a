"""The parameters of a scheme as data: range, default, schedule, and form in a spec string.

A scheme class lists them in ``Sampler.parameters``, and what it requires of a tokenizer in
``Sampler.needs``. Spec strings are read, checked and normalized by these alone, without a
vocabulary. Parameters that hold other schemes are in :mod:`robustok.samplers.spec`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from robustok.checks import (
    MAX_COUNT,
    MAX_STRENGTH,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    check_count,
    check_number,
    shown,
)
from robustok.errors import RobustokError
from robustok.tokenizer.vocabulary import Vocabulary

REQUIRED: Any = object()  # the default of a parameter that must be given


class Ramp(NamedTuple):
    """A number that moves on a straight line while a model trains, ``0.1->1`` in a spec.

    >>> str(Ramp(0.1, 1)), Ramp(0.1, 1).at(0.5)
    ('0.1->1', 0.55)
    """

    start: float
    stop: float

    def __str__(self) -> str:
        return f"{show(self.start)}->{show(self.stop)}"

    def at(self, progress: float) -> float:
        """The number at ``progress``, from 0 (first step) to 1 (last)."""
        return float(f"{self.start + (self.stop - self.start) * progress:.9g}")


class SearchRange(NamedTuple):
    """Where :func:`robustok.at_strength` looks for the value of a strength parameter."""

    low: float
    high: float
    highest: float  # ``high`` grows up to here where the target is beyond it
    geometric: bool = False  # halve the logarithm: for a parameter with a ratio scale


_SHARE = SearchRange(0.0, 1.0, 1.0)


class Parameter:
    """What a parameter takes, how it moves while a model trains, and its form in a spec string."""

    default: Any

    def check(self, scheme: str, name: str, value: object) -> Any:
        """The value, normalized; raises RobustokError for one that the scheme does not take."""
        raise NotImplementedError

    def at(self, value: object, progress: float) -> Any:
        """The value at a moment of training."""
        return value

    def show(self, name: str, value: object) -> str:
        """The parameter in a spec string."""
        return f"{name}={show(value)}"


@dataclass(frozen=True)
class Number(Parameter):
    """A number from ``low`` to ``high``, or a :class:`Ramp` between two of them.

    ``whole`` numbers are rounded along a ramp.
    """

    low: float
    high: float
    default: Any = None
    whole: bool = False
    search: SearchRange = _SHARE

    def check(self, scheme: str, name: str, value: object) -> Any:
        """The value as float, int or Ramp; raises RobustokError outside the range."""
        if isinstance(value, Ramp):
            return Ramp(*(self.check(scheme, name, end) for end in value))
        if self.whole:
            return check_count(f"{scheme}: {name}", value, int(self.low), int(self.high))
        return check_number(f"{scheme}: {name}", value, self.low, self.high)

    def at(self, value: object, progress: float) -> Any:
        if not isinstance(value, Ramp):
            return value
        return round(value.at(progress)) if self.whole else value.at(progress)


@dataclass(frozen=True)
class Choice(Parameter):
    """One of several words, the first by default."""

    options: tuple[str, ...]

    @property
    def default(self) -> str:  # type: ignore[override]
        return self.options[0]

    def check(self, scheme: str, name: str, value: object) -> str:
        """The value; raises RobustokError if it is none of the options."""
        if not isinstance(value, str) or value not in self.options:
            options = " or ".join(repr(option) for option in self.options)
            raise RobustokError(f"{scheme}: {name} must be {options}, not {shown(value)}")
        return value


def per_token(default: float | None = None) -> Number:
    """A strength for each canonical token, such as alpha: from 0 to 10,000."""
    return Number(0.0, MAX_STRENGTH, default, search=SearchRange(0.0, 1.0, 1000.0))


def probability(default: float | None = None) -> Number:
    """A number from 0 to 1."""
    return Number(0.0, 1.0, default)


def temperature(default: float | None = None) -> Number:
    """A number from 1e-6 to 1e6, searched on a logarithmic scale."""
    search = SearchRange(0.05, 20.0, 1000.0, geometric=True)
    return Number(MIN_TEMPERATURE, MAX_TEMPERATURE, default, search=search)


def count(default: int | None = None, least: int = 0) -> Number:
    """A whole number from ``least`` to 2**31 - 1."""
    return Number(least, MAX_COUNT, default, whole=True)


def show(value: object) -> str:
    """A value as a spec string holds it; read back it is the same value."""
    if isinstance(value, Ramp):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    short = f"{value:g}"
    return short if float(short) == value else str(value)


def read_value(text: str) -> Any:
    """A value of a spec string: a quoted or bare word, an int, a float or a Ramp.

    >>> read_value("0.1 -> 1e0"), read_value("3"), read_value("'pairwise'")
    (Ramp(start=0.1, stop=1.0), 3, 'pairwise')
    """
    if text[:1] in "\"'" and text[-1:] == text[:1] and len(text) > 1:
        return text[1:-1]
    start, arrow, stop = text.partition("->")
    if arrow and isinstance(start_number := _read_number(start.strip()), (int, float)):
        if isinstance(stop_number := _read_number(stop.strip()), (int, float)):
            return Ramp(start_number, stop_number)
        return text
    return _read_number(text)


def _read_number(text: str) -> int | float | str:
    for number_type in (int, float):
        try:
            return number_type(text)
        except ValueError:
            continue
    return text


class Need(NamedTuple):
    """A requirement: its name in errors, and a test of a vocabulary."""

    what: str
    is_met: Callable[[Vocabulary], bool]


def _has_merges(vocab: Vocabulary) -> bool:
    """Whether the merges are listed, or follow from ranks or scores."""
    return vocab.data.family.endswith("BPE")


def _has_scores(vocab: Vocabulary) -> bool:
    return vocab.data.scores is not None and not vocab.data.family.endswith("BPE")


MERGES = Need("a BPE tokenizer with its merges", _has_merges)
SCORES = Need("the token scores of a Unigram tokenizer", _has_scores)
