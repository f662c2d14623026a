"""The notebooks run from top to bottom, without a network, and draw their pictures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest

from robustok.cli.app import run

mpl.use("Agg")

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("tokenizations", "robust_training", "how_robust")

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries among themselves


def in_process(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
    """The command line in this process, where libraries are imported already."""
    assert command[:3] == [sys.executable, "-m", "robustok"]
    return subprocess.CompletedProcess(command, run(command[3:]), "", "")


def cells(name: str) -> list[dict]:
    return json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("trl", reason="trl is not installed")
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", in_process)
    drawn: list[int] = []
    monkeypatch.setattr(plt, "show", lambda: drawn.extend(plt.get_fignums()))
    scope: dict = {"__name__": "__main__"}
    for number, cell in enumerate(cells(name)):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}[{number}]", "exec"), scope)
    plt.close("all")
    assert drawn and capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_with_its_pictures(name: str) -> None:
    outputs = [output for cell in cells(name) for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output["output_type"] == "error" for output in outputs)
