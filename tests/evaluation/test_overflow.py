"""Tokenizations longer than the model's max_length: the overflow policies, for RoPE and GPT-2."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.scoring import score_naively

from robustok import RobustokError, Vocabulary, sampler
from robustok.cli.app import run
from robustok.evaluation import attack, evaluate, evaluate_tasks
from robustok.evaluation.questions import item_key
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import Item, write_items

MAX_LENGTH = 64
WORDS = ["happen", "glad", "happen,", " glad", " happen", "carry", " half", "rain"]


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def short(request: pytest.FixtureRequest, vocab: Vocabulary) -> Any:
    shape = Shape(1, 16, 2, 2, 32, MAX_LENGTH, architecture=request.param)
    return small_model(vocab.size, shape, seed=0).eval()


@pytest.fixture(scope="module")
def questions(vocab: Vocabulary, items: list[Item]) -> list[Item]:
    """One question that fits canonically but not as characters, and one that always fits."""
    long = replace(items[0], key="long", question="happen, glad " * 9)
    assert len(vocab.encode(long.question)) + 8 < MAX_LENGTH < len(long.question)
    return [long, replace(items[1], key="fits", question="glad")]


def measured(model: Any, vocab: Vocabulary, items: list[Item], overflow: str) -> Any:
    return evaluate(model, vocab, items, "uniform", draws=3, seed=0, overflow=overflow)


def test_the_default_is_one_line(short, vocab, questions) -> None:
    with pytest.raises(RobustokError, match=r"'long' has .* max_length of 64: choose overflow"):
        evaluate(short, vocab, questions, "uniform", draws=3, seed=0)
    with pytest.raises(RobustokError, match="did you mean 'left'"):
        measured(short, vocab, questions, "lef")


def test_drop_leaves_the_item_out_and_counts_its_draws(short, vocab, questions) -> None:
    result = measured(short, vocab, questions, "drop")
    assert [o.key for o in result.outcomes] == ["fits"]
    assert (result.n, result.overflowed) == (1, 3)
    with pytest.raises(RobustokError, match="no item fits"):
        measured(short, vocab, questions[:1], "drop")
    pairs = evaluate_tasks(
        short, vocab, {"t": questions}, ["canonical", "uniform"], draws=3, seed=0, overflow="drop"
    )
    assert (pairs[0].evaluation.n, pairs[1].evaluation.n) == (2, 1)
    assert pairs[1].against is not None and pairs[1].against.n == 1


def test_canonical_stands_in(short, vocab, questions) -> None:
    result = measured(short, vocab, questions, "canonical")
    canonical = evaluate(short, vocab, questions, "canonical", seed=0)
    assert result.overflowed == 3
    assert result.outcomes[0].margins == pytest.approx(canonical.outcomes[0].margins * 3, abs=1e-4)


def test_left_cuts_the_start_of_the_prompt(short, vocab, questions) -> None:
    long = questions[0]
    result = measured(short, vocab, [long], "left")
    keys = np.array([item_key(long.key)], np.int64)
    rows = sampler("uniform", vocab).sample_batch([long.question], seed=0, draws=3, keys=keys)
    options = [vocab.encode(choice) for choice in long.choices]
    room = MAX_LENGTH - max(map(len, options))
    scores = score_naively(short, [row[-room:].tolist() for row in rows], options)
    assert result.outcomes[0].predictions == tuple(np.argmax(scores, axis=1).tolist())
    prefix = vocab.encode("rain " * 60)
    cut = evaluate(short, vocab, [long], "canonical", seed=0, prefix=prefix, overflow="left")
    assert cut.overflowed == 1


def test_the_commands_take_the_policy(
    questions: list[Item], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = train_tokenizer([*WORDS, *(item.question for item in questions)], 330)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    small_model(size, Shape(1, 16, 2, 2, 32, MAX_LENGTH), seed=0).save_pretrained(tmp_path)
    write_items(tmp_path / "q.jsonl", questions)
    call = ["evaluate", str(tmp_path), "--items", str(tmp_path / "q.jsonl"), "--seed", "0"]
    call += ["-s", "uniform-k(alpha=3)", "--draws", "3", "--json"]
    assert run(call) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert run([*call, "--overflow", "left"]) == 0
    assert json.loads(capsys.readouterr().out)["overflowed"] == 3


def test_an_attack_past_the_context_of_a_rope_model_is_named_once(vocab, questions, caplog) -> None:
    rope = small_model(vocab.size, Shape(1, 16, 2, 2, 32, MAX_LENGTH), seed=0).eval()
    prefix = vocab.encode("rain " * 80)
    for _ in range(2):
        attack(rope, vocab, "glad", [" up", " rain"], 0, prefix=prefix, steps=0)
    assert caplog.text.count("more than the 64 positions") == 1
