"""Attack settings and their string form, which results hold."""

from __future__ import annotations

from typing import Any

import pytest

from robustok import RobustokError
from robustok.attack.settings import AttackSettings


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "adversarial(distances=(2), start=canonical, steps=10)"),
        (
            {"distances": (2, 4), "start": "uniform-k(alpha=0.5)", "objective": "log-probability"},
            "adversarial(distances=(2, 4), start=uniform-k(alpha=0.5), steps=10, "
            "objective=log-probability)",
        ),
        (
            {"search": "random", "max_scored": 7},
            "random-search(distances=(2), start=canonical, steps=10, max_scored=7)",
        ),
        (
            {"beam": 2, "restarts": 3, "max_neighbors": 9, "steps": 0},
            "adversarial(distances=(2), start=canonical, steps=0, max_neighbors=9, beam=2, "
            "restarts=3)",
        ),
        (
            {"stop_when_wrong": True},
            "adversarial(distances=(2), start=canonical, steps=10, stop_when_wrong=True)",
        ),
    ],
)
def test_strings_are_read_back(settings: dict[str, Any], text: str) -> None:
    assert str(AttackSettings(**settings)) == text
    assert AttackSettings.parse(text) == AttackSettings(**settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("uniform", "cannot read the attack 'uniform': write adversarial"),
        ("adversarial(stepps=1)", "did you mean 'steps'"),
        ("adversarial(steps=few)", "whole number"),
        ("adversarial(steps=)", "whole number"),
        ("adversarial(stop_when_wrong=1)", "give True or False"),
        ("random-search", "max_scored"),
    ],
)
def test_other_strings_are_refused(text: str, message: str) -> None:
    with pytest.raises(RobustokError, match=message):
        AttackSettings.parse(text)
