"""The parameters of a scheme as data: range, default, schedule, and form in a spec string.

A scheme class lists them in ``Sampler.parameters``. Spec strings are read, checked and normalized
by this table alone, without a vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from robustok.checks import (
    MAX_COUNT,
    MAX_STRENGTH,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    check_count,
    check_list,
    check_number,
    shown,
)
from robustok.errors import RobustokError

if TYPE_CHECKING:
    from robustok.samplers.base import Sampler
    from robustok.samplers.spec import Spec

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


class Search(NamedTuple):
    """Where :func:`robustok.at_strength` looks for the value of a strength parameter."""

    low: float
    high: float
    most: float  # ``high`` grows up to here where the target is beyond it
    geometric: bool = False  # halve the logarithm: for a parameter with a ratio scale


_SHARE = Search(0.0, 1.0, 1.0)


@dataclass(frozen=True)
class Number:
    """A number from ``low`` to ``high``, or a :class:`Ramp` between two of them.

    ``whole`` numbers are rounded along a ramp. ``quick`` is the largest value whose draws always
    take little time; interactive front ends refuse larger ones.
    """

    low: float
    high: float
    default: Any = None
    whole: bool = False
    quick: float = 1000
    search: Search = _SHARE

    def check(self, scheme: str, name: str, value: Any) -> Any:
        """The value as float, int or Ramp; raises RobustokError outside the range."""
        if isinstance(value, Ramp):
            return Ramp(*(self.check(scheme, name, end) for end in value))
        if self.whole:
            return check_count(f"{scheme}: {name}", value, int(self.low), int(self.high))
        return check_number(f"{scheme}: {name}", value, self.low, self.high)

    def at(self, value: Any, progress: float) -> Any:
        """The value at a moment of training."""
        if not isinstance(value, Ramp):
            return value
        return round(value.at(progress)) if self.whole else value.at(progress)

    def show(self, name: str, value: Any) -> str:
        """The parameter in a spec string."""
        return f"{name}={show(value)}"


@dataclass(frozen=True)
class Choice:
    """One of several words, the first by default."""

    options: tuple[str, ...]

    @property
    def default(self) -> str:
        return self.options[0]

    def check(self, scheme: str, name: str, value: Any) -> str:
        """The value; raises RobustokError if it is none of the options."""
        if value not in self.options:
            options = " or ".join(repr(option) for option in self.options)
            raise RobustokError(f"{scheme}: {name} must be {options}, not {shown(value)}")
        return value

    def at(self, value: str, progress: float) -> str:
        """The value: a word does not change."""
        return value

    def show(self, name: str, value: str) -> str:
        """The parameter in a spec string."""
        return f"{name}={show(value)}"


@dataclass(frozen=True)
class Inner:
    """Another scheme, written without a name: ``exactly(uniform, splits=1)``."""

    default: Any = field(default=REQUIRED, init=False)

    def check(self, scheme: str, name: str, value: Any) -> Spec | Sampler:
        """The scheme as a Spec, or the sampler that is given; from a spec string a 1-tuple."""
        if isinstance(value, (tuple, list)):
            if len(value) != 1:
                raise RobustokError(f"{scheme}: give one scheme, as {scheme}(uniform, ...)")
            value = value[0]
        return _scheme(value)

    def at(self, value: Any, progress: float) -> Any:
        """The scheme at a moment of training."""
        return value.at(progress)

    def show(self, name: str, value: Any) -> str:
        """The scheme in a spec string."""
        return _text(value)


@dataclass(frozen=True)
class Parts:
    """Schemes with weights that add up to 1: ``mix(0.5 canonical, 0.5 uniform)``."""

    default: Any = field(default=REQUIRED, init=False)

    def check(self, scheme: str, name: str, value: Any) -> tuple[tuple[Any, Any], ...]:
        """Pairs of a weight (float or Ramp) and a Spec or sampler."""
        parts = tuple(_part(scheme, part) for part in check_list(f"{scheme}: {name}", value))
        if len(parts) < 2:
            raise RobustokError(
                f"{scheme}: give two schemes or more, as {scheme}(0.5 canonical, 0.5 uniform)"
            )
        for end in (0.0, 1.0):
            total = sum(_WEIGHT.at(weight, end) for weight, _ in parts)
            if abs(total - 1) >= 1e-6:
                raise RobustokError(f"{scheme}: the weights must add up to 1, not {total:g}")
        return parts

    def at(self, value: Sequence[tuple[Any, Any]], progress: float) -> tuple[tuple[Any, Any], ...]:
        """The weights and schemes at a moment of training."""
        return tuple((_WEIGHT.at(w, progress), scheme.at(progress)) for w, scheme in value)

    def show(self, name: str, value: Sequence[tuple[Any, Any]]) -> str:
        """The parts in a spec string."""
        return ", ".join(
            f"{weight if isinstance(weight, Ramp) else f'{weight:.9g}'} {_text(scheme)}"
            for weight, scheme in value
        )


Parameter = Number | Choice | Inner | Parts
_WEIGHT = Number(0.0, 1.0)


def per_token(default: float | None = None) -> Number:
    """A strength for each canonical token, such as alpha: from 0 to 10,000."""
    return Number(0.0, MAX_STRENGTH, default, search=Search(0.0, 1.0, 1000.0))


def probability(default: float | None = None) -> Number:
    """A number from 0 to 1."""
    return Number(0.0, 1.0, default)


def temperature(default: float | None = None) -> Number:
    """A number from 1e-6 to 1e6, searched on a logarithmic scale."""
    search = Search(0.05, 20.0, 1000.0, geometric=True)
    return Number(MIN_TEMPERATURE, MAX_TEMPERATURE, default, search=search)


def count(default: int | None = None, least: int = 0, quick: float = 1000) -> Number:
    """A whole number from ``least`` to 2**31 - 1."""
    return Number(least, MAX_COUNT, default, whole=True, quick=quick)


def show(value: Any) -> str:
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
    if arrow and isinstance(first := _number(start.strip()), (int, float)):
        if isinstance(last := _number(stop.strip()), (int, float)):
            return Ramp(first, last)
        return text
    return _number(text)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def schemes_in(value: Any) -> list[Any]:
    """The Specs and samplers in a parameter's checked value.

    >>> mixture = rt.Spec.parse("mix(0.5 canonical, 0.5 uniform)")
    >>> [str(scheme) for scheme in schemes_in(mixture.params["parts"])]
    ['canonical', 'uniform']
    """
    if hasattr(value, "params"):
        return [value]
    if not isinstance(value, tuple):
        return []
    return [scheme for part in value for scheme in schemes_in(part)]


_RAMP_START = re.compile(r"\s*+([^\s(>]++)\s*+->\s*+")  # possessive: linear time


def _part(scheme: str, part: Any) -> tuple[Any, Any]:
    """A weight and a scheme from ``"0.5 uniform"``, ``"1->0.5 uniform"`` or a pair."""
    if isinstance(part, str):
        # The arrow may have spaces around it; they are not what separates the scheme.
        weight, _, inner = _RAMP_START.sub(r"\1->", part).strip().partition(" ")
        value = read_value(weight)
        part = () if isinstance(value, str) else (value, inner.strip())
    if not isinstance(part, (tuple, list)) or len(part) != 2:
        raise RobustokError(
            f"{scheme}: write each part as a weight and a scheme, as '0.5 uniform', not "
            f"{shown(part)}"
        )
    return _WEIGHT.check(scheme, "a weight", part[0]), _scheme(part[1])


def _scheme(value: Any) -> Spec | Sampler:
    from robustok.samplers.spec import Spec

    if isinstance(value, Spec) or hasattr(value, "sample_batch"):
        return value
    return Spec.parse(value)


def _text(value: Any) -> str:
    return getattr(value, "spec", None) or str(value)
