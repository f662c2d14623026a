"""garak's plugins and Inspect's task, against stubs of the interfaces that those document."""

from __future__ import annotations

import asyncio
import json
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.models import save_tiny_models
from tests.oracles.scripts import script

from robustok import RobustokError
from robustok.attack import as_objective, attack, attack_prompt, greedy_answer, write_attacks

TEXT = "happen, glad"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    vocab = save_tiny_models(folder, "model")
    longest = as_objective(lambda rows: rows.lengths, name="length")
    attack = attack_prompt(vocab, TEXT, longest, steps=3, seed=0)
    write_attacks(folder / "attacks.jsonl", [replace(attack, prefix=[5], suffix=[6])])
    row = {"query": TEXT, "choices": [" up", " rain"], "label": 0}
    (folder / "items.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def module(name: str, **names: Any) -> Any:
    module = types.ModuleType(name)
    vars(module).update(names)
    return module


class Configurable:
    """Sets the parameters of a plugin from the stub configuration, as garak's own base does."""

    DEFAULT_PARAMS: dict[str, Any] = {}  # noqa: RUF012
    values: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, config_root: Any = None) -> None:
        for name, value in {**self.DEFAULT_PARAMS, **self.values}.items():
            setattr(self, name, value)


class Generator(Configurable):
    DEFAULT_PARAMS = {"max_tokens": 5}  # noqa: RUF012

    def __init__(self, name: str = "", config_root: Any = None) -> None:
        super().__init__(config_root)
        self.name = name


class Message:
    def __init__(self, text: str) -> None:
        self.text = text


class Conversation:
    def __init__(self, text: str) -> None:
        self.text = text

    def last_message(self) -> Message:
        return Message(self.text)


class PluginCache:
    """garak's table of plugins: its command line accepts no other names."""

    table: dict[str, dict[str, Any]] = {"probes": {}, "generators": {}, "detectors": {}}  # noqa: RUF012

    @staticmethod
    def instance() -> dict[str, dict[str, Any]]:
        return PluginCache.table

    @staticmethod
    def plugin_info(plugin: Any) -> dict[str, Any]:
        return {"active": getattr(plugin, "active", True)}


@pytest.fixture
def garak(monkeypatch: pytest.MonkeyPatch) -> Any:
    stubs = {
        "garak": module("garak", _config=None),
        "garak._plugins": module("garak._plugins", PluginCache=PluginCache),
        "garak.attempt": module("garak.attempt", Message=Message),
        "garak.detectors": module("garak.detectors"),
        "garak.detectors.base": module("garak.detectors.base", Detector=Configurable),
        "garak.generators": module("garak.generators"),
        "garak.generators.base": module("garak.generators.base", Generator=Generator),
        "garak.probes": module("garak.probes", Probe=Configurable),
    }
    for name, stub in stubs.items():
        monkeypatch.setitem(sys.modules, name, stub)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(stubs[parent], child, stub)
    for kind in ("probes", "generators", "detectors"):
        monkeypatch.setitem(sys.modules, f"garak.{kind}.robustok", module("unset"))
    plugins = script("examples/garak_plugins.py")
    plugins.register()
    return plugins


def test_garak_lists_the_plugins_and_heads_their_reports(garak: Any) -> None:
    """Its command line reads the names, its report the docstring of each module."""
    plugins = {"probes": "AttackedPrompts", "generators": "AttackedModel", "detectors": "Judged"}
    for kind, name in plugins.items():
        assert [*PluginCache.table[kind]] == [f"{kind}.robustok.{name}"]
        assert sys.modules[f"garak.{kind}.robustok"].__doc__ == getattr(garak, name).__doc__


def test_garak_answers_the_recorded_prompts_under_their_attacked_ids(
    garak: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"attacks": str(folder / "attacks.jsonl"), "judge": "math:isnan"}
    monkeypatch.setattr(Configurable, "values", settings)
    probe = sys.modules["garak.probes.robustok"].AttackedPrompts()
    generator = sys.modules["garak.generators.robustok"].AttackedModel(str(folder / "model"))
    assert probe.prompts == [TEXT]
    record = generator.records[TEXT]
    (output,) = generator._call_model(Conversation(TEXT))
    model, vocab = generator.model, generator.vocab
    attacked = greedy_answer(model, vocab, record.ids, prefix=[5], suffix=[6], max_new_tokens=5)
    assert output.text == attacked
    generator.canonical = True
    (control,) = generator._call_model(Conversation(TEXT))
    ids = vocab.encode(TEXT)
    assert control.text == greedy_answer(
        model, vocab, ids, prefix=[5], suffix=[6], max_new_tokens=5
    )
    (other,) = generator._call_model(Conversation("garden"))
    assert other.text == greedy_answer(model, vocab, vocab.encode("garden"), max_new_tokens=5)


def test_garak_s_detector_asks_the_judge(
    garak: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "judge_of_garak.py").write_text(
        "def glad(prompt, answer):\n    return 7 if 'glad' in answer else -1\n"
    )
    monkeypatch.setattr(Configurable, "values", {"judge": "judge_of_garak:glad"})
    detector = garak.Judged()
    outputs = [Message("so glad"), None, Message("no")]
    attempt = types.SimpleNamespace(prompt=Conversation(TEXT), outputs=outputs)
    assert detector.detect(attempt) == [1.0, None, 0.0]
    assert garak.Judged.__module__ == "garak.detectors.robustok"


def test_a_plugin_of_garak_without_its_file_is_one_line(
    garak: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Configurable, "values", {})
    with pytest.raises(RobustokError, match="name a file of attacks"):
        garak.AttackedPrompts()
    with pytest.raises(RobustokError, match="needs a judge"):
        garak.Judged().detect(None)


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
