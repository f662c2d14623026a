"""The middleware in front of a recording server: what it lets through, changes, refuses, counts."""

import asyncio
import gzip
import importlib
import inspect
import json
import logging
import re
import runpy
import socket
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from tests.guard.tokenizers_of import LLAMA3, byte_level, unigram_with_bytes
from tests.runtime.test_locks import child_succeeds, needs_fork

import robustok as rt
from robustok.integrations.asgi import IN_THREAD, GuardMiddleware
from robustok.integrations.bodies import Refused
from robustok.integrations.serving import PromptGuard

prometheus = pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
ROOT = Path(__file__).parents[2]


VOCAB = byte_level(LLAMA3)
CANONICAL = VOCAB.encode("the rest").tolist()
SPLIT = [*VOCAB.encode("t").tolist(), *VOCAB.encode("he").tolist(), *CANONICAL[1:]]
SPECIAL = VOCAB.encode("<|end|>the", parse_special=True).tolist()
UNKNOWN = [5, 10**6]


class Server:
    """Records the bodies that reach it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        self.bodies.append(message["body"])
        self.headers.append(dict(scope["headers"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}", "more_body": False})


def call(
    app: Any, body: Any, *, kind: str | None = "application/json", path: str = "/v1/completions",
    method: str = "POST", size: int | None = None, more: tuple[tuple[bytes, bytes], ...] = (),
) -> tuple[int, bytes]:  # fmt: skip
    """One request, its body in four chunks; the status and the body of the response."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    step = len(raw) // 4 + 1
    chunks = [raw[i : i + step] for i in range(0, len(raw), step)] or [b""]
    headers = [] if kind is None else [(b"content-type", kind.encode())]
    headers += more
    if size is not None:
        headers.append((b"content-length", str(size).encode()))
    scope = {"type": "http", "method": method, "path": path, "headers": headers}
    sent: list[Any] = []

    async def receive() -> Any:
        if not chunks:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent[1:])


def counted(name: str, kind: str | None = None) -> float:
    """A counter in prometheus_client's registry."""
    labels = {} if kind is None else {"kind": kind}
    value = prometheus.REGISTRY.get_sample_value(f"robustok_guard_{name}_total", labels)
    return value or 0.0


def guarded(server: Server, policy: str, **settings: Any) -> GuardMiddleware:
    outer = {k: settings.pop(k) for k in ("max_body", "other_types") if k in settings}
    prompts = PromptGuard(VOCAB, policy=policy, fields=["own", "deep.own"], **settings)
    return GuardMiddleware(server, prompts, **outer)


@pytest.mark.parametrize("policy", ["reject", "repair", "log", "strict"])
def test_text_and_canonical_ids_pass_byte_for_byte(policy: str) -> None:
    bodies = [
        b'{"prompt":  "the rest <|end|>",\n "n": 1.0}',
        b'{"prompt": ["a", "12"]}',
        b'{"messages": [{"role": "user", "content": "the \\ud800"}]}',
        b'{"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, "y"]}]}',
        b'\xef\xbb\xbf {"prompt": "the"}',
        json.dumps({"prompt": CANONICAL, "stop_token_ids": [1, 2]}, indent=1).encode(),
        b'{"sampling_params": {"logit_bias": {"3": 1}, "bad_words_ids": [[1], [2]]}}',
        json.dumps({"prompt": [CANONICAL, []], "user": "\ud800"}).encode(),
        json.dumps({"prompt": [[CANONICAL], "the", None]}).encode(),
        b'{"prompt": []}',
        b'{"tools": [{"parameters": {"default": [1, 2]}}], "logit_bias": {"5": 1}, "stop": ["5"]}',
        b"[]",
        b'"83"',
        b'{"prompt": "%s", "a": "\xc3\xa9\\"[83, 258]"}' % (b"the " * 1000),
    ]
    server = Server()
    app = guarded(server, policy)
    for body in bodies:
        for kind in ("application/json", "text/plain", None):
            assert call(app, body, kind=kind) == (200, b"{}"), body[:80]
            assert server.bodies[-1] == body
    call(app, b"--x\r\nfile", kind="multipart/form-data; boundary=x")
    call(app, b"", method="GET")
    assert server.bodies[-2:] == [b"--x\r\nfile", b""]


