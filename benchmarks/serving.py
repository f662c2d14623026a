"""Cost of the guard in front of a server, and of drawing in a tokenizer and a collator.

    python benchmarks/serving.py --tokenizer PATH            # about two minutes on one core

Requests: an ASGI application that parses the body and answers at once, called in one process by
32 concurrent clients, with and without GuardMiddleware. No network and no model, so that the
difference is the guard alone. Encoding: a transformers tokenizer, and the same one wrapped by
rt.stochastic; a collator that pads, and the same one after Perturb. Rounds are interleaved; the
table has medians over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast

import robustok as rt
from robustok.integrations.asgi import GuardMiddleware
from robustok.integrations.perturb import Perturb
from robustok.integrations.serving import PromptGuard
from robustok.tasks import frequent_words

CLIENTS = 32
SCHEMES = ("stochastok(alpha=0.1)", "uniform-k(alpha=0.5)", "uniform")


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
    print("| prompt | requests/s, without | with | added, µs a request | p50, ms | p99, ms |")
    print("|---|---|---|---|---|---|")
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
        print(f"| {length} ids | {without:,.0f} | {with_guard:,.0f} | {added:,.0f} "
              f"| {p50:.1f} | {p99:.1f} |", flush=True)  # fmt: skip


def ratio(run: Callable[[], Any], base: Callable[[], Any], rounds: int) -> float:
    """Median of the processor time of one call divided by that of another."""
    run()
    base()
    ratios = []
    for _ in range(rounds):
        seconds = []
        for call in (run, base):
            began = time.process_time()
            call()
            seconds.append(time.process_time() - began)
        ratios.append(seconds[0] / seconds[1])
    return median(ratios)


def encoding(vocab: Any, tokenizer: Any, texts: list[str], rounds: int) -> None:
    rows = [{"input_ids": vocab.encode(text).tolist()} for text in texts]
    collate = DataCollatorWithPadding(tokenizer)
    began = time.process_time()
    tokenizer(texts)
    rate = sum(len(row["input_ids"]) for row in rows) / (time.process_time() - began)
    print(f"\nThe plain tokenizer encodes {rate:,.0f} tokens a processor second.\n")
    print("| scheme | `rt.stochastic` / tokenizer | `Perturb` and collator / collator |")
    print("|---|---|---|")
    for spec in SCHEMES:
        drawing = rt.stochastic(tokenizer, spec, seed=0)
        perturb = Perturb(rt.sampler(spec, vocab), seed=0, where="all")
        tokens = ratio(lambda d=drawing: d(texts), lambda: tokenizer(texts), rounds)
        rows_ = ratio(lambda p=perturb: collate(p(rows)), lambda: collate(rows), rounds)
        print(f"| `{spec}` | {tokens:.1f} | {rows_:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokenizer", required=True, help="tokenizer.json of transformers")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    words = frequent_words(5000)
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(words, 100)) for _ in range(256)]
    vocab = rt.Vocabulary.load(given.tokenizer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=given.tokenizer)
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(0)
    requests(vocab, texts, given.rounds)
    encoding(vocab, tokenizer, texts, given.rounds)


if __name__ == "__main__":
    main()
