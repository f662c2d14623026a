"""Packages: optional ones, their releases, and names that are imported when they are used."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Collection
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from robustok.runtime.environment import import_lock
from robustok.version import __version__


class Extra(NamedTuple):
    purpose: str
    extra: str  # the extra of robustok; empty if the package is installed by its own name

    def install(self, package: str) -> str:
        """The command that installs a package."""
        if not self.extra:
            return f"pip install {package}"
        return f"pip install 'robustok[{self.extra}]', or '.[{self.extra}]' in a checkout"


_MODELS = "training, evaluation, studies and reports"

EXTRAS = {
    **dict.fromkeys(
        (
            "torch", "transformers", "accelerate", "datasets", "peft", "safetensors", "scipy",
            "pydantic", "yaml", "wordfreq", "matplotlib", "jinja2", "pandas", "gguf", "urllib3",
            "typing_extensions",
        ),
        Extra(_MODELS, "models"),
    ),
    "gigatoken": Extra("fast canonical encoding", "corpus"),
    "pyarrow": Extra("Parquet files", "corpus"),
    "ray": Extra("corpora on a cluster", "ray"),
    "lm_eval": Extra("lm-eval's tasks", "lm-eval"),
    **dict.fromkeys(("starlette", "uvicorn", "anyio"), Extra("the playground", "play")),
    "sentencepiece": Extra("SentencePiece .model files", ""),
    "tiktoken": Extra("tiktoken encodings", ""),
}  # fmt: skip


def missing_line(package: str) -> str:
    """The error message for a package of EXTRAS that is not installed.

    >>> missing_line("ray")
    "this needs ray: pip install 'robustok[ray]', or '.[ray]' in a checkout"
    """
    return f"this needs {package}: {EXTRAS[package].install(package)}"


def require(*packages: str) -> None:
    """Raise ModuleNotFoundError with :func:`missing_line` for the first package not installed.

    Args:
        *packages: names of importable modules, each a key of ``EXTRAS``.
    """
    for package in packages:
        if find_spec(package) is None:
            raise ModuleNotFoundError(missing_line(package), name=package)


def names_on_use(package: str, *modules: str, names: Collection[str] = ()) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package that has names of modules, imported when one is used.

    >>> names_on_use("robustok", "robustok.checks", "robustok.errors")("RobustokError").__name__
    'RobustokError'

    The first module that has a name counts. ``names`` are those of the package, by default all.
    """

    def find(name: str) -> Any:
        # Python asks every package for names such as __path__, and `import *` for __all__.
        is_internal = name.startswith("__") and name != "__all__"
        is_known = not is_internal and (not names or name in names)
        for module in modules if is_known else ():
            with import_lock:
                own = _imported(module)
            if hasattr(own, name):
                return getattr(own, name)
        # Python's own line ends in a name that is alike, if it knows the package.
        raise AttributeError(
            f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package]
        )

    return find


def _imported(module: str) -> Any:
    """A module; a package of EXTRAS that it lacks is named with the command that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise ModuleNotFoundError(missing_line(error.name), name=error.name) from None


PACKAGES = ("numpy", "numba", "tokenizers", "gigatoken", "torch", "transformers")


@cache
def versions() -> dict[str, str]:
    """The versions of robustok, Python and the packages that a result depends on.

    A package that is not installed is left out.
    """
    from importlib import metadata  # half of the time of `import robustok`

    releases = {"robustok": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            releases[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return releases
