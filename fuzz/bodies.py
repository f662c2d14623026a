"""Mutated requests through the guard middleware, and what a server behind it would read.

    python -m fuzz.run --target bodies --calls 1000000 --workers 2

Each call sends one request. A body that reaches the application is read as servers do: by Python's
``json`` (the last or the first of two equal keys), by pydantic's parser, decompressed where a
header says so, whatever its content type, names in any case; each field with ids of its path is
validated by pydantic in lax mode, under `strict` each other field, too. Every id sequence read that
way must be canonical: anything else is a finding.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pydantic_core
from pydantic import TypeAdapter

import robustok as rt
from robustok.integrations.asgi import GuardMiddleware
from robustok.integrations.bodies import (
    EXIST,
    IDS,
    OTHER,
    ROWS,
    TEXT,
    Fields,
    fields_of,
    known_path,
)
from robustok.integrations.serving import PromptGuard

POLICIES = ("reject", "repair", "strict")
OWN = "own_field"  # named by the setting
IDS_ONLY: TypeAdapter[Any] = TypeAdapter(list[int] | list[list[int]] | list[int | list[int] | None])
# As vLLM and SGLang declare prompts.
IDS_OR_TEXT: TypeAdapter[Any] = TypeAdapter(
    list[int] | list[list[int]] | str | list[str] | list[list[int] | str] | list[list[str]]
)
PATHS = [p for row in ROWS if row.kind in (IDS, TEXT) for p in row.paths.split()] + ["/other"]
NAMES = [field for row in ROWS if row.kind in (IDS, TEXT) for field in row.fields.split()] + [OWN]
UNKNOWN = ("x", "metadata", "ids", "prompt ", "promptTokenIds", "k" * 300)
TYPES = (
    b"application/json", b"text/plain", b"multipart/form-data; boundary=x", b"Application/JSON",
    b"application/x-www-form-urlencoded", b"application/octet-stream", b"",
)  # fmt: skip


class Server:
    """Keeps the body and the headers that reach it."""

    def __init__(self) -> None:
        self.received: tuple[bytes, list[tuple[bytes, bytes]]] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.received = (await receive())["body"], scope["headers"]


@cache
def _guarded(policy: str) -> tuple[GuardMiddleware, Server]:
    vocab = rt.Vocabulary.load("demo")
    server = Server()
    return GuardMiddleware(server, PromptGuard(vocab, policy=policy, fields=[OWN])), server


@cache
def _checker() -> rt.Guard:
    return _guarded("reject")[0].prompts.guard


def call(seed: int, number: int) -> str:
    """One request; raises AssertionError where ids that are not canonical reach the server."""
    rng = random.Random(f"{seed} {number}")
    policy = rng.choice(POLICIES)
    path = rng.choice(PATHS)
    body, headers = request(rng, path)
    received = through(policy, path, body, headers)
    if received is None:
        return "refused"
    read = 0
    for ids in read_ids(path, *received, everywhere=policy == "strict"):
        verdict = _checker().check(ids)
        assert verdict.canonical, f"{policy}: {ids} reached the server in {received[0][:300]!r}"
        read += 1
    return f"{read} sequences of ids reached the server"


def through(
    policy: str, path: str, body: bytes, headers: list[tuple[bytes, bytes]]
) -> tuple[bytes, list[tuple[bytes, bytes]]] | None:
    """What reaches the server of a request, None for nothing."""
    app, server = _guarded(policy)
    server.received = None
    messages = [
        {"type": "http.request", "body": body[: len(body) // 2], "more_body": True},
        {"type": "http.request", "body": body[len(body) // 2 :], "more_body": False},
    ]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        pass

    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    _loop().run_until_complete(app(scope, receive, send))
    return server.received


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()  # one for all calls: a loop costs more than the rest


# --- what a server reads ----------------------------------------------------------------------


def read_ids(
    path: str, body: bytes, headers: list[tuple[bytes, bytes]], *, everywhere: bool
) -> Iterator[list[int]]:
    """Every sequence of ids that some reader finds in a body.

    ``everywhere``: in each field that is not known to hold none, not only in those with ids.
    """
    unknown = IDS if everywhere else OTHER
    for value in _parsed(body, headers):
        fields = fields_of(known_path(path), (OWN,))
        open_values: list[tuple[Any, Fields, str]] = [(value, fields, unknown)]
        while open_values:
            current, fields, kind = open_values.pop()
            if kind not in (EXIST, OTHER) and isinstance(current, (list, str)):
                yield from _validated(IDS_OR_TEXT if kind == TEXT else IDS_ONLY, current)
            if isinstance(current, list):
                open_values += [(v, fields, kind) for v in current if isinstance(v, (list, dict))]
            if isinstance(current, dict):
                for name, inner in current.items():
                    below = _below(fields, name)
                    inherited = OTHER if kind == OTHER else unknown  # no prompt, nor what is below
                    open_values.append((inner, below, below.kind or inherited))


def _below(fields: Fields, name: str) -> Fields:
    """The field of a name, whose case Go's JSON does not regard."""
    same = [known for known in fields.below if known.casefold() == name.casefold()]
    return fields.below[name if name in same or not same else same[0]] if same else Fields()


