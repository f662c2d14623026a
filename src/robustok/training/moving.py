"""Schedules during training: the sampler for a number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robustok.samplers import Schedule
from robustok.samplers.schedules import is_schedule

if TYPE_CHECKING:
    from robustok.samplers import Sampler

STAGES = 1000  # steps of a schedule, to limit the number of samplers


def moves(sampler: Sampler | Schedule) -> bool:
    """Whether the scheme changes during the training."""
    return isinstance(sampler, Schedule) and is_schedule(sampler.spec)


def scheme_at(sampler: Sampler | Schedule, seen: int, total: int | None) -> Sampler:
    """The sampler after ``seen`` of ``total`` rows.

    >>> moving = rt.schedule("stochastok(alpha=0->1)", vocab)
    >>> scheme_at(moving, 50, 100).spec
    'stochastok(alpha=0.5)'
    """
    if not isinstance(sampler, Schedule):
        return sampler
    stage = min(STAGES, seen * STAGES // max(total or 1, 1)) if moves(sampler) else 0
    return sampler.at(stage / STAGES)
