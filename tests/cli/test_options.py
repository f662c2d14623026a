"""Options made from settings classes, shared options, and progress in a log."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import click
import pytest
from click.testing import CliRunner
from tests.cli.conftest import Shell

from robustok.attack.settings import ObjectiveSettings
from robustok.cli.app import COMMANDS, command
from robustok.cli.options import Argument, option, with_settings
from robustok.runtime import hub
from robustok.training.recipe import Finetuning, Recipe


@dataclass(frozen=True)
class Settings:
    steps: int = option("number of steps", default=3, min=1)
    distances: tuple[int, ...] = option("distances", "--distance", default=(2, 4), panel="More")
    kind: str = option("of search", default="greedy", choices=("greedy", "random"))
    stop: bool | None = option("end early", "--stop/--no-stop", default=True, panel="More")
    limit: int | None = option("greatest number", default=None)
    hidden: int = 7


Name = Annotated[str, Argument("NAME")]


@pytest.fixture
def call() -> Callable[..., Any]:
    """Calls a command with `Settings`; returns what it got, or the error."""
    results: list[Any] = []

    def one(name: Name, given: Annotated[dict, Settings], as_json: bool = False) -> None:
        results.append((name, given))

    shell = click.Group()
    shell.add_command(with_settings(one))

    def call(*args: str) -> Any:
        results.clear()
        result = CliRunner().invoke(shell, list(args))
        return (
            results[0] if results else result.exception if "--help" not in args else result.output
        )

    return call


def test_a_command_gets_the_given_fields(call: Callable[..., Any]) -> None:
    assert call("one", "a") == ("a", {})
    given = ("--distance", "1", "--distance", "3", "--no-stop", "--limit", "0")
    assert call("one", "a", *given) == ("a", {"distances": (1, 3), "stop": False, "limit": 0})
    assert "did you mean 'greedy'" in str(call("one", "a", "--kind", "gredy"))


def test_help_has_panels_defaults_and_ranges(call: Callable[..., Any]) -> None:
    text = call("one", "--help")
    assert text.index("Options:") < text.index("--steps") < text.index("More:")
    assert text.index("More:") < text.index("--distance")
    assert "[default: 3; x>=1]" in text and "[default: 2, 4]" in text
    assert "[default: stop]" in text and "--hidden" not in text
    assert text.index("--limit") < text.index("--json") < text.index("--help")


@pytest.mark.parametrize(
    ("name", "settings"),
    [("red-team", ObjectiveSettings), ("finetune", Finetuning), ("pretrain", Recipe)],
)  # fmt: skip
def test_every_field_with_help_is_an_option(
    name: str, settings: Any, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = shell.ok(name, "--help")
    assert len(text.splitlines()) <= 100
    for one in fields(settings):
        flags = one.metadata.get("flags", (f"--{one.name.replace('_', '-')}",))
        if one.metadata.get("help") and flags:
            assert f"{flags[0].partition('/')[0]} " in text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_all_commands_begins_as_that_of_each(name: str) -> None:
    first, *_ = (command(name).help or "").split("\n\n")
    assert " ".join(first.split()) == COMMANDS[name][1]


def test_no_command_has_two_options_of_one_name() -> None:
    for name in COMMANDS:
        flags = [flag for param in command(name).params for flag in param.opts]
        assert len(flags) == len(set(flags)), name


@pytest.mark.parametrize("given", ["--items {m}/items.jsonl -n 2", "--texts {t} -s canonical",
                                   "--items {m}/items.jsonl -s adversarial(steps=1)"])  # fmt: skip
def test_the_type_of_the_weights_and_the_seed_are_printed(
    given: str, model: Path, tmp_path: Path, shell: Shell
) -> None:
    text = tmp_path / "a.txt"
    text.write_text("which word")
    call = f"evaluate {model} {given.format(m=model, t=text)}"
    first, *_ = shell.ok(f"{call} --dtype bfloat16").splitlines()
    assert first == f"{model.name}: weights in bfloat16, seed 0"
    assert shell.rows(f"{call} --dtype bfloat16")[0]["precision"] == "bfloat16"
    assert "unknown dtype 'float16': did you mean" in shell.fails(f"{call} --dtype float16")


def test_evaluate_prints_the_paired_test_that_its_help_promises(model: Path, shell: Shell) -> None:
    given = ["--items", str(model / "items.jsonl"), "--seed", "0", "-n", "2"]
    _, canonical, uniform = shell.ok("evaluate", str(model), *given).splitlines()
    assert "p = " not in canonical
    assert "against the first" in uniform and "p = " in uniform


def test_a_scheme_of_a_file_is_imported_by_any_command(
    tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setenv("ROBUSTOK_IMPORT", "")
    file = tmp_path / "halves.py"
    file.write_text(
        "import robustok as rt\n"
        "@rt.register\n"
        "class Halves(rt.Sampler):\n"
        "    name = 'halves'\n"
        "    def draw(self, ids, random):\n"
        "        return rt.Characters(self.vocab).draw(ids, random)\n"
    )
    line = f"sample street -t {tokenizer} -s halves --json"
    assert "unknown scheme 'halves'" in shell.fails(line)
    assert "give a file of Python" in shell.fails(f"{line} --import {tmp_path}/none.py")
    assert "--import FILE.py" in shell.fails(f"{line} --import")
    assert shell.json(f"{line} --import {file}")["scheme"] == "halves"
    code = "import robustok as rt; print(rt.sampler('halves', rt.Vocabulary.load('demo')).spec)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout == "halves\n"  # a worker process knows it, too


def test_count_reads_standard_input(
    tokenizer: str, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    texts = ["which word", "street"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    rows = shell.rows("count", "-", "-t", tokenizer)
    assert [row["text"] for row in rows] == texts
    for text, row in zip(texts, rows, strict=True):
        assert shell.json("count", text, "-t", tokenizer)["total"] == row["total"]


def test_the_folder_that_is_the_current_one_is_a_model(
    model: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.chdir(model)
    (row,) = shell.rows("evaluate", ".", "--items", "items.jsonl", "-s", "canonical", "--seed", "0")
    assert row["model"] == model.name


def test_lm_eval_takes_packaged_names(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lm_eval")
    from robustok.integrations.lm_eval import RobustokLM

    monkeypatch.setattr("robustok.integrations.lm_eval.packaged_folder", lambda name: model)
    assert hub.is_packaged("smollm2-135m")
    wrapped: Any = RobustokLM  # its decorator hides its type
    assert wrapped("smollm2-135m", device="cpu").vocab.size == 290


def test_lm_eval_gets_each_scheme_in_its_model_args() -> None:
    from robustok.cli.evaluate import _with_scheme

    given = ["run", "--model_args", "pretrained=a", "--tasks", "b"]
    assert _with_scheme(given, "uniform")[2] == "pretrained=a,scheme=uniform"
    assert _with_scheme(["--model_args=pretrained=a"], "uniform") == [
        "--model_args=pretrained=a,scheme=uniform"
    ]
