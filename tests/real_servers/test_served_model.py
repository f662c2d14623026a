"""SmolLM2 behind real vLLM gives the answers of the same weights in this process."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pytest
from tests.oracles.processes import free_port
from tests.real_servers.conftest import vllm_server

import robustok as rt
from robustok.attack import attack_items
from robustok.evaluation import Evaluation, evaluate, perplexity, solved_examples
from robustok.models import load_model
from robustok.models.served import ServedModel
from robustok.runtime.hub import packaged_folder
from robustok.runtime.inputs import read_rows
from robustok.tasks import frequent_words, langgame, write_items
from robustok.tokenizer.vocabulary import start_token_ids

QUESTIONS = 200
OPTIONS = ("--max-model-len", "1024", "--served-model-name", "smollm2")


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(packaged_folder("smollm2-135m"))


@pytest.fixture(scope="module")
def vocab(folder: Path) -> rt.Vocabulary:
    return rt.Vocabulary.load(folder)


@pytest.fixture(scope="module")
def served(
    vllm_python: str, vllm_environment: dict[str, str], folder: Path
) -> Iterator[ServedModel]:
    with vllm_server(vllm_python, vllm_environment, folder, *OPTIONS) as server:
        yield ServedModel(f"{server.address}/v1")


@pytest.fixture(scope="module")
def local(folder: Path) -> Any:
    return load_model(folder, dtype="float32")


@pytest.fixture(scope="module")
def items() -> list[Any]:
    return langgame(frequent_words(200), QUESTIONS, seed=0, split="test")


def both(name: str, served: ServedModel, local: Any, call: Any) -> tuple[Any, Any]:
    """What both models give; prints the seconds of each and the requests of one."""
    began = time.perf_counter()
    there = call(served)
    middle, requests = time.perf_counter(), served.n_requests
    here = call(local)
    seconds = middle - began, time.perf_counter() - middle
    text = (
        f"{name}: served {seconds[0]:.0f} s, {requests} requests so far, local {seconds[1]:.0f} s"
    )
    sys.stderr.write(f"\n{text}\n")
    return here, there


def same_answers(here: Evaluation, there: Evaluation) -> None:
    mine, theirs = ([one.predictions for one in result.outcomes] for result in (here, there))
    assert mine == theirs
    before, after = (np.array([one.margins for one in result.outcomes]) for result in (here, there))
    np.testing.assert_allclose(after, before, atol=1e-3)


def test_drawn_questions_have_equal_answers(
    served: ServedModel, local: Any, vocab: rt.Vocabulary, items: list[Any]
) -> None:
    start = start_token_ids(vocab, "<|endoftext|>")

    def call(model: Any) -> Evaluation:
        return evaluate(model, vocab, items, "uniform", draws=1, seed=0, prefix=start)

    same_answers(*both("evaluate, 200 questions", served, local, call))


def test_few_shot_questions_have_equal_answers(
    served: ServedModel, local: Any, vocab: rt.Vocabulary, items: list[Any]
) -> None:
    prefix = solved_examples(vocab, items[:5], "stochastok(alpha=1)", seed=0)

    def call(model: Any) -> Evaluation:
        return evaluate(model, vocab, items[5:25], "uniform", draws=2, seed=0, prefix=prefix)

    same_answers(*both("few-shot, 20 questions", served, local, call))


def test_attacks_find_the_same_tokenizations(
    served: ServedModel, local: Any, vocab: rt.Vocabulary, items: list[Any]
) -> None:
    def call(model: Any) -> Any:
        return attack_items(model, vocab, items[:4], steps=2, seed=0)

    here, there = both("attack, 4 questions", served, local, call)
    assert [one.ids.tolist() for one in here.attacks] == [one.ids.tolist() for one in there.attacks]
    for mine, theirs in zip(here.attacks, there.attacks, strict=True):
        np.testing.assert_allclose(theirs.margins, mine.margins, atol=1e-6)


def test_perplexity_is_equal(served: ServedModel, local: Any, vocab: rt.Vocabulary) -> None:
    texts = ["The committee met in the old town hall and discussed the new road.", "It rained."] * 4

    def call(model: Any) -> Any:
        return perplexity(model, vocab, texts, "uniform", draws=3, seed=0, start=0)

    here, there = both("perplexity, 8 texts", served, local, call)
    assert there.perplexity == pytest.approx(here.perplexity, rel=1e-4)


def test_a_killed_server_is_one_line_and_the_same_command_goes_on(
    vllm_python: str, vllm_environment: dict[str, str], folder: Path, items: list[Any],
    tmp_path: Path,
) -> None:  # fmt: skip
    port = free_port()
    write_items(tmp_path / "i.jsonl", items[:40])
    command = [
        sys.executable, "-m", "robustok", "evaluate", f"m=http://127.0.0.1:{port}/v1",
        "--tokenizer", str(folder), "--items", "i.jsonl", "--draws", "1", "-s", "canonical",
        "-s", "adversarial(steps=1, max_scored=8)", "--start-token", "<|endoftext|>", "--out",
    ]  # fmt: skip
    start = (vllm_python, vllm_environment, folder, *OPTIONS)

    with (
        vllm_server(*start, port=port) as server,
        subprocess.Popen([*command, "stopped"], cwd=tmp_path, stderr=PIPE, text=True) as stopped,
    ):
        # The first group of 32 questions of the attack is kept; the rest is asked now.
        while stopped.poll() is None and not [*tmp_path.glob("stopped/**/groups/*/*.json")]:
            time.sleep(0.1)
        server.end(signal.SIGKILL)
        _, errors = stopped.communicate()
    assert stopped.returncode == 2
    (line,) = (one for one in errors.splitlines() if one.startswith("robustok: no answer from"))
    assert line.endswith("start the server, and run the same command again")
    assert "Traceback" not in errors

    with vllm_server(*start, port=port):
        for name in ("stopped", "unbroken"):
            subprocess.run([*command, name], cwd=tmp_path, check=True, capture_output=True)
    compare(measured(tmp_path / "stopped"), measured(tmp_path / "unbroken"))


def measured(folder: Path) -> dict[str, Any]:
    """The rows of a run, without its times, and its answers by file."""
    rows = read_rows(folder / "results.jsonl")
    for row in rows:
        del row["seconds"], row["model"]["training_seconds"]
    answers = {file.name: read_rows(file) for file in (folder / "items").iterdir()}
    assert len(rows) == len(answers) == 2
    return {"rows": rows, **answers}


def compare(mine: Any, theirs: Any) -> None:
    """Both are equal, but for the last digits of scores, which depend on what is batched."""
    if isinstance(theirs, dict):
        assert mine.keys() == theirs.keys()
        mine, theirs = [*mine.values()], [*theirs.values()]
    if isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            compare(one, other)
    else:
        assert mine == (pytest.approx(theirs, abs=1e-4) if isinstance(theirs, float) else theirs)
