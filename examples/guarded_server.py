"""An OpenAI-compatible server of a tiny model behind the guard, under concurrent requests.

Serves on the loopback interface for the time of the requests. Needs starlette, uvicorn
(robustok[play]) and prometheus_client. Without a hub: python examples/guarded_server.py
[reject|repair|log]
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import torch
import uvicorn
from prometheus_client import make_asgi_app
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

import robustok as rt
from robustok.integrations.asgi import GuardMiddleware
from robustok.integrations.serving import PromptGuard
from robustok.models import Shape, small_model

TEXT = "the quick brown fox jumps over the lazy dog and the revolution"


def server_of(vocab: rt.Vocabulary, model: Any) -> Starlette:
    """`/v1/completions` with prompts as text or ids; greedy, four tokens."""

    def complete(prompts: list[Any]) -> dict[str, Any]:
        rows = [vocab.encode(p).tolist() if isinstance(p, str) else p for p in prompts]
        choices, charged = [], 0
        for index, row in enumerate(rows):
            given = torch.tensor([row])
            step = model.generate(
                given, attention_mask=torch.ones_like(given), max_new_tokens=4, pad_token_id=0
            )
            new = step[0, len(row) :].tolist()
            charged += len(new)
            choices.append({"index": index, "text": vocab.decode(new), "finish_reason": "length"})
        usage = {"prompt_tokens": sum(map(len, rows)), "completion_tokens": charged}
        return {"object": "text_completion", "choices": choices, "usage": usage}

    async def completions(request: Request) -> JSONResponse:
        prompt: Any = (await request.json())["prompt"]
        prompts = [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt
        return JSONResponse(await run_in_threadpool(complete, prompts))

    completion = Route("/v1/completions", completions, methods=["POST"])
    return Starlette(routes=[completion, Mount("/metrics", make_asgi_app())])


def post(url: str, prompt: Any) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"model": "tiny", "prompt": prompt}).encode()
    request = HttpRequest(url, body, {"content-type": "application/json"})
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def main(policy: str = "reject", *, requests: int = 60) -> dict[str, Any]:
    vocab = rt.Vocabulary.load("demo")
    model = small_model(vocab.size, Shape(2, 64, 2, 2, 160, 256), seed=0)
    app = server_of(vocab, model)

    prompts = PromptGuard(vocab, policy=policy, max_length=512)
    app.add_middleware(GuardMiddleware, prompts=prompts)  # the added lines

    listener = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)

    # Text, canonical ids, a batch, and other tokenizations of the same text, in turn.
    canonical = vocab.encode(TEXT).tolist()
    drawn = rt.sampler("uniform", vocab).sample(TEXT, seed=0).tolist()
    kinds = [TEXT, canonical, [canonical, canonical[:5]], drawn]
    try:
        with ThreadPoolExecutor(16) as clients:
            answers = list(
                clients.map(lambda n: post(f"{base}/v1/completions", kinds[n % 4]), range(requests))
            )
        with urlopen(f"{base}/metrics/", timeout=60) as answer:
            lines = answer.read().decode().splitlines(keepends=True)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
    metrics = "".join(line for line in lines if line.startswith("robustok_guard"))
    print(metrics)
    return {"answers": answers, "metrics": metrics}


if __name__ == "__main__":
    main(*sys.argv[1:2])
