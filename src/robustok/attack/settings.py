"""Settings of attacks, objectives and certificates, and functions by name; without torch.

Every field is the one declaration of its option. Its metadata holds ``help``; ``flags`` of the
command line where they are not those of the name; ``panel``, the group of `--help`; and, where it
has them, ``choices`` and ``min``. An attack has a canonical string form, which names it in results,
as in ``adversarial(distances=(2), start=canonical, steps=10)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from typing import Any

from robustok.checks import Settings, check_integer, check_list, option
from robustok.errors import RobustokError, nearest
from robustok.runtime.files import JsonObject
from robustok.samplers.spec import split_parameters

SCALES = ("probability", "log-probability")  # of the margin of a question's options
# The registered name of a search by the word that its string form begins with.
SEARCH_OF_LABEL = {"adversarial": "greedy", "random-search": "random", "annealing": "annealing"}
SUITE_LIMIT = 500  # tokenizations that each search of the suite scores for a text, by default
GROUP = 32  # questions or prompts that are searched or certified together

_SUITE = "standard-suite"  # in results
_ALWAYS_WRITTEN = ("distances", "start", "steps")
_search_option = partial(option, panel="Search")
_objective_option = partial(option, panel="Objective")


@dataclass(frozen=True)
class AttackSettings(Settings):
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
        objective: what a step maximizes on a question: the margin of ``"probability"`` (default) or
            ``"log-probability"``; the paper's equations 1 and 2.
        max_neighbors: greatest number of neighbors scored in a step, at least 1, chosen uniformly
            without replacement; by default all.
        beam: number of tokenizations kept from step to step, or of chains for ``"annealing"``, at
            least 1. The paper has 1.
        restarts: greatest number of uniform starts that follow while the attack has not succeeded,
            at least 0. The paper has 0.
        search: ``"greedy"`` (default), ``"random"`` to score uniform draws instead of neighbors,
            ``"annealing"`` for chains that also accept worse neighbors, ever less often, a
            registered search, or ``MODULE:FUNCTION``.
        max_scored: greatest number of tokenizations that the search scores for a text, each counted
            once, at least 1; by default there is no limit. Required by the random search and by
            annealing. The canonical one, whose score is part of the result, does not count where
            the search does not reach it.
        stop_when_wrong: whether the attack ends at the first success: the same accuracy for fewer
            scored tokenizations, but smaller margins. By default it continues while a step gains.

    Raises RobustokError for a value out of range.
    """

    distances: tuple[int, ...] = _search_option(
        "distance of the neighbors of a step",
        "--distance",
        default=(2,),
        min=1,
    )
    start: str = _search_option("canonical, or a scheme", default="canonical")
    steps: int = _search_option("greatest number of steps", default=10, min=0)
    objective: str = _objective_option(
        "probability or log-probability of the options", default="probability", choices=SCALES
    )
    max_neighbors: int | None = _search_option(
        "neighbors scored in a step, at random; null: all", default=None, min=1, flags=()
    )
    beam: int = _search_option("tokenizations kept from step to step", default=1, min=1, flags=())
    restarts: int = _search_option("further starts, from uniform draws", default=0, min=0, flags=())
    search: str = _search_option("greedy, random, annealing or MODULE:FUNCTION", default="greedy")
    max_scored: int | None = _search_option(
        "tokenizations scored for a text, at most", default=None, min=1
    )
    stop_when_wrong: bool = _search_option(
        "end at the first wrong answer: same accuracy", default=False, flags=()
    )

    def __post_init__(self) -> None:
        distances = check_list("distances", self.distances)
        checked = tuple(check_integer("a distance", distance, 1) for distance in distances)
        object.__setattr__(self, "distances", checked)
        if not self.distances:
            raise RobustokError("distances must be whole numbers from 1 on, as in (2,) or (2, 4)")
        super().__post_init__()
        if self.search in ("random", "annealing") and self.max_scored is None:
            raise RobustokError(f"search '{self.search}' needs a limit: give max_scored")

    def __str__(self) -> str:
        labels = {search: label for label, search in SEARCH_OF_LABEL.items()}
        written = [
            f"{name}={getattr(self, name)}"
            for name, default in _FIELDS.items()
            if name in _ALWAYS_WRITTEN
            or (name == "search" and self.search not in labels)
            or (name != "search" and getattr(self, name) != default)
        ]
        return f"{labels.get(self.search, 'adversarial')}({', '.join(written)})".replace(",)", ")")

    @classmethod
    def parse(cls, text: str) -> AttackSettings:
        """The settings that a ``text`` of a result names; all others have their defaults.

        >>> AttackSettings.parse("adversarial(start=uniform-k(alpha=0.5), steps=3)").start
        'uniform-k(alpha=0.5)'

        Raises RobustokError for a string that does not name an attack.
        """
        return cls.of(named_settings(text))


