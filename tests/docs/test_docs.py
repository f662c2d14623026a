"""The site builds without warnings, code draws its figures, and the examples are correct.

The blocks of the README run as typed in an empty folder, limits on a page are those of the code,
and public functions document every parameter.
"""

import contextlib
import copy
import doctest
import importlib
import inspect
import json
import math
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.oracles.scripts import ROOT, script

import robustok as rt
from robustok import checks, lattice
from robustok.cli.app import run
from robustok.guard import check, findings
from robustok.play import server
from robustok.runtime import inputs
from robustok.samplers import BUILT_IN, spec
from robustok.study import planner
from robustok.tokenizer import vocabulary

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def test_the_site_builds_with_warnings_as_errors(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="zensical is not installed")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    build = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "mkdocs.yml"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert build.returncode == 0, build.stdout + build.stderr
    for page in ("", "concepts/", "reference/", "reference/schemes/", "results/"):
        text = (tmp_path / f"build/site/{page}index.html").read_text(encoding="utf-8")
        assert "{{" not in text and ":::" not in text


def test_pages_of_the_reference_are_what_the_code_says() -> None:
    pytest.importorskip("griffe", reason="griffe is not installed")
    command = [sys.executable, str(ROOT / "docs/generate.py"), "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert check.returncode == 0, check.stderr


def test_the_lattice_of_the_concepts_is_the_one_of_the_picture(tmp_path: Path) -> None:
    lattice = diagram("lattice")
    text = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    assert "these thirteen edges the word has fifteen tokenizations" in text
    assert (len(lattice.edges()), lattice.paths()) == (13, 15)
    assert draws_svg(lattice, tmp_path)


def test_the_biased_splits_of_the_page_of_schemes_are_those_of_the_picture(tmp_path: Path) -> None:
    bias = diagram("bias")
    text = (ROOT / "docs/schemes.md").read_text(encoding="utf-8")
    assert "a·b·cd with probability 1/2, ab·c·d with\n1/4" in text
    assert (str(bias.reached(2)["a b cd"]), str(bias.reached(2)["ab c d"])) == ("1/2", "1/4")
    assert sum(bias.reached(2).values()) == 1
    assert draws_svg(bias, tmp_path)


def test_the_weight_of_the_picture_aims_at_k(tmp_path: Path) -> None:
    boltzmann = diagram("boltzmann")
    assert boltzmann.mean(boltzmann.aimed(boltzmann.K)) == pytest.approx(boltzmann.K)
    assert draws_svg(boltzmann, tmp_path)


def diagram(name: str) -> Any:
    return script(f"docs/diagrams/{name}.py")


def draws_svg(script: Any, folder: Path) -> bool:
    script.draw(folder / "picture.svg")
    return (folder / "picture.svg").read_bytes().startswith(b"<?xml")


REFERENCE = yaml.safe_load((ROOT / "docs/reference.yml").read_text(encoding="utf-8"))
PACKAGES = (
    "guard", "models", "training", "scoring", "evaluation", "attack", "tasks",
    "corpus", "study", "report", "play",
)  # fmt: skip
NOT_RUN = {"robustok.play.serve", "robustok.models.ServedModel"}  # they need a network


def test_every_public_name_is_in_the_reference() -> None:
    documented = {id(object_named(name)) for name in reference()}
    missing = []
    for package in (rt, *(importlib.import_module(f"robustok.{name}") for name in PACKAGES)):
        text = Path(str(package.__file__)).read_text(encoding="utf-8")
        for name in getattr(package, "__all__", re.findall(r"import \w+ as (\w+)", text)):
            value = getattr(package, name)
            if callable(value) and id(value) not in documented:
                missing.append(f"{package.__name__}.{name}")
    assert not missing


@pytest.mark.parametrize("scheme", BUILT_IN, ids=lambda scheme: scheme.name)
def test_every_scheme_is_exported_and_has_its_row(scheme: type[rt.Sampler]) -> None:
    assert getattr(rt, scheme.__name__, None) is scheme
    page = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{re.escape(scheme.name)}[(`]", page, re.M)


def test_the_scheme_of_the_documentation_draws_and_passes_the_type_checker(tmp_path: Path) -> None:
    """Its class as a file of `samplers/`, where no `rt.register` completes it."""
    page = (ROOT / "docs/schemes.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0].replace("@rt.register\n", "")
    names: dict[str, Any] = {}
    exec(code, names)
    vocab = rt.Vocabulary.load("demo")
    finest, canonical = rt.Characters(vocab).sample("hello", seed=0), vocab.encode("hello")
    for p, expected in ((0, canonical), (1, finest)):
        drawn = names["SpellDropout"](vocab, p=p).sample("hello", seed=0)
        assert drawn.tolist() == expected.tolist()
    pytest.importorskip("pyright", reason="pyright is not installed")
    (tmp_path / "spell_dropout.py").write_text(code, encoding="utf-8")
    settings = {"include": [str(tmp_path)], "extraPaths": [str(ROOT / "src")]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "-p", str(tmp_path), "--pythonpath", sys.executable]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def names_on_the_page() -> list[str]:
    """What the reference describes."""
    return [name for topic in REFERENCE.values() for name in topic["names"]]


@pytest.mark.parametrize("name", sorted({*names_on_the_page()} - NOT_RUN))
def test_every_name_of_the_reference_has_an_example_that_runs(name: str) -> None:
    try:
        docstring = inspect.getdoc(object_named(name)) or ""
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")
    examples = doctest.DocTestParser().get_examples(docstring)
    assert any(not e.options.get(doctest.SKIP) for e in examples)


def reference() -> Iterator[str]:
    """The names on the page, without those that need a library that is not installed."""
    for name in names_on_the_page():
        with contextlib.suppress(ModuleNotFoundError):
            object_named(name)
            yield name


def object_named(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def modules() -> Iterator[types.ModuleType]:
    """All modules that can have examples; `report` after `study`, whose results it reads."""
    names = [m.name for m in pkgutil.walk_packages(rt.__path__, "robustok.")]
    for name in sorted(names, key=lambda name: (".report" in name, name)):
        # Importing the entry point would run it; kernels have no examples.
        if "__main__" not in name and ".kernels" not in name:
            try:
                yield importlib.import_module(name)
            except ModuleNotFoundError as error:
                assert not str(error.name).startswith("robustok"), error


@pytest.mark.filterwarnings("ignore")
def test_the_examples_of_the_docstrings_give_the_results_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    setup = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert setup
    exec(setup[1], start := {})
    attempted, failures = 0, []
    runner = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS)
    for module in modules():
        for example in doctest.DocTestFinder(exclude_empty=True).find(module):
            if not example.examples:
                continue
            names = start | {"model": copy.deepcopy(start["model"])}  # some examples train it
            example.globs = names | vars(module) | names
            output: list[str] = []
            result = runner.run(example, out=output.append)
            attempted += result.attempted
            if result.failed:
                failures.append("".join(output))
    assert not failures, "\n".join(failures)
    assert attempted > 300


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    assert README.count("\n") <= 110


def test_the_example_of_the_readme_gives_the_results_in_its_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(code, names := {})
    vocab, lattice, ids = names["vocab"], names["lattice"], names["ids"]
    assert (lattice.count(), lattice.count(distance=2)) == (180, 3)
    assert ids.tolist() == [72, 1190, 897]
    assert b"|".join(vocab.tokens[i] for i in ids) == b"h|ello| world"
    assert names["sampler"].log_prob(ids) == pytest.approx(-math.log(3))
    assert names["rt"].distance(vocab, vocab.encode("hello world"), ids) == 2
    assert len(names["batch"]) == 20


@pytest.mark.parametrize("line", re.findall(r"^robustok .*", README, re.M))
def test_the_commands_of_the_readme_work_as_typed_in_an_empty_folder(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(shlex.split(line, comments=True)[1:]) == 0
    assert not capsys.readouterr().err


def test_the_numbers_of_the_readme_are_those_of_the_pages() -> None:
    page = (ROOT / "docs/results/fine-tuning.md").read_text(encoding="utf-8")
    page = page.partition('id="finetuning-curve-1500"')[2] or page
    rows = re.findall(r"^\| ([\w().=-]+) \| (\d.*) \|$", README, re.M)
    assert [scheme for scheme, _ in rows] == ["canonical", "uniform-k(alpha=1)"]
    for scheme, cells in rows:
        accuracies = cells.split(" | ")
        assert len(accuracies) == 3
        start = re.compile(rf"\| {re.escape(scheme)}( \(\d seeds\))? \|")
        lines = [line for line in page.splitlines() if start.match(line)]
        assert any(all(f" {accuracy}" in line for accuracy in accuracies) for line in lines)
    index = (ROOT / "docs/results/index.md").read_text(encoding="utf-8")
    (claims,) = re.findall(r"\[(\d+) claims with their verdicts\]", README)
    assert f"| all | {claims} |" in index
    table = (ROOT / "docs/speed.md").read_text(encoding="utf-8").partition("## Five")[0]
    speed = README.partition("## Speed")[2].partition("## More")[0]
    assert "52 MB/s, `uniform` 21 and" in speed and "27, 11 and 6.7 times" in speed
    assert "| 27 (52) |" in table and "| 11 (21) |" in table and "6.7, 6.6 (12, 13, 13) |" in table


def test_make_has_the_targets_of_the_readme() -> None:
    targets = re.findall(r"^make (\w+)", README, re.M)
    assert len(targets) == 2
    for target in targets:
        subprocess.run(["make", "--dry-run", "--silent", target], cwd=ROOT, check=True)


LIMITS = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")


def power(number: int) -> str:
    """A power of two as the page writes it."""
    assert number.bit_count() == 1
    return "2" + str(number.bit_length() - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


@pytest.mark.parametrize(("row", "limits"), [
    ("`alpha`", [f"0 to {checks.MAX_STRENGTH:,.0f}"]),
    ("counts in specs", [f"up to {power(checks.MAX_COUNT + 1)} − 1"]),
    ("token of text", [f"{vocabulary.MOST_BYTES:,} bytes"]),
    ("spec string", [f"{spec._LONGEST:,} characters, {spec._DEEPEST} nested schemes"]),
    ("a guarded sequence", [f"{check.MAX_LENGTH:,} ids"]),
    ("findings listed", [f"{findings.MAX_FINDINGS:,}; all are counted"]),
    ("`Lattice.counts`", [f"{lattice._MOST_BITS >> 23} MB of counts"]),
    ("`Lattice.neighbors` | 2", [f"{power(lattice._MOST_CELLS)} pairs of positions and distances"]),
    ("line of JSON Lines", [f"{inputs.MAX_LINE >> 20} MiB decompressed"]),
    ("study", [f"{planner.MAX_CELLS:,} cells"]),
    ("request to the playground", [
        f"{server._BODY:,} bytes", f"text of {server.LONGEST} characters",
        f"2 to {server.OPTIONS} options",
    ]),
])  # fmt: skip
def test_a_limit_of_the_page_is_that_of_the_code(row: str, limits: Any) -> None:
    (line,) = [line for line in LIMITS.splitlines() if line.startswith(f"| {row}")]
    for limit in limits:
        assert limit in line


PUBLIC = ("robustok", "robustok.scoring", "robustok.evaluation", "robustok.training",
          "robustok.models", "robustok.tasks", "robustok.guard", "robustok.guard.rollouts",
          "robustok.corpus", "robustok.attack", "robustok.study",
          "robustok.report", "robustok.play")  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_public_functions_document_every_parameter(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")
    missing: list[str] = []
    # A module without a list of names imports helpers too.
    is_list = hasattr(module, "__path__")
    listed = re.findall(r"import \w+ as (\w+)", inspect.getsource(module))  # some load on first use
    origin, known = ("robustok", listed) if is_list else (name, vars(module))
    for key in getattr(module, "__all__", known):
        value = getattr(module, key)
        if key.startswith("_") or not getattr(value, "__module__", "").startswith(origin):
            continue
        if inspect.isclass(value):
            missing += _undocumented_in_class(key, value)
        elif inspect.isfunction(value):
            missing += _undocumented(key, inspect.signature(value).parameters, _doc(value))
    assert not missing, f"{len(missing)} undocumented: {', '.join(missing)}"


def _undocumented_in_class(label: str, cls: type) -> Iterator[str]:
    """The parameters of the constructor and the methods; the class may document both."""
    class_doc, bases = _doc(cls), inspect.getmro(cls)
    if hasattr(cls, "_fields"):  # a NamedTuple has no __init__
        yield from _undocumented(label, cls._fields, class_doc)
    for name, member in vars(cls).items():
        function = getattr(member, "__func__", member)
        if not inspect.isfunction(function) or not function.__module__.startswith("robustok"):
            continue  # an attribute, or a method that the standard library put there
        if name == "__init__" or not name.startswith("_"):
            # A method that overrides another one has its parameters.
            docs = [_doc(vars(base)[name]) for base in bases if name in vars(base)]
            if is_dataclass(cls) and name == "__init__":  # a base class documents its own fields
                docs = [_doc(base) for base in bases if is_dataclass(base)]
            elif name == "__init__":
                docs = docs[:1]
            doc = "\n\n".join([class_doc, *docs])
            described = (
                {f.name for f in fields(cls) if "help" in f.metadata}
                if is_dataclass(cls)
                else set()
            )
            names = [n for n in inspect.signature(function).parameters if n not in described]
            yield from _undocumented(f"{label}.{name}", names, doc)


def _doc(value: Any) -> str:
    """The docstring, unless it is the signature that a dataclass generates."""
    doc = inspect.getdoc(value) or ""
    return "" if inspect.isclass(value) and doc.startswith(f"{value.__name__}(") else doc


def _undocumented(label: str, parameters: Any, doc: str) -> Iterator[str]:
    """The parameters that a docstring does not name outside its examples."""
    prose = "\n\n".join(part for part in re.split(r"\n\s*\n", doc) if ">>>" not in part)
    for name in parameters:
        hidden = name in ("self", "cls") or name.startswith("_")
        if not hidden and not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", prose):
            yield f"{label}({name})"
