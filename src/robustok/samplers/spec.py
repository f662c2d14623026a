"""Schemes without a vocabulary: what their classes declare, their registry, and spec strings.

    spec  = name [ "(" part { "," part } ")" ]
    part  = parameter "=" value | spec | weight spec
    value = number | number "->" number | word | quoted word

A small grammar reads a spec string, and the class of the scheme checks and normalizes it. The
sampler checks that the tokenizer fits the scheme. This module imports no scheme: :func:`register`
enters each class, ``robustok.samplers`` those of this package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

from robustok.checks import check_list, check_number, shown
from robustok.errors import RobustokError, nearest
from robustok.runtime.registry import Registry
from robustok.samplers.parameters import (
    REQUIRED,
    Need,
    Number,
    Parameter,
    Ramp,
    read_value,
)

_LONGEST, _DEEPEST = 10_000, 8
_SPEC = re.compile(r"([A-Za-z][\w-]*)\s*(?:\((.*)\))?", re.DOTALL)
_NAME = re.compile(r"[A-Za-z][\w-]*")
_RAMP_START = re.compile(r"\A\s*+([^\s(>]++)\s*+->\s*+")  # anchored: linear time
_WEIGHT = Number(0.0, 1.0)


@dataclass(frozen=True)
class Parts(Parameter):
    """Schemes with weights that add up to 1: ``mix(0.5 canonical, 0.5 uniform)``."""

    default: Any = field(default=REQUIRED, init=False)

    def check(self, scheme: str, name: str, value: object) -> tuple[tuple[Any, Any], ...]:
        """Pairs of a weight (float or Ramp) and a Spec or sampler."""
        parts = tuple(_part(scheme, part) for part in check_list(f"{scheme}: {name}", value))
        if len(parts) < 2:
            raise RobustokError(
                f"{scheme}: give two schemes or more, as {scheme}(0.5 canonical, 0.5 uniform)"
            )
        for end in (0.0, 1.0):
            total = sum(_WEIGHT.at(weight, end) for weight, _ in parts)
            if abs(total - 1) >= 1e-6:
                raise RobustokError(f"{scheme}: the weights must add up to 1, not {total:g}")
        return parts

    def at(self, value: Sequence[tuple[Any, Any]], progress: float) -> tuple[tuple[Any, Any], ...]:
        return tuple(
            (_WEIGHT.at(weight, progress), part.at(progress) if isinstance(part, Spec) else part)
            for weight, part in value
        )

    def show(self, name: str, value: Sequence[tuple[Any, Any]]) -> str:
        return ", ".join(
            f"{weight if isinstance(weight, Ramp) else f'{weight:.9g}'} {spec_of(scheme)}"
            for weight, scheme in value
        )


class Scheme:
    """What the class of a scheme declares; the base of :class:`robustok.Sampler`.

    A class without an ``example`` gets its name as one.
    """

    name: ClassVar[str]
    example: ClassVar[str]  # a spec that works with every vocabulary that fits the scheme
    variants: ClassVar[tuple[str, ...]] = ()  # specs of further kernels: compiled early, tested
    parameters: ClassVar[Mapping[str, Parameter]] = {}  # in the order of the spec string
    strength: ClassVar[str] = ""  # the parameter that sets how far draws are from canonical
    nominal_splits: ClassVar[str | float | None] = None  # per canonical token: a number or the
    # parameter that holds it; the axis of the paper's figures
    exact: ClassVar[bool] = False  # whether log_prob is exact (of a mixture: where its parts are)
    deterministic: ClassVar[bool] = False  # whether the support is one tokenization
    needs: ClassVar[Need | None] = None  # from the tokenizer
    color: ClassVar[str] = ""  # in figures, as "#e69f00"; empty: one is chosen
    inner: ClassVar[str] = ""  # the parameter that takes schemes without a name; set by the base
    params: Mapping[str, Any]  # checked values by parameter name

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        parameters = cls.parameters.items()
        cls.inner = next((n for n, parameter in parameters if isinstance(parameter, Parts)), "")
        if "name" in vars(cls) and "example" not in vars(cls):
            cls.example = cls.name

    @classmethod
    def checked(cls, params: Mapping[str, object]) -> dict[str, Any]:
        """Parameters checked and normalized: the strength, and what differs from its default.

        >>> rt.StochasTok.checked({"ways": 2})
        {'alpha': 0.1}

        Args:
            params: values by parameter name; parameters without a value take their defaults.

        Raises RobustokError for an unknown name, a value out of range and a missing parameter.
        """
        for name in params:
            if name not in cls.parameters:
                suggestion = nearest(name, cls.parameters) if cls.parameters else ""
                hint = suggestion or f"{cls.name} takes none"
                raise RobustokError(f"{cls.name} has no parameter '{name}': {hint}")
        result = {}
        for name, parameter in cls.parameters.items():
            value = params.get(name, parameter.default)
            if value is REQUIRED:
                raise RobustokError(f"{cls.name} needs {name}, as {cls.example}")
            if value is None and parameter.default is None:
                continue
            value = parameter.check(cls.name, name, value)
            if name == cls.strength or value != parameter.default:
                result[name] = value
        cls._check_together(result)
        return result

    @classmethod
    def _check_together(cls, params: Mapping[str, object]) -> None:
        """Raise RobustokError for checked parameters that contradict each other."""

    @classmethod
    def with_strength(cls, params: Mapping[str, object], value: float) -> dict[str, Any]:
        """The same parameters with another strength.

        Args:
            params: values by parameter name; they may lack required ones.
            value: value of the scheme's strength parameter.
        """
        return {**params, cls.strength: value}

    @classmethod
    def _check_complete(cls) -> None:
        """Raise RobustokError for a class that cannot be registered."""
        name = getattr(cls, "name", None)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise RobustokError(
                f"{cls.__name__}: name must be a word of letters, digits and '-', not {name!r}"
            )
        sets_strength = cls.with_strength.__func__ is not Scheme.with_strength.__func__
        if cls.strength and cls.strength not in cls.parameters and not sets_strength:
            raise RobustokError(f"{name}: its strength '{cls.strength}' is not in its parameters")


@dataclass(frozen=True)
class Spec:
    """A scheme and its parameters, checked and normalized.

    >>> spec = rt.Spec.parse("stochastok( alpha = 1.0, ways=2 )")
    >>> str(spec), spec.name, dict(spec.params)
    ('stochastok(alpha=1)', 'stochastok', {'alpha': 1.0})

    Args:
        name: name of the scheme.
        params: values by parameter name. The attribute holds the strength parameter and every other
            one that differs from its default; a scheme inside another is a Spec or a sampler.

    Equal specs have equal strings. Raises RobustokError for an unknown scheme or parameter, naming
    the nearest, and for a value outside its range.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scheme = SCHEMES[_checked_text(self.name)]
        if not isinstance(self.params, Mapping):
            raise RobustokError(f"{self.name}: params is a dict, not {shown(self.params)}")
        checked = scheme.checked(self.params)
        object.__setattr__(self, "params", MappingProxyType(checked))

    @classmethod
    def parse(cls, text: str | Spec) -> Spec:
        """Read a spec string.

        >>> str(rt.Spec.parse("uniform-k( alpha = 2.0 )"))
        'uniform-k(alpha=2)'

        Args:
            text: a spec string of at most 10,000 characters, or a Spec.

        Raises RobustokError for a string that is no spec, and as the class does.
        """
        return text if isinstance(text, Spec) else cls(*read_call(text))

    def at(self, progress: float) -> Spec:
        """The scheme at a moment of training, from 0 (first step) to 1 (last).

        >>> str(rt.Spec.parse("mix(1->0.5 canonical, 0->0.5 uniform)").at(1))
        'mix(0.5 canonical, 0.5 uniform)'

        Raises RobustokError for a progress outside [0, 1].
        """
        progress = check_number("progress", progress, 0.0, 1.0)
        parameters = self._scheme.parameters
        return Spec(
            self.name, {name: parameters[name].at(x, progress) for name, x in self.params.items()}
        )

    @property
    def is_schedule(self) -> bool:
        """Whether a number changes while a model trains, as in ``stochastok(alpha=0.1->1)``."""
        return has_ramp(list(self.params.values()))

    @property
    def is_deterministic(self) -> bool:
        """Whether all draws of a text are the same."""
        return self._scheme.deterministic

    @property
    def strength(self) -> float | Ramp | None:
        """The value of the strength parameter; None for a scheme without one."""
        return self.params.get(self._scheme.strength)

    @property
    def _scheme(self) -> type[Scheme]:
        return SCHEMES[self.name]

    def __str__(self) -> str:
        return spec_string(self._scheme, self.params)

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> Any:
        return Spec, (self.name, dict(self.params))


