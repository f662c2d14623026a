"""The fuzzer of request bodies finds nothing, and finds each hole that is put into the guard."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fuzz import bodies as fuzz

from robustok.integrations import asgi, serving


def findings(calls: int) -> int:
    count = 0
    for number in range(calls):
        try:
            fuzz.call(1, number)
        except AssertionError:
            count += 1
    return count


def test_nothing_reaches_the_application_unjudged() -> None:
    assert findings(1_000) == 0
    outcomes = [fuzz.call(1, number) for number in range(300)]
    assert 20 < outcomes.count("refused") < 280


@pytest.mark.parametrize(
    "hole", ["digits", "numbers", "doubled keys", "label", "top", "compressed"]
)
def test_a_hole_is_found(hole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if hole == "digits":
        monkeypatch.setattr(serving, "_can_be_integers", lambda values: False)
    elif hole == "numbers":
        monkeypatch.setattr(serving, "_NUMBERS", set())
    elif hole == "doubled keys":
        monkeypatch.setattr(serving, "_unique", dict)
    elif hole == "label":
        monkeypatch.setattr(fuzz, "TYPES", (b"multipart/form-data",))
        monkeypatch.setattr(asgi.GuardMiddleware, "_read", _by_label)
    elif hole == "top":
        prompts = serving._prompts
        monkeypatch.setattr(
            serving, "_prompts",
            lambda body, *rest: prompts(body if isinstance(body, dict) else 0, *rest),
        )  # fmt: skip
    else:
        monkeypatch.setattr(asgi, "_header", lambda scope, name: [b"multipart/form-data"]
                            if name == b"content-type" else [])  # fmt: skip
    assert findings(3_000) > 0


def _by_label(self: Any, scope: Any, raw: bytes) -> Any:
    """Judges what begins like an object within sixteen bytes, or is called JSON."""
    kind = dict(scope["headers"]).get(b"content-type", b"")
    if b"json" not in kind and raw[:16].lstrip()[:1] != b"{":
        return None
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return self.prompts.read(raw)
