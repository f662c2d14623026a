"""What the playground refuses: other hosts, other origins, odd questions, long work."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.oracles.processes import free_port
from tests.play.conftest import TEXT, TOKENIZER, client, serving

from robustok.play import server

QUESTION = json.dumps({"text": TEXT}).encode()
PAGE = {"Content-Type": "application/json"}


def post(body: bytes, host: str = "127.0.0.1:8765", headers: Any = PAGE) -> tuple[int, Any]:
    with client(host) as asking:
        answer = asking.post("/api/draw", content=body, headers=headers)
        return answer.status_code, answer.json()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time limit, for kernels may have to be compiled first."""
    monkeypatch.setattr(server, "SECONDS", float("inf"))


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Content-Type", "text/plain; application/json")],
        [("Content-Type", "application/x-www-form-urlencoded")],
        [("Content-Type", "application/json"), ("Content-Type", "text/plain")],
        [("Content-Type", "text/plain"), ("Content-Type", "application/json")],
    ],
)
def test_what_a_page_elsewhere_can_send_is_refused(headers: list[tuple[str, str]]) -> None:
    assert post(QUESTION, headers=headers)[0] == 403


def test_no_other_site_is_allowed_to_ask() -> None:
    asked = {"Origin": "http://evil.test", "Access-Control-Request-Method": "POST",
             "Access-Control-Request-Headers": "content-type"}  # fmt: skip
    with client() as asking:
        answer = asking.options("/api/draw", headers=asked)
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "[::1]:8765"])
def test_the_page_itself_may_ask(host: str) -> None:
    page = {"Content-Type": "application/json; charset=utf-8", "Origin": f"http://{host}",
            "Sec-Fetch-Site": "same-origin"}  # fmt: skip
    assert post(QUESTION, host, page)[0] == 200


def test_the_host_is_checked() -> None:
    hosts = {"evil.test": 400, "127.0.0.1.evil.test": 400, "192.168.1.5": 400,
             "127.0.0.1:8765": 200, "localhost": 200, "[::1]:8765": 200}  # fmt: skip
    for base, code in hosts.items():
        with client(base) as asking:
            assert asking.get("/").status_code == code


def test_no_other_page_may_frame_or_read_this_one() -> None:
    with client("localhost") as asking:
        for path in ("/", "/api/about", "/nowhere"):
            headers = asking.get(path).headers
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"[" * 15_000, "not JSON"),
        (b'{"a": ' * 3_000, "not JSON"),
        (b'{"text": NaN}', "not JSON"),
        (b'{"text": "\\ud800"}', "not JSON"),
        (b'{"text": "a", "tokenizer": "\\udfff"}', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"text": "a", "tokenizer": ["tiny"]}', "no tokenizer"),
        (b'{"text": "a", "seed": true}', "a seed is"),
    ],
)
def test_an_odd_question_is_one_line(body: bytes, error: str) -> None:
    code, answer = post(body)
    assert (code, answer["error"].count("\n")) == (400, 0)
    assert error in answer["error"]


@pytest.mark.parametrize(
    ("scheme", "strength"),
    [
        ("uniform-k", 1e300),
        ("stochastok", -1),
        ("stochastok", "1"),
        ("bpe-dropout", True),
        ("stochastok(alpha=1, ways=9)", 1),
        (["uniform"], None),
    ],
)
def test_only_what_the_page_offers_is_drawn(scheme: Any, strength: Any) -> None:
    body = json.dumps({"text": TEXT, "scheme": scheme, "strength": strength}).encode()
    code, answer = post(body)
    assert code == 400
    assert "JSON" not in answer["error"] and "\n" not in answer["error"]


def test_drawing_stops_at_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SECONDS", 0.0)
    code, answer = post(QUESTION)
    assert code == 400 and "shorten the text" in answer["error"]


def test_who_leaves_within_a_question_leaves_no_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    head = b"POST /api/draw HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with serving() as port:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as leaving:
            leaving.sendall(head + b"Content-Length: 100\r\n\r\n{")
        with socket.create_connection(("127.0.0.1", port), timeout=30) as staying:
            staying.sendall(head + b"Content-Length: 2\r\n\r\n{}")
            assert staying.recv(100).startswith(b"HTTP/1.1 400")
    assert "ClientDisconnect" not in capfd.readouterr().err


IGNORED = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"


@pytest.mark.parametrize("start", ["", IGNORED], ids=["a terminal", "the background"])
def test_ctrl_c_ends_the_server_while_a_draw_runs(tmp_path: Path, start: str) -> None:
    tokenizer, port = tmp_path / "tokenizer.json", free_port()
    TOKENIZER.save(str(tokenizer))
    # A draw that never ends stands for a long forward pass.
    script = (
        start + "import sys, threading, robustok.play.server as s\n"
        "s.picture = lambda *a, **k: (print('drawing', flush=True), threading.Event().wait())\n"
        "from robustok.cli import main\nmain()"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", script, "play", "-t", str(tokenizer), "--port", str(port)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdout is not None and server.stderr is not None
    try:
        assert server.stderr.readline().startswith("http://127.0.0.1")
        client = _connect(port)
        head = f"POST /api/draw HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(QUESTION)}\r\n"
        client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + QUESTION)
        assert server.stdout.readline() == "drawing\n"
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=60)
        client.close()
    finally:
        server.kill()
    assert server.returncode == 130
    assert errors.splitlines()[-1] == "robustok: stopped"
    assert "Traceback" not in errors


def _connect(port: int) -> socket.socket:
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise AssertionError("the server does not listen")
