"""Importing robustok loads no deep-learning library, and this test can tell."""

import importlib
import subprocess
import sys

import pytest
from tests.oracles.processes import run

import robustok

TRAIN = ("torch", "transformers", "accelerate", "datasets", "peft", "safetensors")  # the extra
HEAVY = (*TRAIN, "matplotlib", "pydantic", "rich", "click", "numba", "llvmlite")


def loaded_after(statement: str) -> set[str]:
    """The modules of a process that ran a statement, which prints nothing."""
    done = run(f"import sys\n{statement}\nprint('>', *sys.modules)")
    assert done.stdout.startswith("> ") and not done.stderr
    return set(done.stdout.split())


def test_importing_robustok_loads_nothing_heavy_prints_nothing_and_leaves_no_handlers() -> None:
    loaded = loaded_after(
        "import logging\nfrom robustok import Uniform\nassert not logging.getLogger().handlers"
    )
    assert "robustok.samplers.base" in loaded
    assert loaded.isdisjoint(HEAVY)


PAGE = """
import contextlib, io
from robustok.cli.app import run
with contextlib.redirect_stdout(io.StringIO()):
    run({0})
"""


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        (PAGE.format(["--help"]), ["numpy", "tokenizers", "rich", "robustok.api",
                                   "robustok.cli.options", "robustok.models", "robustok.study"]),
        (PAGE.format(["study", "list"]), ["torch", "transformers", "pyarrow", "matplotlib"]),
        ("import robustok.attack.settings", ["torch"]),
    ],
    ids=["the page of help", "the list of studies", "the settings of attacks"],
)  # fmt: skip
def test_what_starts_often_loads_little(statement: str, absent: list[str]) -> None:
    assert loaded_after(statement).isdisjoint(absent)


def test_the_package_has_the_names_of_its_api() -> None:
    """In `from robustok import *`, in what a notebook completes, and none that are unknown."""
    from robustok import api

    names: dict[str, object] = {}
    exec("from robustok import *", names)
    assert names.keys() - {"__builtins__"} == {*api.__all__}
    assert {*dir(robustok)} >= {*api.__all__, "__version__"}


@pytest.mark.parametrize("package", ["attack", "evaluation", "report", "training"])
def test_a_package_has_its_names_alone(package: str) -> None:
    module = importlib.import_module(f"robustok.{package}")
    assert all(hasattr(module, name) for name in module.__all__)
    for name in ("np", "Any", "RobustokError", "_margin"):
        assert not hasattr(module, name)


def test_what_needs_torch_is_imported_when_it_is_used() -> None:
    names = "{'robustify', 'TorchCollator'} <= {*dir(robustok)}"
    assert loaded_after(f"import robustok; assert {names}").isdisjoint({"torch", "transformers"})
    assert robustok.robustify.__name__ == "robustify"
    assert robustok.TorchCollator.__name__ == "TorchCollator"


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("torch", "import robustok; robustok.robustify"),
        ("pyarrow", "from robustok.corpus import run_corpus"),
        ("pydantic", "from robustok.study import find_study"),
        ("pandas", "from robustok.report import Results"),
        ("uvicorn", "from robustok.play import serve"),
        ("lm_eval", "from robustok.integrations.lm_eval import RobustokLM"),
    ],
)
def test_a_name_whose_package_is_missing_says_which_to_install(package: str, use: str) -> None:
    without_it = f"import sys; sys.modules[{package!r}] = None; {use}"
    done = subprocess.run([sys.executable, "-c", without_it], capture_output=True, text=True)
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"ModuleNotFoundError: this needs {package}: pip install 'robustok[")


def test_the_import_and_local_work_use_no_network() -> None:
    """A process in which no socket can be made imports, draws, counts and judges."""
    code = (
        "import socket\n"
        "def refused(*_, **__): raise AssertionError('a socket')\n"
        "socket.socket = socket.create_connection = socket.getaddrinfo = refused\n"
        "import robustok as rt\n"
        "vocab = rt.Vocabulary.load('demo')\n"
        "ids = rt.sampler('uniform', vocab).sample('hello', seed=0)\n"
        "assert vocab.lattice('hello').count() and rt.Guard(vocab).check(ids)"
    )
    assert "numba" in loaded_after(code)


def test_the_tests_above_can_fail() -> None:
    assert "pydantic" in loaded_after("import robustok, pydantic")


def test_the_command_starts_without_the_train_extra() -> None:
    """`robustok study list` works where only the core is installed."""
    code = (
        f"import sys; sys.modules |= dict.fromkeys([*{TRAIN}, 'pydantic', 'yaml']); "
        "sys.argv = ['robustok', 'study', 'list']; from robustok.cli import main; main()"
    )
    assert "quick" in run(code).stdout


def test_a_name_that_robustok_does_not_have_is_said_of_robustok() -> None:
    with pytest.raises(AttributeError, match="'robustok' has no attribute 'Vocabular'"):
        robustok.Vocabular  # noqa: B018
    with pytest.raises(robustok.RobustokError, match=r"Vocabulary\.load"):
        robustok.Vocabulary("demo")  # type: ignore[arg-type]


FIRST_CALLS = """
import sys
import robustok as rt
from robustok.runtime.environment import import_lock
vocab = rt.Vocabulary.load("demo")
unlocked = []

class Finder:
    def find_spec(self, name, path=None, target=None):
        if not import_lock._is_owned():
            unlocked.append(name)

sys.meta_path.insert(0, Finder())
ids = vocab.encode("hello")
for scheme in ("uniform", "stochastok(alpha=0.3)", "uniform-k(alpha=0.5)", "bpe-dropout(p=0.1)"):
    rt.sampler(scheme, vocab).sample_batch(["hello"] * 9, seed=0)
rt.sampler("uniform", vocab).log_prob(ids)
lattice = vocab.lattice("hello")
lattice.count(distance=2), lattice.neighbors(ids), list(lattice.enumerate(limit=3))
rt.Guard(vocab).check(ids), rt.distance(vocab, ids, ids)
print(*set(unlocked) - {"gigatoken"})  # is looked for, and imported under the lock
"""


def test_a_first_call_imports_only_while_a_fork_waits() -> None:
    for _ in range(2):  # the first process may compile kernels, which imports numba's compiler
        done = run(FIRST_CALLS)
    assert done.stdout.split() == []
