"""Schedules: strengths that change while a model trains, written into the spec."""

from __future__ import annotations

import re

from robustok.errors import RobustokError

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RAMP = re.compile(rf"(?:(\w+)\s*=\s*)?({_NUMBER})\s*->\s*({_NUMBER})")
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
    if not 0 <= progress <= 1:
        raise RobustokError(f"progress={progress}: it runs from 0 to 1")

    def now(ramp: re.Match[str]) -> str:
        name, start, stop = ramp[1], float(ramp[2]), float(ramp[3])
        value = start + (stop - start) * progress
        shown = str(round(value)) if name in _WHOLE else f"{value:.9g}"
        return f"{name}={shown}" if name else shown

    return _RAMP.sub(now, spec)


def is_schedule(spec: str) -> bool:
    """Whether the spec has a strength that changes.

    >>> is_schedule("stochastok(alpha=0.1->1)"), is_schedule("uniform")
    (True, False)
    """
    return "->" in spec
