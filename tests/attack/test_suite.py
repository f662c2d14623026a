"""The suite, files of attacks, and generation, against naive loops."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.attack.conftest import TEXT, WORDS, rugged_rows
from tests.oracles.models import tiny_model
from tests.oracles.scoring import score_naively

from robustok import RobustokError, Vocabulary
from robustok.attack import (
    Attack,
    Margin,
    Prompt,
    TargetLikelihood,
    as_objective,
    attack_prompt,
    attack_prompts,
    generate_answers,
    greedy_answer,
    read_attacks,
    read_prompts,
    run_suite,
    suite_settings,
    transfer,
    write_attacks,
)
from robustok.attack.suite import SuiteResult
from robustok.models import train_tokenizer
from robustok.tasks import read_items

PROMPTS = [Prompt("a", "happen, glad"), Prompt("b", "glad rain"), Prompt("c", "happen rain")]


def test_a_suite_is_the_worst_of_its_searches(vocab) -> None:
    objective = as_objective(rugged_rows, threshold=0.98)
    result = run_suite(vocab, iter(PROMPTS), lambda _: objective, max_scored=60, seed=0)
    assert list(result.parts) == list(suite_settings())
    for name, settings in suite_settings(max_scored=60).items():
        alone = attack_prompt(vocab, PROMPTS[0].text, objective, settings=settings, seed=0)
        assert result.parts[name][0].ids.tolist() == alone.ids.tolist()
    for i, worst in enumerate(result.worst):
        assert worst.score == max(attacks[i].score for attacks in result.parts.values())
    *parts, last = result.table()
    broken = [any(a[i].success for a in result.parts.values()) for i in range(len(PROMPTS))]
    assert last["success"] == pytest.approx(np.mean(broken))
    assert last["low"] <= last["success"] <= last["high"]
    assert last["n_scored"] == sum(part["n_scored"] for part in parts)
    curves = result.curves([1, 10, 60])
    for name, attacks in result.parts.items():
        assert curves[name][-1]["success"] == np.mean([bool(a.success) for a in attacks])
    for i, row in enumerate(curves["worst of all"]):
        assert row["success"] >= max(curves[name][i]["success"] for name in result.parts)


def test_a_transfer_to_the_attacked_model_gives_its_scores(model, vocab) -> None:
    objective = TargetLikelihood(model, vocab, " rain", threshold=-9.0, prefix=[3], suffix=[4])
    attacks = attack_prompts(vocab, PROMPTS, lambda _: objective, seed=0, steps=2)
    again = transfer(attacks, vocab, vocab, lambda _: objective)
    for attack, one in zip(attacks, again, strict=True):
        assert one.ids.tolist() == attack.ids.tolist()
        assert (one.prefix, one.suffix, one.success) == ([3], [4], attack.success)
        assert one.score == pytest.approx(attack.score, abs=1e-4)
        assert one.canonical_score == pytest.approx(attack.canonical_score, abs=1e-4)


def test_a_transferred_attack_says_nothing_of_the_attacked_model(vocab, llama) -> None:
    def margin(seed: int) -> Any:
        other = tiny_model("llama", vocab.size, seed=seed)
        return lambda prompt: Margin(other, vocab, [" up", " rain"], len(prompt.key) % 2)

    prompts = [Prompt("a" * i, text) for i, text in enumerate((*WORDS, TEXT))]
    attacks = attack_prompts(vocab, prompts, margin(1), seed=0)
    moved = transfer(attacks, vocab, vocab, margin(5))
    assert {(a.success, m.success) for a, m in zip(attacks, moved, strict=True)} > {(True, False)}
    options = [vocab.encode(" up"), vocab.encode(" rain")]
    for one in moved:
        wanted = score_naively(tiny_model("llama", vocab.size, seed=5), [one.ids], options)[0]
        assert one.log_probs == pytest.approx(wanted, abs=1e-4)
        assert one.margins == [one.score]
        assert (one.reached_at is not None) == one.success
        assert one.overflowed == 0


def test_a_transfer_cuts_the_text_at_the_same_bytes_in_another_vocabulary(vocab) -> None:
    other = Vocabulary.load(train_tokenizer(["happy gladness rainy"] * 3 + [" ".join(WORDS)], 300))
    objective = as_objective(rugged_rows)
    attack = attack_prompt(vocab, TEXT, objective, seed=0)
    (moved,) = transfer([attack], vocab, other, lambda _: objective)
    assert other.decode(moved.ids) == TEXT
    assert moved.canonical_ids.tolist() == other.encode(TEXT).tolist()

    def cuts(vocab: Vocabulary, ids: np.ndarray) -> set[int]:
        return set(np.cumsum([len(vocab.tokens[i]) for i in ids]).tolist())

    assert cuts(vocab, attack.ids) <= cuts(other, moved.ids)


QUESTIONS = {
    "copa": {"id": "c1", "query": "The sun rose.", "question": "cause", "prompt": "It rose as"},
    "hellaswag": {"id": "h1", "query": "Roofs: He is up.", "ctx": "He is up."},
    "piqa": {"id": "p1", "query": "dresser", "prompt": "Question: dresser"},
    "winogrande": {"id": "w1", "query": "Sarah knew more than Maria, so _ won."},
    "other": {"question": "Which is up?"},
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_prompts_of_a_file_of_questions_are_those_of_its_items(tmp_path, name: str) -> None:
    row = QUESTIONS[name] | {"choices": ["Sarah", "Maria"], "label": 1, "target": " no"}
    path = tmp_path / f"{name}.jsonl"
    path.write_text(json.dumps(row) + "\n")
    (item,), (prompt,) = read_items(path), read_prompts(path)
    wanted = {"choices": list(item.choices), "label": 1, "target": " no"}
    assert (prompt.key, prompt.text) == (item.key, item.question)
    assert {name: prompt.fields[name] for name in wanted} == wanted


def test_a_prompt_keeps_its_words_and_options_and_needs_a_text(tmp_path) -> None:
    path = tmp_path / "prompts.jsonl"
    rows = [
        {"id": 7, "prompt": "Say it.", "choices": ["a", "b"], "label": 0},
        {"query": "And now?"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    options = {"choices": ["a", "b"], "label": 0}
    assert read_prompts(path) == [Prompt("7", "Say it.", options), Prompt("1", "And now?", {})]
    assert read_prompts(path, limit=1) == read_prompts(path)[:1]
    for row in ({"target": " a"}, {"question": "", "choices": ["a", "b"], "label": 0}):
        path.write_text(json.dumps(row))
        with pytest.raises(RobustokError, match=r"prompts\.jsonl:1.*no prompt"):
            read_prompts(path)


def test_a_damaged_file_of_attacks_names_its_line(vocab, tmp_path) -> None:
    attack = attack_prompt(vocab, TEXT, as_objective(rugged_rows), seed=0)
    write_attacks(tmp_path / "a.jsonl", [attack])
    row = json.loads((tmp_path / "a.jsonl").read_text())
    for change in ({"ids": [-1] * len(row["ids"])}, {"steps": 1}, {"ids": []}):
        (tmp_path / "b.jsonl").write_text(json.dumps(row | change) + "\n")
        with pytest.raises(RobustokError, match=r"b\.jsonl:1: not an attack"):
            read_attacks(tmp_path / "b.jsonl")
    step = row["steps"][0]
    assert len(Attack.from_row(row | {"steps": [step | {"note": "of another release"}]}).steps) == 1
    for field in step:
        without = {name: value for name, value in step.items() if name != field}
        with pytest.raises(RobustokError, match=f"^it has no field '{field}'$"):
            Attack.from_row(row | {"steps": [without]})
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(RobustokError, match="has no attacks"):
        read_attacks(tmp_path / "empty.jsonl")


@pytest.mark.parametrize("lowest", [-1e30, -math.inf])
def test_a_file_keeps_a_probability_of_zero_and_an_exclusion_apart(
    vocab, tmp_path, lowest: float
) -> None:
    start = vocab.encode(TEXT)
    only = as_objective(lambda rows: [-2.0 if np.array_equal(r, start) else lowest for r in rows])
    attack = attack_prompt(vocab, TEXT, only, start="characters", steps=1, seed=0)
    assert (attack.score, attack.canonical_score) == (lowest, -2.0)
    write_attacks(tmp_path / "a.jsonl", [attack])
    (again,) = read_attacks(tmp_path / "a.jsonl")
    assert (again.score, again.margins, again.canonical_score) == (lowest, attack.margins, -2.0)
    table = [SuiteResult(0, 9, {"one": [a]}, {"one": 1.0}).table() for a in (attack, again)]
    assert table[0] == table[1] == json.loads(json.dumps(table[0], allow_nan=False))


def test_the_worst_of_equal_attacks_is_one_that_succeeded(vocab) -> None:
    held = attack_prompt(vocab, TEXT, as_objective(rugged_rows, threshold=9), seed=0)
    parts = {"a": [held], "b": [replace(held, success=True)], "c": [held]}
    assert SuiteResult(0, 9, parts, dict.fromkeys(parts, 1.0)).worst == parts["b"]


def test_success_of_the_canonical_tokenization_is_no_success_of_the_attack_in_words(vocab) -> None:
    for threshold, words in ((9, "held"), (0.5, "broken"), (-9, "canonical tokenization itself")):
        attack = attack_prompt(vocab, TEXT, as_objective(rugged_rows, threshold=threshold), seed=0)
        assert attack.outcome.endswith(words), (threshold, attack.outcome)


def test_the_answer_is_the_greedy_one(model, vocab) -> None:
    ids, prefix, suffix = vocab.encode(TEXT), [5, 9], [7]
    whole = [*prefix, *ids.tolist(), *suffix]
    answer: list[int] = []
    while len(answer) < 6 and 0 not in answer:  # the end token
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*whole, *answer]])).logits[0, -1]
        answer.append(int(logits.argmax()))
    wanted = vocab.decode_bytes([i for i in answer if i not in vocab.special])
    got = greedy_answer(model, vocab, ids, prefix=prefix, suffix=suffix, max_new_tokens=6)
    assert got == wanted.decode("utf-8", "replace")


def test_answers_are_judged_and_a_bad_judge_is_one_line(vocab, llama) -> None:
    attack = attack_prompt(vocab, TEXT, as_objective(rugged_rows), seed=0)
    (row,) = generate_answers(
        llama, vocab, [attack], max_new_tokens=3, judge=lambda prompt, answer: prompt == TEXT
    )
    assert (row.canonical_verdict, row.attacked_verdict) == (1.0, 1.0)
    for judge in (lambda *_: "yes", lambda *_: math.nan):
        with pytest.raises(RobustokError, match="which is no number: return"):
            generate_answers(llama, vocab, [attack], judge=judge, max_new_tokens=1)


def test_an_answer_that_does_not_fit_is_one_line(vocab) -> None:
    model = tiny_model("gpt2", vocab.size)
    with pytest.raises(RobustokError, match="more than the model's 256 positions"):
        greedy_answer(model, vocab, [5] * 250, max_new_tokens=10)
