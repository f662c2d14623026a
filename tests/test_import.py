"""Importing robustok loads no deep-learning library, and this test can tell."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "transformers", "peft", "datasets", "matplotlib", "pydantic", "rich", "typer")


def loaded_after(statement: str) -> set[str]:
    script = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_robustok_loads_nothing_heavy() -> None:
    assert loaded_after("import robustok").isdisjoint(HEAVY)


def test_importing_robustok_prints_nothing_and_leaves_no_handlers() -> None:
    script = "import logging, robustok\nassert not logging.getLogger().handlers"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == done.stderr == b""


def test_the_test_above_can_fail() -> None:
    assert "torch" in loaded_after("import robustok, torch")


def test_the_command_starts_without_torch() -> None:
    """`robustok[cli,study,report]` lists studies where no deep-learning library is installed."""
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; "
        "sys.argv = ['robustok', 'study', 'list']; from robustok.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "quick" in done.stdout
