"""Real servers, where ROBUSTOK_VLLM names the Python of an environment that has vLLM.

`make real-servers VLLM=PATH/bin/python` runs these tests; without it they are skipped.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from tests.oracles.processes import free_port

ROOT = Path(__file__).parents[2]
STARTS = 600  # seconds in which vLLM must answer


@pytest.fixture(scope="session")
def vllm_python() -> str:
    """The Python that has vLLM."""
    python = os.environ.get("ROBUSTOK_VLLM")
    if not python:
        pytest.skip("ROBUSTOK_VLLM does not name a Python that has vLLM")
    return python


@pytest.fixture(scope="session")
def vllm_environment() -> dict[str, str]:
    """Of a process with vLLM on a processor, and robustok from this checkout."""
    return os.environ | {
        "PYTHONPATH": str(ROOT / "src"), "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    }  # fmt: skip


class Server(NamedTuple):
    """A running server: its address, and the process that leads its group."""

    address: str
    process: subprocess.Popen

    def end(self, how: signal.Signals) -> None:
        """Send a signal to all its processes, and wait for the first one."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, how)
        self.process.wait(60)


@contextmanager
def vllm_server(
    python: str, environment: dict[str, str], model: Path, *options: str, port: int | None = None
) -> Iterator[Server]:
    """vLLM that serves a folder, with further options of `vllm serve`; a free port by default."""
    port = port or free_port()
    command = [
        python, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--host", "127.0.0.1",
        "--port", str(port), "--max-model-len", "256", "--dtype", "float32", "--enforce-eager",
        *options,
    ]  # fmt: skip
    with TemporaryFile() as log:
        server = Server(
            f"http://127.0.0.1:{port}",
            subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            ),
        )
        try:
            for _ in range(STARTS):
                if server.process.poll() is not None:
                    log.seek(0)
                    raise AssertionError(
                        f"vLLM ended: {log.read().decode(errors='replace')[-2000:]}"
                    )
                with suppress(URLError, OSError), urlopen(f"{server.address}/health", timeout=5):
                    break
                time.sleep(1)
            yield server
        finally:
            server.end(signal.SIGTERM)


def post(url: str, body: Any) -> tuple[int, Any]:
    """Status and answer of a request with JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = Request(url, raw, {"content-type": "application/json"})
    try:
        with urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.loads(error.read())