@pytest.mark.parametrize("policy", ["reject", "repair"])
def test_special_and_unknown_ids_are_refused(policy: str) -> None:
    server = Server()
    for kind, prompt in (("special", SPECIAL), ("unknown", UNKNOWN)):
        status, answer = call(guarded(server, policy), {"prompt": prompt})
        assert (status, json.loads(answer)["error"]["code"]) == (400, f"{kind}-id")
    app = guarded(server, policy, allow_special=True)
    assert call(app, {"prompt": SPECIAL})[0] == 200
    assert len(server.bodies) == 1


@pytest.mark.parametrize("sent", [-1, 10**6, 2**31, 2**63, 5279552648203111001, -(2**40), 10**30])
def test_a_refusal_names_the_id_that_was_sent(sent: int) -> None:
    status, answer = call(guarded(Server(), "reject"), {"prompt": [CANONICAL, [5, sent, 6]]})
    error = json.loads(answer)["error"]
    assert (status, error["code"], error["param"]) == (400, "unknown-id", "prompt[1]")
    assert f"prompt[1]: id 1: {sent} is not in the vocabulary" in error["message"]
    with pytest.raises(Refused, match=f"prompt 0: id 0: {sent} is"):
        PromptGuard(VOCAB).repairs([[sent]])


def test_the_label_of_a_body_decides_nothing() -> None:
    server = Server()
    app = guarded(server, "reject")
    body = b" " * 16 + json.dumps({"prompt": SPLIT}).encode()
    plain, form = (b"content-type", b"text/plain"), (b"Content-Type", b"multipart/form-data")
    for kind in ("application/json", "text/plain", "multipart/form-data", None):
        for more in ((), (plain,), (form,), (form, form)):
            for method in ("POST", "PUT", "GET", "DELETE"):
                assert call(app, body, kind=kind, more=more, method=method)[0] == 400
    # Neither JSON nor allowed.
    for kind in ("text/plain", "application/msgpack", "application/x-www-form-urlencoded", None):
        assert call(app, b"prompt=83&prompt=258", kind=kind)[0] in (400, 415)
    assert call(app, b"--x", kind="multipart/form-data", more=(plain,))[0] == 415
    for name in (b"content-encoding", b"x-body-compressed"):
        status, answer = call(app, gzip.compress(body), more=((name, b"gzip"),))
        assert (status, server.bodies) == (415, [])
        assert "uncompressed" in json.loads(answer)["error"]["message"]
    app = guarded(server, "reject", other_types=["audio/wav"])
    assert call(app, b"RIFF", kind="audio/wav")[0] == 200
    assert call(app, b"--x", kind="multipart/form-data")[0] == 415


FORMS: dict[str, Any] = {
    "prompt": lambda i: {"prompt": i},
    "prompt[1]": lambda i: {"prompt": ["a", i], "user": "\ud800"},
    "kv_transfer_params.prompt_token_ids": lambda i: {
        "prompt": "a", "kv_transfer_params": {"prompt_token_ids": i}},
    "own": lambda i: {"own": i},
    "deep[0].own": lambda i: {"deep": [{"own": i}]},
    "[0].own": lambda i: [{"own": i}],
}  # fmt: skip


@pytest.mark.parametrize("field", FORMS)
def test_other_tokenizations_are_rejected_repaired_or_logged(field: str, caplog: Any) -> None:
    body, repaired = FORMS[field](SPLIT), FORMS[field](CANONICAL)
    server = Server()
    for policy in ("strict", "reject"):
        status, answer = call(guarded(server, policy), body, kind="text/plain")
        error = json.loads(answer)["error"]
        assert (status, server.bodies) == (400, [])
        assert (error["code"], error["type"]) == ("not-canonical", "invalid_request_error")
        assert error["param"] == field
        assert f"{field}: ids 0 to 1, 't|he', should be 'the'" in error["message"]

    status, _ = call(guarded(server, "repair"), body, size=len(json.dumps(body)))
    assert (status, json.loads(server.bodies[-1])) == (200, repaired)
    assert int(server.headers[-1][b"content-length"]) == len(server.bodies[-1])

    with caplog.at_level(logging.WARNING, "robustok.integrations"):
        call(guarded(server, "log"), body)
    assert json.loads(server.bodies[-1]) == body
    assert caplog.messages == [
        f"findings of kind not-canonical in 1 prompt, the first one at id 0 of {field}"
    ]


