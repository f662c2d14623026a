"""Connect to a Ray cluster, or start one that only this machine can reach."""

from __future__ import annotations

import logging
import os
import sys

from robustok.processes import available_cores

_LOOPBACK = "127.0.0.1"
# Makes Ray take the loopback address for its own, as it does on macOS and Windows. Ray reads it
# when it is imported.
_LOCAL = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def connect() -> None:
    """Join the cluster that RAY_ADDRESS names, or start one on the loopback address.

    Ray has no authentication by default: whoever reaches its ports runs code as this user. A
    cluster that this function starts therefore listens on no other interface. Does nothing if Ray
    is connected. When this process is killed, Ray's servers end with it; its two agents wait one
    minute for them.
    """
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        os.environ.update(_LOCAL)
    import ray

    if address:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        return
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = False  # Ray may have been imported before.
    ray.init(
        address="local",
        num_cpus=available_cores(),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address=_LOOPBACK,
    )
