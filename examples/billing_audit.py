"""Audit the tokens that a server charges, by middleware around an OpenAI-compatible server.

A server that charges by the token can report a longer tokenization of a text than the one that its
tokenizer gives, and the user cannot tell ("Is Your LLM Overcharging You?", arXiv 2505.21627). The
canonical count depends on the text alone, so the middleware adds up both. It passes responses on at
once and unchanged, JSON or a stream of events. Without a hub: python examples/billing_audit.py
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import robustok as rt

MAX_AUDITED = 1 << 22  # bytes of a response that are kept for the audit
# Content of a message that is charged and is not its text.
HIDDEN = ("tool_calls", "reasoning_content", "reasoning", "function_call", "audio")


class BillingAudit:
    """Middleware that compares `usage` with the canonical tokens of the text that was sent.

    A choice that ends by itself may charge one token more than its text has, the end token. A
    response without `usage`, with other content than text, or of more than 4 MiB counts as
    unaudited. Prompts count where `/v1/completions` got them as text; the template of a chat is not
    known here. ``counts`` are ``charged`` and ``canonical`` tokens of prompts and completions,
    ``overcharged`` responses (more completion tokens than canonical ones and ends) and those that
    are ``unaudited``.
    """

    def __init__(self, app: Any, vocab: rt.Vocabulary) -> None:
        self.app, self.vocab = app, vocab
        self.counts: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        request, response = bytearray(), bytearray()

        async def keep_request() -> Any:
            message = await receive()
            request.extend(message.get("body", b""))
            return message

        async def keep_response(message: Any) -> None:
            await send(message)
            if len(response) <= MAX_AUDITED:
                response.extend(message.get("body", b""))
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                await asyncio.to_thread(self.audit, bytes(request), bytes(response))

        await self.app(scope, keep_request, keep_response)

    def audit(self, request: bytes, response: bytes) -> None:
        """Count what a whole response charged."""
        texts: dict[int, str] = {}
        usage: dict[str, Any] = {}
        for event in events(response) if len(response) <= MAX_AUDITED else []:
            usage = event["usage"] if isinstance(event.get("usage"), dict) else usage
            choices = event.get("choices") or []
            for choice in choices if isinstance(choices, list) else [choices]:
                text = text_of(choice)
                if text is None:
                    self.counts["unaudited"] += 1
                    return
                index = choice.get("index", 0)
                texts[index] = texts.get(index, "") + text
        charged = usage.get("completion_tokens")
        if type(charged) is not int or not texts:
            self.counts["unaudited"] += 1
            return
        canonical = self.tokens(list(texts.values()))
        self.count("completion", charged, canonical)
        if charged > canonical + len(texts):
            self.counts["overcharged"] += 1
        prompts = prompts_of(request)
        if type(usage.get("prompt_tokens")) is int and prompts:
            self.count("prompt", usage["prompt_tokens"], self.tokens(prompts))

    def count(self, kind: str, charged: int, canonical: int) -> None:
        self.counts[f"charged {kind}"] += charged
        self.counts[f"canonical {kind}"] += canonical

    def tokens(self, texts: list[str]) -> int:
        # A lone surrogate, which JSON can hold, is no text.
        return len(self.vocab.encode_batch([t.encode("utf8", "replace") for t in texts]).values)


def events(body: bytes) -> list[dict[str, Any]]:
    """The JSON objects of a response: one, or one for each event of a stream."""
    parts = [body]
    if body.lstrip()[:5] == b"data:":
        lines = (line.strip() for line in body.split(b"\n"))
        parts = [line[5:] for line in lines if line[:5] == b"data:"]
    return [value for part in parts if isinstance(value := parsed(part), dict)]


def parsed(text: bytes) -> Any:
    """The value of a JSON text; None for what is no JSON, such as "[DONE]"."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def prompts_of(request: bytes) -> list[str]:
    """The prompts of a request that are text."""
    body = parsed(request)
    prompt = body.get("prompt") if isinstance(body, dict) else None
    prompts = prompt if isinstance(prompt, list) else [prompt]
    return [text for text in prompts if isinstance(text, str)]


def text_of(choice: Any) -> str | None:
    """The text of a choice or of a part of one; None for anything else."""
    if not isinstance(choice, dict) or type(choice.get("index", 0)) is not int:
        return None
    if "text" in choice:
        return choice["text"] if isinstance(choice["text"], str) else None
    message = choice.get("message") or choice.get("delta") or {}
    if not isinstance(message, dict) or any(message.get(key) for key in HIDDEN):
        return None
    content = message.get("content") or ""
    return content if isinstance(content, str) else None


async def ask(app: Any, prompt: str) -> None:
    """One request to `/v1/completions`, without a network."""

    async def receive() -> Any:
        return {"type": "http.request", "body": json.dumps({"prompt": prompt}).encode()}

    async def send(message: Any) -> None:
        pass

    await app({"type": "http", "method": "POST", "path": "/v1/completions"}, receive, send)


def main() -> dict[str, int]:
    text = "the quick brown fox jumps over the lazy dog"
    vocab = rt.Vocabulary.load("demo")
    honest = len(vocab.encode(text))

    def server(charged: int) -> Any:
        async def answer(scope: Any, receive: Any, send: Any) -> None:
            prompt = json.loads((await receive())["body"])["prompt"]
            usage = {"prompt_tokens": len(vocab.encode(prompt)), "completion_tokens": charged}
            body = {"choices": [{"index": 0, "text": text}], "usage": usage}
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": json.dumps(body).encode()})

        return answer

    audit = BillingAudit(server(honest), vocab)
    asyncio.run(ask(audit, "the dog"))
    audit.app = server(len(text))  # one token a character
    asyncio.run(ask(audit, "the dog"))
    for name, number in sorted(audit.counts.items()):
        print(f"{number:>6} {name}")
    return dict(audit.counts)


if __name__ == "__main__":
    main()
