"""The wheel holds what a user needs, and its version is the package's."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import robustok as rt

ROOT = Path(__file__).parents[1]


def test_the_wheel_has_studies_and_pages_and_asks_for_no_torch(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (place,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(place).decode())
    studies = {f"robustok/studies/{path.name}" for path in (ROOT / "studies").glob("*.yaml")}
    templates = (ROOT / "src/robustok/report/templates").glob("*.jinja")
    pages = {f"robustok/report/templates/{path.name}" for path in templates}
    assert studies and pages
    assert studies | pages | {"robustok/play/page.html", "robustok/py.typed"} <= names
    assert metadata["Version"] == rt.__version__
    plain = [need for need in metadata.get_all("Requires-Dist") or [] if "extra ==" not in need]
    assert sorted(need.split(">")[0] for need in plain) == [
        "filelock",
        "gigatoken",
        "numba",
        "numpy",
        "tokenizers",
    ]
