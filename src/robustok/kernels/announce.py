"""The line that says why the first draw on a machine takes so long."""

from __future__ import annotations

import sys
from pathlib import Path

_announced = False


def announce_compilation() -> None:
    """Say so on stderr, once a process, if the kernels have never been compiled on this machine."""
    global _announced
    if _announced:
        return
    _announced = True
    from robustok.kernels import trie

    cache = getattr(trie.build_trie, "_cache", None) or getattr(trie._fill, "_cache", None)
    folder = Path(getattr(cache, "cache_path", "")) if cache is not None else None
    if folder is not None and not any(folder.glob("trie.*.nbi")):
        sys.stderr.write(
            "robustok: compiling its kernels, which happens once and takes up to a minute\n"
        )
        sys.stderr.flush()
