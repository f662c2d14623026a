"""The schemes by name: those of this package, those registered, and those of installed packages."""

from __future__ import annotations

import re
import warnings
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from robustok.errors import RobustokError, nearest
from robustok.samplers.base import Sampler
from robustok.samplers.bpe_dropout import BpeDropout
from robustok.samplers.canonical import Canonical
from robustok.samplers.characters import Characters
from robustok.samplers.exactly import Exactly
from robustok.samplers.grampa import Grampa
from robustok.samplers.maxmatch_dropout import MaxMatchDropout
from robustok.samplers.mix import Mix
from robustok.samplers.schedules import Schedule
from robustok.samplers.spec import Spec
from robustok.samplers.stochastok import StochasTok
from robustok.samplers.stochastok_uniform import StochasTokUniform
from robustok.samplers.uniform import Uniform
from robustok.samplers.uniform_k import UniformK
from robustok.samplers.unigram import Unigram
from robustok.vocabulary import Vocabulary, check_vocabulary

GROUP = "robustok.schemes"  # the entry-point group of packages with schemes
BUILT_IN: tuple[type[Sampler], ...] = (
    Canonical, Characters, StochasTok, StochasTokUniform, UniformK, Uniform, BpeDropout, Grampa,
    Unigram, MaxMatchDropout, Mix, Exactly,
)  # fmt: skip
SCHEMES: dict[str, type[Sampler]] = {scheme.name: scheme for scheme in BUILT_IN}

S = TypeVar("S", bound=type[Sampler])
_NAME = re.compile(r"[A-Za-z][\w-]*")
_failed: dict[str, str] = {}  # entry point: why it could not be loaded
_loaded: list[bool] = []  # not empty once the entry points were loaded


def sampler(spec: str | Spec | Sampler, vocab: Vocabulary) -> Sampler:
    """The sampler of a spec.

    >>> sampler("uniform-k(alpha=.50)", vocab).spec
    'uniform-k(alpha=0.5)'

    Args:
        spec: a string or a :class:`robustok.Spec`; a sampler is returned as it is.
        vocab: the vocabulary whose texts are tokenized.

    Raises RobustokError for an unknown scheme or parameter, naming the nearest, for a tokenizer
    that does not fit the scheme, and for a sampler of another vocabulary.
    """
    check_vocabulary(vocab)
    if isinstance(spec, Sampler):
        check_vocabulary_of(spec, vocab)
        return spec
    parsed = Spec.parse(spec)
    return scheme_class(parsed.name)(vocab, **parsed.params)


def check_vocabulary_of(scheme: Sampler | Schedule, vocab: Vocabulary) -> None:
    """Raise RobustokError for a sampler or a schedule of another vocabulary."""
    if scheme.vocab is not vocab and scheme.vocab.fingerprint != vocab.fingerprint:
        raise RobustokError(
            f"{scheme.spec} is a sampler of another vocabulary ({scheme.vocab}): make it for "
            f"{vocab}"
        )


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
    if not (isinstance(scheme, type) and issubclass(scheme, Sampler)):
        raise RobustokError(f"register takes a subclass of robustok.Sampler, not {scheme!r}")
    name = getattr(scheme, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RobustokError(
            f"{scheme.__name__}: name must be a word of letters, digits and '-', not {name!r}"
        )
    if scheme.draw is Sampler.draw and scheme._draw is Sampler._draw:
        raise RobustokError(f"{name} needs a method draw(self, ids, random)")
    if scheme.strength and scheme.strength not in scheme.parameters:
        raise RobustokError(f"{name}: its strength '{scheme.strength}' is not in its parameters")
    other = SCHEMES.get(name)
    if other and (other.__module__, other.__qualname__) != (scheme.__module__, scheme.__qualname__):
        raise RobustokError(f"a scheme '{name}' is already registered: give it another name")
    if not hasattr(scheme, "example"):
        scheme.example = name
    SCHEMES[name] = scheme
    return scheme


def schemes() -> dict[str, type[Sampler]]:
    """All schemes by name, with those of installed packages.

    >>> list(schemes())[:2]
    ['canonical', 'characters']

    A package whose scheme cannot be loaded causes a warning of one line.
    """
    _load_packages()
    for reason in _failed.values():
        warnings.warn(reason, stacklevel=2)
    _failed.clear()
    return dict(SCHEMES)


def find_scheme(name: str) -> type[Sampler] | None:
    """The class of a scheme; None where neither this nor an installed package has one."""
    if name not in SCHEMES:
        _load_packages()
    return SCHEMES.get(name)


def scheme_class(name: str) -> type[Sampler]:
    """The class of a scheme; raises RobustokError that names the nearest where there is none."""
    scheme = find_scheme(name)
    if scheme is not None:
        return scheme
    if name in _failed:
        raise RobustokError(_failed[name])
    raise RobustokError(f"unknown scheme '{name}': {nearest(name, SCHEMES)}")


def _load_packages() -> None:
    """Register the schemes of installed packages, once a process."""
    if _loaded:
        return
    _loaded.append(True)  # before loading: a package may look schemes up while it is imported
    for entry in entry_points(group=GROUP):
        _load(entry)


def _load(entry: EntryPoint) -> None:
    try:
        scheme = entry.load()
        if isinstance(scheme, type):  # a module registers its schemes itself
            register(scheme)
    except Exception as error:  # whatever the code of the package raises
        package = entry.dist.name if entry.dist else entry.module
        text = " ".join(str(error).split())
        _failed[entry.name] = (
            f"the scheme '{entry.name}' of the package {package} cannot be loaded: "
            f"{type(error).__name__}: {text}"
        )
