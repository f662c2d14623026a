"""The middleware in front of a recording server: what it lets through, changes, refuses, counts."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import sys
import types
from enum import Enum
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from tests.guard.tokenizers_of import LLAMA3, byte_level, unigram_with_bytes

import robustok as rt
from robustok.integrations.asgi import GuardMiddleware
from robustok.integrations.serving import FIELDS, MAX_NAME, PromptGuard, Refused

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


def guarded(server: Server, policy: str, **settings: Any) -> GuardMiddleware:
    outer = {k: settings.pop(k) for k in ("max_body", "other_types") if k in settings}
    prompts = PromptGuard(VOCAB, policy=policy, fields=["own"], **settings)
    return GuardMiddleware(server, prompts, **outer)


@pytest.mark.parametrize("policy", ["reject", "repair", "log", "strict"])
def test_text_and_canonical_ids_pass_byte_for_byte(policy: str) -> None:
    bodies = [
        b'{"prompt":  "the rest <|end|>",\n "n": 1.0}',
        b'{"prompt": ["a", "12"]}',
        b'{"messages": [{"role": "user", "content": "the \\ud800"}]}',
        b'{"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, "y"]}]}',
        b'{"text": [["2", "two"], ["3", "three"]]}',
        b'\xef\xbb\xbf {"prompt": "the"}',
        json.dumps({"prompt": CANONICAL, "stop_token_ids": [1, 2]}, indent=1).encode(),
        json.dumps({"prompt": [CANONICAL, []], "user": "\ud800"}).encode(),
        json.dumps({"prompt": [[CANONICAL], "the", None]}).encode(),
        b'{"prompt": []}',
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


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"prompt": [1, 2', "not-json"),
        (b"{" * 99, "not-json"),
        (b'{"seed": %s}' % (b"9" * 5000), "not-json"),
        (b'{"prompt": [01]}', "not-json"),
        (b'{"prompt": [1,]}', "not-json"),
        ('{"prompt": [1]}'.encode("utf-16-le"), "not-json"),
        (b'{"prompt": "a", "prompt": [1]}', "duplicate-key"),
        (b'{"prompt": "a", "\\u0070rompt": [1]}', "duplicate-key"),
        (b'{"prompt": ["the", 1]}', "not-ids"),
        (b'{"prompt": [1, true]}', "not-ids"),
        (b'{"prompt": [true, true]}', "not-ids"),
        (b'{"prompt": [1.5]}', "not-ids"),
        (b'{"prompt": [83.0, 258.0]}', "not-ids"),
        (b'{"prompt": [8e1]}', "not-ids"),
        (b'{"prompt": [null, 83]}', "not-ids"),
        (b'{"prompt": [["83", "258"]]}', "not-ids"),
        (b'{"input_ids": ["83", " +2_58.0 "]}', "not-ids"),
        (b'{"prompt_token_ids": ["83", null]}', "not-ids"),
        (b'{"prompt_token_ids": ["%s83"]}' % (b" " * 3000), "not-ids"),
        (b'["\\u0038\\u0033"]', "not-ids"),
        (b'{"prompt": [123456789012345678901234567890]}', "unknown-id"),
        (b'{"prompt": [-1]}', "unknown-id"),
    ],
)
def test_bodies_that_servers_read_differently_are_refused(body: bytes, code: str) -> None:
    server = Server()
    for kind in ("application/json", "text/plain", "multipart/form-data", None):
        status, answer = call(guarded(server, "repair"), body, kind=kind)
        expected = 400 if code != "not-json" or kind in ("application/json", None) else 415
        assert (status, json.loads(answer)["error"]["code"]) == (expected, code)
    app = guarded(server, "log")
    assert call(app, body)[0] == 200


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


# Fields of vLLM's and SGLang's request models that take ids; docs/serving.md has the same table.
FIELDS_OF_MODELS: dict[str, Any] = {
    "prompt": lambda i: [
        {"prompt": i}, {"prompt": [i, i]}, {"prompt": ["a", [[i]]]},
        {"prompt": i, "user": "\ud800"},
    ],
    "input": lambda i: [{"input": i}, {"input": [i]}],
    "token_ids": lambda i: [
        {"token_ids": i, "sampling_params": {"stop_token_ids": [3]}},
        {"messages": [{"role": "user", "token_ids": i}]},
    ],
    "input_ids": lambda i: [
        {"input_ids": i}, {"input_ids": [i, i]}, {"input_ids": i, "messages": []},
    ],
    "query": lambda i: [{"query": i, "items": ["a"], "label_token_ids": [1, 2]}],
    "queries": lambda i: [{"queries": [i]}],
    "items": lambda i: [{"query": "a", "items": [i]}],
    "documents": lambda i: [{"documents": [i]}],
    "text_1": lambda i: [{"text_1": i}],
    "text_2": lambda i: [{"text_2": [i]}],
    "data_1": lambda i: [{"data_1": i}],
    "data_2": lambda i: [{"data_2": [i]}],
    "prompt_token_ids": lambda i: [{"body": {"prompt": {"prompt_token_ids": i}}}],
    "encoder_prompt": lambda i: [{"encoder_prompt": {"prompt_token_ids": i}}],
    "decoder_prompt": lambda i: [{"decoder_prompt": i}],
    "tokens": lambda i: [{"messages": [{"content": [{"type": "text", "tokens": i}]}]}],
    **{
        name: (lambda i, name=name: [{name: i}])
        for name in ("suffix", "inputs", "prompts", "context", "prefix_token_ids", "text")
    },
}  # fmt: skip
FORMS = FIELDS_OF_MODELS | {
    "": lambda i: [{"messages": [{"role": "user", "content": i}]}, i, [{"prompt": i}], {"own": i}]
}


@pytest.mark.parametrize("field", FORMS)
def test_other_tokenizations_are_rejected_repaired_or_logged(field: str, caplog: Any) -> None:
    for body, repaired in zip(FORMS[field](SPLIT), FORMS[field](CANONICAL), strict=True):
        server = Server()
        for policy in ("strict", "reject"):
            status, answer = call(guarded(server, policy), body, kind="text/plain")
            error = json.loads(answer)["error"]
            assert (status, server.bodies) == (400, [])
            assert (error["code"], error["type"]) == ("not-canonical", "invalid_request_error")
            assert "ids 0 to 1, 't|he', should be 'the'" in error["message"]

        status, _ = call(guarded(server, "repair"), body, size=len(json.dumps(body)))
        assert (status, json.loads(server.bodies[-1])) == (200, repaired)
        assert int(server.headers[-1][b"content-length"]) == len(server.bodies[-1])

        with caplog.at_level(logging.WARNING, "robustok.integrations"):
            call(guarded(server, "log"), body)
        assert json.loads(server.bodies[-1]) == body
        assert "findings of kind not-canonical" in caplog.text
        assert "he" not in caplog.text.split("prompt 0")[1].split("the first")[0]
    assert f"`{field}`" in (ROOT / "docs" / "serving.md").read_text(encoding="utf-8") or not field


@pytest.mark.parametrize(("policy", "status"), [("log", 200), ("repair", 400), ("reject", 400)])
def test_a_text_that_the_tokenizer_refuses_is_not_deleted(policy: str, status: int) -> None:
    vocab = unigram_with_bytes()
    ids = [vocab.tokens.index(bytes([c])) for c in b"<0x41>"]
    server = Server()
    app = GuardMiddleware(server, PromptGuard(vocab, policy=policy))
    assert call(app, {"prompt": ids})[0] == status


def test_strict_refuses_integers_in_unknown_fields() -> None:
    values: list[Any] = [
        [5], [[5, 6]], ["5", " 6 "], [5.0], [True], [None, "5"], [["5"]], [{"a": [5]}],
    ]  # fmt: skip
    server = Server()
    for value in values:
        body = {"prompt": "a", "x": value}
        status, answer = call(guarded(server, "strict"), body)
        assert (status, json.loads(answer)["error"]["code"]) == (400, "unknown-field"), value
        assert call(guarded(server, "reject"), body)[0] == 200
    app = guarded(server, "strict")
    assert call(app, {"prompt": ["5", "6"]})[0] == 400  # where a server takes no list of texts
    known = {"stop_token_ids": [5], "top_logprobs_num": [1], "logit_bias": {"5": 1}, "n": 5}
    assert call(app, {"prompt": "a", "x": [], "y": ["5", "a"], "z": [0.5], **known})[0] == 200
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    asyncio.run(app({"type": "websocket"}, None, send))  # type: ignore[arg-type]
    assert sent == ["websocket.close"]


def test_repairing_changes_no_other_byte() -> None:
    server = Server()
    split = json.dumps(SPLIT, separators=(" , ", ":")).encode()
    canonical = json.dumps(CANONICAL).encode()
    body = b'{"user" :"\\ud800\\u0000","x":1.50,"prompt":[ %s, "a",%s],\r"input":%s}'
    call(guarded(server, "repair"), body % (split, canonical, split))
    assert server.bodies == [body % (canonical, canonical, canonical)]


def test_long_strings_and_keys_hide_no_ids() -> None:
    server = Server()
    app = guarded(server, "reject")
    spaces = " " * 3000
    split = json.dumps(SPLIT)
    refused = [
        json.dumps({"prompt_token_ids": [f"{spaces}83", "\u0662" * 3000]}),
        f'{{"{"k" * 3000}": {{"prompt": {split}}}}}',
        f'{{"{"k" * 3000}": {{"prompt": {split}}}, "{"k" * 3000}": 0}}',
        "".join(f"\\u{ord(c):04x}" for c in "prompt").join(('{"', f'":{split}}}')),
        f'{{"prompt": "{"a" * 3000}\\q"}}',
    ]
    for body in refused:
        assert call(app, body.encode())[0] == 400, body[:80]
    assert not server.bodies
    for text in (spaces, "-" * 3000, "中" * 3000, "9" * 3000):
        passes = json.dumps({"prompt": text, text: [text, "x"]}).encode()
        assert call(app, passes)[0] == 200 and server.bodies[-1] == passes
    with pytest.raises(rt.RobustokError, match="has at most 40 characters: kkk"):
        PromptGuard(VOCAB, fields=["k" * 41])
    assert max(map(len, FIELDS)) <= MAX_NAME == 40


@pytest.mark.parametrize("policy", ["reject", "repair", "log", "strict"])
def test_limits_hold_for_every_policy(policy: str) -> None:
    server = Server()
    app = guarded(server, policy, max_length=4, max_prompts=2, max_body=100, max_values=20)
    long = VOCAB.encode("the rest the rest the rest").tolist()
    assert len(long) > 4
    assert b"at most 4 are allowed" in call(app, {"prompt": long})[1]
    assert b"at most 2 are allowed" in call(app, {"prompt": [[5]] * 3})[1]
    assert call(app, b'{"prompt": "' + b"x" * 200 + b'"}')[0] == 413
    assert call(app, b"{}", size=101)[0] == 413
    assert call(app, b"[" * 21)[0] == 413
    assert call(app, b'{"x": [%s]}' % (b"[]," * 30))[0] == 413
    assert b"too-many-values" in call(app, b'{"a":%s' % (b'"",' * 30))[1]
    assert b"too-deep" in call(guarded(server, policy), b"[" * 101)[1]
    assert server.bodies == []
    assert call(app, {"prompt": CANONICAL})[0] == 200


def test_counters_add_up() -> None:
    app = guarded(Server(), "repair")
    for prompt in (CANONICAL, SPLIT, [SPLIT] * 2, "the", UNKNOWN):
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
    checked = len(CANONICAL) + 3 * len(SPLIT) + 2
    assert lines["robustok_guard_ids_total"] == str(checked)
    assert lines["robustok_guard_deviating_ids_total"] == "7"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A function that sets variables of the guard, at first the tokenizer's."""

    def change(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(f"ROBUSTOK_GUARD_{name}", value)

    VOCAB.data.source.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.delenv("ROBUSTOK_GUARD_TOKENIZER", raising=False)
    return partial(change, TOKENIZER=str(tmp_path / "tokenizer.json"))


def test_the_environment_sets_the_policy(environment: Any) -> None:
    with pytest.raises(rt.RobustokError, match="set ROBUSTOK_GUARD_TOKENIZER"):
        GuardMiddleware(Server())
    environment(POLICY="repair", MAX_LENGTH="7", FIELDS="own, other")
    prompts = GuardMiddleware(Server()).prompts
    assert (prompts.policy, prompts.max_length) == ("repair", 7)
    assert prompts.fields == ("own", "other")
    environment(POLICY="repare")
    with pytest.raises(rt.RobustokError, match="unknown policy 'repare': did you mean 'repair'"):
        PromptGuard.from_environment()
    environment(MAX_LENGTH="x")
    with pytest.raises(rt.RobustokError, match="ROBUSTOK_GUARD_MAX_LENGTH must be an integer"):
        PromptGuard.from_environment()


def entry_point(group: str) -> Any:
    """What pyproject.toml declares for a group, loaded."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (declared,) = project["entry-points"][group].items()
    return EntryPoint(declared[0], declared[1], group).load()


def test_vllm_gets_the_middleware(environment: Any) -> None:
    environment()
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
    assert call(app.stack, {"prompt": SPLIT})[0] == 400
    assert call(app.stack, {"prompt": CANONICAL})[0] == 200


def test_sglang_runs_the_hook(monkeypatch: pytest.MonkeyPatch, environment: Any) -> None:
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
    register()
    assert registered == []
    environment(POLICY="repair")
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
    assert hooked(request(input_ids=SPLIT)) == CANONICAL
    assert hooked(request(input_ids=[SPLIT, CANONICAL])) == [CANONICAL] * 2
    assert hooked(request(input_ids=None, text="the")) is None
    with pytest.raises(Refused, match="not in the vocabulary"):
        hooked(request(input_ids=UNKNOWN))
