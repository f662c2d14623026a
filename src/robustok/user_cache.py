"""The folder for files that robustok can make again, in the cache directory of the user."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_cache() -> Path:
    """``robustok`` in the cache directory that the user or the system sets; it need not exist."""
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA") or str(Path.home())
    elif sys.platform == "darwin":
        root = "~/Library/Caches"
    else:
        root = "~/.cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or root).expanduser() / "robustok"
