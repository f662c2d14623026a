"""The middleware in front of a recording server: what it lets through, changes, refuses, counts."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import types
from enum import Enum
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from tests.guard.tokenizers_of import LLAMA3, byte_level

import robustok as rt
from robustok.integrations.asgi import GuardMiddleware
from robustok.integrations.serving import PromptGuard, Refused

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def vocab() -> rt.Vocabulary:
    return byte_level(LLAMA3)


@pytest.fixture(scope="module")
def ids(vocab: rt.Vocabulary) -> dict[str, list[int]]:
    canonical = vocab.encode("the rest").tolist()
    split = [*vocab.encode("t").tolist(), *vocab.encode("he").tolist(), *canonical[1:]]
    assert vocab.decode(split) == "the rest"
    special = vocab.encode("<|end|>the", parse_special=True).tolist()
    return {"canonical": canonical, "split": split, "special": special, "unknown": [5, 10**6]}


class Server:
    """Records the bodies that reach it, and answers with what it is told."""

    def __init__(self, chunks: list[bytes] | None = None) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[Any] = []
        self.chunks = chunks or [b"{}"]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        self.bodies.append(message["body"])
        self.headers.append(dict(scope["headers"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number, chunk in enumerate(self.chunks):
            more = number + 1 < len(self.chunks)
            await send({"type": "http.response.body", "body": chunk, "more_body": more})


def call(
    app: Any, body: Any, *, kind: str = "application/json", path: str = "/v1/completions",
    method: str = "POST", size: int | None = None,
) -> tuple[int, bytes]:  # fmt: skip
    """One request, its body in chunks of 7 bytes; the status and the body of the response."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    chunks = [raw[i : i + 7] for i in range(0, len(raw), 7)] or [b""]
    headers = [(b"content-type", kind.encode())]
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


def guarded(vocab: rt.Vocabulary, server: Server, policy: str, **settings: Any) -> GuardMiddleware:
    outer = {k: settings.pop(k) for k in ("max_body", "audit_billing") if k in settings}
    return GuardMiddleware(server, PromptGuard(vocab, policy=policy, **settings), **outer)


@pytest.mark.parametrize("policy", ["reject", "repair", "log"])
def test_text_and_canonical_ids_pass_byte_for_byte(
    vocab: rt.Vocabulary, ids: dict[str, list[int]], policy: str
) -> None:
    bodies = [
        b'{"prompt":  "the rest <|end|>",\n "n": 1.0}',
        b'{"prompt": ["a", "b"]}',
        b'{"messages": [{"role": "user", "content": "the \\ud800"}]}',
        b'{"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}',
        json.dumps({"prompt": ids["canonical"], "stop_token_ids": [1, 2]}, indent=1).encode(),
        json.dumps({"prompt": [ids["canonical"], []]}).encode(),
        b'{"prompt": []}',
        b"[1, 2]",
    ]
    server = Server()
    app = guarded(vocab, server, policy)
    for body in bodies:
        assert call(app, body) == (200, b"{}")
    assert server.bodies == bodies
    call(app, b"--x\r\nfile", kind="multipart/form-data")
    call(app, b"", method="GET")
    assert server.bodies[-2:] == [b"--x\r\nfile", b""]


FORMS = {
    "single": lambda i: {"prompt": i},
    "batch": lambda i: {"prompt": [i, i]},
    "floats": lambda i: {"prompt": [float(x) for x in i]},
    "chat": lambda i: {"messages": [{"role": "user", "content": i}]},
    "message ids": lambda i: {"messages": [{"role": "user", "token_ids": i}]},
    "sglang": lambda i: {"input_ids": [i]},
    "embeddings": lambda i: {"input": i},
    "nested": lambda i: {"body": {"prompt": {"prompt_token_ids": i}}},
}