_FIELDS = {field.name: field.default for field in fields(AttackSettings)}


@dataclass(frozen=True)
class ObjectiveSettings(Settings):
    """Which objective an attack on prompts maximizes, and what it needs.

    >>> ObjectiveSettings("target", target=" world").target
    ' world'

    Args:
        name: a registered objective: ``margin``, ``target``, ``refusal`` or ``guard``; or
            ``MODULE:FUNCTION``, a function that takes a :class:`robustok.Ragged` of candidates and
            returns a number for each.
        target: the response of ``target``, where a prompt has no field ``target``.
        wanted: openings of an answer (``refusal``), or safe verdicts (``guard``).
        unwanted: openings of a refusal, or unsafe verdicts.
        flag_probability: least probability at which a guard flags a text.
        threshold: score above which ``target`` and functions succeed; None for never.

    Raises RobustokError for a value out of range.
    """

    name: str = "margin"
    target: str | None = _objective_option(
        "response that objective target makes likely", default=None
    )
    wanted: tuple[str, ...] = _objective_option("opening of an answer, or safe verdict", default=())
    unwanted: tuple[str, ...] = _objective_option(
        "opening of a refusal, or unsafe verdict", default=()
    )
    flag_probability: float = _objective_option(
        "probability at which a guard flags", default=0.5, gt=0, lt=1
    )
    threshold: float | None = _objective_option(
        "score above which the attack succeeds", default=None
    )


# The settings that each of our objectives reads, of those that not all of them read.
SETTINGS_READ = {
    "margin": (),
    "target": ("target", "threshold"),
    "refusal": ("wanted", "unwanted"),
    "guard": ("wanted", "unwanted", "flag_probability"),
}


def objectives_reading(names: Iterable[str]) -> str:
    """What an error suggests instead of an objective that does not read these settings.

    >>> objectives_reading(["wanted", "unwanted"])
    'choose objective refusal or guard'
    """
    wanted = set(names).intersection(chain(*SETTINGS_READ.values()))  # all read the others
    readers = [name for name, read in SETTINGS_READ.items() if wanted.issubset(read)]
    readers += ["MODULE:FUNCTION"] if wanted <= {"threshold"} else []
    return f"choose objective {' or '.join(readers)}" if readers else "no objective reads them all"


