"""For all tests: no hub, no bars of other libraries, one thread, which decides last bits, and the
same random examples in every run and no limit on their time, so that a failure repeats.

This process and all that tests start have a home, caches and a temporary folder that are new, so
that no test depends on what lies in those of the machine. All share one cache of compiled kernels.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

from robustok.runtime.environment import user_cache

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

# Kernels have checksums, so what lies there changes no result; one compilation serves all tests.
os.environ.setdefault("NUMBA_CACHE_DIR", str(user_cache().parent))
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # `tmp_path` stays for a look
# Short: a worker's folder lies in it, and the path of a socket has at most 107 characters.
_own = Path(tempfile.mkdtemp(prefix="rt-"))
atexit.register(shutil.rmtree, _own, ignore_errors=True)
for _folder, _variables in {
    "home": ("HOME", "USERPROFILE"),
    "home/.cache": ("XDG_CACHE_HOME", "LOCALAPPDATA"),
    "home/.cache/huggingface": ("HF_HOME",),
    "home/.config": ("XDG_CONFIG_HOME",),
    "home/.local/share": ("XDG_DATA_HOME",),
    "tmp": ("TMPDIR", "TEMP", "TMP"),
}.items():
    (_own / _folder).mkdir(parents=True)
    os.environ.update(dict.fromkeys(_variables, str(_own / _folder)))
tempfile.tempdir = None  # read anew

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")
