"""Which releases a result was made with."""

from __future__ import annotations

import platform
from importlib import metadata

from robustok.version import __version__

PACKAGES = ("numpy", "numba", "tokenizers", "torch", "transformers")


def versions() -> dict[str, str]:
    """The releases of robustok, Python and the packages that a result depends on.

    A package that is not installed is left out.
    """
    found = {"robustok": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