@pytest.mark.parametrize("policy", ["reject", "repair", "strict"])
@pytest.mark.parametrize(
    ("field", "value"),
    [("stop_token_ids", [99999999]), ("allowed_token_ids", [3, -1]), ("bad_words_ids", [[9**9]]),
     ("logit_bias", {"2": 1, "99999999": 5}), ("logit_bias", {"9" * 5000: 1})],
)  # fmt: skip
def test_ids_outside_the_vocabulary_are_refused_where_they_are_no_prompt(
    policy: str, field: str, value: Any
) -> None:
    for body, name in (({field: value}, field), ({"sampling_params": {field: value}},
                                                 f"sampling_params.{field}")):  # fmt: skip
        status, answer = call(guarded(Server(), policy), {"prompt": "a"} | body)
        error = json.loads(answer)["error"]
        assert (status, error["code"]) == (400, "unknown-id")
        assert error["param"].startswith(name) and "is not in the vocabulary" in error["message"]
        # Of a path that reads no prompt, its ids have to exist only.
        app = guarded(Server(), policy)
        assert call(app, {"tokens": UNKNOWN}, path="/detokenize")[0] == 400
        assert call(app, {"tokens": SPLIT}, path="/detokenize")[0] == 200
        assert call(guarded(Server(), "log"), {"prompt": "a"} | body)[0] == 200


def test_no_request_is_judged_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    app = guarded(Server(), "repair")
    threads: list[str] = []
    judged = GuardMiddleware._judged

    def noted(self: Any, scope: Any, raw: bytearray) -> Any:
        threads.append(threading.current_thread().name)
        return judged(self, scope, raw)

    monkeypatch.setattr(GuardMiddleware, "_judged", noted)
    for body in (b"1", json.dumps({"prompt": [SPLIT] * 100}).encode(), b"1" + b" " * IN_THREAD):
        assert call(app, body)[0] == 200
    call(app, b"", method="GET")
    assert [name[:-2] for name in threads] == [
        "robustok-guard-short", "robustok-guard-short", "robustok-guard-long",
    ]  # fmt: skip


