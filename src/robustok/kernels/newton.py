"""Safeguarded Newton steps for the weight z = exp(slope) at which a mean distance is the target.

The callers compute mean and variance of the distance under z**distance, which are the mean's value
and derivative in the slope. The mean increases with the slope, so a bracket holds the solution.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.jit import njit

STEEPEST = 60.0  # |slope|: beyond it only the nearest or the farthest path has weight


@njit(cache=True, nogil=True)
def inside(low, high, step):
    """The Newton step where it is inside the bracket, else the middle of the bracket.

    ``low``, ``high``: float64, the ends of the bracket. ``step``: float64, the slope after the
    step; NaN is not inside.
    """
    return step if low < step < high else 0.5 * (low + high)


@njit(cache=True, nogil=True)
def logit_step(slope, mean, variance, target, farthest):
    """The slope after a Newton step on the logit of mean / farthest; NaN where it has no step.

    Converges at both ends, where the mean flattens and plain Newton steps overshoot. ``mean``,
    ``variance``: those of the distance at ``slope``. ``farthest``: the largest distance.
    ``target``: the wanted mean, from 0 to ``farthest``, both exclusive.
    """
    if variance <= 0.0 or mean <= 0.0 or mean >= farthest:
        return np.nan
    gap = np.log(target / (farthest - target)) - np.log(mean / (farthest - mean))
    return slope + gap * mean * (farthest - mean) / (farthest * variance)