@pytest.mark.parametrize("form", FORMS)
def test_other_tokenizations_are_rejected_repaired_or_logged(
    vocab: rt.Vocabulary, ids: dict[str, list[int]], form: str, caplog: Any
) -> None:
    body = FORMS[form](ids["split"])
    server = Server()
    status, answer = call(guarded(vocab, server, "reject"), body)
    error = json.loads(answer)["error"]
    assert (status, server.bodies) == (400, [])
    assert (error["code"], error["type"]) == ("not-canonical", "invalid_request_error")
    assert "ids 0 to 1, 't|he', should be 'the'" in error["message"]

    status, _ = call(guarded(vocab, server, "repair"), body, size=len(json.dumps(body)))
    assert (status, json.loads(server.bodies[-1])) == (200, FORMS[form](ids["canonical"]))
    assert int(server.headers[-1][b"content-length"]) == len(server.bodies[-1])

    with caplog.at_level(logging.WARNING, "robustok.integrations"):
        call(guarded(vocab, server, "log"), body)
    assert json.loads(server.bodies[-1]) == body
    assert "findings of kind not-canonical" in caplog.text
    assert "he" not in caplog.text.split("prompt 0")[1].split("the first")[0]


@pytest.mark.parametrize("policy", ["reject", "repair"])
def test_special_and_unknown_ids_are_refused(
    vocab: rt.Vocabulary, ids: dict[str, list[int]], policy: str
) -> None:
    server = Server()
    for kind in ("special", "unknown"):
        status, answer = call(guarded(vocab, server, policy), {"prompt": ids[kind]})
        assert (status, json.loads(answer)["error"]["code"]) == (400, f"{kind}-id")
    app = guarded(vocab, server, policy, allow_special=True)
    assert call(app, {"prompt": ids["special"]})[0] == 200
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"prompt": [1, 2', "not-json"),
        (b"{" * 100_000, "not-json"),
        (b'{"prompt": [%s]}' % (b"9" * 5000), "not-json"),
        (b'{"prompt": "a", "prompt": [1]}', "duplicate-key"),
        (b'{"prompt": ["the", 1]}', "not-ids"),
        (b'{"prompt": [1, true]}', "not-ids"),
        (b'{"prompt": [1.5]}', "not-ids"),
        (b'{"prompt": [[1], "the"]}', "mixed"),
        (b'{"prompt": [123456789012345678901234567890]}', "unknown-id"),
    ],
)
def test_bodies_that_servers_read_differently_are_refused(
    vocab: rt.Vocabulary, body: bytes, code: str
) -> None:
    server = Server()
    for kind in ("application/json", "text/plain"):
        status, answer = call(guarded(vocab, server, "repair"), body, kind=kind)
        if code == "not-json" and kind == "text/plain":
            assert status == 200  # no server reads it as JSON
            continue
        assert (status, json.loads(answer)["error"]["code"]) == (400, code)
    app = guarded(vocab, server, "log")
    assert call(app, body)[0] == 200


@pytest.mark.parametrize("policy", ["reject", "repair", "log"])
def test_limits_hold_for_every_policy(
    vocab: rt.Vocabulary, ids: dict[str, list[int]], policy: str
) -> None:
    server = Server()
    app = guarded(vocab, server, policy, max_length=4, max_prompts=2, max_body=100)
    long = vocab.encode("the rest the rest the rest").tolist()
    assert len(long) > 4
    assert b"at most 4 are allowed" in call(app, {"prompt": long})[1]
    assert b"at most 2 are allowed" in call(app, {"prompt": [[5]] * 3})[1]
    assert call(app, b'{"prompt": "' + b"x" * 200 + b'"}')[0] == 413
    assert call(app, b"{}", size=101)[0] == 413
    assert server.bodies == []
    assert call(app, {"prompt": ids["canonical"]})[0] == 200


