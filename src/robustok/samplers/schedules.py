"""Schedules: strengths that change while a model trains, written into the spec."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from robustok.samplers.spec import Spec

if TYPE_CHECKING:
    from robustok.samplers.base import Sampler
    from robustok.vocabulary import Vocabulary


def at_progress(spec: str | Spec, progress: float) -> str:
    """The scheme of a schedule at ``progress``, from 0 (first step) to 1 (last): a spec string.

    >>> at_progress("stochastok(alpha=0.1->1)", 0.5)
    'stochastok(alpha=0.55)'
    >>> at_progress("mix(1->0.5 canonical, 0->0.5 uniform)", 1.0)
    'mix(0.5 canonical, 0.5 uniform)'

    Args:
        spec: a spec string or a :class:`robustok.Spec`; without a schedule it is returned as is.
        progress: share of the training done, from 0 to 1.

    Every ``a->b`` changes linearly; whole-number parameters are rounded. Equal to
    ``str(Spec.parse(spec).at(progress))``. Raises RobustokError for a progress outside [0, 1].
    """
    return str(Spec.parse(spec).at(progress))


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

    Args:
        spec: the normalized spec string of the whole schedule.
        vocab: the vocabulary whose texts are tokenized.
    """

    spec: str
    vocab: Vocabulary

    @cached_property
    def _parsed(self) -> Spec:
        return Spec.parse(self.spec)

    @cached_property
    def _fixed(self) -> Sampler | None:
        return None if self._parsed.is_schedule else _sampler(self._parsed, self.vocab)

    def at(self, progress: float) -> Sampler:
        """The sampler at ``progress``, from 0 (first step) to 1 (last)."""
        return self._fixed or _sampler(self._parsed.at(progress), self.vocab)


def schedule(spec: str | Spec, vocab: Vocabulary) -> Schedule:
    """Read a scheme or a schedule, and check that both its ends are schemes of the vocabulary.

    >>> moving = schedule("stochastok(alpha=0.1->1)", vocab)
    >>> moving.at(0.5).spec
    'stochastok(alpha=0.55)'

    Args:
        spec: a spec string or a :class:`robustok.Spec`, with or without ramps such as ``0.1->1``.
        vocab: the vocabulary whose texts are tokenized.

    Raises RobustokError as :func:`robustok.sampler` does.
    """
    parsed = Spec.parse(spec)
    for progress in (0.0, 1.0):
        _sampler(parsed.at(progress), vocab)
    return Schedule(str(parsed), vocab)


def _sampler(spec: Spec, vocab: Vocabulary) -> Sampler:
    from robustok.samplers.registry import sampler

    return sampler(spec, vocab)
