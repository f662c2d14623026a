"""Cost of the guard in front of a server.

    python benchmarks/serving.py --tokenizer PATH            # about four minutes on one core

Requests: an ASGI application that parses the body and answers at once, called in one process by
32 concurrent clients, with and without GuardMiddleware. No network and no model, so that the
difference is the guard alone. Latency: 50 clients ask for /ping, one after another each, while
the largest bodies that a hostile client can send are judged; the same without such a body; and the
memory of the process. Other processes delay a ping, too. Beside its time therefore stands the
longest time for which judging the body keeps another thread from the interpreter lock, in processor
time of the judging thread, which the load changes by a time slice (4 ms) at most.
Rounds are interleaved; the table has medians over the rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
import time
from collections.abc import Callable
from decimal import Context, Decimal
from statistics import median
from typing import Any

import numpy as np
import psutil

import robustok as rt
from common import options_of, print_heads, print_row
from robustok.integrations.asgi import GuardMiddleware
from robustok.integrations.serving import PromptGuard
from robustok.tasks import frequent_words

CLIENTS = 32


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Reads and parses the body, as a server does, and answers."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message.get("more_body", False)
    json.loads(body)
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"choices": []}'})


async def served(app: Any, bodies: list[bytes]) -> list[float]:
    """Seconds of each request, with ``CLIENTS`` of them at a time."""
    gate, seconds = asyncio.Semaphore(CLIENTS), []

    async def request(body: bytes) -> None:
        async with gate:
            began = time.perf_counter()
            scope = {
                "type": "http", "method": "POST", "path": "/v1/completions",
                "headers": [(b"content-length", str(len(body)).encode())],
            }  # fmt: skip

            async def receive() -> dict[str, Any]:
                await asyncio.sleep(0)  # as a socket would
                return {"type": "http.request", "body": body, "more_body": False}

            async def send(_: Any) -> None:
                await asyncio.sleep(0)

            await app(scope, receive, send)
            seconds.append(time.perf_counter() - began)

    await asyncio.gather(*map(request, bodies))
    return seconds


def requests(vocab: Any, texts: list[str], rounds: int) -> None:
    plain = application
    guarded = GuardMiddleware(application, prompts=PromptGuard(vocab, policy="repair"))
    everything = np.concatenate([vocab.encode(text) for text in texts]).tolist()
    heads = "requests/s, without", "with", "added, µs a request", "p50, ms", "p99, ms"
    print_heads("prompt", *heads)
    for length in (64, 512, 4096):
        starts = range(0, len(everything) - length, max(1, (len(everything) - length) // 320))
        prompts = [vocab.canonicalize(everything[at : at + length]).tolist() for at in starts]
        bodies = [json.dumps({"prompt": prompt}).encode() for prompt in prompts[:320]]
        asyncio.run(served(guarded, bodies[:32]))
        rates: dict[Any, list[float]] = {plain: [], guarded: []}
        times: list[float] = []
        for _ in range(rounds):
            for app in (plain, guarded):
                began = time.process_time()
                seconds = asyncio.run(served(app, bodies))
                rates[app].append(len(bodies) / (time.process_time() - began))
                times += seconds if app is guarded else []
        without, with_guard = median(rates[plain]), median(rates[guarded])
        added = 1e6 * (1 / with_guard - 1 / without)
        p50, p99 = (1000 * np.quantile(times, q) for q in (0.5, 0.99))
        rounded = (f"{value:,.0f}" for value in (without, with_guard, added))
        print_row(f"{length} ids", *rounded, f"{p50:.1f}", f"{p99:.1f}")


def _joined(item: bytes, count: int) -> bytes:
    return b",".join([item] * count)


# Halfway between two floats, the slowest number to read.
_HALF = format(Context(prec=1_100).multiply(Decimal.from_float(5e-324), Decimal("1.5")), "f")

# Bodies of at most 2 MB that cost a JSON parser or the guard most.
HOSTILE: dict[str, Callable[[], bytes]] = {
    "1,024 prompts of broken UTF-8": lambda: b'{"prompt":[%s]}' % _joined(b"[129,83,130]", 1_024),
    "160,000 ids, 1,024 prompts": lambda: (
        b'{"prompt":[%s]}' % _joined(b"[%s]" % _joined(b"83", 155), 1_024)
    ),
    "130,000 ids, no UTF-8": lambda: b'{"prompt":[%s]}' % _joined(b"129,83", 65_000),
    "130,000 unknown ids": lambda: b'{"prompt":[%s]}' % _joined(b"99999999999", 130_000),
    "660,000 empty lists": lambda: b'{"prompt":[%s]}' % _joined(b"[]", 660_000),
    "32,000 keys, one doubled": lambda: b'{%s,"k0":0}' % _keys(32_000),
    "160,000 floats, repaired": lambda: b'{"prompt":[83,258],"x":[%s]}' % _joined(b"0.5", 160_000),
    "text with escapes": lambda: b'{"prompt":"%s"}' % (b'\\",' * 660_000),
    "500 integers of 4,000 digits": lambda: b'{"prompt":[%s]}' % _joined(b"9" * 4_000, 490),
    "1,800 halves of the least float": lambda: b'{"x":[%s]}' % _joined(_HALF.encode(), 1_800),
    "2 million open brackets": lambda: b"[" * 1_990_000,
}


def _keys(count: int) -> bytes:
    return b",".join(b'"k%d":0' % number for number in range(count))


def held(app: Any, body: bytes) -> float:
    """The longest time for which judging a body holds the interpreter lock, in milliseconds.

    Another thread wakes up every half millisecond. What the judging thread computed between two of
    its turns is at most that and the time for which it waited for the lock.
    """
    scope = {"headers": [], "path": "/v1/completions"}
    clocks: list[int] = []
    done = threading.Event()

    def judge() -> None:
        clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
        with contextlib.suppress(rt.RobustokError):  # a refusal
            app._judged(scope, bytearray(body))
        done.set()
        finished.wait()  # the clock ends with the thread

    finished = threading.Event()
    thread = threading.Thread(target=judge)
    thread.start()
    while not clocks:
        time.sleep(0.0001)
    last, longest = time.clock_gettime(clocks[0]), 0.0
    while not done.is_set():
        time.sleep(0.0005)
        now = time.clock_gettime(clocks[0])
        longest, last = max(longest, now - last), now
    finished.set()
    thread.join()
    return 1000 * longest


async def pings(app: Any, body: bytes | None, clients: int = 50) -> list[float]:
    """Milliseconds of each /ping while ``body`` is sent ten times at once, or for half a second."""
    milliseconds: list[float] = []
    done = asyncio.Event()

    async def send(_: Any) -> None:
        await asyncio.sleep(0)

    def receiver(raw: bytes) -> Any:
        chunks = [raw[at : at + 65_536] for at in range(0, len(raw), 65_536)] or [b""]

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0)
            return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

        return receive

    async def client() -> None:
        scope = {"type": "http", "method": "GET", "path": "/ping", "headers": []}
        while not done.is_set():
            due = time.perf_counter() + 0.005  # a blocked loop also delays the start of a request
            await asyncio.sleep(0.005)
            await app(scope, receiver(b""), send)
            milliseconds.append(1000 * (time.perf_counter() - due))

    running = [asyncio.create_task(client()) for _ in range(clients)]
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
    if body is None:
        await asyncio.sleep(0.5)
    else:
        await asyncio.gather(*(app(scope, receiver(body), send) for _ in range(10)))
    done.set()
    await asyncio.gather(*running)
    return milliseconds


async def answer_at_once(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads nothing, so that the latency is the guard's."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def latency(vocab: Any, rounds: int) -> None:
    app = GuardMiddleware(answer_at_once, prompts=PromptGuard(vocab, policy="repair"))
    process = psutil.Process()
    gc.collect()
    gc.freeze()  # as vLLM does after its start: collecting all objects takes 0.1 s here
    idle: list[float] = []
    for _ in range(rounds):
        idle += asyncio.run(pings(app, None))
    base = median(idle)
    print(f"\n/ping of 50 clients without such a body: median {base:.2f} ms, longest "
          f"{max(idle):.0f} ms; {process.memory_info().rss / 2**20:.0f} MiB\n")  # fmt: skip
    heads = "MB", "median", "99th", "longest", "/ idle median", "lock", "MiB after"
    print_heads("body, ten at a time", *heads)
    for name, make in HOSTILE.items():
        body = make()
        times = [asyncio.run(pings(app, body)) for _ in range(rounds)]
        p50, p99 = (median(np.quantile(t, q) for t in times) for q in (0.5, 0.99))
        size, longest = len(body) / 1e6, median(map(max, times))
        lock = median(held(app, body) for _ in range(rounds))
        del body
        memory = process.memory_info().rss / 2**20
        delays = f"{p50:.2f}", f"{p99:.1f}", f"{longest:.0f}", f"{p50 / base:.1f}"
        print_row(name, f"{size:.1f}", *delays, f"{lock:.1f}", f"{memory:.0f}")


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--tokenizer", required=True, help="tokenizer.json of transformers")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    words = frequent_words(5000)
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(words, 100)) for _ in range(256)]
    vocab = rt.Vocabulary.load(given.tokenizer)
    requests(vocab, texts, given.rounds)
    latency(vocab, given.rounds)


if __name__ == "__main__":
    main()