def _parsed(body: bytes, headers: list[tuple[bytes, bytes]]) -> Iterator[Any]:
    bodies = [body]
    named = [v for k, v in headers if k.lower() in (b"content-encoding", b"x-body-compressed")]
    if any(value.lower() != b"identity" for value in named):
        for decompress in (gzip.decompress, zlib.decompress):
            try:
                bodies.append(decompress(body))
            except (OSError, EOFError, zlib.error):
                continue
    for raw in bodies:
        for parse in (json.loads, _first_key, pydantic_core.from_json):
            try:
                yield parse(raw)
            except (ValueError, RecursionError):
                continue


def _first_key(raw: bytes) -> Any:
    return json.loads(raw, object_pairs_hook=lambda pairs: dict(reversed(pairs)))


def _validated(adapter: TypeAdapter[Any], value: Any) -> Iterator[list[int]]:
    try:
        read = adapter.validate_python(value)
    except ValueError:
        return
    rows = [read, *read] if isinstance(read, list) else []
    for row in rows:
        if isinstance(row, list) and row and all(type(i) is int or i is None for i in row):
            yield [i for i in row if i is not None]


# --- mutated requests -------------------------------------------------------------------------


def request(rng: random.Random, path: str) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """A body and headers."""
    body = _written(rng, _body(rng, path))
    if rng.random() < 0.3:
        body = _damaged(rng, body)
    spaces = rng.choice(("", "", " ", " " * 20, "\r\n\t", "\x0b"))
    body = spaces.encode() + body
    if rng.random() < 0.05:
        encoding = rng.choice(("utf-16", "utf-16-le", "utf-32-be", "utf-8-sig", "utf-7"))
        body = body.decode("utf8", "replace").encode(encoding, "replace")
    headers = [(rng.choice((b"content-type", b"Content-Type")), rng.choice(TYPES))
               for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]  # fmt: skip
    if rng.random() < 0.05:
        name = rng.choice((b"content-encoding", b"Content-Encoding", b"x-body-compressed"))
        headers.append((name, rng.choice((b"gzip", b"identity", b"deflate", b"GZIP, gzip"))))
        body = rng.choice((gzip.compress, zlib.compress))(body)
    return body, headers


def _body(rng: random.Random, path: str) -> Any:
    body: dict[str, Any] = {}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at, names = body, _names(rng, path)
        for name in names[:-1]:
            inner = at.setdefault(name, {})
            at = inner if isinstance(inner, dict) else at
        at[names[-1]] = _value(rng, 0)
        if len(names) > 1 and rng.random() < 0.5:
            body[names[0]] = [body[names[0]]]
    place = rng.random()
    if place < 0.1:
        return {"messages": [{"role": "user", **body}], "model": "m"}
    if place < 0.15:
        return [body]
    if place < 0.2:
        return next(iter(body.values()))
    return {"model": "m", **body} if place < 0.6 else body


def _names(rng: random.Random, path: str = "") -> list[str]:
    """A field of the path, of any path, or of none."""
    kind = rng.random()
    own = [f for row in ROWS if path in row.paths.split() and row.kind in (IDS, TEXT)
           for f in row.fields.split()]  # fmt: skip
    names = rng.choice(own or NAMES if kind < 0.6 else NAMES).split(".")
    if rng.random() < 0.1:
        names[-1] = rng.choice(
            (names[-1].upper(), names[-1].title(), names[-1].replace("s", "\u017f"))
        )
    return names if kind < 0.85 else [rng.choice(UNKNOWN)]


def _name(rng: random.Random) -> str:
    return _names(rng)[-1]


def _value(rng: random.Random, depth: int) -> Any:
    kind = rng.random()
    if depth < 3 and kind < 0.15:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if depth < 3 and kind < 0.25:
        return {_name(rng): _value(rng, depth + 1) for _ in range(rng.randrange(3))}
    if kind < 0.35:
        return rng.choice(("the rest", "83", "[83, 258]", None, 83, 83.0, True, "\ud800", "",
                           "\u3000" * 300))  # fmt: skip
    ids: list[Any] = _ids(rng)
    if rng.random() < 0.5:
        change = rng.choice(CHANGES)
        some = rng.random() < 0.4
        ids = [change(rng, i) if not some or rng.random() < 0.3 else i for i in ids]
    return ids