class Call(NamedTuple):
    """A parsed spec string whose parameters are not checked yet."""

    name: str
    params: dict[str, Any]


def read_call(text: str) -> Call:
    """The scheme's name and its parameters as written; inner schemes are still strings.

    >>> read_call("stochastok(alpha=.50)")
    Call(name='stochastok', params={'alpha': 0.5})
    """
    name, parts = call_parts(text)
    scheme = SCHEMES[name]
    params: dict[str, Any] = {}
    for part in parts:
        if scheme.inner and not re.match(r"\w+\s*=", part):
            params[scheme.inner] = (*params.get(scheme.inner, ()), part)
            continue
        parameter, value = parameter_of(text, part)
        if parameter in params:
            raise RobustokError(f"{text}: give {parameter} once")
        params[parameter] = read_value(value)
    return Call(name, params)


def call_parts(text: str) -> tuple[str, list[str]]:
    """The name of a spec string, and its parts between the commas of the parentheses.

    >>> call_parts("uniform-k(alpha=0.5)")
    ('uniform-k', ['alpha=0.5'])
    """
    match = _SPEC.fullmatch(_checked_text(text).strip())
    if not match:
        raise RobustokError(f"cannot read the scheme {text!r}: write it as uniform-k(alpha=0.5)")
    return match[1], split_parameters(text, (match[2] or "").strip())


