"""ASGI middleware that guards the token ids of prompts, for OpenAI-compatible servers.

It needs no web framework. Requests whose prompts are text pass unchanged, byte for byte, and so do
all responses.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.integrations.serving.billing import ResponseAudit
from robustok.integrations.serving.bodies import RequestBody, read_body
from robustok.integrations.serving.prompts import PromptGuard, Refused

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)
MAX_BODY = 1 << 24  # bytes of a request
METRICS_PATH = "/robustok/metrics"
_IN_THREAD = 1 << 12  # ids from which on a request is judged in a thread


class GuardMiddleware:
    """Judges the prompts of every request before the server sees it.

    >>> from robustok.integrations.serving import PromptGuard
    >>> async def server(scope, receive, send): ...
    >>> app = GuardMiddleware(server, PromptGuard(vocab, policy="repair"))
    >>> app.metrics_path
    '/robustok/metrics'

    Args:
        app: the ASGI application of the server.
        prompts: the policy; by default the one that the environment describes
            (:meth:`PromptGuard.from_environment`), for servers that load middleware by name, such
            as ``vllm serve --middleware robustok.integrations.asgi.GuardMiddleware``.
        max_body: greatest number of bytes of a request; a longer one is answered 413 as soon as
            that many bytes came in.
        metrics_path: path of the counters in Prometheus' text format; None for none.
        audit_billing: whether the tokens that responses charge are compared with the canonical
            tokens of their text.

    A refused request is answered 400 with an error in OpenAI's form. Websockets pass unjudged.
    """

    def __init__(
        self,
        app: Application,
        prompts: PromptGuard | None = None,
        *,
        max_body: int = MAX_BODY,
        metrics_path: str | None = METRICS_PATH,
        audit_billing: bool = False,
    ) -> None:
        self.app = app
        self.prompts = prompts or PromptGuard.from_environment()
        self.counters = self.prompts.counters
        self.max_body = check_integer("max_body", max_body, 1)
        self.metrics_path = metrics_path
        self.audit_billing = audit_billing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif self.metrics_path is not None and scope["path"] == self.metrics_path:
            text = self.counters.text().encode()
            await _answer(send, 200, text, b"text/plain; version=0.0.4; charset=utf-8")
        elif scope["method"] in ("GET", "HEAD", "OPTIONS", "DELETE"):
            await self.app(scope, receive, send)
        else:
            await self._guarded(scope, receive, send)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = await self._whole_body(scope, receive)
        if raw is None:
            self.counters.add("refused", "body-too-long")
            line = f"the body has more than {self.max_body} bytes"
            await _answer(send, 413, _error(line, "body-too-long"))
            return
        try:
            body = await self._read(scope, raw)
            judged = await self._judge(body)
        except Refused as refused:
            if self.prompts.policy != "log" or refused.reason in ("too-long", "too-many-prompts"):
                await _answer(send, 400, _error(str(refused), refused.reason))
                return
            _log.warning("request passed although refusable (%s)", refused.reason)
            body = judged = None
        if body is not None and judged != [ids for _, _, ids in body.ids]:
            raw = body.replaced(judged or [])
            scope = {**scope, "headers": _with_length(scope["headers"], len(raw))}
        if self.audit_billing and body is not None and (body.ids or body.texts):
            audit = ResponseAudit(
                self.prompts.guard.vocab, self.counters, body.texts, sum(map(len, judged or []))
            )
            await self.app(scope, _replayed(raw, receive), _audited(send, audit))
        else:
            await self.app(scope, _replayed(raw, receive), send)

    async def _whole_body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body; None where it is longer than allowed."""
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared[:20]) > self.max_body:
            return None
        chunks: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            more = message.get("more_body", False)
            if size > self.max_body:
                return None
        return b"".join(chunks)

    async def _read(self, scope: Scope, raw: bytes) -> RequestBody | None:
        kind = dict(scope["headers"]).get(b"content-type", b"").lower()
        start = raw[:16].lstrip(b"\xef\xbb\xbf \t\r\n\x00\xff\xfe")[:1]
        body = None
        if raw and (b"json" in kind or start == b"{"):
            try:
                body = read_body(raw, strict=b"json" in kind)
            except Refused as refused:
                self.counters.add("refused", refused.reason)
                raise
        held = "other" if body is None else "ids" if body.ids else "text"
        self.counters.add("requests", held)
        return body

    async def _judge(self, body: RequestBody | None) -> list[list[int]] | None:
        if body is None or not body.ids:
            return [] if body is not None else None
        sequences = [ids for _, _, ids in body.ids]
        if sum(map(len, sequences)) < _IN_THREAD:
            return self.prompts.judge(sequences)
        return await asyncio.to_thread(self.prompts.judge, sequences)


def _replayed(raw: bytes, receive: Receive) -> Receive:
    """A stream of one message with the whole body, then the original one."""
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": raw, "more_body": False}

    return replay


def _audited(send: Send, audit: ResponseAudit) -> Send:
    """Passes messages on at once, and audits the response after its last one."""

    async def pass_on(message: Message) -> None:
        await send(message)
        if message["type"] != "http.response.body":
            return
        audit.add(message.get("body", b""))
        if not message.get("more_body", False):
            try:
                await asyncio.to_thread(audit.finish)
            except RobustokError as error:  # a text that the tokenizer cannot encode
                _log.warning("response not audited: %s", error)

    return pass_on


def _with_length(headers: Any, length: int) -> list[tuple[bytes, bytes]]:
    dropped = (b"content-length", b"transfer-encoding")
    kept = [(name, value) for name, value in headers if name.lower() not in dropped]
    return [*kept, (b"content-length", str(length).encode())]


def _error(message: str, code: str) -> bytes:
    """An error in OpenAI's form."""
    error = {"message": message, "type": "invalid_request_error", "param": "prompt", "code": code}
    return json.dumps({"error": error}).encode()


async def _answer(send: Send, status: int, body: bytes, kind: bytes = b"application/json") -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
