"""Sentences as --items: which commands take them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Shell

BLIMP = {"id": "b1", "query": "", "UID": "island", "choices": ["He runs.", "He run."], "label": 0}


@pytest.mark.parametrize("command", ["evaluate -s adversarial", "finetune"])
def test_a_command_that_needs_questions_refuses_sentences(
    command: str, model: Path, tmp_path: Path, shell: Shell
) -> None:
    path = tmp_path / "blimp.jsonl"
    path.write_text(json.dumps(BLIMP) + "\n")
    recipe = "-s uniform --steps 1 --batch-size 1 --learning-rate 1e-3" * (command == "finetune")
    line = f"{command} {model} --items {path} --seed 0 {recipe} --out {tmp_path}/out"
    assert "'b1'" in shell.fails(line)


def test_sentences_are_evaluated(model: Path, tmp_path: Path, shell: Shell) -> None:
    path = tmp_path / "blimp.jsonl"
    path.write_text(json.dumps(BLIMP) + "\n")
    assert shell.rows("evaluate", str(model), "--items", str(path), "--seed", "0")[0]["n"] == 1
