"""A Ray cluster that we start is reached from this machine only, and ends with its driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytest.importorskip("ray")

DRIVER = """
import sys, time
if sys.argv[1] == "imported":
    import ray
from robustok.runtime.processes import connect
connect()
import ray
assert ray.get(ray.remote(lambda: 7).remote()) == 7
print("started", flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("before", ["imported", "new"])
def test_a_cluster_of_ours_is_local(tmp_path: Path, before: str, monkeypatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    with subprocess.Popen(
        [sys.executable, str(script), before], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as driver:
        assert driver.stdout is not None
        try:
            assert driver.stdout.readline() == b"started\n"
            processes = psutil.Process(driver.pid).children(recursive=True)
            agents = [p for p in processes if p.name().startswith("ray::")]
            addresses = [a for p in [*processes, psutil.Process(driver.pid)] for a in listening(p)]
        finally:
            driver.kill()
    try:
        assert len(addresses) >= 4, "nothing was seen to listen: this test could not fail"
        assert set(addresses) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
        servers = [process for process in processes if process not in agents]
        assert not psutil.wait_procs(servers, timeout=60)[1]
    finally:
        for process in processes:
            if process.is_running():
                process.kill()


def listening(process: psutil.Process) -> list[str]:
    try:
        connections = process.net_connections("inet")
    except psutil.Error:  # It has ended.
        return []
    return [c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN]