def parameter_of(text: str, part: str) -> tuple[str, str]:
    """The name and the value of a part ``name=value`` of a spec string ``text``."""
    name, equals, value = (side.strip() for side in part.partition("="))
    if not equals:
        raise RobustokError(f"{text}: write each parameter as name=value, not '{part}'")
    return name, value


def spec_string(scheme: type[Scheme], params: Mapping[str, object]) -> str:
    """The spec of a scheme class with checked parameters."""
    shown_params = [scheme.parameters[name].show(name, value) for name, value in params.items()]
    return f"{scheme.name}({', '.join(shown_params)})" if shown_params else scheme.name


def has_ramp(value: object) -> bool:
    """Whether a parameter's value, or one inside it, changes while a model trains."""
    if isinstance(value, Spec):
        return value.is_schedule
    if isinstance(value, Ramp):
        return True
    return isinstance(value, (list, tuple)) and any(map(has_ramp, value))


def _checked_text(text: object) -> str:
    """A spec string of at most 10,000 characters and 8 schemes within each other."""
    if not isinstance(text, str):
        raise RobustokError(f"a scheme is a string as 'uniform-k(alpha=0.5)', not {shown(text)}")
    if len(text) > _LONGEST:
        raise RobustokError(f"a scheme of {len(text)} characters: give at most {_LONGEST}")
    deepest = max(accumulate((c == "(") - (c == ")") for c in text), default=0)
    if deepest > _DEEPEST:
        raise RobustokError(f"a scheme {deepest} levels deep: give at most {_DEEPEST}")
    return text


def split_parameters(spec: str, inside: str) -> list[str]:
    """The parts between commas that no parenthesis encloses."""
    parts, depth = [""], 0
    for c in inside:
        depth += (c == "(") - (c == ")")
        if depth < 0:
            break
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    if depth:
        raise RobustokError(f"{spec}: the parentheses do not match")
    return [p.strip() for p in parts if p.strip()]


def _part(scheme: str, part: object) -> tuple[Any, Any]:
    """A weight and a scheme from ``"0.5 uniform"``, ``"1->0.5 uniform"`` or a pair."""
    pair = part
    if isinstance(part, str):
        # Spaces around the arrow do not separate the scheme.
        weight, _, inner = _RAMP_START.sub(r"\1->", part).strip().partition(" ")
        pair = read_value(weight), inner.strip()
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or isinstance(pair[0], str):
        raise RobustokError(
            f"{scheme}: write each part as a weight and a scheme, as '0.5 uniform', not "
            f"{shown(part)}"
        )
    return _WEIGHT.check(scheme, "a weight", pair[0]), _scheme(pair[1])


def _scheme(value: Any) -> Spec | Scheme:
    return value if isinstance(value, (Spec, Scheme)) else Spec.parse(value)


def spec_of(scheme: Spec | Scheme) -> str:
    """The spec string of a Spec or a sampler."""
    return str(scheme) if isinstance(scheme, Spec) else spec_string(type(scheme), scheme.params)


S = TypeVar("S", bound=type[Scheme])


def register(scheme: S) -> S:
    """Register a scheme under its ``name``. Usable as a class decorator.

    >>> @rt.register
    ... class Coarse(rt.Sampler):
    ...     name = "coarse"
    ...     def draw(self, ids, random):
    ...         return rt.Characters(self.vocab).draw(ids, random) if random.random() < 0.5 else ids
    >>> rt.sampler("coarse", vocab).sample_batch(["hello"], seed=0, draws=4).lengths
    array([5, 1, 1, 5])

    Args:
        scheme: a subclass of :class:`robustok.Sampler` with a ``name`` and a method
            ``draw(self, ids, random)``; see "A scheme of your own" in the documentation.

    Raises RobustokError for a class that is no scheme and for a name that another scheme has. A
    class that is defined again replaces the earlier one.
    """
    if not (isinstance(scheme, type) and issubclass(scheme, Scheme)):
        raise RobustokError(f"register takes a subclass of robustok.Sampler, not {scheme!r}")
    scheme._check_complete()
    return SCHEMES.register(scheme.name)(scheme)


def schemes() -> dict[str, type[Any]]:
    """All schemes by name, with those of installed packages.

    >>> list(schemes())[:2]
    ['canonical', 'characters']

    A package whose scheme cannot be loaded causes a warning of one line.
    """
    return SCHEMES.with_packages()


def _register_loaded(value: object) -> None:
    """Register the class of an entry point; a module registers its schemes itself."""
    if isinstance(value, type):
        register(value)


SCHEMES: Registry[type[Any]] = Registry("scheme", "robustok.schemes", _register_loaded)
