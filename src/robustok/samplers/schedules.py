"""Schedules: strengths that change while a model trains, written into the spec."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING

from robustok.checks import check_number
from robustok.errors import RobustokError

if TYPE_CHECKING:
    from robustok.samplers.base import Sampler
    from robustok.vocabulary import Vocabulary

# Possessive quantifiers: no backtracking, so a long run of digits takes linear time.
_NUMBER = r"[-+]?(?:\d++\.?+\d*+|\.\d++)(?:[eE][-+]?\d++)?+"
_RAMP = re.compile(rf"(?:(\w++)\s*+=\s*+)?({_NUMBER})\s*+->\s*+({_NUMBER})")
_WHOLE = ("k", "ways", "min_length")


def at_progress(spec: str, progress: float) -> str:
    """The scheme of a schedule at ``progress``, from 0 (first step) to 1 (last): a spec string.

    >>> at_progress("stochastok(alpha=0.1->1)", 0.5)
    'stochastok(alpha=0.55)'
    >>> at_progress("mix(1->0.5 canonical, 0->0.5 uniform)", 1.0)
    'mix(0.5 canonical, 0.5 uniform)'

    Every ``a->b`` moves on a straight line; whole-number parameters are rounded. A spec without
    one stays as it is. Raises RobustokError for a progress outside [0, 1].
    """
    from robustok.samplers.registry import check_spec

    spec = check_spec(spec)
    progress = check_number("progress", progress, 0.0, 1.0)

    def now(ramp: re.Match[str]) -> str:
        name, start, stop = ramp[1], float(ramp[2]), float(ramp[3])
        value = start + (stop - start) * progress
        if not isfinite(value):
            raise RobustokError(f"{ramp[0]}: a schedule goes from one finite number to another")
        shown = str(round(value)) if name in _WHOLE else f"{value:.9g}"
        return f"{name}={shown}" if name else shown

    return _RAMP.sub(now, spec)


def is_schedule(spec: str) -> bool:
    """Whether the spec has a strength that changes.

    >>> is_schedule("stochastok(alpha=0.1->1)"), is_schedule("uniform")
    (True, False)
    """
    return "->" in spec


@dataclass(frozen=True)
class Schedule:
    """A scheme whose strength moves while a model trains, or one that stays as it is.

    >>> moving = rt.schedule("stochastok(alpha=0.1->1)", vocab)
    >>> moving.at(0.0).spec, moving.at(1.0).spec
    ('stochastok(alpha=0.1)', 'stochastok(alpha=1)')

    ``at(progress)`` is the sampler of a moment; ``spec`` names the whole.
    """

    spec: str
    vocab: Vocabulary

    @cached_property
    def _fixed(self) -> Sampler | None:
        return None if is_schedule(self.spec) else _sampler(self.spec, self.vocab)

    def at(self, progress: float) -> Sampler:
        """The sampler at ``progress``, from 0 (first step) to 1 (last)."""
        return self._fixed or _sampler(at_progress(self.spec, progress), self.vocab)


def schedule(spec: str, vocab: Vocabulary) -> Schedule:
    """Read a scheme or a schedule, and see that both its ends are schemes.

    >>> moving = schedule("stochastok(alpha=0.1->1)", vocab)
    >>> moving.at(0.5).spec
    'stochastok(alpha=0.55)'

    Raises RobustokError as :func:`robustok.sampler` does.
    """
    ends = [_sampler(at_progress(spec, progress), vocab) for progress in (0.0, 1.0)]
    return Schedule(spec if is_schedule(spec) else ends[0].spec, vocab)


def _sampler(spec: str, vocab: Vocabulary) -> Sampler:
    # The registry knows of schedules, to say that they are no schemes.
    from robustok.samplers.registry import sampler

    return sampler(spec, vocab)
