"""The audit of charged tokens passes responses on unchanged and counts what they charge."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.oracles.scripts import script

import robustok as rt

TEXT = "the rest is there"


@pytest.fixture(scope="module")
def example() -> Any:
    return script("examples/billing_audit.py")


@pytest.fixture(scope="module")
def vocab() -> rt.Vocabulary:
    return rt.Vocabulary.load("demo")


def audited(example: Any, vocab: rt.Vocabulary, chunks: list[bytes], request: Any) -> Any:
    """The counters after one response, which must come through as it was sent."""

    async def server(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number, chunk in enumerate(chunks):
            more = number + 1 < len(chunks)
            await send({"type": "http.response.body", "body": chunk, "more_body": more})

    app = example.BillingAudit(server, vocab)
    sent: list[bytes] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": json.dumps(request).encode()}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    asyncio.run(app({"type": "http", "method": "POST"}, receive, send))
    assert sent == [b"", *chunks]
    return app.counts


def completion(text: str, charged: int) -> bytes:
    usage = {"prompt_tokens": 3, "completion_tokens": charged}
    return json.dumps({"choices": [{"index": 0, "text": text}], "usage": usage}).encode()


def test_charged_tokens_are_compared_with_canonical_ones(example, vocab):
    size = len(vocab.encode(TEXT))
    for charged, over in ((size, 0), (size + 1, 0), (size + 2, 1)):
        counts = audited(example, vocab, [completion(TEXT, charged)], {"prompt": ["the", [5]]})
        assert counts["charged completion"] == charged
        assert counts["canonical completion"] == size
        assert counts["charged prompt"] == 3
        assert counts["canonical prompt"] == len(vocab.encode("the"))
        assert counts["overcharged"] == over


def test_a_stream_is_passed_on_and_audited(example, vocab):
    deltas = ["the ", "rest", " is"]
    events: list[Any] = [{"choices": [{"index": 0, "text": d}]} for d in deltas]
    events.append({"choices": [], "usage": {"completion_tokens": 30, "prompt_tokens": 1}})
    lines = [f"data: {json.dumps(e)}\n\n".encode() for e in events] + [b"data: [DONE]\n\n"]
    chunks = [part for line in lines for part in (line[:9], line[9:])]
    counts = audited(example, vocab, chunks, {"prompt": "the", "stream": True})
    assert counts["canonical completion"] == len(vocab.encode("the rest is"))
    assert counts["overcharged"] == 1


def test_what_cannot_be_audited_is_counted(example, vocab, monkeypatch):
    monkeypatch.setattr(example, "MAX_AUDITED", 500)
    tool = {"choices": [{"message": {"tool_calls": [{}]}}], "usage": {"completion_tokens": 1}}
    index = {"choices": [{"index": [], "text": "x"}], "usage": {"completion_tokens": 9}}
    odd = (tool, index, {"choices": []}, {"choices": 1}, [1])
    bodies = [json.dumps(v).encode() for v in odd]
    for body in (*bodies, b"<html>", completion("x" * 600, 3)):
        assert audited(example, vocab, [body], {"prompt": "the"})["unaudited"] == 1, body


def test_the_example_finds_the_greedy_server(example, capsys):
    counts = example.main()
    assert counts["overcharged"] == 1 and counts["charged completion"] > 43
    assert f"{counts['charged completion']:>6} charged completion" in capsys.readouterr().out
