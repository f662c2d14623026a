"""For all tests: no hub, no bars of other libraries, one thread, which decides last bits, and the
same random examples in every run and no limit on their time, so that a failure repeats. Processes
that tests start have a temporary folder of their own: that of the machine may hold old kernels.
"""

import atexit
import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

tempfile.gettempdir()  # that of this process stays
_temporary = tempfile.mkdtemp(prefix="robustok-tests-")
atexit.register(shutil.rmtree, _temporary, ignore_errors=True)
os.environ.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), _temporary))

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")
