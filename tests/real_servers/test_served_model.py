"""SmolLM2 behind real vLLM gives the answers of the same weights in this process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.real_servers.conftest import vllm_server

import robustok as rt
from robustok.attack import attack_items
from robustok.evaluation import Evaluation, evaluate, perplexity, solved_examples
from robustok.models import load_model
from robustok.models.served import ServedModel
from robustok.runtime.hub import packaged_folder
from robustok.tasks import frequent_words, langgame
from robustok.tokenizer.vocabulary import start_token_ids

QUESTIONS = 200


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
    options = ("--max-model-len", "1024", "--served-model-name", "smollm2")
    with vllm_server(vllm_python, vllm_environment, folder, *options) as address:
        yield ServedModel(f"{address}/v1")


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
