"""The site builds without a warning, its pictures are drawn by code, and examples are true."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import os
import pkgutil
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robustok as rt
from robustok.models import small_model, train_tokenizer

ROOT = Path(__file__).parents[1]
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def test_the_site_builds_with_warnings_as_errors(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for page in ("index", "concepts/index", "reference/index", "results/index"):
        assert (tmp_path / f"{page}.html").is_file()
    assert "robustok.sampler" in (tmp_path / "reference/index.html").read_text()


def test_the_lattice_of_the_concepts_is_the_one_of_the_picture(tmp_path: Path) -> None:
    place = ROOT / "docs/diagrams/lattice.py"
    spec = importlib.util.spec_from_file_location("lattice_diagram", place)
    assert spec and spec.loader
    diagram: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(diagram)
    text = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    assert "these thirteen edges the word has fifteen tokenizations" in text
    assert (len(diagram.edges()), diagram.paths()) == (13, 15)
    diagram.draw(tmp_path / "lattice.svg")
    assert (tmp_path / "lattice.svg").read_bytes().startswith(b"<?xml")


def modules() -> Iterator[types.ModuleType]:
    for found in pkgutil.walk_packages(rt.__path__, "robustok."):
        # Importing the entry point would run it; kernels have no examples.
        if "__main__" not in found.name and ".kernels" not in found.name:
            try:
                yield importlib.import_module(found.name)
            except ModuleNotFoundError as error:
                assert not str(error.name).startswith("robustok"), error


@pytest.mark.filterwarnings("ignore")
def test_the_examples_of_the_docstrings_give_what_they_say() -> None:
    vocab = rt.Vocabulary.load(train_tokenizer(["hello world the cat"] * 9, 290))
    model = small_model(vocab.size, "quick", seed=0)
    tried, wrong = 0, []
    runner = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS)
    for module in modules():
        names = {"rt": rt, "np": np, "vocab": vocab, "model": model} | vars(module)
        for example in doctest.DocTestFinder(exclude_empty=True).find(module, globs=names):
            said: list[str] = []
            found = runner.run(example, out=said.append)
            tried += found.attempted
            if found.failed:
                wrong.append("".join(said))
    assert not wrong, "\n".join(wrong)
    assert tried > 60
