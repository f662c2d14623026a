"""What the studies read from the hub: pinned, without loading scripts, and still there."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from robustok.cli.app import application
from robustok.study.cells.inputs import open_on_hub
from robustok.study.planner import hub_names
from robustok.tasks import HUB

NAMES = hub_names()
WITH_SCRIPT = ("ybisk/piqa", "allenai/social_i_qa")  # datasets 5 refuses them
UNPINNED = ("toksuite",)  # whose commit is not known here


def test_all_kinds_are_named() -> None:
    assert {kind for kind, _ in NAMES} == {"benchmark", "model", "text", "tokenizer"}
    assert "Qwen/Qwen3-0.6B" in {name.partition("@")[0] for _, name in NAMES}


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_every_name_has_its_commit(kind: str, name: str) -> None:
    on_hub = HUB[name].name if kind == "benchmark" else name
    if name not in UNPINNED:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", on_hub)
    assert on_hub.partition("@")[0] not in WITH_SCRIPT


def test_a_failure_is_reported_with_the_studies_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = {("text", "a/b"): ["one"], ("model", "c/d"): ["two"]}
    monkeypatch.setattr("robustok.study.planner.hub_names", lambda: entries)
    monkeypatch.setattr(
        "robustok.study.cells.inputs.open_on_hub",
        lambda kind, _: "gone" if kind == "text" else None,
    )
    result = CliRunner().invoke(application(), ["doctor", "--hub"])
    assert result.exit_code == 1
    assert "FAILED  text       a/b" in result.output
    assert "gone (for one)" in result.output
    assert "ok      model      c/d" in result.output


def test_a_row_of_a_text_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    rows: list[dict[str, Any]] = [{"text": ""}]
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.Dataset.from_list(rows))
    name = "a/b@" + "0" * 40
    assert "no text" in (open_on_hub("text", name) or "")
    rows[0]["text"] = "words"
    assert open_on_hub("text", name) is None


@pytest.mark.network
@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_the_hub_has_it(kind: str, name: str) -> None:
    if os.environ.get("HF_HUB_OFFLINE", "1") != "0":
        pytest.skip("asks the model hub: set HF_HUB_OFFLINE=0 to run it")
    problem = open_on_hub(kind, name)
    if problem and "cannot be reached" in problem:
        pytest.skip(problem)
    assert problem is None
