"""The one exception users see: a single line that says what is wrong and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RobustokError(ValueError):
    """A mistake in the input, told in one line.

    >>> import robustok as rt
    >>> try:
    ...     rt.sampler("unifrom", vocab)
    ... except RobustokError as error:
    ...     print(error)
    unknown scheme 'unifrom': did you mean 'uniform'?

    The command line prints the message and exits with code 2; a library user
    may catch it as a ``ValueError``.
    """


def nearest(name: str, allowed: Iterable[str]) -> str:
    """A half sentence that points from a wrong name to the right one.

    >>> nearest("stochastik", ["stochastok", "uniform"])
    "did you mean 'stochastok'?"
    >>> nearest("zzz", ["stochastok", "uniform"])
    'choose from stochastok, uniform'
    """
    names = sorted(allowed)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"choose from {', '.join(names)}"
