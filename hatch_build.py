"""Adds kernels that are compiled already to a wheel; see .ci/release.py.

Takes two variables of the environment: ``ROBUSTOK_MACHINE_CODE``, a folder of cache directories
(`robustok.kernels.compiler.cache`), and ``ROBUSTOK_WHEEL_TAG``, the platforms that it is for.
Without them the wheel is one for all platforms, and compiles its kernels where it is used.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class MachineCode(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = os.environ.get("ROBUSTOK_MACHINE_CODE")
        if folder:
            build_data["force_include"][folder] = "robustok/kernels/machine_code"
            build_data["tag"] = os.environ["ROBUSTOK_WHEEL_TAG"]
            build_data["pure_python"] = False
