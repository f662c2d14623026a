"""ASGI middleware that judges the token ids of prompts by a policy: refuse, repair or log.

`integrations.bodies` finds the prompts of a request; `PromptGuard` judges them in chunks, with a
pause between two of them, so that an event loop in the same process is not kept waiting. What
happens is counted in the registry of ``prometheus_client``, where that is installed.
`GuardMiddleware` is for servers with JSON bodies and needs no web framework. Prompts of text and
all responses pass unchanged, byte for byte.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError, check_choice
from robustok.guard import SPECIAL_ID, TEXT_CHANGES, UNKNOWN_ID, Guard, Verdicts, describe
from robustok.guard.findings import KINDS, SAME
from robustok.integrations.bodies import (
    ANY,
    Limits,
    Refused,
    RequestBody,
    fields_of,
    known_path,
    pause,
    read_body,
)
from robustok.runtime.display import counted
from robustok.runtime.environment import give_back_memory
from robustok.tokenizer.vocabulary import Vocabulary

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)
POLICIES = ("reject", "repair", "log", "strict")
MAX_LENGTH = 1 << 17  # ids of a prompt
MAX_PROMPTS = 1024  # of a request
MAX_VALUES = 1 << 15  # lists, objects and keys of a body
MAX_ITEMS = (1 << 17) + (1 << 15)  # of all lists and objects of a body, ids included
_CHUNK_IDS, _CHUNK_ROWS = 1 << 14, 512  # that are judged between two pauses, one prompt at least
MAX_BODY = 2_000_000  # bytes of a request
# Bodies that are no JSON and may pass: audio for a transcription, whose prompt is a text.
OTHER_TYPES = ("multipart/form-data",)
IN_THREAD = 1 << 14  # bytes from which on a body has a thread of its own: short ones wait for none
_MUCH = 1 << 20  # bytes of a body from which on libc is asked to return memory
_COUNTERS = {
    "requests": "Requests by what they held: ids, text, or other.",
    "refused": "Requests answered with an error, by reason.",
    "unknown_fields": "Lists with integers in fields that are not known, which pass unjudged.",
    "sequences": "Sequences of ids by verdict: canonical, repaired, refused, or logged.",
    "findings": "Sequences of ids with a finding, by its kind.",
    "ids": "Ids that were checked.",
    "deviating_ids": "Ids that are unknown or not canonical.",
    "seconds": "Seconds spent on checking ids.",
}
_BY_KIND = ("requests", "refused", "sequences", "findings")


@cache
def _counters() -> dict[str, Any]:
    """The counters of this process by their names; none without prometheus_client."""
    try:
        from prometheus_client import Counter
    except ImportError:
        return {}
    return {
        name: Counter(f"robustok_guard_{name}", text, ["kind"] if name in _BY_KIND else [])
        for name, text in _COUNTERS.items()
    }


def count(name: str, kind: str = "", amount: float = 1) -> None:
    """Add to ``robustok_guard_NAME_total``, by its label ``kind``, where there are counters."""
    counter = _counters().get(name)
    if counter is not None:
        (counter.labels(kind) if kind else counter).inc(amount)


class PromptGuard:
    """Judges the prompts of a request by one policy, and counts.

    >>> prompts = PromptGuard(vocab, policy="repair")
    >>> prompts.repairs([[*vocab.encode("t"), *vocab.encode("he")]])
    {0: array([266], dtype=int32)}

    Args:
        vocab: the vocabulary of the served model.
        policy: ``reject`` raises :class:`Refused` for a prompt that is not canonical; ``repair``
            gives the canonical ids of the same text; ``log`` changes and refuses nothing, and logs
            kinds and positions of findings, never ids or text. Unknown and special ids are refused
            unless the policy is ``log``. ``strict`` is ``reject`` that also refuses integers, and
            strings of digits, in lists of fields that are not known for their path.
        allow_special: whether special ids may occur anywhere, as in prompts that a client rendered
            by a chat template.
        fields: further fields of a body that hold ids, for every path, by the names from its top
            joined by dots.
        max_length: greatest number of ids of a prompt, for each policy.
        max_prompts: greatest number of prompts of a request, for each policy.
        max_values: greatest number of lists, objects and keys of a body, for each policy.
        max_items: greatest number of values that all lists and objects of a body hold together, ids
            included, for each policy.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        *,
        policy: str = "reject",
        allow_special: bool = False,
        fields: Sequence[str] = (),
        max_length: int = MAX_LENGTH,
        max_prompts: int = MAX_PROMPTS,
        max_values: int = MAX_VALUES,
        max_items: int = MAX_ITEMS,
    ) -> None:
        self.policy = check_choice("policy", policy, POLICIES)
        if isinstance(fields, str) or not all(isinstance(name, str) and name for name in fields):
            raise RobustokError(f"fields are a list of names, not {fields!r}")
        self.max_length = check_integer("max_length", max_length, 1)
        self.max_prompts = check_integer("max_prompts", max_prompts, 1)
        self.limits = Limits(
            check_integer("max_values", max_values, 1), check_integer("max_items", max_items, 1)
        )
        self.guard = Guard(vocab, allow_special=allow_special, max_length=None)
        self.fields = tuple(fields)
        self.guard.check_batch([[0]])  # compiles kernels before the first request

    def read(self, raw: bytes | bytearray, path: str = "") -> RequestBody:
        """The prompts of ids in a JSON body; raises Refused as :func:`read_body` does.

        ``path``: that of the request's URL, or ``any`` for the fields of all known paths.
        """
        fields = fields_of(path if path == ANY else known_path(path), self.fields)
        body = read_body(raw, fields, self.limits, strict=self.policy == "strict")
        if body.unknown:
            count("unknown_fields", amount=body.unknown)
        return body

    def admit_body(self, raw: bytes | bytearray, path: str) -> bytes | None:
        """A body with the ids that the server may see, None where it stays as it is.

        >>> raw = b'{"prompt": [84, 257], "seed": 0}'
        >>> PromptGuard(vocab, policy="repair").admit_body(raw, "/v1/completions")
        b'{"prompt": [266], "seed": 0}'

        Args:
            raw: the bytes of the body.
            path: as for :meth:`read`.

        Raises Refused by the policy, and for ids outside the vocabulary in fields that are no
        prompt.
        """
        body = self.read(raw, path)
        count("requests", "ids" if body.prompts else "text")
        repaired = self.repairs(body.rows, body.name)
        self.check_existing(body)
        return body.replaced(repaired) if repaired else None

    def check_existing(self, body: RequestBody) -> None:
        """Raise Refused for an id that is no prompt and outside the vocabulary."""
        size = self.guard.vocab.size
        for ids, place, *_ in body.existing:
            for i in ids:
                if not 0 <= i < size:
                    line = f"{place}: {i} is not in the vocabulary (0 to {size - 1})"
                    raise Refused(UNKNOWN_ID, line, field=str(place))

    def repairs(
        self, rows: Sequence[list[int]], name: Callable[[int], str] = "prompt {}".format
    ) -> dict[int, np.ndarray]:
        """Other ids for the prompts that need them, by their number; raises :class:`Refused`.

        Args:
            rows: the ids of each prompt.
            name: gives the name of a prompt by its number, for errors.
        """
        if len(rows) > self.max_prompts:
            raise Refused(
                "too-many-prompts",
                f"{len(rows)} prompts, at most {self.max_prompts} are allowed",
                is_limit=True,
            )
        for number, row in enumerate(rows):
            if len(row) > self.max_length:
                raise Refused(
                    "too-long",
                    f"{name(number)} has {len(row)} ids, at most {self.max_length} are allowed",
                    field=name(number),
                    is_limit=True,
                )
        started = time.perf_counter()
        repaired: dict[int, np.ndarray] = {}
        try:
            for first, last in _chunks(rows):
                if first:
                    pause()
                repaired |= self._repairs_of_chunk(rows, first, last, name)
            return repaired
        finally:
            count("seconds", amount=time.perf_counter() - started)

    def _repairs_of_chunk(
        self, rows: Sequence[list[int]], first: int, last: int, name: Callable[[int], str]
    ) -> dict[int, np.ndarray]:
        """:meth:`repairs` of the rows ``first`` to ``last``, the last one not included."""
        try:
            verdicts = self.guard.check_batch(rows[first:last])
        except RobustokError as error:
            raise Refused("not-ids", str(error)) from error
        count("ids", amount=len(verdicts.given))
        count("deviating_ids", amount=int(verdicts.deviates.sum()))
        for kind in KINDS:
            count("findings", kind, int(verdicts.has(kind).sum()))
        forbidden = verdicts.has(UNKNOWN_ID) | verdicts.has(SPECIAL_ID)
        passes = verdicts.canonical & ~forbidden
        count("sequences", "canonical", int(passes.sum()))
        wrong = np.flatnonzero(~passes)
        if not len(wrong):
            return {}
        if self.policy == "log":
            kinds = sorted(kind for kind in KINDS if verdicts.has(kind)[wrong].any())
            _log.warning(
                "findings of kind %s in %s, the first one at id %d of %s",
                ", ".join(kinds),
                counted(len(wrong), "prompt"),
                verdicts[wrong[0]].findings[0].begin,
                name(first + int(wrong[0])),
            )
            count("sequences", "logged", len(wrong))
            return {}
        repairable = ~forbidden & ~_lost(verdicts) if self.policy == "repair" else passes
        refused = wrong[~(repairable & self._settles(verdicts))[wrong]]
        if len(refused):
            count("sequences", "refused")
            number = int(refused[0])
            raise self._refusal(verdicts, number, rows[first + number], name(first + number))
        count("sequences", "repaired", len(wrong))
        return {first + row: verdicts.repaired[row] for row in wrong.tolist()}

    def _settles(self, verdicts: Verdicts) -> np.ndarray:
        """Whether the repaired ids of each row are canonical, bool [rows].

        Those of an unchanged text are: encoding it again gives them again. A text that the
        tokenizer changes may be changed again.
        """
        settles = ~verdicts.has(TEXT_CHANGES)
        changed = np.flatnonzero(~settles)
        if self.policy == "repair" and len(changed):
            repaired = [verdicts.repaired[row] for row in changed.tolist()]
            settles[changed] = self.guard.check_batch(repaired).canonical
        return settles

    def _refusal(self, verdicts: Verdicts, number: int, row: list[int], name: str) -> Refused:
        findings = verdicts[number].findings
        forbidden = [f for f in findings if f.kind in (UNKNOWN_ID, SPECIAL_ID)]
        lost = [f for f in findings if f.kind == TEXT_CHANGES and not f.canonical]
        finding = [*forbidden, *lost, findings[0]][0]
        # As it was sent: the guard knows 64 bits of an id.
        sent = replace(finding, ids=tuple(row[finding.begin : finding.end]))
        line = describe(self.guard.vocab, sent)
        return Refused(
            finding.kind, f"{name}: {line}; send text, or the tokenizer's own ids of it", field=name
        )


