"""A server that speaks the part of vLLM's protocol that scoring uses, over a model in this process.

Its answers have the shapes that vLLM 0.32 gave: ``top_logprobs`` with names such as
``token_id:17``, ``prompt_logprobs`` with None for the first token, errors as ``{"error": {…}}``.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from robustok import Vocabulary

MOST_IDS = 128  # vLLM's MAX_LOGPROB_TOKEN_IDS


class ServedStandIn:
    """What the server has, and how it misbehaves.

    ``failures`` is a list of statuses to answer with first, one a completion request; 0 closes the
    connection without an answer. ``key`` is the key that it asks for.
    """

    def __init__(self, model: Any, vocab: Vocabulary, *, key: str = "") -> None:
        self.model, self.vocab, self.key = model, vocab, key
        self.failures: list[int] = []
        self.n_completions = 0
        self.dies_after: int | None = None  # completion requests until every connection is closed
        self.lock = threading.Lock()

    def models(self) -> dict[str, Any]:
        entry = {
            "id": "tiny",
            "root": "runs/tiny",
            "max_model_len": self.model.config.max_position_embeddings,
        }
        adapter = {"id": "adapter", "root": "runs/adapter", "parent": "tiny"}
        return {"object": "list", "data": [entry, adapter][: 1 + bool(self.key)]}

    def tokens(self, body: dict[str, Any]) -> dict[str, Any]:
        ids = self.vocab.encode(body["prompt"]).tolist()
        return {"tokens": ids, "count": len(ids), "max_model_len": 64}

    def best_after(self, ids: list[int]) -> int:
        with torch.no_grad(), self.lock:
            return int(self.model(torch.tensor([ids])).logits[0, -1].argmax())

    def choice(self, index: int, prompt: list[int], body: dict[str, Any]) -> dict[str, Any]:
        with torch.no_grad(), self.lock:
            logits = self.model(torch.tensor([prompt])).logits[0].double()
        log_probs = torch.log_softmax(logits, -1)
        best = int(log_probs[-1].argmax())
        top = {best: float(log_probs[-1, best])}
        top |= {i: float(log_probs[-1, i]) for i in body.get("logprob_token_ids", [])}
        rows = [
            None,
            *(
                {str(i): {"logprob": float(row[i])}}
                for row, i in zip(log_probs, prompt[1:], strict=False)
            ),
        ]
        new = [best]
        while len(new) < body["max_tokens"]:
            new.append(self.best_after([*prompt, *new]))
        spelled = [i for i in new if i < self.vocab.size]  # a model may have more rows than tokens
        text = self.vocab.decode_bytes(spelled).decode(errors="replace")
        for stop in body.get("stop", []):
            text = text.partition(stop)[0]
        return {
            "index": index,
            "text": text,
            "token_ids": new if body.get("return_token_ids") else None,
            "logprobs": {"top_logprobs": [{f"token_id:{i}": p for i, p in top.items()}]},
            "prompt_logprobs": rows if "prompt_logprobs" in body else None,
        }


@contextmanager
def serving(stand_in: ServedStandIn) -> Iterator[str]:
    """The address of the running server, with its `/v1`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, status: int, content: object) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            is_known = self.path == "/v1/models"
            self.answer(*((200, stand_in.models()) if is_known else (404, {"detail": "Not Found"})))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if stand_in.key and self.headers["Authorization"] != f"Bearer {stand_in.key}":
                return self.answer(401, {"error": "Unauthorized"})
            if self.path == "/tokenize":
                return self.answer(200, stand_in.tokens(body))
            with stand_in.lock:
                stand_in.n_completions += 1
                status = stand_in.failures.pop(0) if stand_in.failures else 200
                if stand_in.dies_after is not None and stand_in.n_completions > stand_in.dies_after:
                    status = 0
            if status == 0:
                self.close_connection = True
                return None
            if status != 200:
                return self.answer(status, {"error": {"message": "the server is busy"}})
            prompts = body["prompt"]
            out_of_range = [
                i for prompt in prompts for i in prompt if not 0 <= i < stand_in.vocab.size
            ]
            if out_of_range:
                return self.answer(
                    400, {"error": {"message": f"Token id {out_of_range[0]} is out of vocabulary"}}
                )
            if (wanted := len(body.get("logprob_token_ids", []))) > MOST_IDS:
                message = f"Requested logprob_token_ids of length {wanted}, which is greater than"
                return self.answer(400, {"error": {"message": f"{message} {MOST_IDS}"}})
            limit = stand_in.model.config.max_position_embeddings
            if max(map(len, prompts)) + body["max_tokens"] > limit:
                message = f"This model's maximum context length is {limit} tokens"
                return self.answer(400, {"error": {"message": message}})
            choices = [stand_in.choice(i, prompt, body) for i, prompt in enumerate(prompts)]
            return self.answer(200, {"choices": choices[::-1]})  # in any order

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
