"""The fuzzer of request bodies finds nothing, and finds each hole that is put into the guard."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fuzz import bodies as fuzz

from robustok.integrations import asgi, bodies


def finds(number: int) -> bool:
    try:
        fuzz.call(1, number)
    except AssertionError:
        return True
    return False


def test_nothing_reaches_the_application_unjudged() -> None:
    outcomes = [fuzz.call(1, number) for number in range(700)]
    assert 50 < outcomes.count("refused") < 650


@pytest.mark.parametrize(
    "hole", ["digits", "numbers", "doubled keys", "case", "label", "depth", "compressed"]
)
def test_a_hole_is_found(hole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if hole == "digits":
        monkeypatch.setattr(bodies, "_can_be_integers", lambda values: False)
    elif hole == "numbers":
        monkeypatch.setattr(bodies, "_NUMBERS", set())
    elif hole == "doubled keys":
        monkeypatch.setattr(bodies._Hooks, "read_object", lambda hooks, pairs: dict(pairs))
    elif hole == "case":
        monkeypatch.setattr(bodies._IdReader, "_check_case", lambda *_: None)
    elif hole == "label":
        monkeypatch.setattr(fuzz, "TYPES", (b"multipart/form-data",))
        monkeypatch.setattr(asgi.GuardMiddleware, "_admitted", _by_label)
    elif hole == "depth":
        monkeypatch.setattr(bodies._IdReader, "_read_list", _flat)
    else:
        monkeypatch.setattr(asgi, "_header", lambda scope, name: [b"multipart/form-data"]
                            if name == b"content-type" else [])  # fmt: skip
    assert any(finds(number) for number in range(3_000))


_read_list = bodies._IdReader._read_list


def _flat(self: Any, value: Any, at: Any) -> bool:
    """Reads no list inside a list."""
    return False if at.is_nested else _read_list(self, value, at)


def _by_label(self: Any, scope: Any, raw: bytes) -> Any:
    """Judges what begins like an object within sixteen bytes, or is called JSON."""
    kind = dict(scope["headers"]).get(b"content-type", b"")
    if b"json" not in kind and raw[:16].lstrip()[:1] != b"{":
        return None
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return self.prompts.admit_body(raw, scope["path"])
