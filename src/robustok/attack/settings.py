"""Settings of attacks and objectives; without torch.

A canonical string names an attack in results, as
``adversarial(distances=(2), start=canonical, steps=10)``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from robustok.checks import Settings, check_integer, check_list, option
from robustok.errors import RobustokError, nearest
from robustok.runtime.display import counted
from robustok.runtime.files import JsonFields, JsonObject
from robustok.samplers.parameters import read_value
from robustok.samplers.spec import call_parts, parameter_of, split_parameters

if TYPE_CHECKING:
    from robustok.tokenizer.vocabulary import Vocabulary

SCALES = ("probability", "log-probability")  # of the margin of a question's options
GROUP = 32  # questions or prompts that are searched together
BEAM = 4  # tokenizations that ``search=beam`` keeps, where ``beam`` does not say it

_NAME, _WORST = "adversarial", "worst of "  # in results
_TYPE_NAMES = {
    int: "a whole number",
    bool: "True or False",
    str: "a word",
    tuple: "whole numbers, as (2, 4)",
}
_ALWAYS_WRITTEN = ("distances", "start", "steps")
_OF_NEIGHBORS = ("steps", "max_neighbors", "beam", "restarts", "second_ids")  # not of random draws
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

    The objectives are the paper's equations 1 and 2. The search ``"beam"`` is the greedy one that
    keeps 4 tokenizations; ``"random"`` scores uniform draws over V instead of neighbors: it
    requires ``max_scored`` and takes no ``steps``, ``max_neighbors``, ``beam``, ``restarts`` and
    ``second_ids``. Restarts follow while the attack has not succeeded. A second id has the bytes of
    an ordinary token, as a byte-fallback token; an exchange counts as distance 1.

    Raises RobustokError for a value out of range, and for one that the search does not read.
    """

    distances: tuple[int, ...] = _search_option(
        "distance of the neighbors of a step", "--distance", default=(2,), min=1
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
    search: str = _search_option("greedy, beam, random or MODULE:FUNCTION", default="greedy")
    max_scored: int | None = _search_option(
        "tokenizations scored for a text, at most", default=None, min=1
    )
    stop_when_wrong: bool = _search_option(
        "end at the first wrong answer: same accuracy", default=False, flags=()
    )
    second_ids: bool = _search_option(
        "also exchange tokens for second ids of the same bytes", default=False, flags=()
    )

    def __post_init__(self) -> None:
        distances = check_list("distances", self.distances)
        checked = tuple(check_integer("a distance", distance, 1) for distance in distances)
        object.__setattr__(self, "distances", checked)
        if not self.distances:
            raise RobustokError("distances must be whole numbers from 1 on, as in (2,) or (2, 4)")
        super().__post_init__()
        if self.search == "beam":
            object.__setattr__(self, "search", "greedy")
            object.__setattr__(self, "beam", self.beam if self.beam > 1 else BEAM)
        if self.search == "random":
            if self.max_scored is None:
                raise RobustokError("search 'random' needs a limit: give max_scored")
            for name in _OF_NEIGHBORS:
                if getattr(self, name) != _FIELDS[name]:
                    raise RobustokError(f"search 'random' scores no neighbors: leave {name} out")

    def __str__(self) -> str:
        written = [
            f"{name}={getattr(self, name)}"
            for name, default in _FIELDS.items()
            if name in _ALWAYS_WRITTEN or getattr(self, name) != default
        ]
        return f"{_NAME}({', '.join(written)})".replace(",)", ")")

    @classmethod
    def parse(cls, text: str) -> Self:
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
            ``MODULE:FUNCTION``, a function that takes a :class:`robustok.Ragged` of candidates, the
            prompt, the model and the vocabulary, and returns a number for each candidate.

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


# The optional settings that each of our objectives reads.
SETTINGS_READ = {
    "margin": (),
    "target": ("target", "threshold"),
    "refusal": ("wanted", "unwanted"),
    "guard": ("wanted", "unwanted", "flag_probability"),
}


def check_on_prompts(settings: AttackSettings) -> None:
    """Raise RobustokError for an objective of questions, since prompts have another one."""
    if settings.objective != _FIELDS["objective"]:
        raise RobustokError(
            f"objective={settings.objective} is for questions; prompts have an objective of their "
            "own: leave the setting out"
        )


def is_attack(text: str) -> bool:
    """Whether a string of a result names an attack and not a scheme.

    >>> is_attack("adversarial(steps=2)"), is_attack("uniform")
    (True, False)
    """
    return text.partition("(")[0].strip() == _NAME


def worst_label(attacks: int) -> str:
    """The string in a result for the worst of so many attacks by question."""
    return f"{_WORST}{attacks} attacks"


def is_worst(text: str) -> bool:
    """Whether a string of a result names the worst of several attacks.

    >>> is_worst(worst_label(3))
    True
    """
    return text.startswith(_WORST)


def unsearched_text(row: JsonFields) -> str:
    """The end of a line on an attack: how many second ids it did not try, or nothing.

    >>> unsearched_text({"unsearched_ids": 256})
    '; 256 second ids are not searched'
    """
    count = row.get("unsearched_ids")
    verb = "is" if count == 1 else "are"
    return f"; {counted(count, 'second id')} {verb} not searched" if count else ""


def unsearched_ids(vocab: Vocabulary, settings: AttackSettings) -> JsonObject:
    """The number of second ids that an attack does not try, as a field of a result."""
    count = 0 if settings.second_ids else int(vocab.is_second.sum())
    return {"unsearched_ids": count} if count else {}


def named_settings(text: str) -> JsonObject:
    """The settings that a string names, without the defaults of the others.

    >>> named_settings("adversarial(start=canonical, distances=(2, 4), search=random)")
    {'start': 'canonical', 'distances': (2, 4), 'search': 'random'}
    """
    name, parts = call_parts(text)
    if name != _NAME:
        raise RobustokError(f"cannot read the attack {text!r}: write {AttackSettings()}")
    settings: JsonObject = {}
    for part in parts:
        name, value = parameter_of(text, part)
        if name not in _FIELDS:
            raise RobustokError(f"unknown attack setting '{name}': {nearest(name, _FIELDS)}")
        if name in settings:
            raise RobustokError(f"{text}: give {name} once")
        settings[name] = _value(name, value)
    return settings


def _value(name: str, text: str) -> Any:
    """A setting's value, of the type of its default; a whole number where the default is None."""
    default = _FIELDS[name]
    expected_type = int if default is None else type(default)
    value: Any = {"True": True, "False": False}.get(text, read_value(text))
    is_right = type(value) is expected_type
    if expected_type is tuple:
        inside = text.removeprefix("(").removesuffix(")")
        value = tuple(map(read_value, split_parameters(text, inside)))
        is_right = {*map(type, value)} == {int}
    if not is_right:
        raise RobustokError(f"{name}={text}: give {_TYPE_NAMES[expected_type]}")
    return value
