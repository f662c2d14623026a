"""The playground: its answers, what it refuses, its limits, and the page in a real browser."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from starlette.testclient import TestClient
from tests.oracles.processes import free_port

import robustok as rt
from robustok import attack as package
from robustok.models import Shape, small_model, train_tokenizer
from robustok.play import application, server
from robustok.play.server import LONGEST, SAMPLES, attack_steps, picture, probabilities
from robustok.samplers import BUILT_IN
from robustok.scoring import score

TEXT = "Which word starts with 'm': one, two, me? Answer:"
OPTIONS = [" me", " one", " two"]
TOKENIZER = train_tokenizer([TEXT + o for o in OPTIONS] * 4, 290)
VOCAB = rt.Vocabulary.load(TOKENIZER)
SHAPE = Shape(2, 32, 2, 1, 64, 256)
MODEL = small_model(VOCAB.size, SHAPE, seed=1)
QUESTION = json.dumps({"text": TEXT}).encode()
JSON = {"Content-Type": "application/json"}
HEAD = b"POST /api/draw HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def client(host: str = "127.0.0.1:8765", **options: Any) -> TestClient:
    return TestClient(application({"tiny": VOCAB}, **options), base_url=f"http://{host}")


@contextmanager
def serving(model: Any = None, **settings: Any) -> Iterator[int]:
    """A server in a thread; gives its port."""
    port, app = free_port(), application({"tiny": VOCAB}, {"tiny": model} if model else None)
    config = uvicorn.Config(app, port=port, **{"log_level": "error", "ws": "none", **settings})
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield port
    server.should_exit = True
    thread.join()


def post(
    body: Any, path: str = "draw", host: str = "127.0.0.1:8765", headers: Any = JSON, **options: Any
) -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with client(host, **options) as asking:
        answer = asking.post(f"/api/{path}", content=content, headers=headers)
    return answer.status_code, answer.json()


def test_a_picture_is_what_the_library_says() -> None:
    result = picture(VOCAB, "starts with", "uniform", seed=0)
    lattice = VOCAB.lattice("starts with")
    assert result["count"] == f"{lattice.count():,}"
    assert "".join(result["rows"][0]).replace("·", " ") == "starts with"
    exact = lattice.counts(by="distance")
    assert sum(share for _, share, _ in result["bars"]) == pytest.approx(1, abs=0.02)
    for at, share, drawn in result["bars"]:
        assert share == pytest.approx(exact[at] / lattice.count())
        # Draws of `uniform` follow the exact shares: within 5 standard errors.
        assert abs(drawn - share) < 5 * np.sqrt(share * (1 - share) / SAMPLES) + 1e-9
    canonical = picture(VOCAB, "starts with", "canonical", seed=0)
    assert [bar[0] for bar in canonical["bars"] if bar[2]] == [0]


def test_probabilities_are_shares_of_the_options() -> None:
    result = probabilities(MODEL, VOCAB, TEXT, OPTIONS, "canonical", seed=0)
    logs = score(MODEL, [VOCAB.encode(TEXT)], [VOCAB.encode(o) for o in OPTIONS]).log_probs[0]
    wanted = np.exp(logs) / np.exp(logs).sum()
    assert result["shares"][0] == pytest.approx(wanted.tolist(), abs=1e-4)


def test_an_attack_has_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, run = [], package.attack
    monkeypatch.setattr(package, "attack", lambda *a, **k: calls.append(a) or run(*a, **k))
    steps = attack_steps(MODEL, VOCAB, TEXT, OPTIONS)
    assert len(steps) > 1 == len(calls)
    assert "".join(steps[0]["tokens"]).replace("·", " ") == TEXT
    assert len({tuple(step["tokens"]) for step in steps}) == len(steps)
    assert not any(step["won"] for step in steps[:-1])


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("draw", {"text": ""}, "text of the question: String should have at least 1"),
        ("draw", {"text": "a", "options": ["b", ""]}, "1 of options of the question: String"),
        ("draw", {"text": "a" * (LONGEST + 1)}, f"at most {LONGEST} characters"),
        ("draw", {"text": "a", "scheme": "unifrom"}, "did you mean 'uniform'"),
        ("draw", {"text": "a", "tokenizer": "other"}, "unknown tokenizer 'other'"),
        ("draw", {"text": "a", "tokenizer": ["tiny"]}, "valid string"),
        ("draw", {"text": "a", "seed": -1}, "seed of"),
        ("draw", {"text": "a", "seed": True}, "valid integer"),
        ("draw", ["a"], "an object"),
        ("score", {"text": "a", "options": ["b"]}, "give 2 to 8 options"),
        ("score", {"text": "a", "options": ["b"] * 9}, "at most 8"),
        ("attack", {"text": "a", "options": "b"}, "valid array"),
        # Only what the page offers is drawn.
        ("draw", {"text": "a", "scheme": "uniform-k", "strength": 1e300}, "alpha is a number"),
        ("draw", {"text": "a", "scheme": "stochastok", "strength": -1}, "alpha is a number"),
        ("draw", {"text": "a", "scheme": "stochastok", "strength": "1"}, "valid number"),
        ("draw", {"text": "a", "scheme": "stochastok(alpha=1, ways=9)"}, "unknown scheme"),
        ("draw", b"[" * 15_000, "Invalid JSON"),
        ("draw", b'{"text": "a", "strength": NaN}', "strength of the question"),
        ("draw", b'{"text": "\\ud800"}', "Invalid JSON"),
        ("draw", b"\xff\xfe", "Invalid JSON"),
    ],
)
def test_what_is_wrong_is_one_line(path: str, body: Any, message: str) -> None:
    code, answer = post(body, path, models={"tiny": MODEL})
    assert (code, answer["error"].count("\n")) == (400, 0)
    assert message in answer["error"]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_question_too_long_is_not_read_to_its_end(chunked: bool) -> None:
    whole = b'{"text": "' + b"a" * 30_000 + b'"}'
    with client() as asking:
        kind = {"Content-Type": "application/json"}
        answer = asking.post("/api/draw", content=iter([whole]) if chunked else whole, headers=kind)
    assert (answer.status_code, answer.json()["error"]) == (400, "the question is too long")


def test_the_page_knows_its_models_and_asks_none_without_one() -> None:
    with client(models={"tiny": MODEL}) as asking:
        assert asking.get("/api/about").json()["models"] == ["tiny"]
    with client() as asking:
        assert asking.get("/api/about").json()["models"] == []
        assert asking.post("/api/score", json={}).status_code == 404


def test_each_of_two_models_answers_with_its_own_tokenizer() -> None:
    other = train_tokenizer([TEXT], 270)
    vocabularies = {"tiny": VOCAB, "other": rt.Vocabulary.load(other), "alone": VOCAB}
    models = {"tiny": MODEL, "other": small_model(vocabularies["other"].size, SHAPE, seed=2)}
    question = {"text": TEXT, "options": OPTIONS, "scheme": "canonical"}
    with TestClient(application(vocabularies, models), base_url="http://127.0.0.1") as asking:
        for name, model in models.items():
            answer = asking.post("/api/score", json=question | {"tokenizer": name}).json()
            vocab = vocabularies[name]
            assert answer == probabilities(model, vocab, TEXT, OPTIONS, "canonical", seed=0)
        refused = asking.post("/api/score", json=question | {"tokenizer": "alone"})
    assert refused.status_code == 400 and "unknown model 'alone'" in refused.json()["error"]


def test_the_page_offers_every_scheme_that_fits() -> None:
    with client() as asking:
        offered = asking.get("/api/about").json()["schemes"]
        names = [scheme["name"] for scheme in offered]
        assert names[0] == "stochastok"
        fitting = {scheme.name for scheme in BUILT_IN} - {"unigram"}  # a BPE has no scores
        assert fitting <= {*names} and "unigram" not in names  # other tests register schemes
        for scheme in (one for one in offered if one["name"] in fitting):
            questions = [{"text": "a word", "scheme": scheme["name"]}]
            if scheme["strength"]:
                ends = (scheme["least"], scheme["most"])
                questions += [questions[0] | {"strength": end} for end in ends]
            for question in questions:
                answer = asking.post("/api/draw", json=question)
                assert answer.status_code == 200, answer.json()


def test_what_the_page_shows_belongs_to_the_text_that_it_shows() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine: install it to run the script of the page")
    page = Path(server.__file__).with_name("page.html")
    script = Path(__file__).with_name("page_in_node.js")
    done = subprocess.run([node, script, page], capture_output=True, text=True, check=True)
    answered, changed, late, empty, first, second, attacked = json.loads(done.stdout)
    assert answered == ["7", 13, ""]  # two options of five elements each, below three heads
    assert changed == ["7", 0, ""]  # no answer to the text before
    assert late == ["7", 0, ""]  # nor one that comes after the change
    assert empty == ["–", 0, "type a text"]
    assert first == ["7", 13, ""]
    assert second == ["7", 13, False]  # beside it, where two are compared
    assert attacked == ["broken in step 1: the answer is wrong, the text is the same", 2, 13]


def test_the_page_draws_and_asks_in_a_real_browser(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium on this machine: install it to see the page in a browser")
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--window-size=390,1500", f"--user-data-dir={tmp_path}"]  # fmt: skip
    with serving(MODEL) as port:
        seen = subprocess.run(
            [browser, *quiet, "--virtual-time-budget=20000", "--dump-dom",
             f"http://127.0.0.1:{port}/"],
            capture_output=True, text=True, timeout=120, check=True,
        ).stdout  # fmt: skip
    assert 'data-drawna="stochastok(alpha=0.5)"' in seen
    assert 'data-askeda="yes"' in seen
    rows = seen.count('class="row"')
    assert rows == 1 + 6 == len(re.findall(r"</span><b>\d+\.\d%</b></div>", seen))
    assert re.search(r"(right|wrong) canonically, wrong in \d of 6 draws", seen)
    assert f"{VOCAB.lattice(TEXT.replace('me?', 'me, which?')).count():,}" in seen


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


@pytest.mark.parametrize(("host", "code"), [
    ("127.0.0.1:8765", 200), ("localhost:8765", 200), ("localhost", 200), ("[::1]:8765", 200),
    ("evil.test", 400), ("127.0.0.1.evil.test", 400), ("192.168.1.5", 400),
])  # fmt: skip
def test_the_page_itself_may_ask_on_this_machine(host: str, code: int) -> None:
    page = {"Content-Type": "application/json; charset=utf-8", "Origin": f"http://{host}",
            "Sec-Fetch-Site": "same-origin"}  # fmt: skip
    with client(host) as asking:
        assert asking.get("/").status_code == code
        answer = asking.post("/api/draw", content=QUESTION, headers=page)
        assert answer.status_code == code


@pytest.mark.parametrize(("chosen", "asked", "code"), [
    ("box.test", "box.test:8765", 200), ("box.test", "localhost", 200),
    ("box.test", "evil.test", 400), ("0.0.0.0", "box.test:8765", 200),
])  # fmt: skip
def test_a_chosen_host_may_be_asked_for_too(chosen: str, asked: str, code: int) -> None:
    app = application({"tiny": VOCAB}, host=chosen)
    with TestClient(app, base_url=f"http://{asked}") as asking:
        assert asking.get("/").status_code == code
        page = JSON | {"Origin": f"http://{asked}"}
        assert asking.post("/api/draw", content=QUESTION, headers=page).status_code == code
        evil = JSON | {"Origin": "http://evil.example"}
        assert asking.post("/api/draw", content=QUESTION, headers=evil).status_code in (400, 403)


@pytest.mark.parametrize("origin", ["http://evil.test", "http://localhost:1", "null"])
def test_another_page_may_not_ask(origin: str) -> None:
    with client("localhost") as asking:
        answer = asking.post("/api/draw", content=QUESTION, headers=JSON | {"Origin": origin})
    assert (answer.status_code, answer.json()["error"].partition("'")[0]) == (
        403,
        "only the playground",
    )


def test_no_other_page_may_frame_or_read_this_one() -> None:
    with client("localhost") as asking:
        for path in ("/", "/api/about"):
            headers = asking.get(path).headers
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cross-origin-resource-policy"] == "same-origin"


def test_who_leaves_within_a_question_leaves_no_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with serving() as port:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as leaving:
            leaving.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        with socket.create_connection(("127.0.0.1", port), timeout=30) as staying:
            staying.sendall(HEAD + b"Content-Length: 2\r\n\r\n{}")
            assert staying.recv(100).startswith(b"HTTP/1.1 400")
    assert "ClientDisconnect" not in capfd.readouterr().err


@pytest.mark.parametrize("part", [b"", b"POST /api/dr", HEAD + b"Content-Length: 100\r\n\r\n{"])
def test_connections_without_a_whole_request_block_nobody(part: bytes) -> None:
    with serving(**{**server.SERVER, "log_level": "error"}) as port, ExitStack() as stack:
        for _ in range(105):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            half.sendall(part)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as asking:
            asking.sendall(HEAD + b"Content-Length: 2\r\n\r\n{}")
            assert asking.recv(100).startswith(b"HTTP/1.1 400")  # it has no text


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
    process = subprocess.Popen(
        [sys.executable, "-c", script, "play", "-t", str(tokenizer), "--port", str(port)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    try:
        assert process.stderr.readline().startswith("http://127.0.0.1")
        asking = _connect(port)
        head = f"POST /api/draw HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(QUESTION)}\r\n"
        asking.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + QUESTION)
        assert process.stdout.readline() == "drawing\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        asking.close()
    finally:
        process.kill()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "robustok: stopped"
    assert "Traceback" not in errors


def _connect(port: int) -> socket.socket:
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise AssertionError("the server does not listen")