def _chunks(rows: Sequence[list[int]]) -> Iterator[tuple[int, int]]:
    """First and last row of each chunk, the last one not included."""
    first = size = 0
    for number, row in enumerate(rows):
        size += len(row)
        if number > first and (size > _CHUNK_IDS or number - first >= _CHUNK_ROWS):
            yield first, number
            first, size = number, len(row)
    if first < len(rows):
        yield first, len(rows)


def _lost(verdicts: Verdicts) -> np.ndarray:
    """Rows with a part of text that repairing would delete, bool [rows].

    A repair may change a text as the tokenizer does, but not delete it.
    """
    table = verdicts.table
    deletes = (table.canonical_begin == table.canonical_end) & (table.canonical_begin != SAME)
    lost = np.zeros(len(verdicts), np.bool_)
    lost[verdicts.finding_rows[(table.kind == KINDS.index(TEXT_CHANGES)) & deletes]] = True
    return lost


class GuardMiddleware:
    """Judges the prompts of every request before the server sees it.

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
            await _answer(send, refused.status, _error(refused))
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
        declared = max(map(_length, _header(scope, b"content-length")), default=0)
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


def _length(value: bytes) -> int:
    return int(value[:20]) if value.isdigit() else 0


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


def _error(refused: Refused) -> bytes:
    """An error in OpenAI's form."""
    error = {
        "message": str(refused),
        "type": "invalid_request_error",
        "param": refused.field,
        "code": refused.reason,
    }
    return json.dumps({"error": error}).encode()


async def _answer(send: Send, status: int, body: bytes) -> None:
    length = str(len(body)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
