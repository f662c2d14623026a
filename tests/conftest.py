"""For all tests: no hub, no bars of other libraries, and bytecode that is compiled once.

`make venv` leaves libraries without bytecode. Where PYTHONDONTWRITEBYTECODE is set, each of the
many processes that tests start would compile torch and transformers again, in 9 of 15 seconds.
"""

import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