@dataclass(frozen=True)
class CertifySettings(Settings):
    """What to certify, and how many tokenizations to score for it.

    >>> CertifySettings(distances=(4, None, 2)).distances
    (2, 4, None)

    Args:
        limit: greatest number of tokenizations that are enumerated, at least 1. A larger set is
            sampled.
        draws: uniform draws from a larger set, at least 1. More draws give a tighter bound on the
            share that changes the answer: about 3 / draws if none of them does, at 95%.
        confidence: probability that each bound holds, between 0 and 1; not that all hold jointly.
        distances: greatest distances from the canonical tokenization, each at least 1 and given
            once; None for all tokenizations. They are sorted, None last.
        attack: whether to run the greedy attack too. It moves by distance 2, in as many steps as
            stay within the set, and aims at any other answer, whether the canonical one is right or
            wrong.

    Raises RobustokError for a value out of range.
    """

    limit: int = option(
        "score all tokenizations up to this many, else draw", "--enumerate", default=2000, min=1
    )
    draws: int = option(
        "draws where there are too many to enumerate", "--draws", "-n", default=1000, min=1
    )
    confidence: float = option(
        "confidence of each sampled bound", default=0.95, gt=0, lt=1, flags=()
    )
    distances: tuple[int | None, ...] = (2, 4, 6)
    attack: bool = option("also run the greedy attack", "--attack/--no-attack", default=True)

    def __post_init__(self) -> None:
        if not self.distances or len(set(self.distances)) < len(self.distances):
            raise RobustokError("give each distance once, and at least one, as in 2, 4")
        if any(d is not None and d < 1 for d in self.distances):
            raise RobustokError("a distance to certify is a whole number from 1 on")
        super().__post_init__()
        known = sorted(d for d in self.distances if d is not None)
        every = (None,) if None in self.distances else ()
        object.__setattr__(self, "distances", (*known, *every))


def is_attack(text: str) -> bool:
    """Whether a string of a result names an attack and not a scheme."""
    return text.partition("(")[0] in SEARCH_OF_LABEL


def suite_label(max_scored: int) -> str:
    """The suite of attacks as one string of a result, in the place of a scheme.

    >>> suite_label(500)
    'standard-suite(max_scored=500)'
    """
    return f"{_SUITE}(max_scored={max_scored})"


def is_suite(text: str) -> bool:
    """Whether a string of a result names the suite of attacks.

    >>> is_suite("standard-suite(max_scored=500)")
    True
    """
    return text.partition("(")[0] == _SUITE


def search_named(text: str) -> AttackSettings | int:
    """The attack that a string names; of the suite, the limit of each of its searches.

    >>> search_named("adversarial(steps=2)").steps, search_named("standard-suite(max_scored=100)")
    (2, 100)
    >>> search_named("standard-suite")
    500
    """
    suite = re.fullmatch(rf"{_SUITE}(?:\(max_scored=(\d+)\))?", text.strip())
    if suite is None:
        return AttackSettings.parse(text)
    return check_integer("max_scored", int(suite[1] or SUITE_LIMIT), 1)


def named_settings(text: str) -> JsonObject:
    """The settings that a string names, without the defaults of the others.

    >>> named_settings("adversarial(start=canonical, steps=3)")
    {'search': 'greedy', 'start': 'canonical', 'steps': 3}
    """
    match = re.fullmatch(r"([a-z-]+)(?:\((.*)\))?", text.strip())
    if match is None or match[1] not in SEARCH_OF_LABEL:
        raise RobustokError(f"cannot read the attack {text!r}: write {AttackSettings()}")
    settings: dict[str, Any] = {"search": SEARCH_OF_LABEL[match[1]]}
    for part in split_parameters(text, match[2] or ""):
        name, _, value = (side.strip() for side in part.partition("="))
        if name not in _FIELDS:
            raise RobustokError(f"unknown attack setting '{name}': {nearest(name, _FIELDS)}")
        settings[name] = _read(name, value)
    return settings


def _read(name: str, value: str) -> Any:
    """The value of a setting, of the type of its default; a whole number where that is None."""
    default = _FIELDS[name]
    if isinstance(default, str):
        return value
    if isinstance(default, bool):
        if value not in ("True", "False"):
            raise RobustokError(f"{name}={value}: give True or False")
        return value == "True"
    try:
        if not isinstance(default, tuple):
            return int(value)
        return tuple(int(number) for number in value.strip("()").split(",") if number.strip())
    except ValueError:
        raise RobustokError(f"{name}={value}: give a whole number") from None
