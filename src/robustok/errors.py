"""The exception for mistakes of the user: one line with the problem and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RobustokError(ValueError):
    """A mistake in the input, described in one line.

    >>> import robustok as rt
    >>> try:
    ...     rt.sampler("unifrom", vocab)
    ... except RobustokError as error:
    ...     print(error)
    unknown scheme 'unifrom': did you mean 'uniform'?

    It is a ``ValueError``. The command line prints the message and exits with code 2.
    """


def nearest(name: str, allowed: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest name, or all of them.

    >>> nearest("stochastik", ["stochastok", "uniform"])
    "did you mean 'stochastok'?"
    >>> nearest("zzz", ["stochastok", "uniform"])
    'choose from stochastok, uniform'
    """
    names = sorted(allowed)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"choose from {', '.join(names)}"


def check_choice(kind: str, name: str, allowed: Iterable[str]) -> str:
    """``name``; raises RobustokError where it is not allowed. ``kind`` is what it names.

    >>> check_choice("scheme", "uniform", ["stochastok", "uniform"])
    'uniform'
    """
    names = tuple(allowed)  # a list is in no tuple, where a dict raises TypeError
    if name not in names:
        raise RobustokError(f"unknown {kind} '{name}': {nearest(str(name), names)}")
    return name
