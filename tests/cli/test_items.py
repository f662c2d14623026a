"""One --items file gives every command the same questions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Shell

from robustok.attack import Prompt
from robustok.cli.app import run
from robustok.errors import RobustokError
from robustok.tasks import Item, write_items

SEED = ["--seed", "0"]
RECIPE = ["-s", "uniform", "--steps", "1", "--batch-size", "1", "--learning-rate", "1e-3"]
COMMANDS: dict[str, tuple[str, list[str]]] = {
    "evaluate": ("robustok.evaluation.evaluate", []),
    "few-shot": ("robustok.evaluation.evaluate", ["-k", "1"]),
    "attack": ("robustok.attack.engine.attack_questions", ["-s", "adversarial"]),
    "finetune": ("robustok.training.finetune", RECIPE),
}
COPA = {"id": "c1", "query": "It rained.", "question": "effect", "label": 0,
        "choices": ["It is wet.", "It is dry."]}  # fmt: skip
BLIMP = {"id": "b1", "query": "", "UID": "island", "choices": ["He runs.", "He run."], "label": 0}


def items_of(
    command: str, model: Path, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    """The items, or their prompts, that a command hands to its library function."""
    target, options = COMMANDS[command]
    received: list[Any] = []

    def record(*args: Any, **settings: Any) -> Any:
        received.extend(next(arg for arg in args if isinstance(arg, list)))
        raise RobustokError("recorded")

    monkeypatch.setattr(target, record)
    if command == "finetune":
        options = [*options, "--out", str(tmp_path / "out")]
    name = command if command == "finetune" else "evaluate"
    assert run([name, str(model), "--items", str(path), *SEED, *options]) == 2
    return received


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_words_a_benchmark_and_keeps_what_write_items_wrote(
    command: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "copa.jsonl"
    path.write_text(json.dumps(COPA) + "\n" + json.dumps({**COPA, "id": "c2"}) + "\n")
    first, *_ = items_of(command, model, path, tmp_path, monkeypatch)
    kind = Prompt.of_item if command == "attack" else replace  # of the list that is handed over
    assert first == kind(Item("c1", "It rained. effect?", (" It is wet.", " It is dry."), 0))
    item = Item("k", 'Spell out the word " to ". Answer:', ("t o", "o t"), 0, "spelling")
    write_items(path, [item, replace(item, key="k2")])
    first, *_ = items_of(command, model, path, tmp_path, monkeypatch)
    assert first == kind(item)


@pytest.mark.parametrize("command", ["attack", "finetune"])
def test_a_command_that_needs_questions_refuses_sentences(
    command: str, model: Path, tmp_path: Path, shell: Shell
) -> None:
    path = tmp_path / "blimp.jsonl"
    path.write_text(json.dumps(BLIMP) + "\n")
    options = COMMANDS[command][1]
    if command == "finetune":
        options = [*options, "--out", str(tmp_path / "out")]
    assert "'b1'" in shell.fails(
        "finetune" if command == "finetune" else "evaluate",
        str(model),
        "--items",
        str(path),
        *SEED,
        *options,
    )


def test_sentences_are_evaluated(model: Path, tmp_path: Path, shell: Shell) -> None:
    path = tmp_path / "blimp.jsonl"
    path.write_text(json.dumps(BLIMP) + "\n")
    assert shell.rows("evaluate", str(model), "--items", str(path), *SEED)[0]["n"] == 1
