"""ASGI middleware that guards the token ids of prompts.

It is for servers with JSON bodies and needs no web framework. Requests whose prompts are text pass
unchanged, byte for byte, and so do all responses. Bodies are parsed and judged in threads, never on
the event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.integrations.bodies import Refused
from robustok.integrations.serving import PromptGuard, count
from robustok.runtime.environment import give_back_memory

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)
MAX_BODY = 2_000_000  # bytes of a request
# Bodies that are no JSON and may pass: audio for a transcription, whose prompt is a text.
OTHER_TYPES = ("multipart/form-data",)
IN_THREAD = 1 << 14  # bytes from which on a body has a thread of its own: short ones wait for none
_MUCH = 1 << 20  # bytes of a body from which on libc is asked to return memory


class GuardMiddleware:
    """Judges the prompts of every request before the server sees it.

    >>> from robustok.integrations.serving import PromptGuard
    >>> async def server(scope, receive, send): ...
    >>> app = GuardMiddleware(server, PromptGuard(vocab, policy="repair"))
    >>> app.max_body
    2000000

    Args:
        app: the ASGI application of the server.
        prompts: the policy.
        max_body: greatest number of bytes of a request; a longer one is answered 413 as soon as
            that many bytes came in.
        other_types: content types of bodies that may pass without being JSON.

    What is JSON is decided by the body, whatever its content type. A refused request is answered
    400, 413 or 415 with an error in OpenAI's form. Websockets pass unjudged, unless the policy is
    ``strict``, which closes them.
    """

    def __init__(
        self,
        app: Application,
        prompts: PromptGuard,
        *,
        max_body: int = MAX_BODY,
        other_types: Sequence[str] = OTHER_TYPES,
    ) -> None:
        if not isinstance(prompts, PromptGuard):
            raise RobustokError(f"a PromptGuard is needed here, not {type(prompts).__name__}")
        self.app = app
        self.prompts = prompts
        self.max_body = check_integer("max_body", max_body, 1)
        self.other_types = {name.lower().encode() for name in other_types}
        self._threads: dict[tuple[int, str], ThreadPoolExecutor] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and self.prompts.policy == "strict":
            await send({"type": "websocket.close", "code": 1008, "reason": "not guarded"})
        elif scope["type"] != "http":
            await self.app(scope, receive, send)
        else:
            await self._guarded(scope, receive, send)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            raw = await self._whole_body(scope, receive)
            if raw is None:
                return  # the client went away
            changed = None
            if raw:
                thread = self._thread("short" if len(raw) < IN_THREAD else "long")
                loop = asyncio.get_running_loop()
                changed = await loop.run_in_executor(thread, self._judged, scope, raw)
            else:
                count("requests", "other")
        except Refused as refused:
            count("refused", refused.reason)
            await _answer(send, refused)
            return
        if changed is not None:
            scope = {**scope, "headers": _with_length(scope["headers"], len(changed))}
        body = bytes(raw) if changed is None else changed
        del raw, changed  # while the server answers, one copy is kept
        await self.app(scope, _replayed(body, receive), send)

    def _thread(self, bodies: str) -> ThreadPoolExecutor:
        """The thread for ``bodies``; a forked process has its own, for threads are not forked."""
        key = os.getpid(), bodies
        if key not in self._threads:
            self._threads[key] = ThreadPoolExecutor(1, f"robustok-guard-{bodies}")
        return self._threads[key]

    async def _whole_body(self, scope: Scope, receive: Receive) -> bytearray | None:
        """The body, None where the connection ended before it; raises Refused for a long one."""
        lengths = _header(scope, b"content-length")
        declared = max((int(value[:20]) for value in lengths if value.isdigit()), default=0)
        body = bytearray()
        more = declared <= self.max_body
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False) and len(body) <= self.max_body
        if max(len(body), declared) > self.max_body:
            line = f"the body has more than {self.max_body} bytes"
            raise Refused("body-too-long", line, status=413, is_limit=True)
        return body

    def _judged(self, scope: Scope, raw: bytearray) -> bytes | None:
        """The body with other ids, None where it stays; raises Refused."""
        try:
            return self._admitted(scope, raw)
        except Refused as refused:
            if refused.is_limit or self.prompts.policy != "log":
                raise
            count("refused", refused.reason)
            _log.warning("request passed although refusable (%s)", refused.reason)
            return None
        finally:
            if len(raw) >= _MUCH:
                give_back_memory()

    def _admitted(self, scope: Scope, raw: bytearray) -> bytes | None:
        # SGLang decompresses what its own header names.
        encodings = [*_header(scope, b"content-encoding"), *_header(scope, b"x-body-compressed")]
        if any(name.strip().lower() != b"identity" for name in encodings):
            raise Refused("compressed", "send the body uncompressed", status=415)
        types = [value.partition(b";")[0].strip() for value in _header(scope, b"content-type")]
        may_be_other = bool(types) and all(name.lower() in self.other_types for name in types)
        if may_be_other and raw.lstrip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n")[:1] not in b'[{"':
            count("requests", "other")
            return None
        try:
            return self.prompts.admit_body(raw, scope.get("path", ""))
        except Refused as refused:
            if refused.reason == "not-json" and types and not any(b"json" in t for t in types):
                line = f"{refused}; other types of content are not allowed"
                raise Refused(refused.reason, line, status=415) from None
            raise


def _header(scope: Scope, name: bytes) -> list[bytes]:
    """All values of a header: servers differ in which one of several counts."""
    return [value for key, value in scope["headers"] if key.lower() == name]


def _replayed(raw: bytes, receive: Receive) -> Receive:
    """A stream of one message with the whole body, then the original one."""
    whole: Iterator[Message] = iter([{"type": "http.request", "body": raw, "more_body": False}])

    async def replay() -> Message:
        return next(whole, None) or await receive()

    return replay


def _with_length(headers: Any, length: int) -> list[tuple[bytes, bytes]]:
    dropped = (b"content-length", b"transfer-encoding")
    kept = [(name, value) for name, value in headers if name.lower() not in dropped]
    return [*kept, (b"content-length", str(length).encode())]


async def _answer(send: Send, refused: Refused) -> None:
    """Answer with an error in OpenAI's form."""
    error = {
        "message": str(refused),
        "type": "invalid_request_error",
        "param": refused.field,
        "code": refused.reason,
    }
    body = json.dumps({"error": error}).encode()
    headers = _with_length([(b"content-type", b"application/json")], len(body))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