@cache
def _texts() -> list[list[int]]:
    vocab = _checker().vocab
    texts = ("the rest", "hello world 12", "a", "  x\n", "the theater is there")
    characters = rt.sampler("characters", vocab)
    rows = [[vocab.encode(text), characters.sample(text, seed=0)] for text in texts]
    return [ids.tolist() for row in rows for ids in row]


def _ids(rng: random.Random) -> list[Any]:
    if rng.random() < 0.6:
        return list(rng.choice(_texts()))
    size = _checker().vocab.size
    return [rng.randrange(-1, size + 2) for _ in range(rng.randrange(6))]


# What an integer of a list becomes; `_Raw` is written as it is.
class _Raw(str):
    pass


CHANGES = (
    lambda rng, i: str(i),
    lambda rng, i: f"{' ' * rng.randrange(3)}{i}{rng.choice(('', '.0', ' ', '.', '_0'))}",
    lambda rng, i: f"+{i}",
    lambda rng, i: f"{i}".translate({ord("0") + d: 0x660 + d for d in range(10)}),
    lambda rng, i: " " * 1200 + str(i),
    lambda rng, i: "0" * rng.choice((3, 1300)) + str(i),
    lambda rng, i: float(i),
    lambda rng, i: rng.random() < 0.5,
    lambda rng, i: None,
    lambda rng, i: [i],
    lambda rng, i: _Raw(f"{i}{rng.choice(('.0', 'e0', '0e-1', 'E+0', '.', 'e', '_0'))}"),
    lambda rng, i: _Raw(f"{rng.choice(('-', '0', '+', '00', '-0'))}{i}"),
    lambda rng, i: _Raw(rng.choice(("NaN", "Infinity", "1e400", "9" * 30, "9" * 400))),
    lambda rng, i: _Raw('"' + "".join(f"\\u{ord(c):04x}" for c in str(i)) + '"'),
    lambda rng, i: {"token": i},
)


def _written(rng: random.Random, value: Any) -> bytes:
    """``value`` as JSON, spelled in one of many ways."""
    space = rng.choice(("", "", " ", "\n", " \t\r\n"))

    def text(value: str) -> str:
        if rng.random() < 0.2:
            return '"' + "".join(f"\\u{ord(c):04X}" for c in value) + '"'
        return json.dumps(value, ensure_ascii=rng.random() < 0.7)

    def write(value: Any) -> str:
        if isinstance(value, _Raw):
            return value
        if isinstance(value, str):
            return text(value)
        if isinstance(value, dict):
            pairs = [(text(k), write(v)) for k, v in value.items()]
            if pairs and rng.random() < 0.15:
                pairs.append((text(next(iter(value))), write(_value(rng, 2))))
            return "{" + f",{space}".join(f"{k}{space}:{space}{v}" for k, v in pairs) + "}"
        if isinstance(value, list):
            return f"[{space}" + f"{space},{space}".join(map(write, value)) + f"{space}]"
        return json.dumps(value)

    return write(value).encode("utf8", "surrogatepass")


def _damaged(rng: random.Random, body: bytes) -> bytes:
    """``body`` with a few bytes changed."""
    raw = bytearray(body)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(raw) + 1)
        what = rng.randrange(5)
        if what == 0:
            del raw[at : at + rng.choice((1, 1, 3, 20))]
        elif what == 1:
            raw[at:at] = rng.choice(DAMAGE)
        elif what == 2 and at < len(raw):
            raw[at] = rng.choice(b'[]{},:"\\0159-+.eE \xff\x00tn/')
        elif what == 3:
            raw[at:at] = raw[at : at + rng.randrange(40)]
        else:
            digits = [match.start() for match in re.finditer(rb"\d", raw)]
            if digits:
                raw[rng.choice(digits)] = rng.choice(b"0123456789")
    return bytes(raw)


DAMAGE = (
    b"[", b"]", b"{", b"}", b",", b'"', b"\\", b"\\u", b'\\"', b"/*", b"//",
    b"\x00", b"\xed\xa0\x80",
    b'"prompt":[83,258,83],', b"[83,258]", b'["83"]', b"null", b"\xef\xbb\xbf", b"\xe2", b"--x",
    b'"' + b"a" * 1100, b'"' + b"a" * 1100 + b'"',
)  # fmt: skip
