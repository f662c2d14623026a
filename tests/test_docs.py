"""The site builds without a warning, its pictures are drawn by code, and examples are true."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import robustok as rt

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
    lattice = diagram("lattice")
    text = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    assert "these thirteen edges the word has fifteen tokenizations" in text
    assert (len(lattice.edges()), lattice.paths()) == (13, 15)
    assert drawn(lattice, tmp_path)


def test_the_biased_splits_of_the_design_notes_are_those_of_the_picture(tmp_path: Path) -> None:
    bias = diagram("bias")
    text = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    assert "a·b·cd with probability 1/2, ab·c·d with\n1/4" in text
    assert (str(bias.reached(2)["a b cd"]), str(bias.reached(2)["ab c d"])) == ("1/2", "1/4")
    assert sum(bias.reached(2).values()) == 1
    assert drawn(bias, tmp_path)


def test_the_weight_of_the_design_notes_aims_at_k(tmp_path: Path) -> None:
    boltzmann = diagram("boltzmann")
    assert boltzmann.mean(boltzmann.aimed(boltzmann.K)) == pytest.approx(boltzmann.K)
    assert drawn(boltzmann, tmp_path)


def diagram(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/diagrams/{name}.py")
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def drawn(made: Any, folder: Path) -> bool:
    made.draw(folder / "picture.svg")
    return (folder / "picture.svg").read_bytes().startswith(b"<?xml")


REFERENCE = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
ROOMS = (
    "guard", "models", "training", "scoring", "evaluation", "tasks", "analysis", "corpus", "study",
    "report", "play",
)  # fmt: skip
NOT_RUN = {"robustok.play.serve"}  # it serves until interrupted


def test_every_public_name_is_in_the_reference() -> None:
    shown = {id(named(name)) for name in reference()}
    for room in (rt, *(importlib.import_module(f"robustok.{room}") for room in ROOMS)):
        text = Path(str(room.__file__)).read_text(encoding="utf-8")
        for name in getattr(room, "__all__", re.findall(r"import \w+ as (\w+)", text)):
            thing = getattr(room, name)
            assert not callable(thing) or id(thing) in shown, f"{room.__name__}.{name}"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"^::: (\S+)", REFERENCE, re.M)) - NOT_RUN))
def test_every_name_of_the_reference_has_an_example_that_runs(name: str) -> None:
    try:
        said = inspect.getdoc(named(name)) or ""
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")
    examples = doctest.DocTestParser().get_examples(said)
    assert any(not e.options.get(doctest.SKIP) for e in examples)


def reference() -> Iterator[str]:
    """The names on the page, but those of libraries that are not here."""
    for name in re.findall(r"^::: (\S+)", REFERENCE, re.M):
        with contextlib.suppress(ModuleNotFoundError):
            named(name)
            yield name


def named(name: str) -> Any:
    module, _, thing = name.rpartition(".")
    return getattr(importlib.import_module(module), thing)


def modules() -> Iterator[types.ModuleType]:
    """All modules with examples; reports come after the studies that they report on."""
    names = [m.name for m in pkgutil.walk_packages(rt.__path__, "robustok.")]
    for name in sorted(names, key=lambda name: (".report" in name, name)):
        # Importing the entry point would run it; kernels have no examples.
        if "__main__" not in name and ".kernels" not in name:
            try:
                yield importlib.import_module(name)
            except ModuleNotFoundError as error:
                assert not str(error.name).startswith("robustok"), error


@pytest.mark.filterwarnings("ignore")
def test_the_examples_of_the_docstrings_give_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = re.search(r"```python\n(.*?)```", REFERENCE, re.DOTALL)
    assert found
    start = compile(found[1], "reference.md", "exec")
    tried, wrong = 0, []
    runner = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS)
    for module in modules():
        for example in doctest.DocTestFinder(exclude_empty=True).find(module):
            if not example.examples:
                continue
            exec(start, names := {})  # anew each time: some examples train the model
            example.globs = names | vars(module) | names
            said: list[str] = []
            result = runner.run(example, out=said.append)
            tried += result.attempted
            if result.failed:
                wrong.append("".join(said))
    assert not wrong, "\n".join(wrong)
    assert tried > 300