def test_clients_that_send_half_a_body_hold_up_no_other() -> None:
    """Each waits without a thread; what comes of it later is judged, or forgotten."""
    server, slow, half = Server(), 300, json.dumps({"prompt": SPLIT}).encode()
    app, ended = guarded(server, "reject"), asyncio.Event()
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}

    async def ask(first: bytes, last: Any) -> list[Any]:
        messages, sent = [{"body": first, "more_body": last is not None}, last], []

        async def receive() -> Any:
            if len(messages) == 1:
                await ended.wait()
            return {"type": "http.request"} | messages.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return sent

    async def all_clients() -> tuple[list[Any], list[list[Any]]]:
        gone, rest = {"type": "http.disconnect"}, {"body": half[20:]}
        waiting = [asyncio.create_task(ask(half[:20], (gone, rest)[i % 2])) for i in range(slow)]
        for _ in range(5):
            await asyncio.sleep(0)
        answer = await ask(json.dumps({"prompt": CANONICAL}).encode(), None)
        assert not any(task.done() for task in waiting)
        ended.set()
        return answer, await asyncio.gather(*waiting)

    answer, late = asyncio.run(all_clients())
    assert answer[0]["status"] == 200 and len(server.bodies) == 1
    assert [[m["status"] for m in sent[:1]] for sent in late] == [[], [400]] * (slow // 2)


@needs_fork
def test_a_forked_process_judges_requests_too() -> None:
    app = guarded(Server(), "reject")
    assert call(app, {"prompt": SPLIT})[0] == 400
    assert child_succeeds(lambda: call(app, {"prompt": SPLIT})[0] == 400)


@given(st.lists(st.lists(st.integers(0, VOCAB.size - 1), max_size=8), max_size=6))
def test_what_is_repaired_is_canonical(rows: list[list[int]]) -> None:
    for vocab in (VOCAB, unigram_with_bytes()):
        prompts = PromptGuard(vocab, policy="repair", allow_special=True)
        known = [[i for i in row if i < vocab.size and vocab.tokens[i]] for row in rows]
        try:
            changed = prompts.repairs(known)
        except Refused:
            continue
        repaired = [changed.get(number, row) for number, row in enumerate(known)]
        assert all(rt.Guard(vocab, allow_special=True).check(row).canonical for row in repaired)


@pytest.mark.parametrize(("policy", "status"), [("log", 200), ("repair", 200), ("reject", 400)])
def test_the_name_of_a_byte_spelled_in_letters_becomes_what_the_tokenizer_gives(
    policy: str, status: int
) -> None:
    vocab = unigram_with_bytes()
    ids = [vocab.tokens.index(bytes([c])) for c in b"<0x41>"]
    server = Server()
    app = GuardMiddleware(server, PromptGuard(vocab, policy=policy))
    assert call(app, {"prompt": ids})[0] == status
    if policy == "repair":
        assert json.loads(server.bodies[-1])["prompt"] == vocab.encode("<0x41>").tolist()


def test_a_guard_in_place_of_the_policy_is_an_error() -> None:
    guard: Any = rt.Guard(unigram_with_bytes())
    with pytest.raises(rt.RobustokError, match="a PromptGuard is needed here, not Guard"):
        GuardMiddleware(Server(), guard)


def test_unknown_fields_pass_with_a_counter_unless_the_policy_is_strict() -> None:
    server = Server()
    body = {"prompt": "a", "x": [5, "a"], "y": {"prompt": [[5]]}}
    for policy in ("reject", "repair", "log"):
        app, before = guarded(server, policy), counted("unknown_fields")
        assert call(app, body)[0] == 200
        assert counted("unknown_fields") == before + 2
    status, answer = call(guarded(server, "strict"), body)
    error = json.loads(answer)["error"]
    assert (status, error["code"], error["param"]) == (400, "unknown-field", "x")
    app = guarded(server, "strict")
    assert call(app, {"prompt": ["5", "6"]})[0] == 400  # where a server takes no list of texts


@pytest.mark.parametrize("policy", ["reject", "repair", "log", "strict"])
@pytest.mark.parametrize("protocol", ["websockets-sansio", "wsproto"])
def test_websockets_pass_unjudged_unless_the_policy_is_strict(policy: str, protocol: str) -> None:
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    client = pytest.importorskip("websockets.sync.client", reason="websockets is not installed")
    pytest.importorskip(protocol.partition("-")[0], reason=f"{protocol} is not installed")

    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        async for text in websocket.iter_text():
            await websocket.send_text(text)

    app = Starlette(routes=[WebSocketRoute("/v1/realtime", echo)])
    app.add_middleware(GuardMiddleware, prompts=PromptGuard(VOCAB, policy=policy))  # type: ignore[arg-type]
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, ws=protocol, lifespan="off", log_level="error"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    address = f"ws://127.0.0.1:{listener.getsockname()[1]}/v1/realtime"
    try:
        if policy == "strict":
            with pytest.raises(client.InvalidStatus, match="403"), client.connect(address):
                pass
        else:
            with client.connect(address) as connection:
                for prompt in (SPLIT, UNKNOWN, "x" * 100_000):
                    message = json.dumps({"prompt": prompt})
                    connection.send(message)
                    assert connection.recv(timeout=60) == message
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.mark.parametrize("policy", ["reject", "repair", "log", "strict"])
def test_limits_hold_for_every_policy(policy: str) -> None:
    server = Server()
    app = guarded(
        server, policy, max_length=4, max_prompts=2, max_body=100, max_values=20, max_items=25
    )
    long = VOCAB.encode("the rest the rest the rest").tolist()
    assert len(long) > 4
    assert b"prompt has 6 ids, at most 4 are allowed" in call(app, {"prompt": long})[1]
    assert b"at most 2 are allowed" in call(app, {"prompt": [[5]] * 3})[1]
    assert call(app, b'{"prompt": "' + b"x" * 200 + b'"}')[0] == 413
    assert call(app, b"{}", size=101)[0] == 413
    assert call(app, b"[" * 21)[0] == 413
    assert b"more than 20 lists, objects and keys" in call(app, b'{"x": [%s]}' % (b"[]," * 30))[1]
    assert b"have more than 25 values" in call(app, b'{"x": [%s]}' % (b"0," * 30))[1]
    deep = guarded(server, policy, max_values=2000)
    assert b"too-deep" in call(deep, b"[" * 1900 + b"]" * 1900)[1]
    assert server.bodies == []
    assert call(app, {"prompt": CANONICAL})[0] == 200


def test_counters_add_up() -> None:
    app = guarded(Server(), "repair")
    checked = len(CANONICAL) + 3 * len(SPLIT) + 2
    expected = {
        ("requests", "ids"): 4, ("requests", "text"): 1, ("sequences", "canonical"): 1,
        ("sequences", "repaired"): 3, ("sequences", "refused"): 1, ("refused", "unknown-id"): 1,
        ("ids", None): checked, ("deviating_ids", None): 7,
    }  # fmt: skip
    before = {name: counted(*name) for name in expected}
    for prompt in (CANONICAL, SPLIT, [SPLIT] * 2, "the", UNKNOWN):
        call(app, {"prompt": prompt})
    assert {name: counted(*name) - before[name] for name in expected} == expected


def blocks(heading: str) -> list[str]:
    """The blocks of Python in a section of docs/serving.md, for the toy tokenizer."""
    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {heading}$(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    VOCAB.data.library.save(str(tmp_path / "tokenizer.json"))
    return str(tmp_path / "tokenizer.json")


def test_the_file_for_vllm(tokenizer: str, monkeypatch: Any, tmp_path: Path) -> None:
    (code,) = blocks("vLLM")
    (tmp_path / "guarded.py").write_text(code.replace('"MODEL"', repr(tokenizer)))
    (tmp_path / "wrong.py").write_text(code.replace('"MODEL"', "'no/such/file.json'"))
    monkeypatch.syspath_prepend(tmp_path)
    app = Starlette()
    # As vLLM loads what --middleware names.
    for name, loads in (("guarded.Guard", True), ("wrong.Guard", False)):
        module, _, attribute = name.rpartition(".")
        if not loads:
            with pytest.raises(rt.RobustokError):
                importlib.import_module(module)
            continue
        imported = getattr(importlib.import_module(module), attribute)
        assert inspect.isclass(imported)
        app.add_middleware(imported)  # type: ignore[arg-type]
    assert call(app, {"prompt": UNKNOWN})[0] == 400
    assert call(app, {"prompt": CANONICAL})[0] == 404  # the application has no routes


def test_the_file_for_sglang(tokenizer: str, monkeypatch: Any, tmp_path: Path) -> None:
    (code,) = blocks("SGLang")
    app, launched = Starlette(), []
    server = types.ModuleType("sglang.srt.entrypoints.http_server")
    server.app, server.launch_server = app, launched.append  # type: ignore[attr-defined]
    arguments = types.ModuleType("sglang.srt.server_args")
    arguments.prepare_server_args = lambda argv: argv  # type: ignore[attr-defined]
    for name in ("sglang", "sglang.srt", "sglang.srt.entrypoints"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, server.__name__, server)
    monkeypatch.setitem(sys.modules, arguments.__name__, arguments)
    monkeypatch.setattr(sys, "argv", ["guarded.py", "--model-path", "m"])
    for path, works in (("no/such/file.json", False), (tokenizer, True)):
        file = tmp_path / "guarded.py"
        file.write_text(code.replace('"MODEL"', repr(path)))
        if works:
            runpy.run_path(str(file), run_name="__main__")
        else:
            with pytest.raises(rt.RobustokError):
                runpy.run_path(str(file), run_name="__main__")
            assert launched == []
    assert launched == [["--model-path", "m"]]
    assert call(app, {"input_ids": UNKNOWN}, path="/generate")[0] == 400
