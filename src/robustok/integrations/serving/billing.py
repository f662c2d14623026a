"""Compares the tokens that a response charges with the canonical tokens of its text.

A server that charges by the token can report a longer tokenization of a text than the one that its
tokenizer gives, and the user cannot tell ("Is Your LLM Overcharging You?", arXiv 2505.21627). The
canonical count depends on the text alone.
"""

from __future__ import annotations

import json
from typing import Any

from robustok.integrations.serving.counters import Counters
from robustok.vocabulary import Vocabulary

MAX_AUDITED = 1 << 22  # bytes of a response that are kept for the audit


class ResponseAudit:
    """Adds up one response as it passes, JSON or a stream of events.

    Args:
        vocab: the vocabulary of the served model.
        counters: where charged and canonical tokens are counted.
        texts: prompts that were given as text; their canonical tokens are compared with
            ``usage.prompt_tokens``.
        prompt_ids: canonical ids of the prompts that were given as ids.

    A choice that ends by itself may charge one token more than its text has, the end token. At most
    4 MiB of a response are kept; a longer one, and one without ``usage`` or with other content than
    text, counts as ``unaudited``.
    """

    def __init__(
        self, vocab: Vocabulary, counters: Counters, texts: list[str], prompt_ids: int
    ) -> None:
        self.vocab, self.counters = vocab, counters
        self.texts, self.prompt_ids = texts, prompt_ids
        self._kept = bytearray()
        self._too_long = False

    def add(self, body: bytes) -> None:
        """Take the next bytes of the response.

        Args:
            body: bytes as they are sent.
        """
        self._too_long |= len(self._kept) + len(body) > MAX_AUDITED
        if not self._too_long:
            self._kept += body

    def finish(self) -> None:
        """Count what the whole response charged."""
        events = [] if self._too_long else _events(bytes(self._kept))
        texts: dict[int, str] = {}
        usage: dict[str, Any] = {}
        for event in events:
            usage = event["usage"] if isinstance(event.get("usage"), dict) else usage
            for choice in event.get("choices") or []:
                text = _text_of(choice)
                if text is None:
                    self.counters.add("unaudited")
                    return
                index = choice.get("index", 0)
                texts[index] = texts.get(index, "") + text
        charged = usage.get("completion_tokens")
        if type(charged) is not int or not texts:
            self.counters.add("unaudited")
            return
        self._count(charged, usage.get("prompt_tokens"), list(texts.values()))

    def _count(self, charged: int, charged_prompt: Any, texts: list[str]) -> None:
        canonical = self._tokens(texts)
        self.counters.add("charged_tokens", "completion", charged)
        self.counters.add("canonical_tokens", "completion", canonical)
        if charged > canonical + len(texts):
            self.counters.add("overcharged")
        canonical_prompt = self._tokens(self.texts) + self.prompt_ids
        if type(charged_prompt) is int and canonical_prompt:
            self.counters.add("charged_tokens", "prompt", charged_prompt)
            self.counters.add("canonical_tokens", "prompt", canonical_prompt)

    def _tokens(self, texts: list[str]) -> int:
        # A lone surrogate, which JSON can hold, is no text.
        encoded = [text.encode("utf8", "replace") for text in texts]
        return len(self.vocab.encode_batch(encoded).values)


def _events(body: bytes) -> list[dict[str, Any]]:
    """The JSON objects of a response: one, or one for each event of a stream."""
    parts = [body]
    if body.lstrip()[:5] == b"data:":
        lines = (line.strip() for line in body.split(b"\n"))
        parts = [line[5:] for line in lines if line[:5] == b"data:"]
    events = []
    for part in parts:
        try:
            event = json.loads(part)
        except (ValueError, RecursionError):
            continue  # "[DONE]", or a response that is not JSON
        if isinstance(event, dict):
            events.append(event)
    return events


def _text_of(choice: Any) -> str | None:
    """The text of a choice or of a part of one; None where it has content that is not text."""
    if not isinstance(choice, dict):
        return None
    if "text" in choice:
        return choice["text"] if isinstance(choice["text"], str) else None
    message = choice.get("message") or choice.get("delta") or {}
    if not isinstance(message, dict):
        return None
    hidden = ("tool_calls", "reasoning_content", "reasoning", "function_call", "audio")
    if any(message.get(key) for key in hidden):
        return None
    content = message.get("content") or ""
    return content if isinstance(content, str) else None
