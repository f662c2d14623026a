"""Prompts in the JSON body of a request: where ids are, and the body with other ids.

Fields are looked up by name at any depth, so that the routes of vLLM, SGLang and other
OpenAI-compatible servers are covered without a list of routes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from robustok.integrations.serving.prompts import Refused, as_ids

# `prompt` of /v1/completions, `input` of /v1/embeddings, `input_ids` of SGLang's /generate,
# `token_ids` of vLLM's /inference/v1/generate, and ids given for a message of a chat.
FIELDS = ("prompt", "prompt_token_ids", "input", "input_ids", "token_ids", "prompt_ids", "content")


@dataclass
class RequestBody:
    """A parsed body and its prompts.

    ``ids`` are (container, key, sequence); ``texts`` are the prompts of /v1/completions that are
    text.
    """

    value: Any
    ids: list[tuple[Any, Any, list[Any]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def replaced(self, sequences: list[list[int]]) -> bytes:
        """The body with other ids, as JSON."""
        for (container, key, _), sequence in zip(self.ids, sequences, strict=True):
            container[key] = sequence
        return json.dumps(self.value, ensure_ascii=False).encode()


def read_body(raw: bytes, strict: bool) -> RequestBody | None:
    """The prompts of a body; None where it is no JSON object and ``strict`` is false.

    Raises Refused for a body that is not JSON where ``strict`` is true, for a key that occurs twice
    (servers disagree on which one counts), and for ids mixed with other values.
    """
    twice: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            keys = [key for key, _ in pairs]
            twice.extend(key for key in value if keys.count(key) > 1)
        return value

    try:
        value = json.loads(raw, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        if not strict:
            return None
        raise Refused("not-json", "the body is not JSON") from None
    if twice:
        raise Refused("duplicate-key", f"the body has the key '{twice[0][:60]}' twice")
    body = RequestBody(value)
    for container, name in _fields(value):
        _collect(body, container, name)
    if isinstance(value, dict):
        prompt = value.get("prompt")
        texts = prompt if isinstance(prompt, list) else [prompt]
        body.texts = [text for text in texts if isinstance(text, str)]
    return body


def _fields(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Each object that has a field of :data:`FIELDS`, with the field's name."""
    open_values = [value]
    while open_values:
        current = open_values.pop()
        if isinstance(current, dict):
            for name, inner in current.items():
                if name in FIELDS:
                    yield current, name
                if isinstance(inner, (dict, list)):
                    open_values.append(inner)
        elif isinstance(current, list):
            open_values += [inner for inner in current if isinstance(inner, (dict, list))]


def _collect(body: RequestBody, container: dict[str, Any], name: str) -> None:
    value = container[name]
    ids = as_ids(value)
    if ids is not None:
        body.ids.append((container, name, _integers(name, ids)))
        return
    if not isinstance(value, list):
        return
    batch = [as_ids(inner) if inner != [] else [] for inner in value]
    if any(isinstance(inner, list) for inner in value):
        for number, inner in enumerate(batch):
            if inner is None:
                raise Refused("mixed", f"'{name}' holds lists of ids and other values")
            body.ids.append((value, number, _integers(name, inner)))


def _integers(name: str, values: list[Any]) -> list[int]:
    """Integers; a float such as 83.0 is one, since servers accept it."""
    for value in values:
        whole = isinstance(value, float) and value.is_integer()
        if not whole and type(value) is not int:
            raise Refused(
                "not-ids", f"'{name}' must be a list of integers, a text, or lists of them"
            )
    return [int(value) for value in values]
