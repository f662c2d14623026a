"""Code that runs in a new Python process."""

from __future__ import annotations

import os
import subprocess
import sys


def run(code: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` with more environment variables; it has to succeed and writes no bytecode."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *arguments], capture_output=True, text=True,
        check=False, env=os.environ | settings,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done
