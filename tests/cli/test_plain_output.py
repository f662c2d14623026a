"""Every command as a user runs it: no escape codes in a pipe, no colors with NO_COLOR, no warnings.

All commands run in one process whose output is a real pipe, or a real terminal.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cli.conftest import save_model

from robustok.cli.app import COMMANDS

ON_ITEMS = "--items m/items.jsonl --seed 0"
RECIPE = "--steps 2 --batch-size 2 --learning-rate 1e-3"
LINES = {
    "sample": "sample street -t m/tokenizer.json -s uniform --seed 0",
    "count": "count street -t m/tokenizer.json",
    "inspect": "inspect street -t m/tokenizer.json --seed 0",
    "doctor": "doctor",
    "guard": "guard 1,2,3 -t m/tokenizer.json",
    "audit": "audit ids.jsonl -t m/tokenizer.json",
    "evaluate": f"evaluate m {ON_ITEMS} -s canonical -s uniform --draws 2 --out rows",
    "report": "study report rows",
    "finetune": f"finetune m {ON_ITEMS} --out tuned -s uniform {RECIPE}",
    "finetune --lora": f"finetune m {ON_ITEMS} --out low -s uniform --lora {RECIPE}",
    "evaluate an adapter": f"evaluate low {ON_ITEMS} -s canonical",
    "few-shot": f"evaluate m {ON_ITEMS} -s canonical -k 1",
    "attack": f"evaluate m {ON_ITEMS} -s adversarial(steps=1)",
    "red-team": "red-team m --objective refusal --text street --seed 0",
    "study list": "study list",
    "study plan": "study plan quick",
    "an error": f"evaluate nowhere/at {ON_ITEMS}",
    "a usage error": "evaluate --unknown",
} | {f"{name} --help": f"{name} --help" for name in COMMANDS}
PROGRAM = """
import json, sys
from robustok.cli.app import run
for name, line in json.loads(sys.argv[1]).items():
    for stream in (sys.stdout, sys.stderr):
        print("=====", name, file=stream, flush=True)
    run(line.split())
"""
TERMINAL = "import pty, sys; pty.spawn(sys.argv[1:])"
COLOR = re.compile(r"\x1b\[(?:\d+;)*(?:[349]\d|10[0-7])(?:;\d+)*m")
# What a slow machine adds: that kernels are compiled, and progress after some seconds.
SLOW = re.compile(r"robustok: compiling .*\n|\r.*\r|.*: \d+\.\d% of .*\n")
Outputs = dict[str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    save_model(folder / "m")
    (folder / "ids.jsonl").write_text("[1, 2, 3]\n")
    return folder


def outputs(
    folder: Path, lines: dict[str, str], prefix: Sequence[str] = (), **environment: str
) -> tuple[Outputs, Outputs]:
    """What each line prints on standard output and on standard error."""
    unset = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "PYTHONWARNINGS")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    kept |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*prefix, sys.executable, "-c", PROGRAM, json.dumps(lines)],
        cwd=folder, capture_output=True, text=True, timeout=500, env=kept | environment,
    )  # fmt: skip
    both = (done.stdout.replace("\r\n", "\n"), done.stderr)
    printed, errors = (
        dict(re.findall(r"===== (.*)\n((?:(?!=====).*\n?)*)", text)) for text in both
    )
    return printed, errors


@pytest.fixture(scope="module")
def piped(folder: Path) -> tuple[Outputs, Outputs]:
    return outputs(folder, LINES)


@pytest.mark.parametrize("name", LINES)
def test_a_pipe_gets_no_escape_codes_and_no_warnings(
    piped: tuple[Outputs, Outputs], name: str
) -> None:
    printed, errors = piped[0][name], SLOW.sub("", piped[1][name])
    assert "\x1b" not in printed + errors
    if "error" in name:
        assert errors.startswith("robustok: ") and errors.count("\n") == 1
    else:
        assert errors == "" and printed


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pty")
def test_no_color_removes_the_colors_of_a_terminal(folder: Path) -> None:
    prefix = [sys.executable, "-c", TERMINAL]
    names = ("sample", "inspect", "doctor", "guard", "audit", "evaluate", "study plan", "an error")
    lines = {name: LINES[name] for name in names}
    colored, _ = outputs(folder, {"sample": lines["sample"]}, prefix)
    plain, _ = outputs(folder, lines, prefix, NO_COLOR="1")
    assert COLOR.search(colored["sample"])
    assert list(plain) == list(lines)
    assert [name for name in names if COLOR.search(plain[name])] == []