def test_counters_add_up(vocab: rt.Vocabulary, ids: dict[str, list[int]]) -> None:
    app = guarded(vocab, Server(), "repair")
    for prompt in (ids["canonical"], ids["split"], [ids["split"]] * 2, "the", ids["unknown"]):
        call(app, {"prompt": prompt})
    status, text = call(app, b"", method="GET", path="/robustok/metrics")
    assert status == 200
    lines = dict(line.rsplit(" ", 1) for line in text.decode().splitlines() if line[0] != "#")
    assert lines['robustok_guard_requests_total{kind="ids"}'] == "4"
    assert lines['robustok_guard_requests_total{kind="text"}'] == "1"
    assert lines['robustok_guard_sequences_total{kind="canonical"}'] == "1"
    assert lines['robustok_guard_sequences_total{kind="repaired"}'] == "3"
    assert lines['robustok_guard_sequences_total{kind="refused"}'] == "1"
    assert lines['robustok_guard_refused_total{kind="unknown-id"}'] == "1"
    checked = len(ids["canonical"]) + 3 * len(ids["split"]) + 2
    assert lines["robustok_guard_ids_total"] == str(checked)
    assert lines["robustok_guard_deviating_ids_total"] == "7"


def completion(text: str, charged: int, **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 3, "completion_tokens": charged}
    return {"choices": [{"index": 0, "text": text, **more}], "usage": usage}


def test_charged_tokens_are_compared_with_canonical_ones(vocab: rt.Vocabulary) -> None:
    text = "the rest is there"
    size = len(vocab.encode(text))
    for charged, over in ((size, 0), (size + 1, 0), (size + 2, 1)):
        app = guarded(
            vocab, Server([json.dumps(completion(text, charged)).encode()]), "reject",
            audit_billing=True,
        )  # fmt: skip
        call(app, {"prompt": "the"})
        assert app.counters.value("charged_tokens", "completion") == charged
        assert app.counters.value("canonical_tokens", "completion") == size
        assert app.counters.value("canonical_tokens", "prompt") == len(vocab.encode("the"))
        assert app.counters.value("overcharged") == over


def test_a_stream_is_passed_on_and_audited(vocab: rt.Vocabulary) -> None:
    deltas = ["the ", "rest", " is"]
    events: list[Any] = [{"choices": [{"index": 0, "text": d}]} for d in deltas]
    events.append({"choices": [], "usage": {"completion_tokens": 9, "prompt_tokens": 1}})
    chunks = [f"data: {json.dumps(e)}\n\n".encode() for e in events] + [b"data: [DONE]\n\n"]
    split = [c for chunk in chunks for c in (chunk[:9], chunk[9:])]
    app = guarded(vocab, Server(split), "reject", audit_billing=True)
    assert call(app, {"prompt": "the", "stream": True}) == (200, b"".join(chunks))
    assert app.counters.value("canonical_tokens", "completion") == len(vocab.encode("the rest is"))
    assert app.counters.value("overcharged") == 1


def test_what_cannot_be_audited_is_counted(
    vocab: rt.Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robustok.integrations.serving.billing.MAX_AUDITED", 500)
    tool = {"choices": [{"message": {"tool_calls": [{}]}}], "usage": {"completion_tokens": 1}}
    bodies: list[Any] = [tool, {"choices": []}, [1], completion("x" * 600, 3)]
    for number, body in enumerate(bodies):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        app = guarded(vocab, Server([raw]), "reject", audit_billing=True)
        assert call(app, {"prompt": "the"}) == (200, raw), number
        assert app.counters.value("unaudited") == 1, number


def test_the_environment_sets_the_policy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vocab: rt.Vocabulary
) -> None:
    monkeypatch.delenv("ROBUSTOK_GUARD_TOKENIZER", raising=False)
    with pytest.raises(rt.RobustokError, match="set ROBUSTOK_GUARD_TOKENIZER"):
        GuardMiddleware(Server())
    vocab.data.source.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setenv("ROBUSTOK_GUARD_TOKENIZER", str(tmp_path / "tokenizer.json"))
    monkeypatch.setenv("ROBUSTOK_GUARD_POLICY", "repair")
    monkeypatch.setenv("ROBUSTOK_GUARD_MAX_LENGTH", "7")
    prompts = GuardMiddleware(Server()).prompts
    assert (prompts.policy, prompts.max_length) == ("repair", 7)
    monkeypatch.setenv("ROBUSTOK_GUARD_POLICY", "repare")
    with pytest.raises(rt.RobustokError, match="unknown policy 'repare': did you mean 'repair'"):
        PromptGuard.from_environment()
    monkeypatch.setenv("ROBUSTOK_GUARD_MAX_LENGTH", "x")
    with pytest.raises(rt.RobustokError, match="ROBUSTOK_GUARD_MAX_LENGTH must be an integer"):
        PromptGuard.from_environment()


