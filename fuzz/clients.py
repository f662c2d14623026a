"""Hostile clients of the guarded server and of the playground, on the loopback interface.

    python -m fuzz.clients --seconds 60 --connections 50
    python -m fuzz.clients --seconds 60 --connections 50 --target play
    python -m fuzz.clients --seconds 60 --connections 50 --target plain  # without the guard

A server runs in a process of its own. Each connection sends one kind of request after another: a
slow head or body, pipelined requests, HTTP/1.0, an upgrade to a websocket, compressed and chunked
bodies, two lengths, lengths that do not hold, bodies that cost much. Beside them one client asks
for /ping. Printed are the responses by kind and status, the times of /ping, the memory and the open
files of the server before and after. Exit status 1 if ids that are not canonical reached the
application, the server stopped, or a connection stayed open.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import multiprocessing
import random
import socket
import time
import zlib
from collections import Counter
from functools import cache
from statistics import median
from typing import Any

import psutil

TEXT = "the rest"
_PATH = {"guard": "/v1/completions", "plain": "/v1/completions", "play": "/api/draw"}
_PING = {"guard": "/ping", "plain": "/ping", "play": "/api/about"}


def serve(target: str, listener: socket.socket, unjudged: Any) -> None:
    """Run a server until the process is ended."""
    import uvicorn

    from fuzz.tokenizers_small import small_tokenizers
    from robustok.tokenizer.vocabulary import Vocabulary

    vocab = Vocabulary.load(next(iter(small_tokenizers().values())))
    if target == "play":
        from robustok.play.server import SERVER, application

        config = uvicorn.Config(application({"toy": vocab}), **SERVER)
        uvicorn.Server(config).run(sockets=[listener])
        return
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from robustok.guard import Guard
    from robustok.integrations.asgi import GuardMiddleware
    from robustok.integrations.serving import PromptGuard

    guard = Guard(vocab)

    async def complete(request: Request) -> JSONResponse:
        body = await request.body()
        if target == "guard":
            rows = [row for row in json.loads(body)["prompt"] if isinstance(row, list) and row]
            unjudged.value += sum(not guard.check(row).canonical for row in rows[:20])
        return JSONResponse({"choices": []})

    routes = [Route("/v1/completions", complete, methods=["POST"]),
              Route("/ping", lambda _: JSONResponse({}))]  # fmt: skip
    app = Starlette(routes=routes)
    if target == "guard":
        app.add_middleware(GuardMiddleware, prompts=PromptGuard(vocab, policy="repair"))
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listener])


def _head(path: str, length: int | None, *more: str, version: str = "1.1") -> bytes:
    lines = [f"POST {path} HTTP/{version}", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Content-Length: {length}"] * (length is not None)
    return "\r\n".join([*lines, *more, "", ""]).encode()


def _chunked(body: bytes, size: int) -> bytes:
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x;x=y\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


@cache
def requests(target: str) -> dict[str, tuple[list[bytes], int]]:
    """Of each kind of request, its bytes in parts sent 0.2 s apart, and its number of responses."""
    path = _PATH[target]
    plain = json.dumps({"prompt": [[5], list(b"the rest")], "text": TEXT}).encode()

    def whole(body: bytes, *more: str, version: str = "1.1") -> bytes:
        return _head(path, len(body), *more, version=version) + body

    def prompts(item: bytes, count: int) -> bytes:
        return whole(b'{"prompt":[%s]}' % b",".join([item] * count))

    in_chunks = _head(path, None, "Transfer-Encoding: chunked")
    upgrade = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    upgrade += "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    upgrade += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    slow = whole(plain)
    kinds: dict[str, tuple[list[bytes], int]] = {
        "slow head": ([slow[i : i + 40] for i in range(0, len(slow), 40)], 1),
        "slow body": ([_head(path, len(plain)), *(plain[i : i + 9] for i in range(0, 54, 9)),
                       plain[54:]], 1),
        "no end": ([_head(path, 1000), plain], 0),
        "no head": ([b"POST /"], 0),
        "pipelined": ([whole(plain) * 8], 8),
        "HTTP/1.0": ([whole(plain, version="1.0")], 1),
        "websocket": ([upgrade.encode()], 1),
        "chunked": ([in_chunks + _chunked(plain, 7)], 1),
        "chunks without end": ([in_chunks, *[b"1\r\n \r\n"] * 9], 0),
        "broken chunks": ([in_chunks + b"zz\r\n"], 1),
        "two lengths": ([whole(plain, "Content-Length: 5")], 1),
        "length and chunks": ([_head(path, 3, "Transfer-Encoding: chunked") + _chunked(plain, 9)],
                              1),
        "too long": ([_head(path, 10**9)], 1),
        "a million ids": ([prompts(b"5", 950_000)], 1),
        "20,000 lists": ([prompts(b"[]", 20_000)], 1),
        "900 prompts": ([prompts(b"[116,104]", 900)], 1),
        "no JSON": ([whole(b"[" * 9)], 1),
    }  # fmt: skip
    for name, packed in (("gzip", gzip.compress(plain)), ("deflate", zlib.compress(plain)),
                         ("br", b"\x0b\x02\x80" + plain)):  # fmt: skip
        kinds[name] = ([whole(packed, f"Content-Encoding: {name}")], 1)
    return kinds


async def one(port: int, target: str, rng: random.Random, counts: Counter[tuple[str, str]]) -> None:
    """One connection: sends a request, reads its responses, closes."""
    name = rng.choice(list(requests(target)))
    parts, responses = requests(target)[name]
    outcome, received = "", b""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for number, part in enumerate(parts):
                if number:
                    await asyncio.sleep(0.2)
                writer.write(part)
                await writer.drain()
            async with asyncio.timeout(30):
                while responses and received.count(b"HTTP/1.1 ") < responses:
                    data = await reader.read(65_536)
                    if not data:
                        break
                    received += data
        finally:
            writer.close()
    except TimeoutError:
        outcome = "no response"
    except OSError:
        outcome = "closed"
    statuses = [part[:3].decode() for part in received.split(b"HTTP/1.1 ")[1:]]
    for status in statuses or [outcome or ("closed" if responses else "left")]:
        counts[name, status] += 1


async def ping(port: int, target: str, end: float, seconds: list[float]) -> None:
    while time.monotonic() < end:
        began = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {_PING[target]} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert (await reader.read(100)).startswith(b"HTTP/1.1 200")
        seconds.append(time.perf_counter() - began)
        writer.close()
        await asyncio.sleep(0.05)


async def attack(port: int, target: str, duration: float, connections: int, seed: int) -> Any:
    """Counts by kind and outcome, and the seconds of each /ping, alone and beside the others."""
    counts: Counter[tuple[str, str]] = Counter()
    alone: list[float] = []
    requests(target)
    await ping(port, target, time.monotonic() + min(5.0, duration), alone)
    end, beside = time.monotonic() + duration, list[float]()

    async def client(number: int) -> None:
        rng = random.Random(f"{seed} {number}")
        while time.monotonic() < end:
            await one(port, target, rng, counts)

    await asyncio.gather(ping(port, target, end, beside), *map(client, range(connections)))
    return counts, alone, beside


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", choices=sorted(_PATH), default="guard")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    unjudged = context.Value("q", 0)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        port = listener.getsockname()[1]
        server = context.Process(
            target=serve, args=(options.target, listener, unjudged), daemon=True
        )
        server.start()
    _wait(port, options.target)
    process = psutil.Process(server.pid)
    before = process.memory_info().rss, process.num_fds()
    counts, alone, beside = asyncio.run(
        attack(port, options.target, options.seconds, options.connections, options.seed)
    )
    time.sleep(12)  # longer than an idle connection may stay open
    alive = server.is_alive()
    after = (process.memory_info().rss, process.num_fds()) if alive else (0, 0)
    server.kill()
    for (name, outcome), count in sorted(counts.items()):
        print(f"{count:>7,} {name}: {outcome}")
    for name, times in (("alone", alone), ("beside them", beside)):
        print(f"ping {name}: {len(times)}, median {1e3 * median(times):.1f} ms, "
              f"longest {1e3 * max(times):.1f} ms")  # fmt: skip
    print(f"{sum(counts.values()):,} outcomes; memory {before[0] >> 20} to {after[0] >> 20} MiB, "
          f"open files {before[1]} to {after[1]}; not canonical {unjudged.value}")  # fmt: skip
    return int(not alive or bool(unjudged.value) or after[1] > before[1] + 5)


def _wait(port: int, target: str) -> None:
    """Until the server answers, whose kernels may have to be compiled."""
    for _ in range(600):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
                client.sendall(f"GET {_PING[target]} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
                if client.recv(100):
                    return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server does not answer")


if __name__ == "__main__":
    raise SystemExit(main())
