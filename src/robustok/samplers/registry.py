"""Spec strings: ``uniform-k(alpha=0.5)`` to the sampler it names, and back."""

from __future__ import annotations

import re
from inspect import Parameter, signature
from typing import Any

from robustok.checks import shown
from robustok.errors import RobustokError, nearest
from robustok.samplers.base import Sampler
from robustok.samplers.bpe_dropout import BpeDropout
from robustok.samplers.canonical import Canonical
from robustok.samplers.exactly import Exactly
from robustok.samplers.grampa import Grampa
from robustok.samplers.maxmatch_dropout import MaxMatchDropout
from robustok.samplers.mix import Mix
from robustok.samplers.schedules import Schedule
from robustok.samplers.stochastok import StochasTok
from robustok.samplers.stochastok_uniform import StochasTokUniform
from robustok.samplers.uniform import Uniform
from robustok.samplers.uniform_k import UniformK
from robustok.samplers.unigram import Unigram
from robustok.vocabulary import Vocabulary, check_vocabulary

SCHEMES: dict[str, type[Sampler]] = {
    scheme.name: scheme
    for scheme in (
        Canonical, StochasTok, StochasTokUniform, UniformK, Uniform, BpeDropout, Grampa, Unigram,
        MaxMatchDropout, Mix, Exactly,
    )
}  # fmt: skip

_LONGEST, _DEEPEST = 10_000, 8
_SPEC = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?:\((.*)\))?\s*", re.DOTALL)


def sampler(spec: str | Sampler, vocab: Vocabulary) -> Sampler:
    """The sampler a spec string names.

    >>> sampler("uniform-k(alpha=.50)", vocab).spec
    'uniform-k(alpha=0.5)'

    A sampler is returned as it is. Raises RobustokError for an unknown scheme or parameter, naming
    the nearest, and for a sampler of another vocabulary.
    """
    check_vocabulary(vocab)
    if isinstance(spec, Sampler):
        check_vocabulary_of(spec, vocab)
        return spec
    name, arguments = parse(spec)
    missing = [
        p.name for p in signature(SCHEMES[name]).parameters.values()
        if p.kind is Parameter.KEYWORD_ONLY and p.default is Parameter.empty
        and p.name not in arguments
    ]  # fmt: skip
    if missing:
        raise RobustokError(f"{name} needs {missing[0]}, as {SCHEMES[name].example}")
    return SCHEMES[name](vocab, **arguments)


def check_vocabulary_of(scheme: Sampler | Schedule, vocab: Vocabulary) -> None:
    """Raise RobustokError where a sampler or a schedule was made for another vocabulary."""
    if scheme.vocab is not vocab and scheme.vocab.fingerprint != vocab.fingerprint:
        raise RobustokError(
            f"{scheme.spec} is a sampler of another vocabulary ({scheme.vocab}): make it for "
            f"{vocab}"
        )


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    """The scheme and its parameters; raises RobustokError for what no scheme would take.

    >>> parse("stochastok(alpha=1, ways=3)")
    ('stochastok', {'alpha': 1, 'ways': 3})
    """
    match = _SPEC.fullmatch(check_spec(spec))
    if not match:
        raise RobustokError(f"cannot read the scheme {spec!r}: write it as uniform-k(alpha=0.5)")
    name, inside = match[1], (match[2] or "").strip()
    if name not in SCHEMES:
        raise RobustokError(f"unknown scheme '{name}': {nearest(name, SCHEMES)}")
    allowed = [
        p.name for p in signature(SCHEMES[name]).parameters.values()
        if p.kind is Parameter.KEYWORD_ONLY
    ]  # fmt: skip
    arguments: dict[str, Any] = {}
    inner = SCHEMES[name].inner
    for part in _split(spec, inside):
        key, equals, value = (x.strip() for x in part.partition("="))
        if inner and not re.fullmatch(r"\w+", key if equals else ""):
            arguments[inner] = (*arguments.get(inner, ()), part)
            continue
        if not equals:
            raise RobustokError(f"{spec}: write each parameter as name=value, not '{part}'")
        if "->" in value:
            raise RobustokError(
                f"{spec} is a schedule, for training: schedule(spec, vocab).at(progress) gives "
                "the scheme of a moment"
            )
        if key not in allowed:
            hint = nearest(key, allowed) if allowed else f"{name} takes none"
            raise RobustokError(f"{name} has no parameter '{key}': {hint}")
        arguments[key] = _value(value)
    return name, arguments


def check_spec(spec: Any) -> str:
    """A spec string of at most 10,000 characters and 8 schemes within each other."""
    if not isinstance(spec, str):
        raise RobustokError(f"a scheme is a string as 'uniform-k(alpha=0.5)', not {shown(spec)}")
    if len(spec) > _LONGEST:
        raise RobustokError(f"a scheme of {len(spec)} characters: give at most {_LONGEST}")
    depth = deepest = 0
    for c in spec:
        depth += (c == "(") - (c == ")")
        deepest = max(deepest, depth)
    if deepest > _DEEPEST:
        raise RobustokError(f"a scheme {deepest} levels deep: give at most {_DEEPEST}")
    return spec


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


def _value(text: str) -> Any:
    if text[:1] in "\"'" and text[-1:] == text[:1] and len(text) > 1:
        return text[1:-1]
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text