def entry_point(group: str) -> Any:
    """What pyproject.toml declares for a group, loaded."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (declared,) = project["entry-points"][group].items()
    return EntryPoint(declared[0], declared[1], group).load()


def test_vllm_gets_the_middleware(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vocab: rt.Vocabulary,
    ids: dict[str, list[int]],
) -> None:  # fmt: skip
    vocab.data.source.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setenv("ROBUSTOK_GUARD_TOKENIZER", str(tmp_path / "tokenizer.json"))
    plugin = entry_point("vllm.endpoint_plugins")()

    class App:
        """The part of FastAPI that a plug-in of the group may use."""

        def __init__(self) -> None:
            self.stack: Any = Server()

        def add_middleware(self, middleware: Any, **options: Any) -> None:
            self.stack = middleware(self.stack, **options)

    app = App()
    assert (plugin.name, plugin.required_tasks) == ("robustok", None)
    plugin.attach_router(app)
    asyncio.run(plugin.init_state(None, types.SimpleNamespace(), None))
    assert call(app.stack, {"prompt": ids["split"]})[0] == 400
    assert call(app.stack, {"prompt": ids["canonical"]})[0] == 200


def test_sglang_runs_the_hook(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vocab: rt.Vocabulary,
    ids: dict[str, list[int]],
) -> None:  # fmt: skip
    registered: list[Any] = []

    class HookType(Enum):
        BEFORE = "before"

    class HookRegistry:
        """SGLang's registry: a BEFORE hook returns (args, kwargs) for the target."""

        @classmethod
        def register(cls, target: str, hook: Any, hook_type: HookType) -> None:
            registered.append((target, hook, hook_type))

    stub = types.ModuleType("sglang.srt.plugins.hook_registry")
    stub.HookRegistry, stub.HookType = HookRegistry, HookType  # type: ignore[attr-defined]
    for name in ("sglang", "sglang.srt", "sglang.srt.plugins"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    register = entry_point("sglang.srt.plugins")
    monkeypatch.delenv("ROBUSTOK_GUARD_TOKENIZER", raising=False)
    register()
    assert registered == []
    vocab.data.source.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setenv("ROBUSTOK_GUARD_TOKENIZER", str(tmp_path / "tokenizer.json"))
    monkeypatch.setenv("ROBUSTOK_GUARD_POLICY", "repair")
    register()
    ((target, hook, kind),) = registered
    assert target.endswith("TokenizerManager.generate_request")
    assert kind is HookType.BEFORE

    def generate_request(manager: Any, obj: Any, request: Any = None) -> Any:
        return obj.input_ids

    def hooked(obj: Any) -> Any:
        args, kwargs = hook("manager", obj, request=None)
        return generate_request(*args, **kwargs)

    request = types.SimpleNamespace
    assert hooked(request(input_ids=ids["split"])) == ids["canonical"]
    assert hooked(request(input_ids=[ids["split"], ids["canonical"]])) == [ids["canonical"]] * 2
    assert hooked(request(input_ids=None, text="the")) is None
    with pytest.raises(Refused, match="not in the vocabulary"):
        hooked(request(input_ids=ids["unknown"]))
