"""Inspect's task, against stubs of the interface that it documents."""

from __future__ import annotations

import asyncio
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.models import save_tiny_models
from tests.oracles.scripts import script

from robustok.attack import attack

TEXT = "happen, glad"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    save_tiny_models(folder, "model")
    row = {"query": TEXT, "choices": [" up", " rain"], "label": 0}
    (folder / "items.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def module(name: str, **names: Any) -> Any:
    module = types.ModuleType(name)
    vars(module).update(names)
    return module


class Record(types.SimpleNamespace):
    """Keeps its arguments."""

    @classmethod
    def from_content(cls, model: str, content: str) -> Record:
        return cls(model=model, completion=content)


@pytest.fixture
def inspect(monkeypatch: pytest.MonkeyPatch) -> Any:
    def plain(function: Any) -> Any:
        return function

    stubs = {
        "inspect_ai": module("inspect_ai", Task=Record, task=plain),
        "inspect_ai.dataset": module(
            "inspect_ai.dataset", Sample=Record, MemoryDataset=lambda samples: samples
        ),
        "inspect_ai.model": module("inspect_ai.model", ModelOutput=Record),
        "inspect_ai.scorer": module(
            "inspect_ai.scorer", Score=Record, accuracy=lambda: "accuracy",
            stderr=lambda: "stderr", scorer=lambda metrics: plain,
        ),
        "inspect_ai.solver": module("inspect_ai.solver", solver=plain),
    }  # fmt: skip
    for name, stub in stubs.items():
        monkeypatch.setitem(sys.modules, name, stub)
    return script("examples/inspect_task.py")


def test_inspect_scores_the_option_chosen_under_attack(inspect: Any, folder: Path) -> None:
    task = inspect.robust_accuracy(str(folder / "model"), str(folder / "items.jsonl"), 40)
    (sample,) = task.dataset
    assert (sample.input, sample.target) == (TEXT, " up")
    state = types.SimpleNamespace(
        input_text=sample.input, metadata=dict(sample.metadata), output=None,
        choices=[types.SimpleNamespace(value=choice) for choice in sample.choices],
    )  # fmt: skip
    state = asyncio.run(task.solver(state, None))
    score = asyncio.run(task.scorer(state, types.SimpleNamespace(text=sample.target)))
    model, vocab = inspect._loaded(str(folder / "model"))
    alone = attack(model, vocab, TEXT, [" up", " rain"], 0, restarts=1000, max_scored=40, seed=0)
    assert state.metadata["ids"] == alone.ids.tolist()
    assert score.value == ("I" if alone.success else "C")
    assert state.output.completion == [" up", " rain"][int(np.argmax(alone.log_probs))]


def test_inspect_reads_paths_as_the_shell_that_started_it(
    inspect: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWD", str(folder))
    monkeypatch.chdir(tmp_path)  # the folder of the task's file, where Inspect runs it
    (sample,) = inspect.robust_accuracy("model", "items.jsonl").dataset
    assert sample.input == TEXT
    assert inspect._resolved("owner/name") == "owner/name"
