"""A scheme as a value: spec strings parsed by a small grammar and normalized by the scheme's class.

    spec  = name [ "(" part { "," part } ")" ]
    part  = parameter "=" value | spec | weight spec
    value = number | number "->" number | word | quoted word

No vocabulary is needed. Whether a tokenizer fits a scheme is checked by its sampler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from robustok.checks import check_number, shown
from robustok.errors import RobustokError
from robustok.samplers.parameters import Ramp, read_value

_LONGEST, _DEEPEST = 10_000, 8
_SPEC = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?:\((.*)\))?\s*", re.DOTALL)


@dataclass(frozen=True)
class Spec:
    """A scheme and its parameters, checked and normalized.

    >>> spec = rt.Spec.parse("stochastok( alpha = 1.0, ways=2 )")
    >>> str(spec), spec.name, dict(spec.params)
    ('stochastok(alpha=1)', 'stochastok', {'alpha': 1.0})
    >>> str(spec.replace(alpha=0.5))
    'stochastok(alpha=0.5)'

    Args:
        name: name of the scheme.
        params: values by parameter name. The attribute holds the strength parameter and every other
            one that differs from its default; a scheme inside another is a Spec.

    Equal specs have equal strings. Raises RobustokError for an unknown scheme or parameter, naming
    the nearest, and for a value outside its range.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from robustok.samplers.registry import scheme_class

        checked = scheme_class(self.name).checked(self.params)
        object.__setattr__(self, "params", MappingProxyType(checked))

    @classmethod
    def parse(cls, text: str | Spec, **params: Any) -> Spec:
        """Read a spec string.

        >>> str(rt.Spec.parse("uniform-k", alpha=2))
        'uniform-k(alpha=2)'

        Args:
            text: a spec string of at most 10,000 characters, or a Spec.
            **params: values that are added to its parameters, or replace them.

        Raises RobustokError for a string that is no spec, and as the class does.
        """
        if isinstance(text, Spec):
            return text.replace(**params) if params else text
        call = read_call(text)
        return cls(call.name, call.params | params)

    def replace(self, **params: Any) -> Spec:
        """The same scheme with other values of these parameters; None takes one away."""
        merged = {**self.params, **params}
        return Spec(self.name, {name: x for name, x in merged.items() if x is not None})

    def at(self, progress: float) -> Spec:
        """The scheme at a moment of training, from 0 (first step) to 1 (last).

        >>> str(rt.Spec.parse("mix(1->0.5 canonical, 0->0.5 uniform)").at(1))
        'mix(0.5 canonical, 0.5 uniform)'

        Raises RobustokError for a progress outside [0, 1].
        """
        progress = check_number("progress", progress, 0.0, 1.0)
        kinds = self._scheme.parameters
        return Spec(
            self.name, {name: kinds[name].at(x, progress) for name, x in self.params.items()}
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
    def _scheme(self) -> Any:
        from robustok.samplers.registry import scheme_class

        return scheme_class(self.name)

    def __str__(self) -> str:
        return spec_string(self._scheme, self.params)

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> Any:
        return Spec, (self.name, dict(self.params))


class Call(NamedTuple):
    """A spec string as it is written, before its parameters are checked."""

    name: str
    params: dict[str, Any]


def read_call(text: str) -> Call:
    """The scheme's name and its parameters as written; inner schemes are still strings.

    >>> read_call("exactly(uniform, splits=.50)")
    Call(name='exactly', params={'scheme': ('uniform',), 'splits': 0.5})
    """
    from robustok.samplers.registry import scheme_class

    match = _SPEC.fullmatch(_checked_text(text))
    if not match:
        raise RobustokError(f"cannot read the scheme {text!r}: write it as uniform-k(alpha=0.5)")
    name, inside = match[1], (match[2] or "").strip()
    scheme = scheme_class(name)
    params: dict[str, Any] = {}
    for part in _split(text, inside):
        key, equals, value = (x.strip() for x in part.partition("="))
        if scheme.inner and not re.fullmatch(r"\w+", key if equals else ""):
            params[scheme.inner] = (*params.get(scheme.inner, ()), part)
        elif equals:
            params[key] = read_value(value)
        else:
            raise RobustokError(f"{text}: write each parameter as name=value, not '{part}'")
    return Call(name, params)


def spec_string(scheme: Any, params: Mapping[str, Any]) -> str:
    """The spec of a scheme class with checked parameters."""
    shown_params = [scheme.parameters[name].show(name, value) for name, value in params.items()]
    return f"{scheme.name}({', '.join(shown_params)})" if shown_params else scheme.name


def has_ramp(value: Any) -> bool:
    """Whether a parameter's value, or one inside it, changes while a model trains."""
    if isinstance(value, Spec):
        return value.is_schedule
    if isinstance(value, Ramp):
        return True
    return isinstance(value, (list, tuple)) and any(map(has_ramp, value))


def _checked_text(text: Any) -> str:
    """A spec string of at most 10,000 characters and 8 schemes within each other."""
    if not isinstance(text, str):
        raise RobustokError(f"a scheme is a string as 'uniform-k(alpha=0.5)', not {shown(text)}")
    if len(text) > _LONGEST:
        raise RobustokError(f"a scheme of {len(text)} characters: give at most {_LONGEST}")
    depth = deepest = 0
    for c in text:
        depth += (c == "(") - (c == ")")
        deepest = max(deepest, depth)
    if deepest > _DEEPEST:
        raise RobustokError(f"a scheme {deepest} levels deep: give at most {_DEEPEST}")
    return text


def _split(spec: str, inside: str) -> list[str]:
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
