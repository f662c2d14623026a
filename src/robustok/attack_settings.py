"""Settings of an adversarial attack: one frozen value with a canonical string form.

The string names the attack in results, as in ``adversarial(distances=(2), start=canonical,
steps=10)``. The attack itself is in `evaluation/adversarial`; the settings are outside of it so
that studies and reports can read them without loading torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from robustok.errors import RobustokError, nearest

OBJECTIVES = ("probability", "log-probability")
# By the name in the string. Simulated annealing is for the objectives of `robustok.redteam`.
SEARCHES = {"adversarial": "greedy", "random-search": "random", "annealing": "annealing"}

_ALWAYS_WRITTEN = ("distances", "start", "steps")
_WRITTEN_AS = {"max_scored": "query_budget"}  # the name that results of earlier versions have


@dataclass(frozen=True)
class AttackSettings:
    """The settings of an attack; the defaults are the paper's.

    >>> settings = AttackSettings(distances=(2, 4), beam=3)
    >>> str(settings)
    'adversarial(distances=(2, 4), start=canonical, steps=10, beam=3)'
    >>> AttackSettings.parse(str(settings)) == settings
    True

    Args:
        distances: distances of a step's neighbors, each at least 1.
        start: ``"canonical"`` (default), or the spec of a scheme that draws the start, as
            ``"uniform"``.
        steps: greatest number of steps, at least 0.
        objective: what a step maximizes: the margin of ``"probability"`` (default) or
            ``"log-probability"``; the paper's equations 1 and 2.
        max_neighbors: greatest number of neighbors scored in a step, at least 1, chosen uniformly
            without replacement; by default all.
        beam: number of tokenizations kept from step to step, or of chains for ``"annealing"``, at
            least 1. The paper has 1.
        restarts: greatest number of uniform starts that follow while the attack has not succeeded,
            at least 0. The paper has 0.
        search: ``"greedy"`` (default), ``"random"`` to score uniform draws instead of neighbors, or
            ``"annealing"`` for chains that also accept worse neighbors, ever less often.
        max_scored: greatest number of tokenizations scored for an item, at least 1; by default
            there is no limit. Required by the random search and by annealing.
        stop_when_wrong: whether the attack on a question ends when the prediction is wrong: the
            same accuracy for fewer scored tokenizations, but smaller margins. By default it
            continues while a step gains. Only for attacks on questions.

    Raises RobustokError for a value out of range.
    """

    distances: tuple[int, ...] = (2,)
    start: str = "canonical"
    steps: int = 10
    objective: str = "probability"
    max_neighbors: int | None = None
    beam: int = 1
    restarts: int = 0
    search: str = "greedy"
    max_scored: int | None = None
    stop_when_wrong: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "distances", tuple(int(d) for d in self.distances))
        if not self.distances or min(self.distances) < 1:
            raise RobustokError("distances must be whole numbers from 1 on, as in (2,) or (2, 4)")
        for name, allowed in (("objective", OBJECTIVES), ("search", tuple(SEARCHES.values()))):
            value = getattr(self, name)
            if value not in allowed:
                raise RobustokError(f"unknown {name} '{value}': {nearest(value, allowed)}")
        if self.search != "greedy" and self.max_scored is None:
            raise RobustokError(f"search '{self.search}' needs a limit: give max_scored")
        for name, least in (("steps", 0), ("beam", 1), ("restarts", 0)):
            if getattr(self, name) < least:
                raise RobustokError(f"{name} is {getattr(self, name)}: it must be at least {least}")
        for name in ("max_neighbors", "max_scored"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise RobustokError(f"{name} is {getattr(self, name)}: it must be at least 1")

    def replaced(self, **changes: Any) -> AttackSettings:
        """These settings with some fields changed.

        >>> AttackSettings().replaced(steps=3).steps
        3

        Args:
            **changes: new values by field name.

        Raises RobustokError for an unknown field.
        """
        for name in changes:
            if name not in _FIELDS:
                raise RobustokError(f"unknown attack setting '{name}': {nearest(name, _FIELDS)}")
        return replace(self, **changes)

    def __str__(self) -> str:
        written = [
            f"{_WRITTEN_AS.get(name, name)}={getattr(self, name)}"
            for name, default in _FIELDS.items()
            if name in _ALWAYS_WRITTEN or (name != "search" and getattr(self, name) != default)
        ]
        name = next(name for name, search in SEARCHES.items() if search == self.search)
        return f"{name}({', '.join(written)})".replace(",)", ")")

    @classmethod
    def parse(cls, text: str) -> AttackSettings:
        """The settings that a string names; all others have their defaults.

        >>> AttackSettings.parse("adversarial(start=uniform-k(alpha=0.5), steps=3)").start
        'uniform-k(alpha=0.5)'

        Args:
            text: the settings as a string, as in the results of
                :func:`robustok.evaluation.attack_items`.

        Raises RobustokError for a string that does not name an attack.
        """
        return cls().replaced(**named_settings(text))


_FIELDS = {field.name: field.default for field in fields(AttackSettings)}


def is_attack(text: str) -> bool:
    """Whether a string of a result names an attack and not a scheme."""
    return text.partition("(")[0] in SEARCHES


def suite_label(suite: str, max_scored: int, transfer: int = 0) -> str:
    """A suite of attacks as one string of a result, in the place of a scheme.

    >>> suite_label("standard", 500, transfer=3)
    'standard-suite(query_budget=500, transfer=3)'

    Args:
        suite: its name.
        max_scored: tokenizations that each search may score for a prompt.
        transfer: number of other models whose attacks are tried too.
    """
    others = f", transfer={transfer}" if transfer else ""
    return f"{suite}-suite(query_budget={max_scored}{others})"


def is_suite(text: str) -> bool:
    """Whether a string of a result names a suite of attacks.

    >>> is_suite("standard-suite(query_budget=500)")
    True
    """
    return text.partition("(")[0].endswith("-suite")


def named_settings(text: str) -> dict[str, Any]:
    """The settings that a string names, without the defaults of the others.

    >>> named_settings("adversarial(start=canonical; steps=3)")
    {'search': 'greedy', 'start': 'canonical', 'steps': 3}
    """
    match = re.fullmatch(r"([a-z-]+)(?:\((.*)\))?", text.strip())
    if match is None or match[1] not in SEARCHES:
        raise RobustokError(f"cannot read the attack {text!r}: write {AttackSettings()}")
    settings: dict[str, Any] = {"search": SEARCHES[match[1]]}
    for part in _split(match[2] or ""):
        name, _, value = (side.strip() for side in part.partition("="))
        name = next((field for field, written in _WRITTEN_AS.items() if written == name), name)
        if name not in _FIELDS:
            raise RobustokError(f"unknown attack setting '{name}': {nearest(name, _FIELDS)}")
        settings[name] = _read(name, value)
    return settings


def _read(name: str, value: str) -> Any:
    if name in ("start", "objective"):
        return value
    if name == "stop_when_wrong":
        if value not in ("True", "False"):
            raise RobustokError(f"{name}={value}: give True or False")
        return value == "True"
    try:
        if name != "distances":
            return int(value)
        return tuple(int(number) for number in value.strip("()").split(",") if number.strip())
    except ValueError:
        raise RobustokError(f"{name}={value}: give a whole number") from None


def _split(text: str) -> list[str]:
    """The parts between commas or semicolons that are not inside parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character in ",;" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]
