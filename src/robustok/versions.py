"""Versions of the packages that a result depends on."""

from __future__ import annotations

import platform
from importlib import metadata

from robustok.version import __version__

PACKAGES = ("numpy", "numba", "tokenizers", "gigatoken", "torch", "transformers")


def versions() -> dict[str, str]:
    """The versions of robustok, Python and the packages that a result depends on.

    A package that is not installed is left out.
    """
    releases = {"robustok": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            releases[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return releases
